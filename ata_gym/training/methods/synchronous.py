"""Methods that step along the mean of gradients at the current weights.

They are Rennala SGD and Rennala MVR, minibatch SGD and its variants, and MindFlayer SGD.
"""

import numpy as np
from torch import Tensor

from ata_gym.models.model import Weights
from ata_gym.pools import Pool
from ata_gym.pools.families import FAMILIES
from ata_gym.training.devices.workers import Parts
from ata_gym.training.methods.method import (
    EndedTask,
    Method,
    ParameterServer,
    best_group,
    mean_cycle_times,
)
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import real, whole_number


class Rennala(Method):
    """All workers compute at x^k until B gradients are in; the rest is cancelled.

    x^{k+1} = x^k - gamma / B * sum of the B gradients. It is GTA in time, and one round of a
    ``Trainer`` in weights.

    Source: Tyurin and Richtarik, "Optimal time complexities of parallel stochastic optimization
    methods under a fixed computation model", NeurIPS 2023.
    """

    source = "Tyurin and Richtarik, 2023"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self.m = self.budget
        """The number of gradients of a step."""
        self._collected: list[EndedTask] = []

    @property
    def gradients(self) -> float:
        return float(self.m)

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The step size min{1 / L, eps m / (2 L sigma^2)} for the m gradients of a step."""
        return 1 / (smoothness * max(1.0, 2 * variance / (accuracy * self.m)))

    def collect(self, server: ParameterServer, task: EndedTask) -> bool:
        """Keep a gradient at the current weights, and step with the m-th one.

        Returns:
            Whether this gradient was the m-th.
        """
        self._collected.append(task)
        if len(self._collected) < self.m:
            return False
        self.update(server, self._collected)
        self._collected = []
        return True

    def update(self, server: ParameterServer, tasks: list[EndedTask]) -> None:
        """Step with the m tasks that were collected."""
        server.update(tasks)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if self.collect(server, task):
            server.start(self.workers)
        else:
            server.start([task.worker])


class RennalaMvr(Rennala):
    """Rennala SGD with momentum variance reduction: a sample gives its gradient at two points.

    v_k = g_k + (1 - a) (v_{k-1} - h_k) and x_{k+1} = x_k - gamma v_k, where g_k is the mean of B
    gradients at x_k and h_k the mean at x_{k-1}, of the same samples; v_0 = g_0. ``a`` is above 0
    and at most 1; its default of 0.1 is ours. With a = 1 the iterates are the same as in Rennala
    SGD.

    The clock counts both gradients, as tasks that the worker computes one after the other with a
    time each, the one at x_k first; its latency is paid once. So an update takes 2 B tasks, all
    that is not in with the B-th pair is cancelled, and the first update takes B, without a point
    before it. The worker, or who keeps its data, has x_{k-1} still.

    Source: Tovmasyan, Maranjyan and Richtarik, Rennala MVR, arXiv 2605.08871, from its abstract;
    that v_k has the form of STORM (Cutkosky and Orabona, 2019) is our reading. Such methods assume
    that the mean squared difference of two gradients of a sample is at most L^2 times the squared
    distance of the points. The step size, the choice of a, and the inexact variant for networks
    were not read.
    """

    source = "Tovmasyan, Maranjyan and Richtarik, arXiv 2605.08871 (abstract)"

    def __init__(self, pool: Pool, budget: int, a: float = 0.1) -> None:
        super().__init__(pool, budget)
        self.a = real("a", a, up_to=1.0)
        self._previous: Weights | None = None
        """The weights x_{k-1}."""
        self._direction: Parts = []
        """The parts of v_{k-1}."""
        self._half_done = np.zeros(pool.n, np.bool_)
        """Whether each worker has computed a sample's gradient at x_k alone, shape (n,)."""

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """None: the step size of the source was not read.

        Raises:
            ValueError: Always.
        """
        return Method.step_size(self, smoothness, variance, accuracy)

    def update(self, server: ParameterServer, tasks: list[EndedTask]) -> None:
        gradient = server.mean_gradient(tasks, tasks[0].weights)
        used = len(tasks)
        direction = gradient.parts
        if self._previous is not None:
            before = server.mean_gradient(tasks, self._previous).parts
            used *= 2
            direction = [
                _corrected(g, h, v, 1.0 - self.a)
                for g, h, v in zip(gradient.parts, before, self._direction, strict=True)
            ]
        # The trainer may clip the parts of its gradient in place.
        self._direction = [part if part is None else part.clone() for part in direction]
        self._previous = tasks[0].weights
        self._half_done[:] = False
        server.step(gradient._replace(parts=direction), used)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        i = task.worker
        if self._previous is not None and not self._half_done[i]:
            # The gradient at x_k is in, and the one at x_{k-1} follows.
            self._half_done[i] = True
            server.start([i])
            return
        self._half_done[i] = False
        super().arrive(server, task)


