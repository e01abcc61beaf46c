"""Stable-Baselines3: the native vector env as its ``VecEnv``, and a policy class with a network for workers.

Import ``make_vec_env`` from ``vec_env`` and ``WorkersPolicy`` from ``policy``. It needs the extra ``rl``.
"""

from __future__ import annotations

from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="ata_gym.rl.sb3")
require("stable_baselines3", extra="rl", purpose="ata_gym.rl.sb3")
