"""Policies that allocate exactly B tasks: scores and rules, distribution learner, baselines and oracles.

Presets and the rooms race, dispatch and lb_bsp import from here; it imports policy and beliefs.
"""
