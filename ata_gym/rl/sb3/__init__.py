"""Stable-Baselines3: the native vector env as its ``VecEnv``, and policy classes with a network for workers.

Where the extra ``rl`` is missing, its import says in a sentence what to install.
"""

from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="Training an agent")
require("stable_baselines3", extra="rl", purpose="Training an agent")
