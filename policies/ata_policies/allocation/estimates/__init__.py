"""Estimates: a score for each worker from what counts."""
