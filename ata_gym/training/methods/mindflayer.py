"""MindFlayer SGD: a task that takes too long is given up, and tried again."""

from __future__ import annotations

import numpy as np

from ata_gym.pools import Pool
from ata_gym.simulation import Ints
from ata_gym.training.methods.limits import best_limits, median_limits
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.server import Server, Task
from ata_gym.training.methods.theory import best_group, mindflayer_step

_LIMITS = {"median": median_limits, "best": best_limits}


class MindFlayer(Method):
    """Worker i makes B_i trials, each given up after c_i; the step divides by the number of expected successes.

    x^{k+1} = x^k - gamma / E * sum of the gradients that came, E = sum_i p_i B_i, with p_i the chance that a task of
    worker i takes at most c_i: so it is unbiased, whatever comes. An iteration ends when all trials are done, and moves
    nothing if none succeeded. With t = min_m (B + sum_{j <= m} p_j) / sum_{j <= m} p_j / c_j over the workers sorted by
    c, B_i = ceil(t / c_i - 1) for the first m, and 0 for the others. The method knows the law of the task times.

    Source: MindFlayer SGD, UAI 2025. There c_i = tau_i + t_i, with tau_i fixed and t_i a threshold on the random rest
    of the time; the median of that rest gives c_i the median of the whole.

    Parameters
    ----------
    pool, budget
        As for ``Method``; the expected successes of an iteration are the budget or a little more.
    limit
        ``"median"`` for the median task time of each worker, or ``"best"`` for the limits that minimise t.

    Raises
    ------
    ValueError
        If there is no such limit.
    """

    source = "MindFlayer SGD, UAI 2025"

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
        self._left = self.trials.copy()
        self._successes: list[Task] = []

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """1 / (2 L) * min{1, eps E / sigma^2}."""
        return mindflayer_step(smoothness, variance, accuracy, self.expected)

    def begin(self, server: Server) -> None:
        """All with trials to make start the first."""
        self._left = self.trials.copy()
        self._successes = []
        server.start(np.flatnonzero(self._left))

    def arrive(self, server: Server, task: Task) -> None:
        """Count the trial; after the last one of all, step."""
        self._left[task.worker] -= 1
        if task.finished:
            self._successes.append(task)
        if self._left[task.worker]:
            server.start([task.worker])
        elif not self._left.any():
            server.update(self._successes, len(self._successes) / self.expected)
            self.begin(server)
