"""The problems that come with the package, and tasks of the user: any model, any loss, batches in a keyed order."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
