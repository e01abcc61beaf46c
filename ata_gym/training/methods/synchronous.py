"""Methods that step along the mean of gradients at the current weights: Rennala SGD, minibatches, backup workers."""

from __future__ import annotations

from ata_gym.pools import Pool
from ata_gym.training.methods.method import EndedTask, Method, ParameterServer
from ata_gym.training.methods.theory import synchronous_step, workers_to_await
from ata_gym.utils.validation import whole_number


class Rennala(Method):
    """All workers compute at x^k until B gradients are in; the rest is cancelled.

    x^{k+1} = x^k - gamma / B * sum of the B gradients. It is GTA in time, and one round of a ``Trainer`` in weights.

    Source: Tyurin and Richtarik, "Optimal time complexities of parallel stochastic optimization methods under a fixed
    computation model", NeurIPS 2023.
    """

    source = "Tyurin and Richtarik, 2023"
    family = "synchronous"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self.m = self.budget
        """Gradients of a step."""
        self._collected: list[EndedTask] = []

    @property
    def gradients(self) -> float:
        """The m gradients of a step."""
        return float(self.m)

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / L, eps m / (2 L sigma^2)} for the m gradients of a step."""
        return synchronous_step(smoothness, variance, accuracy, self.m)

    def collect(self, server: ParameterServer, task: EndedTask) -> bool:
        """Keep a gradient at the current weights, and step with the m-th one; whether it was the m-th."""
        self._collected.append(task)
        if len(self._collected) < self.m:
            return False
        server.update(self._collected)
        self._collected = []
        return True

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Collect, and let the worker go on; after the step all workers start at the new weights."""
        stepped = self.collect(server, task)
        server.start(self.workers if stepped else [task.worker])


class MSynchronous(Rennala):
    """Each worker computes one gradient; the first m of n make the step, and the rest is cancelled.

    x^{k+1} = x^k - gamma / m * sum of the first m gradients, m from 1 to n. With m = n it is minibatch SGD. The default
    m is the best for task times fixed at their means, which the method then knows.

    Source: Begunov and Tyurin, m-Synchronous SGD, arXiv 2602.03802, for waiting for the first m and discarding the
    rest; that the rest is cancelled at once, as in a race, is our reading.
    """

    source = "Begunov and Tyurin, arXiv 2602.03802"

    def __init__(self, pool: Pool, budget: int, m: int | None = None) -> None:
        super().__init__(pool, budget)
        self.m = workers_to_await(pool.mean(), budget) if m is None else whole_number("m", m)
        if self.m > pool.n:
            raise ValueError(f"m must be at most the number of workers, {pool.n}, not {m}")

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Collect; after the step all workers start at the new weights."""
        if self.collect(server, task):
            server.start(self.workers)


class BackupWorkers(MSynchronous):
    """The first n - b gradients at the current weights make the step; the b late ones are dropped.

    x^{k+1} = x^k - gamma / (n - b) * sum of the n - b gradients. A late worker goes on to the end of its task, and
    then joins the step that is being collected. ``backup`` is b, from 0 to n - 1; by default n - m, with the m of
    ``MSynchronous``. With b = 0 it is minibatch SGD.

    Source: backup workers, Chen et al., 2016, as others quote them.
    """

    source = "Chen et al., 2016 (as quoted)"

    def __init__(self, pool: Pool, budget: int, backup: int | None = None) -> None:
        if backup is not None and whole_number("backup", backup, 0) >= pool.n:
            raise ValueError(f"backup must be less than the number of workers, {pool.n}, not {backup}")
        super().__init__(pool, budget, None if backup is None else pool.n - backup)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Drop what is late; collect the rest. After the step all but the late workers start at the new weights."""
        if server.delay(task) > 0:
            server.start([task.worker])
        elif self.collect(server, task):
            server.start(server.idle)


class Minibatch(MSynchronous):
    """Each worker computes one gradient; the step waits for all of them.

    x^{k+1} = x^k - gamma / n * sum of the n gradients. Source: standard synchronous SGD, as in Tyurin and Richtarik,
    2023.
    """

    source = "standard; as in Tyurin and Richtarik, 2023"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget, pool.n)
