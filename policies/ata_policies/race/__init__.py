"""Policies that start more tasks than needed and cancel the rest."""
