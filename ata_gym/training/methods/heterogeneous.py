"""Methods for data that differ by worker, in which all workers weigh alike.

They are Malenia SGD, Ringleader ASGD and Rescaled ASGD.
"""

from functools import reduce

import numpy as np

from ata_gym.pools import Pool
from ata_gym.training.devices.workers import Parts, add, scaled
from ata_gym.training.methods.asynchronous import Asgd
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer, mean_cycle_times
from ata_gym.training.methods.synchronous import Rennala
from ata_gym.training.trainer.trainer import Gradient
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import in_range


class GradientTable:
    """For each worker i of n the sum G_i of its gradients, and their number B_i."""

    def __init__(self, n: int) -> None:
        self.counts: Ints = np.zeros(n, np.int64)
        """The number B_i of gradients of each worker, shape (n,)."""
        self._losses = np.zeros(n)
        self._parts = dict[int, Parts]()

    def add(self, worker: int, gradient: Gradient) -> None:
        """Add a gradient of a worker."""
        total = self._parts.get(worker)
        if total is None:
            self._parts[worker] = gradient.parts
        else:
            self._parts[worker] = add(total, gradient.parts)
        self._losses[worker] += gradient.loss
        self.counts[worker] += 1

    def mean(self) -> Gradient:
        """The mean 1 / n * sum_i G_i / B_i, where every B_i is at least 1."""
        weights = 1 / (len(self.counts) * self.counts)
        return Gradient(float(weights @ self._losses), self.weighted(weights))

    @property
    def loss(self) -> float:
        """The mean loss of all gradients, of which there is one or more."""
        return float(self._losses.sum() / self.counts.sum())

    def weighted(self, weights: Floats) -> Parts:
        """The sum sum_i w_i G_i over the workers with gradients.

        Args:
            weights: The weights w, shape (n,).
        """
        terms = (scaled(self._parts[i], float(weights[i])) for i in sorted(self._parts))
        return reduce(add, terms)


class Malenia(Rennala):
    """All workers compute at x^k until each has enough gradients, and all workers weigh alike.

    x^{k+1} = x^k - gamma / n * sum_i (1 / B_i) * sum of the B_i gradients of worker i. The step is
    due as soon as all B_i >= 1 and (1 / n * sum_i 1 / B_i)^{-1} >= S / n, S = B the budget; the
    rest is cancelled. The variance of the step is then at most the variance of a mean of S
    gradients, so that it has the rate and the step size of Rennala SGD (worked out here).

    Source: Malenia SGD in the paper of ``Rennala``.
    """

    def begin(self, server: ParameterServer) -> None:
        self._table = GradientTable(self.pool.n)
        super().begin(server)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        self._table.add(task.worker, server.gradient(task))
        counts = self._table.counts
        # The condition of the step, multiplied out; the factor allows for rounding.
        bound = self.pool.n**2 * (1 + 1e-12)
        if counts.all() and self.m * (1 / counts).sum() <= bound:
            server.step(self._table.mean(), int(counts.sum()))
            self.begin(server)
        else:
            server.start([task.worker])


