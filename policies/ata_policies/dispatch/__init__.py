"""Policies that decide at each completion who starts one more task.

Presets import from here; it imports allocation, policy and beliefs.
"""
