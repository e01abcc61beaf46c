"""The problems that come with the package, and tasks of the user.

Tasks of the user have any model, any loss, and batches in a keyed order.
"""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
