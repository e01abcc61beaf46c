"""The policy zoo for ata_gym: ATA and what it is compared with."""

from ata_policies.beliefs import Belief
from ata_policies.policy import Policy, Setting, State
from ata_policies.registry import load, make, names

__all__ = ["Belief", "Policy", "Setting", "State", "load", "make", "names"]
