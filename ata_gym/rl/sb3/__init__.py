"""Stable-Baselines3: the native vector env as its ``VecEnv``, and a policy class with a network for workers.

Import ``make_vec_env`` from ``vec_env`` and ``WorkersPolicy`` from ``policy``. It needs the extra ``rl``.
"""
