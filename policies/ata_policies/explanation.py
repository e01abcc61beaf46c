"""The explanation of a policy's last decision, for people who look into a run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.trees import leaves

_MOST_SHOWN = 25  # workers that are shown at most


@dataclass(frozen=True, eq=False)
class Explanation:
    """The reasons of a policy's last decision in one row."""

    policy: str
    """What the policy does, in a sentence."""
    round: int
    """The round that the decision was for, counted from 1; 0 before the first."""
    plan: str
    """The plan in words; empty if the policy keeps none."""
    mean: Floats
    """(n,) the mean task time that each worker is thought to have; NaN where nothing is known."""
    evidence: Floats
    """(n,) results that count in the mean; not whole numbers where old results count less."""
    tasks: Ints | None
    """(n,) the last action; None where the state does not hold it."""
    away: Mask
    """(n,) who is thought to be away."""
    untried: Mask
    """(n,) who was never tried, or so long ago that no result counts any more."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The titles of ``rows``."""
        if self.tasks is None:
            return ("worker", "mean", "evidence", "")
        return ("worker", "mean", "evidence", "tasks", "")

    def rows(self, limit: int = _MOST_SHOWN) -> list[tuple[str, ...]]:
        """Return the workers as text, in the order of their numbers.

        Args:
            limit: How many are shown at most: first the workers with the most tasks, and of equal
                ones the fastest.
        """
        if self.tasks is None:
            tasks = np.zeros(len(self.mean), np.int64)
        else:
            tasks = self.tasks
        mean = np.where(np.isnan(self.mean), np.inf, self.mean)
        shown = np.sort(np.lexsort((mean, -tasks))[:limit])
        return [self._row(i) for i in shown.tolist()]

    def _row(self, i: int) -> tuple[str, ...]:
        """Return worker i as text."""
        if np.isnan(self.mean[i]):
            mean = "-"
        else:
            mean = f"{self.mean[i]:.4g}"
        cells = [str(i), mean, f"{self.evidence[i]:.4g}"]
        if self.tasks is not None:
            cells.append(str(self.tasks[i]))
        notes = []
        if self.away[i]:
            notes.append("away")
        if self.untried[i]:
            notes.append("untried")
        return (*cells, ", ".join(notes))

    def remarks(self, limit: int = _MOST_SHOWN) -> list[str]:
        """Return sentences on all workers: who is not shown, who is away, and who is untried.

        Args:
            limit: How many workers are shown at most.
        """
        remarks = []
        if len(self.mean) > limit:
            remarks.append(f"{len(self.mean) - limit:,} more workers")
        if self.away.any():
            remarks.append(f"thought to be away: {listed(self.away)}")
        if self.untried.any():
            remarks.append(f"untried: {listed(self.untried)}")
        return remarks

    def __str__(self) -> str:
        rows = [self.columns, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join(cells).rstrip())
        head = [f"round {self.round}: {self.policy}"]
        if self.plan:
            head.append(f"plan: {self.plan}")
        return "\n".join([*head, *lines, *self.remarks()])


def listed(workers: Mask) -> str:
    """Return the numbers of some workers, (n,), as text; neighbours are a range.

    Example:
        >>> listed(np.array([True, False, True, True, True]))
        '0, 2-4'
    """
    numbers = np.flatnonzero(workers)
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    texts = []
    for run in runs:
        if len(run) == 1:
            texts.append(f"{run[0]}")
        elif len(run):
            texts.append(f"{run[0]}-{run[-1]}")
    return ", ".join(texts)


def numbers_of(plan: Any, row: int, rows: int) -> str:
    """Return the numbers that a plan holds for a row, by name, as text.

    Args:
        plan: A tree of arrays; arrays of shape (rows,) hold a number for each row.
        row: Which row.
        rows: How many rows the plan has.

    Example:
        >>> from typing import NamedTuple
        >>> class Plan(NamedTuple):
        ...     solved: Ints
        ...     weight: Floats
        >>> numbers_of(Plan(np.array([3, 4]), np.array([0.5, 1.5])), row=1, rows=2)
        'solved 4, weight 1.5'
    """
    numbers = [
        (name.rpartition(".")[2], value)
        for name, value in leaves(plan)
        if np.shape(value) == (rows,)
    ]
    return ", ".join(f"{name} {value[row]:.4g}" for name, value in numbers)
