"""Methods for data that differ by worker, in which all workers weigh alike: Malenia SGD and Ringleader ASGD."""

from functools import reduce

import numpy as np

from ata_gym.training.devices.workers import Parts, add
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer
from ata_gym.training.methods.synchronous import Rennala
from ata_gym.training.trainer.trainer import Gradient
from ata_gym.typing import Ints


class GradientTable:
    """For each worker i of n the sum G_i of its gradients, and their number B_i."""

    def __init__(self, n: int) -> None:
        self.counts: Ints = np.zeros(n, np.int64)  # B_i
        self._losses, self._parts = np.zeros(n), dict[int, Parts]()

    def add(self, worker: int, gradient: Gradient) -> None:
        """Add a gradient of a worker."""
        known = self._parts.get(worker)
        self._parts[worker] = gradient.parts if known is None else add(known, gradient.parts)
        self._losses[worker] += gradient.loss
        self.counts[worker] += 1

    def mean(self) -> Gradient:
        """1 / n * sum_i G_i / B_i, where every B_i is at least 1."""
        weights = 1 / (len(self.counts) * self.counts)
        scaled = ([x if x is None else float(weights[i]) * x for x in self._parts[i]] for i in range(len(weights)))
        return Gradient(float(weights @ self._losses), reduce(add, scaled))


class Malenia(Rennala):
    """All workers compute at x^k until each has enough gradients, and weigh alike however many each has.

    x^{k+1} = x^k - gamma / n * sum_i (1 / B_i) * sum of the B_i gradients of worker i. The step is due as soon as all
    B_i >= 1 and (1 / n * sum_i 1 / B_i)^{-1} >= S / n, S = B the budget; the rest is cancelled. Its variance is then at
    most that of the mean of S gradients, so that rate and step size are those of Rennala SGD (worked out here).

    Source: Malenia SGD in the paper of ``Rennala``.
    """

    def begin(self, server: ParameterServer) -> None:
        self._table = GradientTable(self.pool.n)
        super().begin(server)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        self._table.add(task.worker, server.gradient(task))
        counts = self._table.counts
        if counts.all() and self.m * (1 / counts).sum() <= self.pool.n**2 * (1 + 1e-12):  # allows for rounding
            server.step(self._table.mean(), int(counts.sum()))
            self.begin(server)
        else:
            server.start([task.worker])


class Ringleader(Method):
    """Asynchronous SGD in rounds of n updates, one by each worker, along the mean of all workers' gradients.

    x^{k+1} = x^k - gamma / n * sum_i G_i / B_i, for a table of sums G_i of B_i gradients. A round waits, without
    updates, until every worker is in the table. Then each makes one update: at once the one that came last, the others
    with their next gradient, which the table gets. What else comes goes to the table of the next round. All go on at
    the current weights, and no delay is longer than 2 n - 2.

    Source: Ringleader ASGD, 2025, from its poster and code.
    """

    source = "Ringleader ASGD, 2025 (poster and code)"

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / (8 n L), eps B / (10 L sigma^2)}, as others quote it, with 1 for B, a harmonic mean of B_i >= 1."""
        return 1 / (smoothness * max(8.0 * self.pool.n, 10 * variance / accuracy))

    def begin(self, server: ParameterServer) -> None:
        self._table, self._next = GradientTable(self.pool.n), GradientTable(self.pool.n)
        self._updated = np.zeros(self.pool.n, np.bool_)  # who has made its update of this round
        super().begin(server)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        table = self._next if self._updated[task.worker] else self._table
        table.add(task.worker, server.gradient(task))
        if table is self._table and table.counts.all():
            server.step(table.mean(), 1 if self._updated.any() else int(table.counts.sum()))
            self._updated[task.worker] = True
        if self._updated.all():
            self._table, self._next = self._next, GradientTable(self.pool.n)
            self._updated[:] = False
        server.start([task.worker])
