"""Rennala SGD, which the ATA paper calls GTA."""

from __future__ import annotations

from ata_gym.pools import Pool
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.server import EndedTask, ParameterServer
from ata_gym.training.methods.theory import synchronous_step


class Rennala(Method):
    """All workers compute at x^k until B gradients are in; the rest is cancelled.

    x^{k+1} = x^k - gamma / B * sum of the B gradients. It is GTA in time, and one round of a ``Trainer`` in weights.

    Source: Tyurin and Richtarik, "Optimal time complexities of parallel stochastic optimization methods under a fixed
    computation model", NeurIPS 2023.
    """

    source = "Tyurin and Richtarik, 2023"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self._collected: list[EndedTask] = []

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / L, eps B / (2 L sigma^2)}."""
        return synchronous_step(smoothness, variance, accuracy, self.budget)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Collect; at the B-th, step and start all workers at the new weights."""
        self._collected.append(task)
        if len(self._collected) < self.budget:
            server.start([task.worker])
        else:
            server.update(self._collected)
            self._collected = []
            server.start(self.all_workers)
