"""The contract of a method."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ata_gym.checks import whole_number
from ata_gym.pools import Pool
from ata_gym.simulation import Floats, Ints

if TYPE_CHECKING:
    from ata_gym.training.methods.server import Server, Task


class Method(ABC):
    """How a server reacts when a task ends; whatever is not started there stays idle.

    A subclass is one method: ``arrive`` is the whole of it. One object serves one run.

    Parameters
    ----------
    pool
        The workers. What a method knows of the law of their times is said in its docstring.
    budget
        Gradients B that one update needs: in theory max(1, ceil(sigma^2 / eps)), for variance sigma^2 and accuracy eps.
    """

    source: ClassVar[str] = ""
    """Where it comes from."""

    def __init__(self, pool: Pool, budget: int) -> None:
        self.pool, self.budget = pool, whole_number("budget", budget)
        self.everybody: Ints = np.arange(pool.n)
        """All workers, 0 to n - 1."""
        self.time_limit: Floats | float = np.inf
        """After which a worker's task is given up, for all or for each, shape (n,)."""

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @abstractmethod
    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The learning rate of theory, for SGD: L, sigma^2 and the wanted mean of the squared gradient norm, eps."""

    def begin(self, server: Server) -> None:
        """Start the first tasks, by default one on each worker."""
        server.start(self.everybody)

    @abstractmethod
    def arrive(self, server: Server, task: Task) -> None:
        """React to the end of a task, whose worker is idle now, with at most one update."""
