"""Policies that train a model each."""
