"""What counts of the task times that a policy has seen: the memory of a composed policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from ata_gym.typing import Floats, Ints
from ata_policies.beliefs.moments import Moments, Totals
from ata_policies.facts import Described


class Memory(Described, ABC):
    """Hyperparameters of a memory; what it remembers of E rows is a belief, a named tuple of arrays.

    The belief has ``counts`` and ``totals``, and ``deviations`` where they were asked for (see ``Moments``).
    """

    availability: ClassVar[bool] = False  # whether workers that owe results are left out by default (``Availability``)

    @abstractmethod
    def start(self, rows: int, n: int, deviations: bool) -> Any:
        """The belief of ``rows`` rows that have seen nothing of n workers; ``deviations``: whether they are needed."""

    def rounds(self, belief: Any, round: Ints) -> Ints | Floats:
        """How many rounds count in round k, (E,): by default all of them."""
        return round


@dataclass(frozen=True)
class Everything(Memory):
    """All task times count, however old they are."""

    def start(self, rows: int, n: int, deviations: bool) -> Totals | Moments:
        """Nothing is known."""
        return (Moments if deviations else Totals).empty(rows, n)
