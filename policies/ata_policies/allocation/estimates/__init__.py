"""Estimates: a score for each worker from what counts.

``composition`` imports them by name; they import beliefs, the rules' types and the core.
"""
