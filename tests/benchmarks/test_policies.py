"""What a round of every registered policy costs beside ATA's, measured side by side in one run."""

from __future__ import annotations

import re

import pytest

import ata_policies
from ata_gym.bench.decision_cost import SETUP, relative_cost

pytestmark = pytest.mark.benchmark


def test_a_round_costs_at_most_five_of_atas_unless_the_policy_says_why() -> None:
    print(f"\nprocessor time of a round's predictions over ATA's, {SETUP}:")
    silent = []
    for name, ratio in ((name, relative_cost(name)) for name in ata_policies.names()):
        print(f"{ratio:8.2f}  {name}")
        if ratio > 5 and not re.search(r"\bround\s+costs?\b", ata_policies.load(name).documentation()):
            silent.append(name)
    assert not silent, 'these cost more than 5 times ATA, and no "a round costs ..." in their docstring says why'
