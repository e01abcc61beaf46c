"""Imported before what needs Stable-Baselines3: without it, the import says in a sentence what to install."""

from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="Training an agent")
require("stable_baselines3", extra="rl", purpose="Training an agent")
