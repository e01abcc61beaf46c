"""What a policy is beside others: which env it plays, and whether it learns, or knows what others must learn."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym

import ata_policies

LEARNER, ORACLE, BASELINE = "learner", "oracle", "baseline"

_KNOWN = ("the means", "the distributions")  # what an oracle ``knows`` begins with one of these


@dataclass(frozen=True)
class Competitor:
    """A policy that is compared with others."""

    policy: str
    env: str  # the id that it plays, without the namespace and the version
    kind: str
    """``ORACLE``: it knows what others must learn; ``BASELINE``: it neither knows nor learns; else ``LEARNER``."""
    priced: bool = False  # whether its decisions depend on the price

    @classmethod
    def of(cls, name: str) -> Competitor:
        """The competitor of a policy's name; ValueError if there is no such policy."""
        policy = ata_policies.load(name)
        kind = ORACLE if policy.knows.startswith(_KNOWN) else LEARNER if policy.learns else BASELINE
        return cls(name, gym.spec(policy.env_id).name, kind, policy.priced)
