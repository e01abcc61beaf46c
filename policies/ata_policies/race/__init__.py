"""Policies that start more tasks than needed and cancel the rest.

Presets import from here; it imports allocation, policy and beliefs.
"""
