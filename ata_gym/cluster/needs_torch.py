"""A module that raises an error with the install command where torch is missing.

Modules that need torch import it first.
"""

from ata_gym.utils.extras import require

require("torch", extra="cluster", purpose="Training on real processes")
