"""Models of torch: how they are built, the devices they are on, and their checkpoints."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
