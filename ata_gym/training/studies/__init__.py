"""Studies of training: one trajectory on the clocks of policies, methods beside the policies, the paper's quadratic."""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