def _corrected(
    gradient: Tensor | None,
    before: Tensor | None,
    direction: Tensor | None,
    weight: float,
) -> Tensor | None:
    """One part of v_k; where a part of a gradient is missing, v starts anew from g_k."""
    if gradient is None or before is None or direction is None:
        return gradient
    return gradient + weight * (direction - before)


def workers_to_await(times: Floats, gradients: int) -> int:
    """How many of n workers a synchronous update should wait for.

    It is argmin_m tau_(m) (1 + S / m), for the sorted task times tau. Worked out here from the time
    of minibatch SGD with fixed task times, tau_(m) (L Delta / eps) (1 + sigma^2 / (m eps)), with S
    = sigma^2 / eps.

    Args:
        times: The task times tau, shape (n,).
        gradients: S.
    """
    m = np.arange(1, len(times) + 1)
    return int(m[np.argmin(np.sort(times) * (1 + gradients / m))])


class MSynchronous(Rennala):
    """Each worker computes a gradient; the first m of n make the step, the rest is cancelled.

    x^{k+1} = x^k - gamma / m * sum of the first m gradients, m from 1 to n. With m = n it is
    minibatch SGD. The default m is the best for task times fixed at their means, with the mean
    latencies, which the method then knows.

    Source: Begunov and Tyurin, m-Synchronous SGD, arXiv 2602.03802, for waiting for the first m and
    discarding the rest; that the rest is cancelled at once, as in a race, is our reading.
    """

    source = "Begunov and Tyurin, arXiv 2602.03802"

    def __init__(self, pool: Pool, budget: int, m: int | None = None) -> None:
        super().__init__(pool, budget)
        if m is None:
            self.m = workers_to_await(mean_cycle_times(pool), budget)
        else:
            self.m = whole_number("m", m)
        if self.m > pool.n:
            raise ValueError(f"m must be at most the number of workers, {pool.n}, not {m}")

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if self.collect(server, task):
            server.start(self.workers)


