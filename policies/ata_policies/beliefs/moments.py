"""Counts, totals and totals of squares of the task times seen, and the shapes that follow from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc


def never_finished(belief: Any) -> Mask:
    """Which workers have no task in the ``counts`` of a belief, shape (E, n)."""
    never: Mask = belief.counts == 0
    return never


class Belief(NamedTuple):
    """Counts and totals of the task times seen, each of shape (E, n)."""

    counts: Floats  # K_i, tasks seen
    totals: Floats  # their times added up

    @classmethod
    def empty(cls, rows: int, n: int) -> Belief:
        """Nothing seen yet."""
        return cls(*np.zeros((2, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Belief:
        """Return the belief after some results.

        Parameters
        ----------
        worker, duration
            (E, R) whose result it was, and its task time; a worker of -1 means no result.
        elapsed
            (E, n) how long each worker's cancelled task had run, or 0; not used here.

        >>> Belief.empty(1, 2).observe(np.array([[0, 0, 1]]), np.array([[2.0, 4.0, 5.0]])).mean()
        array([[3., 5.]])
        """
        del elapsed
        return Belief(*_observe(self.counts, self.totals, worker, duration))

    def mean(self) -> Floats:
        """Mean time of each worker's tasks, shape (E, n); NaN for a worker never tried."""
        return np.divide(self.totals, self.counts, out=np.full_like(self.totals, np.nan), where=self.counts > 0)

    def untried(self) -> Mask:
        """Which workers have never finished a task, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Ints:
        """How many rounds count in round k: all of them, shape (E,)."""
        return round


class Exposure(NamedTuple):
    """Results, and the time spent on them and on cancelled tasks, each of shape (E, n).

    Time spent over results estimates a mean task time from censored tasks too: it is the maximum likelihood estimate
    for exponential times, and without cancelled tasks the plain mean.
    """

    counts: Floats  # results K_i
    busy: Floats  # time of the results and of the cancelled tasks, added up

    @classmethod
    def empty(cls, rows: int, n: int) -> Exposure:
        """Nothing seen yet."""
        return cls(*np.zeros((2, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> Exposure:
        """Return the belief after some results and cancelled tasks; the arguments are those of ``Belief.observe``.

        >>> Exposure.empty(1, 2).observe(np.array([[0, 0]]), np.array([[2.0, 4.0]]), np.array([[0.0, 5.0]]))
        Exposure(counts=array([[2., 0.]]), busy=array([[6., 5.]]))
        """
        counts, busy = _observe(self.counts, self.busy, worker, duration)
        return Exposure(counts, busy + elapsed)

    def untried(self) -> Mask:
        """Which workers have never finished a task, nor had one cancelled, shape (E, n)."""
        never: Mask = (self.counts == 0) & (self.busy == 0.0)
        return never


class Moments(NamedTuple):
    """Counts, totals and totals of squares of the task times seen, each of shape (E, n)."""

    counts: Floats  # K_i, tasks seen
    totals: Floats  # their times added up
    squares: Floats  # the squares of their times added up

    @classmethod
    def empty(cls, rows: int, n: int) -> Moments:
        """Nothing seen yet."""
        return cls(*np.zeros((3, rows, n)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Moments:
        """Return the belief after some results; the arguments are those of ``Belief.observe``.

        >>> Moments.empty(1, 2).observe(np.array([[0, 0, 1]]), np.array([[2.0, 4.0, 5.0]])).variance()
        array([[ 1., nan]])
        """
        del elapsed
        counts, totals = _observe(self.counts, self.totals, worker, duration)
        _, squares = _observe(self.counts, self.squares, worker, np.square(duration))
        return Moments(counts, totals, squares)

    def mean(self) -> Floats:
        """Mean time of each worker's tasks, shape (E, n); NaN for a worker never tried."""
        return Belief(self.counts, self.totals).mean()

    def variance(self) -> Floats:
        """Variance of each worker's task times, shape (E, n); NaN for a worker with fewer than two."""
        spread = np.maximum(self.squares * self.counts - self.totals**2, 0.0)
        return np.divide(spread, self.counts**2, out=np.full_like(spread, np.nan), where=self.counts > 1)

    def untried(self) -> Mask:
        """Which workers have never finished a task, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Ints:
        """How many rounds count in round k: all of them, shape (E,)."""
        return round


@gufunc("void(float64[:], float64[:], int64[:], float64[:], float64[:], float64[:])", "(n),(n),(b),(b)->(n),(n)")
def _observe(
    count: Floats, total: Floats, worker: Ints, duration: Floats, new_count: Floats, new_total: Floats
) -> None:
    new_count[:], new_total[:] = count, total
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_count[i] += 1.0
            new_total[i] += duration[b]


def learn_shapes(belief: Moments, weight: float) -> Floats:
    """Estimate the shape of each worker's times, shape (E, n): 1 / (coefficient of variation)^2, shrunk to the others'.

    With K_i tasks of mean m_i and q_i their summed squared deviations from m_i, over m_i^2:

        common = (1 + sum_i q_i) / (1 + sum_i (K_i - 1)),
        shape_i = (w + K_i - 1) / (w common + q_i),

    where the sums are over workers with at least one task. So one pseudo-task says "exponential" (shape 1), and
    ``weight`` w pseudo-tasks say "like the others". Ours; the method of moments.

    >>> belief = Moments.empty(1, 2).observe(np.array([[0, 0, 0]]), np.array([[1.0, 2.0, 3.0]]))
    >>> learn_shapes(belief, 1.0)  # q = 0.5, common = 1.5 / 3
    array([[3., 2.]])
    """
    shapes: Floats = _shapes(belief.counts, belief.totals, belief.squares, weight)
    return shapes


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(n),()->(n)")
def _shapes(count: Floats, total: Floats, square: Floats, weight: Floats, out: Floats) -> None:
    spread, tasks = 1.0, 1.0
    for i in range(len(count)):
        some = 0.0 < total[i] < np.inf
        ratio = count[i] / (total[i] if some else 1.0)
        deviation = ratio * ratio * square[i] - count[i]
        most = count[i] * max(count[i] - 1.0, 0.0)
        if not deviation <= most:  # the squares of extreme times have overflowed
            deviation = most
        out[i] = max(deviation, 0.0) if some else 0.0
        spread += out[i]
        tasks += max(count[i] - 1.0, 0.0)
    common = spread / tasks
    for i in range(len(count)):
        out[i] = (weight[0] + max(count[i] - 1.0, 0.0)) / (weight[0] * common + out[i])
