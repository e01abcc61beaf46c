"""Policies that allocate exactly B tasks: scores and rules, distribution learner, baselines and oracles."""
