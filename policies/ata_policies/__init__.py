"""The policy zoo of ata_gym: ATA, what it is compared with, and learners that go further."""

from ata_gym.utils.imports.garbage import no_garbage

with no_garbage():
    from ata_policies.agent import from_agent
    from ata_policies.allocator.allocator import Allocator
    from ata_policies.allocator.clock import Clock
    from ata_policies.allocator.dispatcher import Dispatcher
    from ata_policies.beliefs.belief import Belief
    from ata_policies.beliefs.moments import Exposure, Moments, Totals
    from ata_policies.checking.check import PolicyError, check_policy
    from ata_policies.explanation import Explanation
    from ata_policies.policy import AllocationPolicy, DispatchPolicy, Policy, State
    from ata_policies.presets import Preset
    from ata_policies.propensities import Propensities
    from ata_policies.registry import default_name, explain_default, load, make, make_for, names
    from ata_policies.setting import Setting
    from ata_policies.steps import Step, play

__all__ = [
    "AllocationPolicy",
    "Allocator",
    "Belief",
    "Clock",
    "DispatchPolicy",
    "Dispatcher",
    "Explanation",
    "Exposure",
    "Moments",
    "Policy",
    "PolicyError",
    "Preset",
    "Propensities",
    "Setting",
    "State",
    "Step",
    "Totals",
    "check_policy",
    "default_name",
    "explain_default",
    "from_agent",
    "load",
    "make",
    "make_for",
    "names",
    "play",
]
