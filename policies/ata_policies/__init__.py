"""The policy zoo for ata_gym: ATA and what it is compared with."""

from ata_policies.beliefs import Belief, Exposure, Moments
from ata_policies.policy import AllocationPolicy, DispatchPolicy, Policy, Setting, State
from ata_policies.registry import load, make, names

__all__ = [
    "AllocationPolicy",
    "Belief",
    "DispatchPolicy",
    "Exposure",
    "Moments",
    "Policy",
    "Setting",
    "State",
    "load",
    "make",
    "names",
]
