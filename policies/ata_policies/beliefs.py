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

    def observe(self, worker: Ints, time: Floats, elapsed: Floats | None = None) -> Belief:
        """Return the belief after some results.

        Parameters
        ----------
        worker, time
            (E, R) whose result it was, and its task time; a worker of -1 means no result.
        elapsed
            (E, n) how long each worker's cancelled task had run, or 0; of no use here.

        Examples
        --------
        >>> Belief.empty(1, 2).observe(np.array([[0, 0, 1]]), np.array([[2.0, 4.0, 5.0]])).mean()
        array([[3., 5.]])
        """
        del elapsed
        return Belief(*_observe(self.counts, self.totals, worker, time))

    def mean(self) -> Floats:
        """Mean time of each worker's tasks, shape (E, n); NaN for a worker never tried."""
        return np.divide(self.totals, self.counts, out=np.full_like(self.totals, np.nan), where=self.counts > 0)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never


class Exposure(NamedTuple):
    """Results, and the time spent on them and on cancelled tasks, each of shape (E, n).

    Time spent over results estimates a mean task time from censored tasks too: it is the maximum likelihood estimate
    for exponential times, and without cancelled tasks the plain mean.
    """

    counts: Floats
    """Results K_i."""
    busy: Floats
    """Time of the results and of the cancelled tasks, added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Exposure:
        """Nothing seen yet."""
        return cls(np.zeros((rows, n)), np.zeros((rows, n)))

    def observe(self, worker: Ints, time: Floats, elapsed: Floats) -> Exposure:
        """Return the belief after some results and cancelled tasks; the arguments are those of ``Belief.observe``.

        >>> Exposure.empty(1, 2).observe(np.array([[0, 0]]), np.array([[2.0, 4.0]]), np.array([[0.0, 5.0]]))
        Exposure(counts=array([[2., 0.]]), busy=array([[6., 5.]]))
        """
        counts, busy = _observe(self.counts, self.busy, worker, time)
        return Exposure(counts, busy + elapsed)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, nor had one cancelled, shape (E, n)."""
        never: NDArray[np.bool_] = (self.counts == 0) & (self.busy == 0.0)
        return never


class Moments(NamedTuple):
    """Counts, totals and totals of squares of the task times seen, each of shape (E, n)."""

    counts: Floats
    """K_i, tasks seen."""
    totals: Floats
    """Their times added up."""
    squares: Floats
    """The squares of their times added up."""

    @classmethod
    def empty(cls, rows: int, n: int) -> Moments:
        """Nothing seen yet."""
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, time: Floats, elapsed: Floats | None = None) -> Moments:
        """Return the belief after some results; the arguments are those of ``Belief.observe``.

        >>> Moments.empty(1, 2).observe(np.array([[0, 0, 1]]), np.array([[2.0, 4.0, 5.0]])).variance()
        array([[ 1., nan]])
        """
        del elapsed
        counts, totals = _observe(self.counts, self.totals, worker, time)
        _, squares = _observe(self.counts, self.squares, worker, np.square(time))
        return Moments(counts, totals, squares)

    def mean(self) -> Floats:
        """Mean time of each worker's tasks, shape (E, n); NaN for a worker never tried."""
        return Belief(self.counts, self.totals).mean()

    def variance(self) -> Floats:
        """Variance of each worker's task times, shape (E, n); NaN for a worker with fewer than two."""
        spread = np.maximum(self.squares * self.counts - self.totals**2, 0.0)
        return np.divide(spread, self.counts**2, out=np.full_like(spread, np.nan), where=self.counts > 1)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never


@gufunc("void(float64[:], float64[:], int64[:], float64[:], float64[:], float64[:])", "(n),(n),(b),(b)->(n),(n)")
def _observe(count: Floats, total: Floats, worker: Ints, time: Floats, new_count: Floats, new_total: Floats) -> None:
    for i in range(len(count)):
        new_count[i], new_total[i] = count[i], total[i]
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_count[i] += 1.0
            new_total[i] += time[b]
