"""A run of a method: an iterator over its updates, or all of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ata_gym.checks import whole_number
from ata_gym.pools import Pool
from ata_gym.simulation import Floats, Ints
from ata_gym.training.methods.events import Workers
from ata_gym.training.methods.learner import Learner
from ata_gym.training.methods.method import Method
from ata_gym.training.methods.registry import find_method
from ata_gym.training.methods.server import Record, Server
from ata_gym.world import PoolLike

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ata_gym.training.optimizers import OptimizerFactory
    from ata_gym.training.problems import Problem


class Run(Iterator[Record]):
    """A method at work on a problem, on the clock of a pool; it yields a record after every update.

    It is endless, unless the pool has recorded times that end (``end="truncate"``): then it stops with the first task
    for which they do not suffice.

    Parameters
    ----------
    method
        A name of ``METHODS``, or a class of yours.
    pool
        The workers: a pool, or plain data of one.
    problem
        A problem, or the name of one.
    budget
        Gradients B that one update needs: Rennala's batch and, by default, Ringmaster's R; see ``Method``.
    seed
        Keys the task times, as the seed given to an env's ``reset``, and the weights and gradients, as for ``Trainer``.
    model, optimizer, lr, device
        As for ``Trainer``, but SGD by default, the optimiser of all the methods' formulas.
    hyperparameters
        Those of the method's class, such as ``max_delay`` of Ringmaster ASGD.

    Raises
    ------
    ValueError
        If there is no such method or hyperparameter, or for a bad argument.
    FloatingPointError
        From ``next``, if the loss is NaN or infinite: the run cannot go on, its weights are those before.

    Examples
    --------
    >>> from ata_gym.pools import exponential
    >>> run = Run("ringmaster", exponential([1.0, 2.0, 30.0]), "quadratic", budget=3, lr=0.1)
    >>> records = [next(run) for _ in range(500)]
    >>> records[-1].loss < 0.1 * records[0].loss, run.evaluate()["suboptimality"] < records[0].loss
    (True, True)
    """

    def __init__(
        self,
        method: str | type[Method],
        pool: PoolLike,
        problem: Problem | str,
        *,
        budget: int,
        seed: int = 0,
        model: nn.Module | Callable[[], nn.Module] | None = None,
        optimizer: str | OptimizerFactory = "sgd",
        lr: float | None = None,
        device: str | torch.device = "cpu",
        **hyperparameters: Any,
    ) -> None:
        checked = Pool.from_data(pool)
        found = find_method(method)
        try:
            self.method = found(checked, budget, **hyperparameters)
        except TypeError as error:
            raise ValueError(f"method {method!r} does not take these hyperparameters: {error}") from error
        self._learner = Learner(problem, model=model, optimizer=optimizer, lr=lr, device=device, seed=seed)
        self._server = Server(Workers(checked, seed, self.method.time_limit), self._learner)
        self.method.begin(self._server)

    @property
    def model(self) -> nn.Module:
        """The model as it is now."""
        return self._learner.trainer.model

    def evaluate(self) -> dict[str, float]:
        """The problem's figures for the model as it is now."""
        return self._learner.trainer.evaluate()

    def __next__(self) -> Record:
        """Go on until the next update."""
        before = self._server.updates
        while self._server.updates == before:
            if self._server.over:
                raise StopIteration
            self.method.arrive(self._server, self._server.next())
        return self._server.record


@dataclass(frozen=True)
class Result:
    """What K updates gave, as columns of shape (K,); the fields of ``Record`` say more."""

    update: Ints
    runtime: Floats
    total_worker_time: Floats
    computed: Ints
    used: Ints
    loss: Floats
    model: nn.Module
    """With its final weights."""


def run_method(
    method: str | type[Method],
    pool: PoolLike,
    problem: Problem | str,
    *,
    updates: int,
    runtime: float = math.inf,
    **arguments: Any,
) -> Result:
    """Run a method for a number of updates.

    Parameters
    ----------
    method, pool, problem, arguments
        As for ``Run``.
    updates
        After how many it ends.
    runtime
        It ends before the first update later than that, too.

    Raises
    ------
    ValueError, FloatingPointError
        As ``Run``.

    Examples
    --------
    >>> from ata_gym.pools import deterministic
    >>> result = run_method("minibatch", deterministic([1.0, 2.0]), "quadratic", updates=3, budget=2)
    >>> result.runtime, result.total_worker_time
    (array([2., 4., 6.]), array([3., 6., 9.]))
    """
    count = whole_number("updates", updates)
    if not runtime > 0:
        raise ValueError(f"runtime must be a positive number, not {runtime!r}")
    run = Run(method, pool, problem, **arguments)
    records: list[Record] = []
    for record in run:
        if record.runtime > runtime:
            break
        records.append(record)
        if len(records) == count:
            break
    kinds = (np.int64, np.float64, np.float64, np.int64, np.int64, np.float64)
    table = np.array(records, np.dtype(list(zip(Record._fields, kinds, strict=True))))
    return Result(**{name: table[name].copy() for name in Record._fields}, model=run.model)
