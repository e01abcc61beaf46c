"""What a policy is among others: it learns, knows beforehand, or neither."""

from dataclasses import dataclass

import gymnasium as gym

import ata_policies
from ata_policies.facts import is_oracle, joined_facts
from ata_policies.registry import parse

LEARNER = "learner"
ORACLE = "oracle"
BASELINE = "baseline"


@dataclass(frozen=True)
class Role:
    """A policy, the env that it plays, and what it knows."""

    policy: str
    env: str
    """The id that it plays, without the namespace and the version."""
    kind: str
    """``ORACLE``, ``BASELINE`` or ``LEARNER``.

    An oracle knows what others must learn; a baseline neither knows nor learns.
    """
    priced: bool = False
    """Whether its decisions depend on the price."""

    @property
    def learns(self) -> bool:
        """Whether it is a learner."""
        return self.kind == LEARNER

    @classmethod
    def from_name(cls, name: str) -> "Role":
        """Return the role of a policy, which is named with its hyperparameters.

        Raises:
            ValueError: If there is no such policy.
        """
        policy = ata_policies.load(name)
        if is_oracle(joined_facts(policy.parts_for(**parse(name)[1]), "knows")):
            kind = ORACLE
        elif policy.learns:
            kind = LEARNER
        else:
            kind = BASELINE
        return cls(name, gym.spec(policy.env_id).name, kind, policy.priced)
