"""Action spaces that check an action and say what is wrong with it, registered with Gymnasium's space functions.

Import the three classes from here; this part of the envs imports utils and typing only.
"""

from ata_gym.envs.spaces import registration
from ata_gym.envs.spaces.allocation import Allocation, RaceAllocation
from ata_gym.envs.spaces.dispatch import Dispatch

__all__ = ["Allocation", "Dispatch", "RaceAllocation"]

registration.register()
