"""Decisions where the distributions of the task times are known or sampled.

Allocating by scores, expected round times, optimal allocations, and costs by simulation.
"""
