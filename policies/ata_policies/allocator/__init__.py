"""Policies outside the envs: for loops that do real work, and a simulated clock of any loop."""
