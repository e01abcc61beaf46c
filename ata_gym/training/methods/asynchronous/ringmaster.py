"""Ringmaster ASGD: asynchronous SGD with bounded delays."""

from __future__ import annotations

from ata_gym.pools import Pool
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.server import EndedTask, ParameterServer
from ata_gym.training.methods.theory import asynchronous_step
from ata_gym.utils.validation import whole_number


class Ringmaster(Method):
    """Asynchronous SGD that ignores a gradient whose delay has reached R.

    If delay < R: x^{k+1} = x^k - gamma * gradient at x^{k - delay}; in either case its worker starts again at the
    current weights. R = 1 is Hero SGD: with fixed task times, the fastest worker alone. R = infinity is plain ASGD.

    Source: Maranjyan, Tyurin and Richtarik, "Ringmaster ASGD", ICML 2025, the version without calculation stops.

    Parameters
    ----------
    pool, budget
        As for ``Method``.
    max_delay
        The threshold R, from 1 on. By default B: in theory both are max(1, ceil(sigma^2 / eps)).
    """

    source = "Maranjyan, Tyurin and Richtarik, ICML 2025"

    def __init__(self, pool: Pool, budget: int, max_delay: int | None = None) -> None:
        super().__init__(pool, budget)
        self.max_delay = self.budget if max_delay is None else whole_number("max_delay", max_delay)

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / (2 R L), eps / (4 L sigma^2)}."""
        return asynchronous_step(smoothness, variance, accuracy, self.max_delay)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Step if delay < R; start the worker again."""
        if server.delay(task) < self.max_delay:
            server.update([task])
        server.start([task.worker])


class RingmasterStops(Ringmaster):
    """Asynchronous SGD that stops a task as soon as its delay reaches R, and starts it anew.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}; every gradient that arrives has delay < R. R = 1 is Rennala SGD
    with B = 1.

    Source: Maranjyan, Tyurin and Richtarik, "Ringmaster ASGD", ICML 2025, the version with calculation stops.
    """

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Step; start the worker, and all whose delay is R now, at the new weights."""
        server.update([task])
        server.start([task.worker, *server.late(self.max_delay)])
