"""What the rows of an env remember of their episodes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.changes.change import ChangeProcess
from ata_gym.envs.spaces import Allocation, Dispatch
from ata_gym.pools.families import CODES
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import NoiseKeys, stream_keys
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.machine import installed_memory
from ata_gym.utils.ranges import FINITE, Within
from ata_gym.utils.trees import choose_rows

Feedback: TypeAlias = dict[str, NDArray[Any]]

LARGEST = float(np.finfo(np.float32).max)  # the upper bound of times in observation spaces: float32 must hold it
_NEVER = 2**63 - 1  # the round at which an episode without a horizon ends


class StepResult(NamedTuple):
    """What one step gave E rows."""

    observation: Feedback  # fresh arrays with a leading row axis
    time: Floats  # (E,) time that passed
    worker_time: Floats  # (E,) time that all workers were busy in it
    info: dict[str, NDArray[Any]]  # fresh arrays of shape (E,)
    ended: Mask  # (E,) whether the episode ended


class BatchState(ABC):
    """What E rows remember of their episodes; the same class serves the single and the vector env of an id.

    The feedback of a step holds ``results`` results, and the workers' loads if ``signals``. ``backend`` runs the tasks;
    without one they are simulated. ValueError if the backend has a method ``check`` that refuses the scenario, and if
    the rows do not fit this machine's memory.
    """

    forms: ClassVar[tuple[str, ...]]  # the forms of actions, see ``interface.actions``; the first is the env's own
    _FIELDS = ("keys", "episode", "round", "started", "runtime", "total_worker_time")

    def __init__(self, scenario: Scenario, rows: int, signals: bool, backend: Any, results: int) -> None:
        n = scenario.pool.n
        if hasattr(backend, "check"):
            backend.check(scenario)
        _check_memory(rows, n, results)
        self.scenario, self.rows, self.shows_signals, self.results = scenario, rows, signals, results
        self.simulated = backend is None
        self.faulty, self._records_end = scenario.faulty, scenario.ends
        self._pads = scenario.drawn is not None and scenario.drawn.fewest != n
        self._last = np.array(_NEVER if scenario.horizon is None else min(scenario.horizon, _NEVER))
        self.keys = np.zeros(rows, np.uint64)
        self.episode = np.full(rows, -1, np.int64)  # -1: never reset
        self.round = np.zeros(rows, np.int64)
        self.started = np.zeros((rows, n), np.int64)
        self.runtime, self.total_worker_time = np.zeros(rows), np.zeros(rows)  # of the finished rounds
        self.process = ChangeProcess(scenario.catalogue, scenario.changes, rows, n)

    @abstractmethod
    def action_space(self) -> Allocation | Dispatch:
        """The space of one row's actions."""

    @abstractmethod
    def check_action(self, action: object, shape: tuple[int, ...]) -> NDArray[Any]:
        """The action, (n,) of one row or (E, n), as an array; ValueError that says what is wrong with it."""

    @abstractmethod
    def step(self, action: NDArray[Any]) -> StepResult:
        """Take one step in every row with an action, (E, n), that was checked."""

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

    def no_feedback(self, rows: Mask | slice) -> Feedback:
        """What some rows see after their reset."""
        count = len(self.round[rows])
        worker = np.full((count, self.results), -1, np.int64)
        return self.feedback(worker, np.zeros(worker.shape), np.zeros((count, self.scenario.pool.n)), rows)

    def feedback(self, worker: Ints, duration: Floats, elapsed: Floats, rows: Mask | slice = slice(None)) -> Feedback:
        """What some rows observe of a step, with the workers' loads where they are shown."""
        seen = {"worker": worker, "duration": duration, "elapsed": elapsed}
        if self.shows_signals:
            seen["signal"] = self.process.conditions.signal[rows].copy()
        if self._pads and (present := self.present()) is not None:
            seen["present"] = present[rows].astype(np.int8)
        return seen

    def info(
        self, round_time: Floats, worker_time: Floats, lost: Ints, runtime: Floats, total: Floats
    ) -> dict[str, NDArray[Any]]:
        """The times of a round and of the episode with it, and the tasks that were lost where workers may die."""
        times = {"round_time": round_time, "worker_time": worker_time, "runtime": runtime, "total_worker_time": total}
        return times | ({"lost": lost} if self.faulty else {})

    @abstractmethod
    def info_so_far(self) -> dict[str, NDArray[Any]]:
        """The info of rows that have taken no step since: of the round and the episode so far, in fresh arrays."""

    def present(self) -> Mask | None:
        """Places that hold a worker, (E, n); None: all."""
        return self.process.conditions.present

    @property
    def prices(self) -> Floats | float:
        """The price of each row, (E,), where it is drawn; else the price of all rows."""
        drawn = self.process.conditions.price
        return self.scenario.price if drawn is None else drawn

    def step_some(self, action: NDArray[Any], rows: Mask) -> StepResult:
        """Take one step in some rows; in the others nothing happens, no time passes, and the feedback means nothing."""
        if not rows.any():
            zeros, nobody = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
            return StepResult(self.no_feedback(slice(None)), zeros, zeros.copy(), self.info_so_far(), nobody)
        before = {name: field[~rows].copy() for name, field in self.remembered().items()}
        result = self.step(action)
        for name, field in self.remembered().items():
            field[~rows] = before[name]
        self.process.update_conditions(self.round)
        time, worker_time = np.where(rows, result.time, 0.0), np.where(rows, result.worker_time, 0.0)
        info = choose_rows(rows, result.info, self.info_so_far())
        return result._replace(time=time, worker_time=worker_time, info=info, ended=result.ended & rows)

    def conditions(self) -> Conditions:
        """What the workers are like in the coming round, or in the one that has begun."""
        conditions = self.process.conditions
        return conditions if self.scenario.changes else conditions._replace(round=self.round.copy())

    def seed_row(self, row: int, seed: int) -> None:
        """Give a row the noise of a seed; its next episode is episode 0."""
        self.keys[row] = stream_keys(seed)[0]
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

    def noise_keys(self) -> NoiseKeys:
        """What the noise of the coming tasks depends on."""
        return NoiseKeys(self.keys, self.episode, self.round, self.started)

    def next_round(self, rows: Mask | None = None) -> Mask:
        """Move some rows (None: all) to their next round; whether their episode has ended instead, shape (E,)."""
        self.round += 1 if rows is None else rows
        if self.scenario.changes:
            self.process.next_round(rows, self.keys, self.episode, self.round)
        ended: Mask = self.round >= self._last
        if self._records_end:  # the recorded times may not fill the coming round
            distributions = self.process.distributions
            by_round = distributions.family == CODES["trace-by-round"]
            needed = np.where(by_round, self.round[:, None] + 1, self.started + self.scenario.budget)
            ended |= (needed > distributions.limit).any(axis=1)
        return ended

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


def _check_memory(rows: int, n: int, results: int) -> None:
    """ValueError if observations and the bounds of their space, some 64 bytes per entry, exceed the memory."""
    needed, memory = 64 * rows * (results + n), installed_memory()
    memory = memory if memory < math.inf else 2.0**36
    if needed > memory:
        raise ValueError(
            f"the feedback of {rows} rows with {results} results each needs about {needed / 1e9:,.0f} GB of memory, "
            f"and this machine has {memory / 1e9:,.0f} GB: use a smaller budget or fewer rows"
        )
