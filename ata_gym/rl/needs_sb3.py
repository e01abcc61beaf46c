"""The import of this module raises an error with the cure if Stable-Baselines3 is missing."""

from ata_gym.utils.extras import require

require("torch", extra="rl", purpose="Training an agent")
require("stable_baselines3", extra="rl", purpose="Training an agent")
