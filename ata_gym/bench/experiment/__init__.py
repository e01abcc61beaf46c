"""Policies played on one scenario: the plan, the run loop, results folders and checkpoints."""
