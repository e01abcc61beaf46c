"""R2SP: asynchronous SGD whose workers update in a fixed order."""

from __future__ import annotations

from ata_gym.pools import Pool
from ata_gym.training.methods.asynchronous.asgd import Asgd
from ata_gym.training.methods.server import EndedTask, ParameterServer
from ata_gym.training.methods.theory import asynchronous_step


class RoundRobin(Asgd):
    """Asynchronous SGD in which workers 0 to n - 1 update in turn, again and again.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}, of worker k mod n. A worker that has ended its task waits for its
    turn, updates, and starts at the new weights, so that every delay is at most n - 1.

    Source: R2SP, Chen et al., INFOCOM 2019. Left out are the even gaps between updates, which save bandwidth at the
    server, and the batch sizes tuned to the workers' speeds.
    """

    source = "Chen et al., INFOCOM 2019, the order of updates alone"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self._waiting: dict[int, EndedTask] = {}

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / (2 n L), eps / (4 L sigma^2)}: no delay reaches n."""
        return asynchronous_step(smoothness, variance, accuracy, self.pool.n)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Keep the gradient until it is its worker's turn."""
        self._waiting[task.worker] = task
        self.proceed(server)

    def proceed(self, server: ParameterServer) -> None:
        """If the worker whose turn it is has ended its task, step, and let it go on."""
        task = self._waiting.pop(server.updates % self.pool.n, None)
        if task is not None:
            super().arrive(server, task)
