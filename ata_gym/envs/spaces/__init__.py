"""Action spaces that check an action and say what is wrong with it.

They are registered with Gymnasium's functions on spaces.
"""

from ata_gym.envs.spaces import registration
from ata_gym.envs.spaces.allocation import Allocation, RaceAllocation
from ata_gym.envs.spaces.dispatch import Dispatch

__all__ = ["Allocation", "Dispatch", "RaceAllocation"]

registration.register()
