"""The trainer, its settings, its optimisers, and the losses of a round."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
