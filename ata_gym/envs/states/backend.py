"""Backends, which run the tasks of a round in place of the simulation, and their checks."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools import Pool, deterministic
from ata_gym.scenarios import Scenario
from ata_gym.simulation.dispatch import Completion, RoundState
from ata_gym.simulation.rounds import RoundResult

Backend: TypeAlias = Callable[..., RoundResult]
"""A backend of rounds, called as ``ata_gym.simulation.rounds.race_round`` is, with one row."""

_TIME_FIELDS = {"duration", "elapsed", "age", "round_time", "worker_time", "latency"}
"""The fields of results that hold times."""


@runtime_checkable
class DispatchBackend(Protocol):
    """A backend of dispatch, which runs the tasks from one decision to the next result."""

    @property
    def dispatch(self) -> Callable[..., Completion]:
        """A function that goes on to the next result.

        It is called as ``ata_gym.simulation.dispatch.dispatch_step`` is, with one row.
        """


@runtime_checkable
class CheckingBackend(Protocol):
    """A backend that refuses the scenarios that it cannot run."""

    def check(self, scenario: Scenario) -> None:
        """Check a scenario; an env calls this when it is made.

        Raises:
            ValueError: If the backend cannot run its rounds.
        """


class RealWorkers:
    """The part that backends of real workers share; copies of an env's spec share the backend."""

    backend_name: ClassVar[str]
    """The name of the backend in errors."""
    workers: tuple[Any, ...]
    """The workers."""
    budget: int
    """The results that a round needs."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def pool(self) -> Pool:
        """A pool of as many workers, for ``gymnasium.make``; its task times do not matter."""
        return deterministic(np.ones(len(self.workers)))

    def check(self, scenario: Scenario) -> None:
        """Check that the rounds of a scenario can be run here; an env calls this when it is made.

        Raises:
            ValueError: If they cannot be run.
        """
        n = len(self.workers)
        if scenario.pool.n != n:
            raise ValueError(
                f"the env has {scenario.pool.n} workers, but its {self.backend_name} has {n}"
            )
        if scenario.budget != self.budget:
            raise ValueError(
                f"the env has budget {scenario.budget}, but its {self.backend_name} has"
                f" {self.budget}",
            )
        if scenario.pool.latency is not None:
            raise ValueError(
                f"a {self.backend_name} has real workers, whose latency is measured and not given:"
                " leave latency=... out",
            )
        if scenario.changes:
            raise ValueError(
                f"a {self.backend_name} has real workers, which no changes=... can change: leave"
                " them out",
            )


def check_round(result: RoundResult, action: NDArray[Any], budget: int) -> None:
    """Check the result of a backend of rounds.

    Args:
        result: The result.
        action: The allocation, shape (E, n).
        budget: The results that the round needs, B.

    Raises:
        ValueError: Unless shapes, workers and times are such as ``race_round`` gives. Times are
            finite and at least 0.
    """
    rows, n = action.shape
    _check_fields(result, [(rows, budget)] * 2 + [(rows, n)] * 2 + [(rows,)] * 2, n)


def check_completion(completion: Completion, previous: RoundState, budget: int) -> None:
    """Check the result of a backend of dispatch.

    Args:
        completion: The result.
        previous: The state of the round before the result.
        budget: The results that a round needs, B.

    Raises:
        ValueError: Unless it is such as ``dispatch_step`` gives: one more result, and no time that
            has become less.
    """
    rows, n = previous.running.shape
    _check_fields(completion, [(rows,)] * 2 + [(rows, n)] * 2 + [(rows,)] * 3 + [(rows, n)], n)
    round_over = previous.missing == 1
    missing = np.where(round_over, budget, previous.missing - 1)
    state = completion.round_state
    if not (
        np.array_equal(completion.round_over, round_over) and np.array_equal(state.missing, missing)
    ):
        raise ValueError(
            f"the backend must give one result of the {previous.missing.tolist()} that are missing,"
            f" so that {missing.tolist()} are, not {np.asarray(state.missing).tolist()}",
        )
    _check_shapes(state, [field.shape for field in previous])
    time_fell = completion.round_time < previous.time
    worker_time_fell = completion.worker_time < previous.worker_time
    if time_fell.any() or worker_time_fell.any():
        raise ValueError(
            "the backend's round_time and worker_time must not become less within a round",
        )
    if not (
        (state.tasks >= 0) & (state.tasks <= budget) & (state.running >= 0) & (state.running <= 1)
    ).all():
        raise ValueError(f"the backend's tasks must be from 0 to {budget}, and running 0 or 1")


def _check_fields(
    result: RoundResult | Completion,
    shapes: Sequence[tuple[int, ...]],
    n: int,
) -> None:
    """Check the first fields of a result.

    Raises:
        ValueError: Unless they have these shapes, workers below n, and possible times.
    """
    _check_shapes(result, shapes)
    if np.shape(result.latency) != np.shape(result.elapsed):
        raise ValueError(
            f"the backend's latency must have shape {np.shape(result.elapsed)}, not"
            f" {np.shape(result.latency)}",
        )
    for name in (name for name in result._fields if name in _TIME_FIELDS):
        time = np.asarray(getattr(result, name))
        if not (np.isfinite(time) & (time >= 0)).all():
            raise ValueError(
                f"the backend's {name} must be finite and at least 0, not {time.tolist()}",
            )
    worker = np.asarray(result.worker)
    if not ((worker >= 0) & (worker < n)).all():
        raise ValueError(f"the backend's worker must be from 0 to {n - 1}, not {worker.tolist()}")


def _check_shapes(
    result: RoundResult | Completion | RoundState,
    shapes: Sequence[tuple[int, ...]],
) -> None:
    """Check the shapes of the first fields of a result."""
    fields: tuple[Any, ...] = result
    for name, field, shape in zip(result._fields, fields, shapes, strict=False):
        if np.shape(field) != shape:
            raise ValueError(f"the backend's {name} must have shape {shape}, not {np.shape(field)}")
