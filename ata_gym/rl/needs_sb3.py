"""The import of this module says in a sentence what to install where Stable-Baselines3 is missing."""

from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="Training an agent")
require("stable_baselines3", extra="rl", purpose="Training an agent")
