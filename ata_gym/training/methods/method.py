"""The contract of a training method."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ata_gym.pools import Pool
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number

if TYPE_CHECKING:
    from ata_gym.training.methods.server import EndedTask, ParameterServer


class Method(ABC):
    """What a server does when a task ends; a worker that it does not start stays idle.

    A subclass needs ``arrive`` and ``step_size``. An object is used for one run.

    Parameters
    ----------
    pool
        The workers. A method's docstring says what it knows of the distributions of their task times.
    budget
        Gradients B that one update needs: in theory max(1, ceil(sigma^2 / eps)), for variance sigma^2 and accuracy eps.
    """

    source: ClassVar[str] = ""
    """The publication that it comes from."""

    def __init__(self, pool: Pool, budget: int) -> None:
        self.pool, self.budget = pool, whole_number("budget", budget)
        self.all_workers: Ints = np.arange(pool.n)
        """All workers, 0 to n - 1."""
        self.time_limit: Floats | float = np.inf
        """The time after which a task is given up: one for all workers, or one for each, shape (n,)."""

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @abstractmethod
    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The learning rate that theory gives for SGD, from L, sigma^2 and eps; see ``theory``."""

    def begin(self, server: ParameterServer) -> None:
        """Start the first tasks, by default one on each worker."""
        server.start(self.all_workers)

    @abstractmethod
    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """React to the end of a task, whose worker is idle now, with at most one update."""

    def proceed(self, server: ParameterServer) -> None:  # noqa: B027 - most methods have nothing to do here
        """Make at most one update that needs no further task; called after each update. By default there is none."""