class Ringleader(Method):
    """Asynchronous SGD in rounds of n updates along the mean of all workers' gradients.

    x^{k+1} = x^k - gamma / n * sum_i G_i / B_i, for a table of sums G_i of B_i gradients. A round
    waits, without updates, until every worker is in the table. Then each worker makes one update:
    at once the worker that came last, the others with their next gradient, which the table gets.
    Other gradients go to the table of the next round. All workers go on at the current weights, and
    no delay is longer than 2 n - 2.

    Source: Ringleader ASGD, 2025, from its poster and code.
    """

    source = "Ringleader ASGD, 2025 (poster and code)"

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The step size min{1 / (8 n L), eps B / (10 L sigma^2)}, as others quote it.

        B is a harmonic mean of the numbers B_i >= 1, and 1 stands for it here.
        """
        return 1 / (smoothness * max(8.0 * self.pool.n, 10 * variance / accuracy))

    def begin(self, server: ParameterServer) -> None:
        self._table = GradientTable(self.pool.n)
        self._next_table = GradientTable(self.pool.n)
        self._updated = np.zeros(self.pool.n, np.bool_)
        """Whether each worker has made its update of this round, shape (n,)."""
        super().begin(server)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if self._updated[task.worker]:
            table = self._next_table
        else:
            table = self._table
        table.add(task.worker, server.gradient(task))
        if table is self._table and table.counts.all():
            # The first update of a round uses all gradients of the table, each other one a new one.
            used = 1 if self._updated.any() else int(table.counts.sum())
            server.step(table.mean(), used)
            self._updated[task.worker] = True
        if self._updated.all():
            self._table, self._next_table = self._next_table, GradientTable(self.pool.n)
            self._updated[:] = False
        server.start([task.worker])


class RescaledAsgd(Asgd):
    """Asynchronous SGD whose steps are in proportion to the worker's task time.

    x^{k+1} = x^k - gamma * tau_i / tau_A * gradient of worker i at x^{k - delay}, tau_A the mean of
    the n task times. Worker i makes 1 / tau_i steps in a unit of time, so that all workers move the
    weights alike; plain asynchronous SGD goes to the minimum of sum_i f_i / tau_i instead. Nothing
    is discarded, no worker waits, and nothing is stored.

    By default tau_i is the mean task time in the pool, with its latency, which the method then
    knows. With ``discount`` it is learned: the mean of the worker's times until now, of which one
    that is j tasks old has the weight discount^j, the one that has just ended included. Then tau_A
    is the mean over the workers that have ended a task before. 1 is the plain mean; with 0 each
    task weighs by its own time, so that the weights of a worker's tasks in a span add up to the
    span, whatever its speed did. How tau is learned is ours.

    Assumptions of the source: smooth f_i, and gradients of the workers within zeta^2 + rho^2 times
    the squared norm of the gradient of f. Source: Mahran, Maranjyan and Richtarik, Rescaled ASGD,
    arXiv 2605.13434, from its abstract, "in proportion to" the computation time, and its poster,
    which prints the power -1: only the power 1 makes the sums alike, as a test shows. Dividing by
    tau_A is ours; the proofs and the constants of the step size were not read.
    """

    source = "Mahran, Maranjyan and Richtarik, arXiv 2605.13434 (abstract and poster)"

    def __init__(self, pool: Pool, budget: int, discount: float | None = None) -> None:
        super().__init__(pool, budget)
        self._known: Floats | None = None
        if discount is None:
            times = mean_cycle_times(pool)
            if not np.isfinite(times).all():
                raise ValueError(
                    "rescaled-asgd knows the mean task times, and one of this pool is infinite:"
                    " give discount, from 0 to 1, so that it learns them",
                )
            self._known = times / times.mean()
            self.discount = 1.0
        else:
            self.discount = in_range("discount", discount, "number", 0.0, 1.0)
        # The discounted sum of each worker's times, and the discounted number of its tasks.
        self._sums, self._counts = np.zeros((2, pool.n))

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The step size of ``Asgd`` over the largest tau_i / tau_A, which is ours.

        So no step is longer than one of ``Asgd``. That of the source was not read.
        """
        times = mean_cycle_times(self.pool)
        largest = float(times.max() / times.mean())
        return super().step_size(smoothness, variance, accuracy) / largest

    def factor(self, task: EndedTask) -> float:
        """The factor tau_i / tau_A on the learning rate of a task, from which tau is learned."""
        i = task.worker
        if self._known is not None:
            return float(self._known[i])
        ended = self._counts > 0
        means = self._sums[ended] / self._counts[ended]
        self._sums[i] = self.discount * self._sums[i] + task.time
        self._counts[i] = self.discount * self._counts[i] + 1.0
        # Until a task that took time has ended, there is nothing to compare with.
        if not means.any():
            return 1.0
        return float(self._sums[i] / self._counts[i] / means.mean())

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        server.update([task], self.factor(task))
        server.start([task.worker])
