"""MindFlayer SGD, which gives up a task at a time limit, and the choice of the limits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.pools import Pool
from ata_gym.pools.families import FAMILIES
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer
from ata_gym.training.methods.theory import best_group, mindflayer_step
from ata_gym.typing import Floats, Ints

_QUANTILES = 512  # even, so that the median is one of them


class TimeLimits(NamedTuple):
    """A time limit c_i for each worker, and the chance p_i that one of its tasks takes at most that, both (n,)."""

    times: Floats
    chances: Floats


def median_limits(pool: Pool, budget: int) -> TimeLimits:
    """Each worker's median task time, the default of MindFlayer SGD (UAI 2025); the budget does not matter.

    >>> from ata_gym.pools import uniform
    >>> median_limits(uniform([0.0, 2.0], [2.0, 6.0]), budget=1)
    TimeLimits(times=array([1., 4.]), chances=array([0.5, 0.5]))
    """
    del budget
    every = _candidates(pool)
    return _pick(every, [int(np.searchsorted(one.chances, 0.5)) for one in every])


def best_limits(pool: Pool, budget: int) -> TimeLimits:
    """The limits that minimise t = (B + sum_j p_j) / sum_j p_j / c_j, over the best workers and their quantiles.

    The ratio is minimised as Dinkelbach does, in our design: for a guess of t each worker by itself maximises
    p (t / c - 1) and takes part where that is positive; t of this choice is a better guess, and the last is exact.

    >>> from ata_gym.pools import deterministic, log_normal
    >>> pool = log_normal(0.0, 2.0, shift=1.0) + deterministic([5.0])
    >>> median_limits(pool, budget=10).times, best_limits(pool, budget=10).times.round(2)
    (array([2., 5.]), array([1.72, 5.  ]))
    """
    every = _candidates(pool)
    limits = median_limits(pool, budget)
    time, better = np.inf, best_group(*limits, budget).time
    while better < time:
        time = better
        limits = _pick(every, [int(np.argmax(one.chances * (time / one.times - 1))) for one in every])
        better = best_group(*limits, budget).time
    return limits


def _candidates(pool: Pool) -> list[TimeLimits]:
    """For each worker the limits among which it may choose, in rising order."""
    every = []
    for i in range(pool.n):
        family = FAMILIES[pool.distributions.family[i]]
        if family.trace:
            standard, counts = np.unique(pool.record(i), return_counts=True)
            chances = np.cumsum(counts) / counts.sum()
        elif family.in_scipy is None:
            standard = chances = np.ones(1)
        else:
            chances = np.arange(1, _QUANTILES + 1) / _QUANTILES
            standard = pool.standard(i).ppf(chances)
        times = pool.distributions.shift[i] + pool.distributions.scale[i] * standard
        usable = times > 0  # a trial takes time
        every.append(TimeLimits(times[usable], chances[usable]))
    return every


def _pick(every: list[TimeLimits], chosen: list[int]) -> TimeLimits:
    pairs = [(one.times[at], one.chances[at]) for one, at in zip(every, chosen, strict=True)]
    return TimeLimits(*np.array(pairs).T)


_LIMITS = {"median": median_limits, "best": best_limits}


class MindFlayer(Method):
    """Worker i makes B_i trials, each given up after c_i; the step divides by the number of expected successes.

    x^{k+1} = x^k - gamma / E * sum of the gradients that came, E = sum_i p_i B_i, with p_i the chance that a task of
    worker i takes at most c_i, so that the mean step is that of the exact gradient. An iteration ends when all trials
    are done, and moves nothing if none succeeded. With t = min_m (B + sum_{j <= m} p_j) / sum_{j <= m} p_j / c_j over
    the workers sorted by c, B_i = ceil(t / c_i - 1) for the first m, and 0 for the others: E is the budget B, or a
    little more. The method knows the distribution of the task times. ``limit`` is ``"median"``, for c_i the median task
    time of worker i, or ``"best"``, for the limits that minimise t.

    Source: MindFlayer SGD, UAI 2025. There c_i = tau_i + t_i, with tau_i fixed and t_i a threshold on the random rest
    of the time; the median of that rest gives c_i the median of the whole.
    """

    source = "MindFlayer SGD, UAI 2025"
    family = "trials"

    def __init__(self, pool: Pool, budget: int, limit: str = "median") -> None:
        super().__init__(pool, budget)
        if limit not in _LIMITS:
            raise ValueError(f"limit must be {' or '.join(map(repr, _LIMITS))}, not {limit!r}")
        self.time_limit, self.chances = _LIMITS[limit](pool, self.budget)
        group = best_group(self.time_limit, self.chances, self.budget)
        self.trials: Ints = np.zeros(pool.n, np.int64)
        """(n,) trials B_i of each worker in an iteration."""
        enough = group.time / self.time_limit[group.workers] - 1
        self.trials[group.workers] = np.ceil(enough - 1e-9)  # a whole number stays one despite rounding
        self.expected = float(self.chances @ self.trials)
        """Expected successes of an iteration."""

    @property
    def gradients(self) -> float:
        """The expected successes of an iteration."""
        return self.expected

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """1 / (2 L) * min{1, eps E / sigma^2}."""
        return mindflayer_step(smoothness, variance, accuracy, self.expected)

    def begin(self, server: ParameterServer) -> None:
        """Start the first trial of all workers that have any."""
        self._left, self._successes = self.trials.copy(), list[EndedTask]()
        server.start(np.flatnonzero(self._left))

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Count the trial; after the last trial of all workers, step."""
        self._left[task.worker] -= 1
        if task.finished:
            self._successes.append(task)
        if self._left[task.worker]:
            server.start([task.worker])
        elif not self._left.any():
            server.update(self._successes, len(self._successes) / self.expected)
            self.begin(server)
