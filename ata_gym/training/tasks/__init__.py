"""Tasks of the user: any model, any loss, and the batches of a loader in a keyed order."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
