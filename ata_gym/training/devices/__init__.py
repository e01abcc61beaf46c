"""Workers whose tasks are run and timed on real devices, and the clock of their rounds."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
