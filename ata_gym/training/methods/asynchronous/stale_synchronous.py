"""SSP: asynchronous SGD whose fastest worker leads the slowest by at most s tasks."""

from __future__ import annotations

import numpy as np

from ata_gym.pools import Pool
from ata_gym.training.methods.asynchronous.asgd import Asgd
from ata_gym.training.methods.server import EndedTask, ParameterServer
from ata_gym.training.methods.theory import asynchronous_step
from ata_gym.typing import Ints
from ata_gym.utils.validation import whole_number


class StaleSynchronous(Asgd):
    """Asynchronous SGD in which a worker that is more than s tasks ahead of the slowest waits for it.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}. A worker that has ended c tasks starts the next as soon as every
    other has ended at least c - s. With s = 0 all workers start together at the same weights, as in synchronous SGD
    whose step is gamma times the sum of the n gradients; s = infinity is plain ASGD.

    Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013, as
    recalled. There a worker may compute at weights that lack the last s updates of others; here it gets all that are
    in. FlexRR (Harlap et al., 2016) moves parts of a slow worker's iteration to others: an iteration here is a single
    task, which has no parts.

    Parameters
    ----------
    pool, budget
        As for ``Method``.
    staleness
        The bound s, from 0 on. The default of 3 is ours.
    """

    source = "Ho et al., NIPS 2013 (as recalled)"

    def __init__(self, pool: Pool, budget: int, staleness: int = 3) -> None:
        super().__init__(pool, budget)
        self.staleness = whole_number("staleness", staleness, 0)
        self.ended: Ints = np.zeros(pool.n, np.int64)
        """(n,) tasks that each worker has ended."""

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / (2 R L), eps / (4 L sigma^2)} with R = (n - 1) (2 s + 1) + 1: every delay is less (worked out here).

        During a task each other worker goes from at least s tasks behind to at most s + 1 ahead.
        """
        return asynchronous_step(smoothness, variance, accuracy, (self.pool.n - 1) * (2 * self.staleness + 1) + 1)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Step; all workers that wait and are now within the bound start at the new weights."""
        server.update([task])
        self.ended[task.worker] += 1
        idle = server.idle
        server.start(idle[self.ended[idle] <= self.ended.min() + self.staleness])
