"""Policies that allocate exactly B tasks.

Scores and rules, the distribution learner, baselines, and oracles.
"""
