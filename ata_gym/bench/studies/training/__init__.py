"""Studies of training.

They hold one trajectory on the clocks of policies, methods beside the policies, and the paper's
quadratic.
"""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="Training")
