"""The methods by name, and a run of one: an iterator over its updates."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from torch import nn

from ata_gym.scenarios import PoolData, resolve
from ata_gym.training.methods import asynchronous, heterogeneous, local, oracle, synchronous
from ata_gym.training.methods.method import Method, ParameterServer, UpdateRecord, WorkerClock
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks
from ata_gym.training.trainer.settings import TrainingSettings
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.validation import unknown

_SETTINGS = {field.name for field in fields(TrainingSettings)}

METHODS: Mapping[str, type[Method]] = MappingProxyType(
    {
        "rennala": synchronous.Rennala,
        "rennala-mvr": synchronous.RennalaMvr,
        "ringmaster": asynchronous.Ringmaster,
        "ringmaster-lmo": oracle.RingmasterLmo,
        "ringmaster-stops": asynchronous.RingmasterStops,
        "asgd": asynchronous.Asgd,
        "delay-adaptive-asgd": asynchronous.DelayAdaptiveAsgd,
        "naive-optimal-asgd": asynchronous.NaiveOptimalAsgd,
        "ssp": asynchronous.StaleSynchronous,
        "r2sp": asynchronous.RoundRobin,
        "minibatch": synchronous.Minibatch,
        "m-synchronous": synchronous.MSynchronous,
        "backup-workers": synchronous.BackupWorkers,
        "mindflayer": synchronous.MindFlayer,
        "malenia": heterogeneous.Malenia,
        "ringleader": heterogeneous.Ringleader,
        "rescaled-asgd": heterogeneous.RescaledAsgd,
        "local-sgd": local.LocalSgd,
        "loscar-sgd": local.LoscarSgd,
    },
)
"""The methods that ship with the package.

Where the data differ by worker, fast workers weigh more in all of them but malenia, ringleader and
rescaled-asgd, local-sgd with ``average="normalised"``, and minibatch, r2sp and ssp, for which each
worker computes as much; ``quadratic.HeterogeneousQuadratic`` has figures."""


def find_method(method: str | type[Method]) -> type[Method]:
    """The method of that name; a class is returned as it is.

    Raises:
        ValueError: If there is no method of that name.
    """
    if not isinstance(method, str):
        return method
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    return METHODS[method]


class MethodRun(Iterator[UpdateRecord]):
    """A method that trains a model on the clock of a pool, as an iterator.

    It yields a record after every update. It is endless, unless the pool has recorded times that
    end (``end="truncate"``): then it stops with the first task for which they do not suffice.
    ``next`` raises FloatingPointError if the loss is NaN or infinite: the weights stay as they
    were.

    Args:
        method: A name of ``METHODS`` or a subclass of ``Method``.
        pool: The workers.
        problem: A problem, its name, or ``Tasks``, which come in the order in which updates use
            them.
        budget: Gradients B that one update needs: Rennala's batch and, by default, Ringmaster's R;
            see ``Method``.
        seed: Keys the task times, as the seed given to an env's ``reset``, and the weights and
            gradients.
        arguments: The other fields of ``TrainingSettings`` except ``graphs``, with the optimiser of
            all the methods' formulas, ``"sgd"``, by default; and hyperparameters of the method's
            class, such as ``max_delay`` of Ringmaster.

    Raises:
        ValueError: For a bad argument, or for workers that are drawn anew.

    Example:
        >>> from ata_gym.pools import exponential
        >>> pool = exponential([1.0, 2.0, 30.0])
        >>> run = MethodRun("ringmaster", pool, "quadratic", budget=3, lr=0.1)
        >>> records = [next(run) for _ in range(500)]
        >>> records[-1].loss < 0.1 * records[0].loss
        True
        >>> run.evaluate()["suboptimality"] < records[0].loss
        True
    """

    def __init__(
        self,
        method: str | type[Method],
        pool: PoolData,
        problem: Problem | Tasks | str,
        *,
        budget: int,
        seed: int = 0,
        **arguments: Any,
    ) -> None:
        scenario = resolve(None, pool, budget)
        if scenario.changes:
            raise ValueError(
                "a method plays one pool, which no PoolDistribution is: give a pool, as its"
                " typical()",
            )
        settings = {"optimizer": "sgd", "seed": seed} | {
            k: v for k, v in arguments.items() if k in _SETTINGS
        }
        if settings.get("graphs"):
            raise ValueError(
                "graphs=True does not go with a method, whose gradients are at other weights each"
                " time",
            )
        method_class = find_method(method)
        hyperparameters = {k: v for k, v in arguments.items() if k not in _SETTINGS}
        try:
            self.method = method_class(scenario.pool, budget, **hyperparameters)
        except TypeError as error:
            raise ValueError(
                f"method {method!r} does not take these hyperparameters: {error}",
            ) from error
        # The server says how many gradients an update has, so that the trainer's own B is not used.
        self._trainer = Trainer(problem, 1, **settings)
        self.method.check(self._trainer)
        clock = WorkerClock(
            scenario.pool,
            seed,
            self.method.time_limit,
            self.method.overlapped,
        )
        self._server = ParameterServer(clock, self._trainer)
        self.method.begin(self._server)

    @property
    def model(self) -> nn.Module:
        """The model as it is now."""
        return self._trainer.model

    def evaluate(self) -> dict[str, float]:
        return self._trainer.evaluate()

    def __next__(self) -> UpdateRecord:
        """Go on until the next update."""
        updates = self._server.updates
        self.method.proceed(self._server)
        while self._server.updates == updates:
            self.method.arrive(self._server, self._server.next())
        return self._server.record
