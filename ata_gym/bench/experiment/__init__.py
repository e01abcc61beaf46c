"""Policies played on one scenario: the plan, the run loop, results folders and checkpoints.

The studies and the reports import from here; it imports policies and the core.
"""
