"""Stable-Baselines3: the native vector env as its ``VecEnv``, and policy classes.

The policy classes have a network for workers. It needs the extra ``rl``.
"""

import ata_gym.rl.needs_sb3  # noqa: F401 - before the modules that need it
