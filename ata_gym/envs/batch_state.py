"""What the rows of an env remember of their episodes, and their steps where a step is a round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.changes.process import ChangeProcess
from ata_gym.envs.spaces import Allocation, Dispatch, RaceAllocation
from ata_gym.pools.families import CODES
from ata_gym.scenarios import Scenario
from ata_gym.simulation.dispatch import Completion
from ata_gym.simulation.keys import stream_keys
from ata_gym.simulation.rounds import RoundResult, allocation_round, race_round
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.memory import installed_memory
from ata_gym.utils.ranges import FINITE, Within
from ata_gym.utils.validation import short

Observation = dict[str, NDArray[Any]]
Backend = Callable[..., RoundResult]
"""What runs the tasks of a round: called as ``ata_gym.simulation.rounds.race_round`` is, with one row."""


class DispatchBackend(Protocol):
    """What runs the tasks of a round of dispatch, from one decision to the next result."""

    @property
    def dispatch(self) -> Callable[..., Completion]:
        """Goes on to the next result; called as ``ata_gym.simulation.dispatch.dispatch_step`` is, with one row."""


LARGEST = float(np.finfo(np.float32).max)
"""The upper bound of times in observation spaces: float32 must hold it."""
_NEVER = 2**63 - 1
"""The round at which an episode without a horizon ends."""
_TASK_NOISE = 0  # the stream of keys for task times
_TIMES = {"duration", "elapsed", "age", "round_time", "worker_time"}
"""What a backend gives in seconds."""


class StepResult(NamedTuple):
    """What one step gave E rows."""

    observation: Observation
    """Fresh arrays with a leading row axis."""
    time: Floats
    """(E,) time that passed."""
    worker_time: Floats
    """(E,) time that all workers were busy in it."""
    info: dict[str, NDArray[Any]]
    """Fresh arrays of shape (E,)."""
    ended: Mask
    """(E,) whether the episode ended."""


class BatchState(ABC):
    """What E rows remember of their episodes; the same class serves the single and the vector env of an id.

    Each step's feedback holds ``results`` results, and the workers' loads if ``signals``. ValueError if it does not fit
    this machine's memory.
    """

    forms: ClassVar[tuple[str, ...]]
    """The forms of actions, see ``ata_gym.envs.interface.actions``; the first is the env's own."""
    _FIELDS = ("keys", "episode", "round", "started", "runtime", "total_worker_time")

    def __init__(self, scenario: Scenario, rows: int, results: int, signals: bool) -> None:
        _check_memory(scenario, rows, results)
        self.scenario, self.results, self.shows_signals = scenario, results, signals
        self.faulty, self._records_end = scenario.faulty, scenario.ends
        self._pads = any(change.pads for change in scenario.changes)
        self._last = np.array(_NEVER if scenario.horizon is None else min(scenario.horizon, _NEVER))
        n = scenario.pool.n
        self.keys = np.zeros(rows, np.uint64)
        self.episode = np.full(rows, -1, np.int64)  # -1: never reset
        self.round = np.zeros(rows, np.int64)
        self.started = np.zeros((rows, n), np.int64)
        self.runtime = np.zeros(rows)  # of the finished rounds, as total_worker_time is
        self.total_worker_time = np.zeros(rows)
        self.process = ChangeProcess(scenario.pool, scenario.changes, rows)

    @abstractmethod
    def action_space(self) -> Allocation | Dispatch:
        """The space of one row's actions."""

    @abstractmethod
    def checker(self, rows: int) -> Callable[[object], NDArray[Any]]:
        """What checks the actions of a batch, (E, n), and gives them as an array; see ``spaces.Checked``."""

    @abstractmethod
    def step(self, action: NDArray[Any]) -> StepResult:
        """Take one step in every row with an action that the space has checked."""

    def observation_space(self) -> spaces.Dict:
        """The space of one row's observations: the feedback."""
        n, results = self.scenario.pool.n, self.results
        seen: dict[str, spaces.Space[Any]] = {
            "worker": spaces.Box(-1, n - 1, (results,), np.int64),
            "duration": spaces.Box(0.0, LARGEST, (results,), np.float64),
            "elapsed": spaces.Box(0.0, LARGEST, (n,), np.float64),
        }
        if self.shows_signals:
            seen["signal"] = spaces.Box(0.0, 1.0, (n, 2), np.float64)
        if self._pads:
            seen["present"] = spaces.Box(0, 1, (n,), np.int8)
        return spaces.Dict(seen)

    def no_feedback(self, rows: Mask | slice) -> Observation:
        """What some rows see after their reset."""
        count = len(self.round[rows])
        worker = np.full((count, self.results), -1, np.int64)
        return self.feedback(worker, np.zeros(worker.shape), np.zeros((count, self.scenario.pool.n)), rows)

    def feedback(
        self, worker: Ints, duration: Floats, elapsed: Floats, rows: Mask | slice = slice(None)
    ) -> Observation:
        """What some rows observe of a step, with the workers' loads where they are shown."""
        seen = {"worker": worker, "duration": duration, "elapsed": elapsed}
        if self.shows_signals:
            seen["signal"] = self.process.conditions.signal[rows].copy()
        if self._pads and (present := self.present()) is not None:
            seen["present"] = present[rows].astype(np.int8)
        return seen

    def present(self) -> Mask | None:
        """Places that hold a worker, (E, n); None: all."""
        return self.process.conditions.present

    @property
    def prices(self) -> Floats | float:
        """The price of each row, (E,), where it is drawn; else that of all."""
        drawn = self.process.conditions.price
        return self.scenario.price if drawn is None else drawn

    def step_some(self, action: NDArray[Any], rows: Mask) -> StepResult:
        """Take one step in some rows; in the others nothing happens, no time passes, and the result means nothing."""
        blank = np.zeros(len(rows), np.bool_)
        if not rows.any():
            zeros = np.zeros(len(rows))
            return StepResult(self.no_feedback(slice(None)), zeros, zeros.copy(), {}, blank)
        before = {name: field[~rows].copy() for name, field in self.remembered().items()}
        result = self.step(action)
        for name, field in self.remembered().items():
            field[~rows] = before[name]
        self.process.update_conditions(self.round)
        time, worker_time = np.where(rows, result.time, 0.0), np.where(rows, result.worker_time, 0.0)
        return result._replace(time=time, worker_time=worker_time, ended=result.ended & rows)

    def conditions(self) -> Conditions:
        """What the workers are like in the coming round, or in the one that has begun."""
        conditions = self.process.conditions
        return conditions if self.scenario.changes else conditions._replace(round=self.round.copy())

    def seed_row(self, row: int, seed: int) -> None:
        """Give a row the noise of a seed; its next episode is episode 0."""
        self.keys[row] = stream_keys(seed, stream=_TASK_NOISE)[0]
        self.episode[row] = -1

    def seeded(self) -> bool:
        """Whether every row has a seed and has begun an episode."""
        return bool((self.episode >= 0).all())

    def start_episode(self, rows: Mask | slice) -> None:
        """Start the next episode of some rows."""
        self.episode[rows] += 1
        for field in (self.round, self.started, self.runtime, self.total_worker_time):
            field[rows] = 0
        self.process.start_episode(rows, self.keys, self.episode, self.round)

    def next_round(self, rows: Mask | None = None) -> Mask:
        """Move some rows (None: all) to their next round; whether their episode has ended instead, shape (E,)."""
        self.round += 1 if rows is None else rows
        if self.scenario.changes:
            self.process.next_round(rows, self.keys, self.episode, self.round)
        ended: Mask = self.round >= self._last
        if self._records_end:
            ended |= self._short_of_records()
        return ended

    def _short_of_records(self) -> Mask:
        """Whether the recorded times may not fill the coming round, shape (E,)."""
        distributions = self.process.distributions
        by_round = distributions.family == CODES["trace-by-round"]
        needed = np.where(by_round, self.round[:, None] + 1, self.started + self.scenario.budget)
        short: Mask = np.any(needed > distributions.limit, axis=1)
        return short

    def ranges(self) -> dict[str, Within]:
        """What the numbers of ``remembered`` may be, by name; keys may be any."""
        time, number = Within(0.0, FINITE), Within()
        own = {"episode": Within(-1), "round": number, "started": number, "runtime": time, "total_worker_time": time}
        for k, change in enumerate(self.scenario.changes):
            low, high = np.reshape(change.ranges(self.scenario.pool.n), (-1, 2, 1)).swapaxes(0, 1)
            own[f"change_{k}"] = Within(low, high)
        return own

    def check(self, given: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027 - the ranges say most
        """ValueError unless numbers within the ``ranges`` can be what is remembered together."""

    def remembered(self) -> dict[str, NDArray[Any]]:
        """Everything there is to remember, by name: the arrays themselves."""
        changes = {f"change_{k}": memory for k, memory in enumerate(self.process.memories)}
        return {name: getattr(self, name) for name in self._FIELDS} | changes


class AllocationState(BatchState):
    """A step is a round whose allocation sums to B, and every task is run to its end."""

    forms: ClassVar[tuple[str, ...]] = ("allocation", "shares", "assign")
    _space: type[Allocation] = Allocation
    _simulate: Backend = staticmethod(allocation_round)

    def __init__(self, scenario: Scenario, rows: int, signals: bool = False, backend: Backend | None = None) -> None:
        if backend is not None and not callable(backend):
            raise ValueError(
                "backend must be a function that runs a round, called as ata_gym.simulation.rounds.race_round is, "
                f"not {short(backend)}"
            )
        check_fit(backend, scenario)
        super().__init__(scenario, rows, scenario.budget, signals)
        self.backend: Backend = self._simulate if backend is None else backend
        self.simulated = backend is None

    def action_space(self) -> Allocation:
        """Allocations."""
        return self._space(self.scenario.pool.n, self.scenario.budget)

    def checker(self, rows: int) -> Callable[[object], NDArray[Any]]:
        """The check of the batched space."""
        return self._space(self.scenario.pool.n, self.scenario.budget, rows).check

    def step(self, action: NDArray[Any]) -> StepResult:
        """Run one round of every row."""
        process, budget = self.process, self.scenario.budget
        now = process.distributions, self.keys, self.episode, self.round, self.started, action, budget
        result = self.backend(*now) if process.disturbances is None else self.backend(*now, process.disturbances)
        if not self.simulated:
            _check_backend_result(result, action, budget)
        self.started = result.started
        self.runtime += result.round_time
        self.total_worker_time += result.worker_time
        info: dict[str, NDArray[Any]] = {
            "round_time": result.round_time,
            "worker_time": result.worker_time,
            "runtime": self.runtime.copy(),
            "total_worker_time": self.total_worker_time.copy(),
        }
        if self.faulty:
            info["lost"] = result.lost
        ended = self.next_round()
        observation = self.feedback(result.worker, result.duration, result.elapsed)
        return StepResult(observation, result.round_time, result.worker_time, info, ended)


class RaceState(AllocationState):
    """A step is a round that ends at the B-th result; the rest of the allocation is cancelled."""

    forms: ClassVar[tuple[str, ...]] = ("allocation", "shares")
    _space = RaceAllocation
    _simulate = staticmethod(race_round)


def _check_memory(scenario: Scenario, rows: int, results: int) -> None:
    """ValueError if observations and the bounds of their space, some 64 bytes per entry, exceed the memory."""
    needed = 64 * rows * (results + scenario.pool.n)
    memory = installed_memory()
    memory = memory if memory < math.inf else 2.0**36
    if needed > memory:
        raise ValueError(
            f"the feedback of {rows} rows with {results} results each needs about {needed / 1e9:,.0f} GB of memory, "
            f"and this machine has {memory / 1e9:,.0f} GB: use a smaller budget or fewer rows"
        )


def check_fit(backend: object, scenario: Scenario) -> None:
    """Let a backend that has ``check`` raise ValueError unless it can run the rounds of a scenario."""
    check = getattr(backend, "check", None)
    if check is not None:
        check(scenario)


def _check_backend_result(result: RoundResult, action: NDArray[Any], budget: int) -> None:
    """ValueError unless a backend gave what ``race_round`` would: shapes, workers, and finite times of at least 0."""
    rows, n = action.shape
    shapes = ((rows, budget), (rows, budget), (rows, n), (rows, n), (rows,), (rows,))
    check_measured(result, shapes, n)


def check_measured(result: Any, shapes: Iterable[tuple[int, ...]], n: int) -> None:
    """ValueError unless the first fields of a backend's result have these shapes, n workers and possible times."""
    for name, field, shape in zip(result._fields, result, shapes, strict=False):
        if np.shape(field) != shape:
            raise ValueError(f"the backend's {name} must have shape {shape}, not {np.shape(field)}")
        values = np.asarray(field)
        if name in _TIMES and not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"the backend's {name} must be finite and at least 0, not {values.tolist()}")
        if name == "worker" and not ((values >= 0) & (values < n)).all():
            raise ValueError(f"the backend's worker must be from 0 to {n - 1}, not {values.tolist()}")
