"""Synchronous SGD: each worker computes one gradient at the current weights; a step waits for all or some of them."""

from __future__ import annotations

from ata_gym.pools import Pool
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.server import EndedTask, ParameterServer
from ata_gym.training.methods.theory import synchronous_step, workers_to_await
from ata_gym.utils.validation import whole_number


class MSynchronous(Method):
    """Each worker computes one gradient; the first m of n make the step, and the rest is cancelled.

    x^{k+1} = x^k - gamma / m * sum of the first m gradients. With m = n it is minibatch SGD.

    Source: Begunov and Tyurin, m-Synchronous SGD, arXiv 2602.03802, for waiting for the first m and discarding the
    rest; that the rest is cancelled at once, as in a race, is our reading.

    Parameters
    ----------
    pool, budget
        As for ``Method``.
    m
        Gradients of a step, from 1 to n. The default is the best for task times fixed at their means, which
        the method then knows.
    """

    source = "Begunov and Tyurin, arXiv 2602.03802"

    def __init__(self, pool: Pool, budget: int, m: int | None = None) -> None:
        super().__init__(pool, budget)
        self.m = workers_to_await(pool.mean(), budget) if m is None else whole_number("m", m)
        if self.m > pool.n:
            raise ValueError(f"m must be at most the number of workers, {pool.n}, not {m}")
        self._collected: list[EndedTask] = []

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / L, eps m / (2 L sigma^2)}."""
        return synchronous_step(smoothness, variance, accuracy, self.m)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Collect; at the m-th, step and start at the new weights."""
        self._collected.append(task)
        if len(self._collected) == self.m:
            server.update(self._collected)
            self._collected = []
            self.start_next(server)

    def start_next(self, server: ParameterServer) -> None:
        """All workers start at the new weights."""
        server.start(self.all_workers)


class BackupWorkers(MSynchronous):
    """As soon as n - b gradients at the current weights are in, they make the step; the b late ones are dropped.

    x^{k+1} = x^k - gamma / (n - b) * sum of the n - b gradients. A late worker goes on to the end of its task, and
    then joins the step that is being collected. With b = 0 it is minibatch SGD.

    Source: backup workers, Chen et al., 2016, as others quote them.

    Parameters
    ----------
    pool, budget
        As for ``Method``.
    backup
        The number b of workers that are not waited for, from 0 to n - 1. By default n - m, with the m of
        ``MSynchronous``.
    """

    source = "Chen et al., 2016 (as quoted)"

    def __init__(self, pool: Pool, budget: int, backup: int | None = None) -> None:
        if backup is not None and whole_number("backup", backup, 0) >= pool.n:
            raise ValueError(f"backup must be less than the number of workers, {pool.n}, not {backup}")
        super().__init__(pool, budget, None if backup is None else pool.n - backup)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Drop what is late; collect the rest."""
        if server.delay(task) > 0:
            server.start([task.worker])
        else:
            super().arrive(server, task)

    def start_next(self, server: ParameterServer) -> None:
        """Workers whose gradients were used start at the new weights; the others finish their tasks."""
        server.start(server.idle)


class Minibatch(MSynchronous):
    """Each worker computes one gradient; the step waits for all of them.

    x^{k+1} = x^k - gamma / n * sum of the n gradients.

    Source: standard synchronous SGD, as in Tyurin and Richtarik, 2023.
    """

    source = "standard; as in Tyurin and Richtarik, 2023"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget, pool.n)
