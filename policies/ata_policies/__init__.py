"""The policy zoo of ata_gym: ATA, what it is compared with, and learners that go further."""

from typing import TYPE_CHECKING

from ata_gym.utils.imports.lazy import lazy_names

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AllocationPolicy": "policy",
            "Allocator": "allocator.allocator",
            "Belief": "beliefs.belief",
            "Clock": "allocator.clock",
            "DispatchPolicy": "policy",
            "Dispatcher": "allocator.dispatcher",
            "Explanation": "explanation",
            "Exposure": "beliefs.moments",
            "Moments": "beliefs.moments",
            "Policy": "policy",
            "PolicyError": "checking.check",
            "Preset": "presets",
            "Propensities": "propensities",
            "Setting": "setting",
            "State": "policy",
            "Step": "steps",
            "Totals": "beliefs.moments",
            "check_policy": "checking.check",
            "default_name": "registry",
            "explain_default": "registry",
            "from_agent": "agent",
            "load": "registry",
            "make": "registry",
            "make_for": "registry",
            "names": "registry",
            "play": "steps",
        },
    )

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
