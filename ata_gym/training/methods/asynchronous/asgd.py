"""Asynchronous SGD: every gradient moves the weights when it arrives."""

from __future__ import annotations

import numpy as np

from ata_gym.pools import Pool
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.server import EndedTask, ParameterServer
from ata_gym.training.methods.theory import asynchronous_step, best_group, longest_delay


class Asgd(Method):
    """Each gradient makes a step when it arrives, and its worker goes on from the new weights.

    x^{k+1} = x^k - gamma * gradient at x^{k - delay}; nothing is discarded or cancelled.

    Source: standard asynchronous SGD, as in Maranjyan, Tyurin and Richtarik, ICML 2025.
    """

    source = "standard; as in Maranjyan, Tyurin and Richtarik, ICML 2025"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self.workers = self.all_workers
        """Those that take part; the others never start."""

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / (2 R L), eps / (4 L sigma^2)}, R - 1 the longest delay if task times were fixed at their means."""
        delays = 1 + longest_delay(self.pool.mean()[self.workers])
        return asynchronous_step(smoothness, variance, accuracy, delays)

    def scale(self, delay: int) -> float:
        """A factor on the learning rate, for a gradient of that delay."""
        del delay
        return 1.0

    def begin(self, server: ParameterServer) -> None:
        """Start all workers that take part."""
        server.start(self.workers)

    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """Step, and start the worker again at the new weights."""
        server.update([task], self.scale(server.delay(task)))
        server.start([task.worker])


class DelayAdaptiveAsgd(Asgd):
    """Asynchronous SGD whose late gradients make smaller steps.

    x^{k+1} = x^k - gamma * n / max(n, delay) * gradient at x^{k - delay}.

    Source: the baseline in the experiments of Maranjyan, Tyurin and Richtarik, ICML 2025, after Koloskova et al. and
    Mishchenko et al., 2022.
    """

    source = "Koloskova et al., 2022; Mishchenko et al., 2022; as in Maranjyan et al., ICML 2025"

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """min{1 / (4 n L), eps / (4 L sigma^2)}, so that the step of a late gradient is at most 1 / (4 L delay).

        The first is the rule of Koloskova et al. and of Mishchenko et al., as recalled and not checked again; that the
        noise asks for the second term is taken from Ringmaster ASGD.
        """
        return asynchronous_step(smoothness, variance, accuracy, 2 * self.pool.n)

    def scale(self, delay: int) -> float:
        """The factor n / max(n, delay).

        >>> from ata_gym.pools import deterministic
        >>> method = DelayAdaptiveAsgd(deterministic([1.0, 1.0]), budget=1)
        >>> [method.scale(delay) for delay in (0, 2, 4, 8)]
        [1.0, 1.0, 0.5, 0.25]
        """
        return self.pool.n / max(self.pool.n, delay)


class NaiveOptimalAsgd(Asgd):
    """Asynchronous SGD on the fastest m workers alone, m chosen for the best time in theory.

    m = argmin_m (sum_{i <= m} 1 / tau_i)^{-1} (S + m), for the sorted mean task times tau_i, which the method knows,
    and S = B.

    Source: Naive Optimal ASGD in Maranjyan, Tyurin and Richtarik, ICML 2025, as others quote it.
    """

    source = "Maranjyan, Tyurin and Richtarik, ICML 2025 (as quoted)"

    def __init__(self, pool: Pool, budget: int) -> None:
        super().__init__(pool, budget)
        self.workers = np.sort(best_group(pool.mean(), np.ones(pool.n), budget).workers)
