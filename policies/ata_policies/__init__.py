"""The policy zoo for ata_gym: ATA and what it is compared with."""

from ata_policies.beliefs import Belief, Exposure, Moments
from ata_policies.checking import PolicyError, check_policy
from ata_policies.policy import AllocationPolicy, DispatchPolicy, Policy, Setting, State
from ata_policies.registry import default_name, load, make, names

__all__ = [
    "AllocationPolicy",
    "Belief",
    "DispatchPolicy",
    "Exposure",
    "Moments",
    "Policy",
    "PolicyError",
    "Setting",
    "State",
    "check_policy",
    "default_name",
    "load",
    "make",
    "names",
]
