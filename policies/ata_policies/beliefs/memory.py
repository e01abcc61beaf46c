"""What counts of the task times that a policy has seen: the memory of a composed policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from ata_policies.beliefs.moments import Belief, Moments


class Memory(ABC):
    """Hyperparameters of a memory; what it remembers of E rows is a belief, a named tuple of arrays.

    The belief has ``counts`` and ``totals``, and ``deviations`` where they were asked for, ``observe``, ``untried`` and
    ``rounds`` (see ``Belief`` and ``Moments``).
    """

    nonstationary: ClassVar[bool] = False  # whether it is made for workers that change
    availability: ClassVar[bool] = False  # whether workers that owe results are left out by default (``Availability``)
    assumes: ClassVar[str] = ""  # what it assumes of the task times, beside what the estimate assumes
    constants: ClassVar[str] = ""  # its constants
    knows: ClassVar[str] = ""  # what it must know beforehand

    @abstractmethod
    def start(self, rows: int, n: int, deviations: bool) -> Any:
        """The belief of ``rows`` rows that have seen nothing of n workers; ``deviations``: whether they are needed."""


@dataclass(frozen=True)
class Everything(Memory):
    """All task times count, however old they are."""

    def start(self, rows: int, n: int, deviations: bool) -> Belief | Moments:
        """Nothing seen yet."""
        return (Moments if deviations else Belief).empty(rows, n)
