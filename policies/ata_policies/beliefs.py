"""What a policy has learned: running statistics over rows and workers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.compiled import gufunc

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Belief(NamedTuple):
    """Counts and totals of the task times seen, each of shape (E, n)."""

    counts: Floats
    """K_i, tasks seen."""
    totals: Floats
    """Their times added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Belief:
        """Nothing seen yet."""
        return cls(np.zeros((rows, n)), np.zeros((rows, n)))

    def observe(self, worker: Ints, time: Floats) -> Belief:
        """Return the belief after the results of one round, (E, B) each; a row with no feedback starts anew.

        >>> Belief.empty(1, 2).observe(np.array([[0, 0, 1]]), np.array([[2.0, 4.0, 5.0]])).mean()
        array([[3., 5.]])
        """
        return Belief(*_observe(self.counts, self.totals, worker, time))

    def mean(self) -> Floats:
        """Mean time of each worker's tasks, shape (E, n); NaN for a worker never tried."""
        return np.divide(self.totals, self.counts, out=np.full_like(self.totals, np.nan), where=self.counts > 0)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never


@gufunc("void(float64[:], float64[:], int64[:], float64[:], float64[:], float64[:])", "(n),(n),(b),(b)->(n),(n)")
def _observe(count: Floats, total: Floats, worker: Ints, time: Floats, new_count: Floats, new_total: Floats) -> None:
    if worker[0] < 0:
        new_count[:] = 0.0
        new_total[:] = 0.0
    else:
        for i in range(len(count)):
            new_count[i], new_total[i] = count[i], total[i]
        for b in range(len(worker)):
            i = worker[b]
            new_count[i] += 1.0
            new_total[i] += time[b]
