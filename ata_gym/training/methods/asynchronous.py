"""Methods whose updates use gradients at earlier weights.

They are asynchronous SGD, Ringmaster ASGD, SSP and R2SP.
"""

from abc import abstractmethod

import numpy as np

from ata_gym.pools import Pool
from ata_gym.training.methods.method import (
    EndedTask,
    Method,
    ParameterServer,
    best_group,
    mean_cycle_times,
)
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number


class Asynchronous(Method):
    """A method each of whose updates uses one gradient, with a delay that is less than R."""

    @property
    @abstractmethod
    def delay_bound(self) -> int:
        """The bound R on the delay, on which the step size depends."""

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The step size min{1 / (2 R L), eps / (4 L sigma^2)}, from Ringmaster ASGD."""
        return 1 / (smoothness * max(2.0 * self.delay_bound, 4 * variance / accuracy))


def longest_delay(times: Floats) -> int:
    """The number of updates of plain asynchronous SGD during the slowest worker's task.

    It is the sum of ceil(tau_max / tau_i) over the other workers i, worked out here for fixed task
    times. With random times it may be exceeded.

    Args:
        times: The task times tau of n workers, shape (n,).
    """
    slowest = times.argmax()
    return int(np.ceil(times[slowest] / np.delete(times, slowest)).sum())


class Asgd(Asynchronous):
    """Each gradient makes a step when it arrives, and its worker goes on from the new weights.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}; nothing is discarded or cancelled. Source:
    standard asynchronous SGD, as in Maranjyan, Tyurin and Richtarik, ICML 2025.
    """

    source = "standard; as in Maranjyan, Tyurin and Richtarik, ICML 2025"

    @property
    def delay_bound(self) -> int:
        """The bound R: R - 1 is the longest delay if task times are fixed at their means.

        With latencies each time is the sum of a task time and its latency.
        """
        return 1 + longest_delay(mean_cycle_times(self.pool)[self.workers])

    def scale(self, delay: int) -> float:
        """A factor on the learning rate, for a gradient of that delay."""
        return 1.0

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        server.update([task], self.scale(server.delay(task)))
        server.start([task.worker])


class DelayAdaptiveAsgd(Asgd):
    """Asynchronous SGD whose late gradients make smaller steps.

    x^{k+1} = x^k - gamma * n / max(n, delay) * gradient at x^{k - delay}.

    Source: the baseline in the experiments of Maranjyan, Tyurin and Richtarik, ICML 2025, after
    Koloskova et al. and Mishchenko et al., 2022.
    """

    source = "Koloskova et al., 2022; Mishchenko et al., 2022; as in Maranjyan et al., ICML 2025"

    @property
    def delay_bound(self) -> int:
        """The bound 2 n, for the step 1 / (4 n L).

        The step of a late gradient is then at most 1 / (4 L delay). This is the rule of Koloskova
        et al. and of Mishchenko et al., as recalled and not checked again.
        """
        return 2 * self.pool.n

    def scale(self, delay: int) -> float:
        """The factor n / max(n, delay) on the learning rate."""
        return self.pool.n / max(self.pool.n, delay)


class NaiveOptimalAsgd(Asgd):
    """Asynchronous SGD on the fastest m workers alone, m chosen for the best time in theory.

    m = argmin_m (sum_{i <= m} 1 / tau_i)^{-1} (S + m), for the sorted mean task times tau_i, mean
    latencies included, which the method knows, and S = B. Source: Naive Optimal ASGD in Maranjyan,
    Tyurin and Richtarik, ICML 2025, as others quote it.
    """

    source = "Maranjyan, Tyurin and Richtarik, ICML 2025 (as quoted)"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self.workers = np.sort(best_group(mean_cycle_times(pool), np.ones(pool.n), budget)[0])


class Ringmaster(Asynchronous):
    """Asynchronous SGD that ignores a gradient whose delay has reached R.

    If delay < R: x^{k+1} = x^k - gamma * gradient at x^{k - delay}; in either case its worker
    starts again at the current weights. R = 1 is Hero SGD: with fixed task times, the fastest
    worker alone. R = infinity is plain ASGD. ``max_delay`` is R, from 1 on; by default it is B: in
    theory both are max(1, ceil(sigma^2 / eps)).

    Source: Maranjyan, Tyurin and Richtarik, "Ringmaster ASGD", ICML 2025, the version without
    calculation stops.
    """

    source = "Maranjyan, Tyurin and Richtarik, ICML 2025"

    def __init__(self, pool: Pool, budget: int, max_delay: int | None = None) -> None:
        super().__init__(pool, budget)
        if max_delay is None:
            self.max_delay = self.budget
        else:
            self.max_delay = whole_number("max_delay", max_delay)

    @property
    def delay_bound(self) -> int:
        """The delay R at which a gradient is ignored."""
        return self.max_delay

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        if server.delay(task) < self.max_delay:
            server.update([task])
        server.start([task.worker])


class RingmasterStops(Ringmaster):
    """Asynchronous SGD that stops a task as soon as its delay reaches R, and starts it anew.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}; every gradient that arrives has delay < R. R
    = 1 is Rennala SGD with B = 1. Source: as for ``Ringmaster``, the version with calculation
    stops.
    """

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        server.update([task])
        server.start([task.worker, *server.late_workers(self.max_delay)])


class StaleSynchronous(Asynchronous):
    """Asynchronous SGD in which a worker waits if it is more than s tasks ahead of the slowest.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}. A worker that has ended c tasks starts the
    next as soon as every other has ended at least c - s. With s = 0 all workers start together at
    the same weights, as in synchronous SGD whose step is gamma times the sum of the n gradients; s
    = infinity is plain ASGD. ``staleness`` is s, from 0 on; its default of 3 is ours.

    Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
    server", NIPS 2013, as recalled. There a worker may compute at weights that lack the last s
    updates of others; here it gets all that are in. FlexRR (Harlap et al., 2016) moves parts of a
    slow worker's iteration to others: an iteration here is a single task, which has no parts.
    """

    source = "Ho et al., NIPS 2013 (as recalled)"

    def __init__(self, pool: Pool, budget: int, staleness: int = 3) -> None:
        super().__init__(pool, budget)
        self.staleness = whole_number("staleness", staleness, 0)
        self.ended: Ints = np.zeros(pool.n, np.int64)
        """The number of tasks that each worker has ended, shape (n,)."""

    @property
    def delay_bound(self) -> int:
        """The bound (n - 1) (2 s + 1) + 1.

        During a task each other worker goes from s tasks behind to at most s + 1 ahead.
        """
        return (self.pool.n - 1) * (2 * self.staleness + 1) + 1

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        server.update([task])
        self.ended[task.worker] += 1
        # The end of the slowest worker's task can let several waiting workers go on.
        idle = server.idle
        server.start(idle[self.ended[idle] <= self.ended.min() + self.staleness])


class RoundRobin(Asgd):
    """Asynchronous SGD in which workers 0 to n - 1 update in turn, again and again.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}, of worker k mod n. A worker that has ended
    its task waits for its turn, updates, and starts at the new weights, so that every delay is at
    most n - 1.

    Source: R2SP, Chen et al., INFOCOM 2019. Left out are the even gaps between updates, which save
    bandwidth at the server, and the batch sizes tuned to the workers' speeds.
    """

    source = "Chen et al., INFOCOM 2019, the order of updates alone"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self._waiting: dict[int, EndedTask] = {}

    @property
    def delay_bound(self) -> int:
        """The number n of workers: no delay reaches it."""
        return self.pool.n

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        self._waiting[task.worker] = task
        self.proceed(server)

    def proceed(self, server: ParameterServer) -> None:
        task = self._waiting.pop(server.updates % self.pool.n, None)
        if task is not None:
            super().arrive(server, task)
