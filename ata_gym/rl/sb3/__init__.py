"""Stable-Baselines3: the native vector env as its ``VecEnv``, and policy classes with a network for workers.

It needs the extra ``rl``.
"""

from __future__ import annotations

from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="ata_gym.rl.sb3")
require("stable_baselines3", extra="rl", purpose="ata_gym.rl.sb3")
