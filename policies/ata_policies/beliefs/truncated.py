"""The truncated mean for heavy tails: a long task counts only as much as the tasks before it allow.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory 59(11), 2013.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_policies.beliefs.moments import never_finished


class Truncated(NamedTuple):
    """Counts and totals of the task times seen, long ones clipped when they came in."""

    counts: Floats
    """(E, n) tasks seen."""
    totals: Floats
    """(E, n) their clipped times added up."""
    moment: Floats
    """(E,) the bound on E X^2 / mean^2 that clips them."""

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Truncated:
        """Return the belief after some results; the arguments are those of ``Belief.observe``.

        The j-th task of a worker, j > 1, is clipped at m sqrt(moment j / (2 ln t)), m the mean of those before it, but
        never below m; t counts rounds from 1 on, and nothing is clipped in the first.

        >>> first = Truncated(np.ones((1, 1)), np.ones((1, 1)), np.full(1, 8.0))
        >>> first.observe(np.array([[0]]), np.array([[1000.0]])).totals.round(4)
        array([[4.3973]])
        """
        del elapsed
        counts, totals = _observe(self.counts, self.totals, worker, duration, self.moment)
        return Truncated(counts, totals, self.moment)

    def mean(self) -> Floats:
        """Truncated mean of each worker's task times, shape (E, n); 0 for a worker never tried."""
        return self.totals / np.maximum(self.counts, 1.0)

    def untried(self) -> Mask:
        """Which workers have never finished a task, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Ints:
        """All rounds count, shape (E,)."""
        return round


@gufunc(
    "void(float64[:], float64[:], int64[:], float64[:], float64[:], float64[:], float64[:])",
    "(n),(n),(b),(b),()->(n),(n)",
)
def _observe(
    count: Floats, total: Floats, worker: Ints, duration: Floats, moment: Floats, new_count: Floats, new_total: Floats
) -> None:
    before = 0.0
    for i in range(len(count)):
        new_count[i], new_total[i] = count[i], total[i]
        before += count[i]
    level = 2.0 * math.log(1.0 + before / len(worker))  # every round has as many results
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            x, j = duration[b], new_count[i] + 1.0
            if j > 1.0 and level > 0.0:
                m = new_total[i] / new_count[i]
                x = min(x, m * max(math.sqrt(moment[0] * j / level), 1.0))
            new_count[i] = j
            new_total[i] += x
