"""The explanation of a policy's last decision, for people who look into a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.trees import leaves

_SHOWN = 25  # workers that are shown at most


@dataclass(frozen=True, eq=False)
class Explanation:
    """The reasons of a policy's last decision in one row."""

    policy: str  # what the policy does, in a sentence
    round: int  # the round that the decision was for, counted from 1; 0 before the first
    plan: str  # the plan in words; empty if the policy keeps none
    mean: Floats  # (n,) the mean task time that each worker is thought to have; NaN where nothing is known
    evidence: Floats  # (n,) results that count in the mean; not whole numbers where old results count less
    tasks: Ints | None  # (n,) the last action; None where the state does not hold it
    away: Mask  # (n,) who is thought to be away
    untried: Mask  # (n,) who was never tried, or so long ago that no result counts any more

    @property
    def columns(self) -> tuple[str, ...]:
        """The titles of ``rows``."""
        return ("worker", "mean", "evidence", *(("tasks",) if self.tasks is not None else ()), "")

    def rows(self, most: int = _SHOWN) -> list[tuple[str, ...]]:
        """The workers as text; of more than ``most`` those with the most tasks, and then the fastest."""
        tasks = np.zeros(len(self.mean), np.int64) if self.tasks is None else self.tasks
        shown = np.sort(np.lexsort((np.where(np.isnan(self.mean), np.inf, self.mean), -tasks))[:most])
        return [self._row(i) for i in shown.tolist()]

    def _row(self, i: int) -> tuple[str, ...]:
        mean = "-" if np.isnan(self.mean[i]) else f"{self.mean[i]:.4g}"
        tasks = () if self.tasks is None else (str(self.tasks[i]),)
        notes = [note for note, true in (("away", self.away[i]), ("untried", self.untried[i])) if true]
        return (str(i), mean, f"{self.evidence[i]:.4g}", *tasks, ", ".join(notes))

    def remarks(self, most: int = _SHOWN) -> list[str]:
        """Sentences on all workers: how many are not shown, who is away, and who is untried."""
        remarks = [f"{len(self.mean) - most:,} more workers"] if len(self.mean) > most else []
        remarks += [f"thought to be away: {listed(self.away)}"] if self.away.any() else []
        return remarks + ([f"untried: {listed(self.untried)}"] if self.untried.any() else [])

    def __str__(self) -> str:
        rows = [self.columns, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        head = [f"round {self.round}: {self.policy}", *([f"plan: {self.plan}"] if self.plan else [])]
        return "\n".join([*head, *lines, *self.remarks()])


def listed(which: Mask) -> str:
    """The numbers of some workers, neighbours as a range.

    >>> listed(np.array([True, False, True, True, True]))
    '0, 2-4'
    """
    numbers = np.flatnonzero(which)
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs if len(run))


def numbers_of(plan: Any, row: int, rows: int) -> str:
    """The numbers that a plan holds for a row, by name.

    >>> from typing import NamedTuple
    >>> class Plan(NamedTuple):
    ...     solved: Ints
    ...     weight: Floats
    >>> numbers_of(Plan(np.array([3, 4]), np.array([0.5, 1.5])), row=1, rows=2)
    'solved 4, weight 1.5'
    """
    found = [(name.rpartition(".")[2], value) for name, value in leaves(plan) if np.shape(value) == (rows,)]
    return ", ".join(f"{name} {value[row]:.4g}" for name, value in found)
