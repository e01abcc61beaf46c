"""Policies outside the envs: for loops that do real work, and for loops that ask what time it would be."""
