"""Stable-Baselines3: the native vector env as its ``VecEnv``, and a policy class with a network for workers.

It needs the extra ``rl``.
"""
