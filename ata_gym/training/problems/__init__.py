"""The problems that come with the package."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