class BackupWorkers(MSynchronous):
    """The first n - b gradients at the current weights make the step; b late ones are dropped.

    x^{k+1} = x^k - gamma / (n - b) * sum of the n - b gradients. A late worker goes on to the end
    of its task, and then joins the step that is being collected. ``backup`` is b, from 0 to n - 1;
    by default n - m, with the m of ``MSynchronous``. With b = 0 it is minibatch SGD.

    Source: backup workers, Chen et al., 2016, as others quote them.
    """

    source = "Chen et al., 2016 (as quoted)"

    def __init__(self, pool: Pool, budget: int, backup: int | None = None) -> None:
        if backup is not None and whole_number("backup", backup, 0) >= pool.n:
            raise ValueError(
                f"backup must be less than the number of workers, {pool.n}, not {backup}",
            )
        if backup is None:
            m = None
        else:
            m = pool.n - backup
        super().__init__(pool, budget, m)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Drop what is late; collect the rest.

        After the step all but the late workers start at the new weights.
        """
        if server.delay(task) > 0:
            server.start([task.worker])
        elif self.collect(server, task):
            server.start(server.idle)


class Minibatch(MSynchronous):
    """Each worker computes one gradient; the step waits for all of them.

    x^{k+1} = x^k - gamma / n * sum of the n gradients. Source: standard synchronous SGD, as in
    Tyurin and Richtarik, 2023.
    """

    source = "standard; as in Tyurin and Richtarik, 2023"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget, pool.n)


def median_limits(pool: Pool) -> tuple[Floats, Floats]:
    """The median task time c_i of each worker, and the chance p_i of a task of at most c_i.

    Both have shape (n,). A recorded time of 0 is no limit, since a trial takes time: if the median
    is 0, the limit is the least time above 0.
    """
    times = pool.median()
    chances = np.full(pool.n, 0.5)
    for i, code in enumerate(pool.distributions.family):
        if FAMILIES[code].trace:
            # The least recorded time above 0 such that at least half of all times are at most that.
            recorded = pool.distributions.shift[i] + pool.distributions.scale[i] * pool.record(i)
            usable = np.unique(recorded[recorded > 0])
            shares = (recorded <= usable[:, None]).mean(axis=1)
            median = int(np.searchsorted(shares, 0.5))
            times[i] = usable[median]
            chances[i] = shares[median]
        elif FAMILIES[code].in_scipy is None:
            # Such a worker always takes the same time.
            chances[i] = 1.0
    return times, chances


class MindFlayer(Method):
    """Worker i makes B_i trials of length c_i; the step divides by the expected successes.

    x^{k+1} = x^k - gamma / E * sum of the gradients that came, E = sum_i p_i B_i, with p_i the
    chance that a task of worker i takes at most c_i. So the mean step is the step of the exact
    gradient. A trial is given up after c_i. An iteration ends when all trials are done, and moves
    nothing if none succeeded.

    With t = min_m (B + sum_{j <= m} p_j) / sum_{j <= m} p_j / c_j over the workers sorted by c, B_i
    = ceil(t / c_i - 1) for the first m, and 0 for the others: E is the budget B, or a little more.
    c_i is the median task time of worker i, whose distribution the method knows.

    Source: MindFlayer SGD, UAI 2025. There c_i = tau_i + t_i, with tau_i fixed and t_i a threshold
    on the random rest of the time; the median of that rest gives c_i the median of the whole.
    """

    source = "MindFlayer SGD, UAI 2025"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        if pool.latency is not None:
            raise ValueError(
                "mindflayer's numbers of trials are worked out for workers without latency, and"
                " these have one: choose another method, or pool.with_latency(None)"
            )
        self.time_limit, self.chances = median_limits(pool)
        workers, time = best_group(self.time_limit, self.chances, self.budget)
        self.trials: Ints = np.zeros(pool.n, np.int64)
        """The number B_i of trials of each worker in an iteration, shape (n,)."""
        enough = time / self.time_limit[workers] - 1
        # Without the small term, a rounding error would turn a whole number into the next one.
        self.trials[workers] = np.ceil(enough - 1e-9)
        self.expected = float(self.chances @ self.trials)
        """The expected successes E of an iteration."""

    @property
    def gradients(self) -> float:
        """The expected successes of an iteration."""
        return self.expected

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The step size 1 / (2 L) * min{1, eps E / sigma^2}."""
        return 1 / (2 * smoothness * max(1.0, variance / (accuracy * self.expected)))

    def begin(self, server: ParameterServer) -> None:
        self._remaining_trials = self.trials.copy()
        self._successes = list[EndedTask]()
        server.start(np.flatnonzero(self._remaining_trials))

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        self._remaining_trials[task.worker] -= 1
        if task.finished:
            self._successes.append(task)
        if self._remaining_trials[task.worker]:
            server.start([task.worker])
        elif not self._remaining_trials.any():
            server.update(self._successes, len(self._successes) / self.expected)
            self.begin(server)
