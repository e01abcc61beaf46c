"""A memory in which what is old counts less: discounted sums.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011 (discounted UCB;
formulas recalled). A worker of which nothing is left counts as never tried, so it is explored again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.validation import real
from ata_policies.beliefs.memory import Memory
from ata_policies.beliefs.moments import never_finished


class DiscountedMoments(NamedTuple):
    """Moments in which a task counts ``discount`` times as much with each round that passes."""

    counts: Floats
    """(E, n) tasks seen, discounted."""
    totals: Floats
    """(E, n) their times added up, discounted."""
    squares: Floats
    """(E, n) the squares of their times added up, discounted."""
    discount: Floats
    """(E,) the discount per round."""

    @classmethod
    def empty(cls, rows: int, n: int, discount: float) -> DiscountedMoments:
        """Nothing seen yet."""
        counts, totals, squares = np.zeros((3, rows, n))
        return cls(counts, totals, squares, np.full(rows, discount))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> DiscountedMoments:
        """Return the belief after a round; the arguments are those of ``Belief.observe``.

        What is worth less than half a task is forgotten: such a worker has never been tried.

        >>> DiscountedMoments.empty(1, 1, 0.5).observe(np.array([[0, 0]]), np.ones((1, 2))).observe(
        ...     np.array([[0]]), np.array([[4.0]])).totals
        array([[5.]])
        """
        del elapsed
        counts, totals, squares = _discount(self.counts, self.totals, self.squares, self.discount, worker, duration)
        return DiscountedMoments(counts, totals, squares, self.discount)

    def untried(self) -> Mask:
        """Which workers have never finished a task, or long ago, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Floats:
        """Rounds that are remembered in round k, (1 - discount^k) / (1 - discount), shape (E,)."""
        counting: Floats = (1.0 - self.discount**round) / (1.0 - self.discount)
        return counting


@gufunc(
    "void(float64[:], float64[:], float64[:], float64[:], int64[:], float64[:], float64[:], float64[:], float64[:])",
    "(n),(n),(n),(),(b),(b)->(n),(n),(n)",
)
def _discount(
    count: Floats,
    total: Floats,
    square: Floats,
    discount: Floats,
    worker: Ints,
    duration: Floats,
    new_count: Floats,
    new_total: Floats,
    new_square: Floats,
) -> None:
    for i in range(len(count)):
        kept = discount[0] if discount[0] * count[i] >= 0.5 else 0.0
        new_count[i], new_total[i], new_square[i] = kept * count[i], kept * total[i], kept * square[i]
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_count[i] += 1.0
            new_total[i] += duration[b]
            new_square[i] += duration[b] * duration[b]


@dataclass(frozen=True)
class Discount(Memory):
    """A task counts ``discount`` times as much with each round that passes.

    What is worth less than half a task is forgotten, so that a worker is tried again: else its draws would drift away
    and it never would be.

    Parameters
    ----------
    discount
        What a task counts after a round, above 0 and below 1.
    """

    discount: float = 0.999

    nonstationary = True
    constants = "discount 0.999"

    def __post_init__(self) -> None:
        if real("discount", self.discount) >= 1.0:
            raise ValueError(f"discount must be below 1, what a task counts after a round, not {self.discount!r}")

    def start(self, rows: int, n: int, squares: bool) -> DiscountedMoments:
        """Nothing seen yet."""
        del squares
        return DiscountedMoments.empty(rows, n, self.discount)
