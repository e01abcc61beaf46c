"""The truncated mean for heavy tails: a long task counts only as much as the tasks before it allow.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory 59(11), 2013.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.policy import Setting, State
from ata_policies.robust import RobustBound


class Truncated(NamedTuple):
    """Counts and totals of the task times seen, long ones clipped when they came in."""

    counts: Floats
    """(E, n) tasks seen."""
    totals: Floats
    """(E, n) their clipped times added up."""
    moment: Floats
    """(E,) the bound on E X^2 / mean^2 that clips them."""

    def observe(self, worker: Ints, time: Floats, elapsed: Floats | None = None) -> Truncated:
        """Return the belief after some results; the arguments are those of ``Belief.observe``.

        The j-th task of a worker, j > 1, is clipped at m sqrt(moment j / (2 ln t)), m the mean of those before it, but
        never below m; t counts rounds from 1 on, and nothing is clipped in the first.

        >>> first = Truncated(np.ones((1, 1)), np.ones((1, 1)), np.full(1, 8.0))
        >>> first.observe(np.array([[0]]), np.array([[1000.0]])).totals.round(4)
        array([[4.3973]])
        """
        del elapsed
        counts, totals = _observe(self.counts, self.totals, worker, time, self.moment)
        return Truncated(counts, totals, self.moment)

    def mean(self) -> Floats:
        """Truncated mean of each worker's task times, shape (E, n); 0 for a worker never tried."""
        return self.totals / np.maximum(self.counts, 1.0)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never


class TruncatedMean(RobustBound):
    """Truncated mean: a lower bound around a mean whose long tasks are clipped, ever less so with more tasks.

    Published: the mean of X_j 1{X_j <= sqrt(u j / L)}, u a bound on E X^2, L = 2 ln t; radius 4 sqrt(u L / K). Here
    u is ``moment`` m^2 with the worker's truncated mean m so far. A time is judged once, when it comes in, at the t of
    then. A long one is clipped at the limit, where the published rule counts it as 0: with a u that is learned, that
    would draw the mean, and with it the limit, to 0.

    Parameters
    ----------
    setting
        What the policy may know.
    moment
        A bound on E X^2 / mean^2: the lower it is, the sooner a time is clipped.
    radius
        Factor of the published radius; 0 for the truncated mean alone, without exploration. The default is the best of
        a few on log-normal and Pareto times and on traces with rare outliers.
    seed
        Seeds the choices among workers with score 0.
    """

    constants = "E X^2 = 30 mean^2; 0.005 of the published radius"
    assumes = "E X^2 at most `moment` mean^2"

    def __init__(self, setting: Setting, *, moment: float = 30.0, radius: float = 0.005, seed: int = 0) -> None:
        super().__init__(setting, moment=moment, radius=radius, seed=seed)

    def width(self) -> float:
        """4 sqrt(moment)."""
        return 4.0 * math.sqrt(self.moment)

    def first_belief(self, rows: int) -> Truncated:
        """Nothing seen yet."""
        counts, totals = np.zeros((2, rows, self.setting.n))
        return Truncated(counts, totals, np.full(rows, self.moment))

    def allocate(self, state: State) -> Ints:
        """Allocate by the truncated means."""
        return self.bounded(state.belief.mean(), state)


@gufunc(
    "void(float64[:], float64[:], int64[:], float64[:], float64[:], float64[:], float64[:])",
    "(n),(n),(b),(b),()->(n),(n)",
)
def _observe(
    count: Floats, total: Floats, worker: Ints, time: Floats, moment: Floats, new_count: Floats, new_total: Floats
) -> None:
    before = 0.0
    for i in range(len(count)):
        new_count[i], new_total[i] = count[i], total[i]
        before += count[i]
    level = 2.0 * math.log(1.0 + before / len(worker))  # every round has as many results
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            x, j = time[b], new_count[i] + 1.0
            if j > 1.0 and level > 0.0:
                m = new_total[i] / new_count[i]
                x = min(x, m * max(math.sqrt(moment[0] * j / level), 1.0))
            new_count[i] = j
            new_total[i] += x
