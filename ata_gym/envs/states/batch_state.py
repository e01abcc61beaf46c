"""The state of the rows of an env in their episodes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.changes.change import ChangeProcess, LastRound
from ata_gym.envs.spaces import Allocation, Dispatch
from ata_gym.envs.states.backend import Backend, CheckingBackend, DispatchBackend
from ata_gym.pools.families import TRACE_BY_ROUND
from ata_gym.scenarios import Scenario
from ata_gym.simulation.keys import NoiseKeys, stream_keys
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.process.machine import installed_memory
from ata_gym.utils.ranges import FINITE, Within
from ata_gym.utils.trees import choose_rows

Feedback: TypeAlias = dict[str, NDArray[Any]]

LARGEST_TIME = float(np.finfo(np.float32).max)
"""The upper bound of times in observation spaces, which float32 must hold."""
_ENDLESS_HORIZON = 2**63 - 1
"""The round at which an episode without a horizon ends."""


class StepResult(NamedTuple):
    """The result of one step of E rows."""

    observation: Feedback
    """Fresh arrays with a leading row axis."""
    time: Floats
    """The time that passed, shape (E,)."""
    worker_time: Floats
    """The time that all workers were busy in the step, shape (E,)."""
    info: dict[str, NDArray[Any]]
    """Fresh arrays of shape (E,)."""
    ended: Mask
    """Whether the episode ended, shape (E,)."""


class BatchState(ABC):
    """The state of E rows in their episodes.

    The same class serves the single and the vector env of an id.

    Args:
        scenario: The scenario.
        rows: The number of rows, E.
        signals: Whether the feedback shows the workers' loads.
        backend: What runs the tasks; without one they are simulated.
        results: The number of results in the feedback of a step.

    Raises:
        ValueError: If the backend refuses the scenario, if task times follow an allocation that is
            not known, and if the rows do not fit this machine's memory.
    """

    forms: ClassVar[tuple[str, ...]]
    """The forms of actions, see ``interface.actions``; the first is the default."""
    knows_allocation: ClassVar[bool] = False
    """Whether the tasks of each worker are known before the round begins."""
    step_is_round: ClassVar[bool] = True
    """Whether a step is a whole round."""
    _FIELDS = ("keys", "episode", "round", "started", "runtime", "total_worker_time")
    """The attributes that a checkpoint holds."""

    def __init__(
        self,
        scenario: Scenario,
        rows: int,
        signals: bool,
        backend: Backend | DispatchBackend | None,
        results: int,
    ) -> None:
        n = scenario.pool.n
        if isinstance(backend, CheckingBackend):
            backend.check(scenario)
        if scenario.needs_allocation and not self.knows_allocation:
            raise ValueError(
                "under ShareTime task times depend on the tasks that each worker has in the round,"
                " which are known beforehand in TaskAllocation-v0 alone: play that id, and policies"
                " made for it",
            )
        check_memory(rows, n, results)
        self.scenario = scenario
        self.rows = rows
        self.shows_signals = signals
        self.results = results
        self.simulated = backend is None
        self.faulty = scenario.faulty
        self._records_end = scenario.records_end
        distribution = scenario.pool_distribution
        self._pads = distribution is not None and distribution.fewest != n
        if scenario.horizon is None:
            horizon = _ENDLESS_HORIZON
        else:
            horizon = min(scenario.horizon, _ENDLESS_HORIZON)
        self._horizon = np.array(horizon)
        self.keys = np.zeros(rows, np.uint64)
        """The key of each row's noise, shape (E,)."""
        self.episode = np.full(rows, -1, np.int64)
        """The episode of each row, counted from 0, shape (E,); -1 before the first reset."""
        self.round = np.zeros(rows, np.int64)
        """The coming round of each row, or the one that has begun, shape (E,)."""
        self.started = np.zeros((rows, n), np.int64)
        """The tasks that each worker has started in the episode, shape (E, n)."""
        self.runtime = np.zeros(rows)
        """The sum of the times of finished rounds in the episode, shape (E,)."""
        self.total_worker_time = np.zeros(rows)
        """The sum of the worker times of finished rounds in the episode, shape (E,)."""
        self.process = ChangeProcess(scenario.catalogue, scenario.changes, rows, n)

    @abstractmethod
    def action_space(self) -> Allocation | Dispatch:
        """The space of one row's actions."""

    @abstractmethod
    def check_action(self, action: object, shape: tuple[int, ...]) -> NDArray[Any]:
        """The action as an array.

        Args:
            action: The action.
            shape: The shape that it must have, (n,) for one row or (E, n).

        Raises:
            ValueError: If it is not legal; the message says what is wrong.
        """

    @abstractmethod
    def step(self, action: NDArray[Any]) -> StepResult:
        """Take one step in every row with an action, shape (E, n), that was checked."""

    def observation_space(self) -> spaces.Dict:
        """The space of one row's feedback."""
        n = self.scenario.pool.n
        results = self.results
        fields: dict[str, spaces.Space[Any]] = {
            "worker": spaces.Box(-1, n - 1, (results,), np.int64),
            "duration": spaces.Box(0.0, LARGEST_TIME, (results,), np.float64),
            "elapsed": spaces.Box(0.0, LARGEST_TIME, (n,), np.float64),
        }
        if self.scenario.pool.latency is not None:
            fields["latency"] = spaces.Box(0.0, LARGEST_TIME, (n,), np.float64)
        if self.shows_signals:
            fields["signal"] = spaces.Box(0.0, 1.0, (n, 2), np.float64)
        if self._pads:
            fields["present"] = spaces.Box(0, 1, (n,), np.int8)
        return spaces.Dict(fields)

    def no_feedback(self, rows: Mask | slice) -> Feedback:
        """The feedback of some rows after their reset."""
        count = len(self.round[rows])
        worker = np.full((count, self.results), -1, np.int64)
        duration = np.zeros(worker.shape)
        elapsed, latency = np.zeros((2, count, self.scenario.pool.n))
        return self.feedback(worker, duration, elapsed, latency, rows)

    def feedback(
        self,
        worker: Ints,
        duration: Floats,
        elapsed: Floats,
        latency: Floats,
        rows: Mask | slice = slice(None),
    ) -> Feedback:
        """The feedback of some rows, with the workers' loads where they are shown.

        Args:
            worker: The worker of each result, shape (E, results).
            duration: The task time of each result, shape (E, results).
            elapsed: The time of each worker's cancelled or lost task, else 0, shape (E, n).
            latency: The time that each worker spent in the round before its first task, (E, n).
            rows: The rows that these arrays hold.
        """
        feedback = {"worker": worker, "duration": duration, "elapsed": elapsed}
        if self.scenario.pool.latency is not None:
            feedback["latency"] = latency
        if self.shows_signals:
            feedback["signal"] = self.process.conditions.signal[rows].copy()
        if self._pads and (present := self.present()) is not None:
            feedback["present"] = present[rows].astype(np.int8)
        return feedback

    def info(
        self,
        round_time: Floats,
        worker_time: Floats,
        lost: Ints,
        runtime: Floats,
        total: Floats,
    ) -> dict[str, NDArray[Any]]:
        """The info of a step.

        Args:
            round_time: The times of the rounds, shape (E,).
            worker_time: The worker times of the rounds, shape (E,).
            lost: The tasks that were lost, shape (E,), which are shown where workers may die.
            runtime: The round times of the episodes added up, with this one, shape (E,).
            total: The worker times of the episodes added up, with this one, shape (E,).
        """
        times: dict[str, NDArray[Any]] = {
            "round_time": round_time,
            "worker_time": worker_time,
            "runtime": runtime,
            "total_worker_time": total,
        }
        if self.faulty:
            times["lost"] = lost
        return times

    @abstractmethod
    def info_so_far(self) -> dict[str, NDArray[Any]]:
        """The info of the round and the episode so far, in fresh arrays.

        It is the info of rows that have just been reset, or take no step.
        """

    def present(self) -> Mask | None:
        """The places that hold a worker, shape (E, n); None means all."""
        return self.process.conditions.present

    @property
    def prices(self) -> Floats | float:
        """The price of each row, shape (E,), where it is drawn; else the price of all rows."""
        row_prices = self.process.conditions.price
        if row_prices is None:
            return self.scenario.price
        return row_prices

    def step_some(self, action: NDArray[Any], rows: Mask) -> StepResult:
        """Take one step in some rows.

        In the other rows nothing happens, no time passes, and the feedback has no meaning.

        Args:
            action: An action that was checked, shape (E, n).
            rows: The rows, shape (E,).
        """
        if not rows.any():
            zeros = np.zeros(len(rows))
            no_rows = np.zeros(len(rows), np.bool_)
            feedback = self.no_feedback(slice(None))
            return StepResult(feedback, zeros, zeros.copy(), self.info_so_far(), no_rows)
        # All rows take the step, and the other rows get back what they had.
        previous = {name: field[~rows].copy() for name, field in self.checkpoint_arrays().items()}
        result = self.step(action)
        for name, field in self.checkpoint_arrays().items():
            field[~rows] = previous[name]
        self.process.update_conditions(self.keys, self.episode, self.round)
        time = np.where(rows, result.time, 0.0)
        worker_time = np.where(rows, result.worker_time, 0.0)
        info = choose_rows(rows, result.info, self.info_so_far())
        return result._replace(
            time=time,
            worker_time=worker_time,
            info=info,
            ended=result.ended & rows,
        )

    def conditions(self) -> Conditions:
        """The conditions of the coming round, or of the one that has begun."""
        conditions = self.process.conditions
        if self.process.varies:
            return conditions
        return conditions._replace(round=self.round.copy())

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
        """The keys and counters of the noise of the coming tasks."""
        return NoiseKeys(self.keys, self.episode, self.round, self.started)

    def last_round(self, tasks: Ints, busy_time: Floats, round_time: Floats) -> LastRound:
        """What the round that ends now asked of the workers, before ``next_round``.

        Args:
            tasks: The tasks that each worker started in the round, shape (E, n).
            busy_time: How long each worker was busy in the round, shape (E, n).
            round_time: The time of the round, shape (E,).
        """
        absent = np.isfinite(self.process.conditions.death_time)
        return LastRound(tasks, busy_time, round_time, absent)

    def next_round(self, rows: Mask | None, last_round: LastRound | None) -> Mask:
        """Move some rows to their next round.

        Args:
            rows: The rows, shape (E,); None means all.
            last_round: The round that ends; None only if no change follows the load.

        Returns:
            Whether the episode of each row has ended instead, shape (E,).
        """
        if rows is None:
            self.round += 1
        else:
            self.round += rows
        if self.process.varies:
            self.process.next_round(rows, self.keys, self.episode, self.round, last_round)
        ended: Mask = self.round >= self._horizon
        # The recorded times may not fill the coming round, whatever its allocation is.
        if self._records_end:
            distributions = self.process.distributions
            by_round = distributions.family == TRACE_BY_ROUND
            tasks = self.started + self.scenario.budget
            length = np.where(by_round, self.round[:, None] + 1, tasks)
            ended |= (length > distributions.limit).any(axis=1)
        return ended

    def ranges(self) -> dict[str, Within]:
        """The ranges of the numbers of ``checkpoint_arrays``, by name; keys may be any."""
        time = Within(0.0, FINITE)
        number = Within()
        ranges = {
            "episode": Within(-1),
            "round": number,
            "started": number,
            "runtime": time,
            "total_worker_time": time,
        }
        for k, change in enumerate(self.scenario.changes):
            low, high = np.reshape(change.ranges(self.scenario.pool.n), (-1, 2, 1)).swapaxes(0, 1)
            ranges[f"change_{k}"] = Within(low, high)
        return ranges

    def check(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027 - most need none
        """Check the numbers of a checkpoint together, each of which is within the ``ranges``.

        Raises:
            ValueError: If a state cannot have these numbers together.
        """

    def checkpoint_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that hold the state, by name; they are no copies."""
        changes = {f"change_{k}": memory for k, memory in enumerate(self.process.memories)}
        return {name: getattr(self, name) for name in self._FIELDS} | changes


def add_busy_time(
    busy_time: Floats, worker: Ints, duration: Floats, elapsed: Floats, latency: Floats
) -> None:
    """Add the times of a step to the times that workers have been busy in the round.

    Rounds of one step and of many add them in the same order, and so get the same bits.

    Args:
        busy_time: The times, shape (E, n), which are changed.
        worker: The worker of each result, shape (E, results).
        duration: The task time of each result, shape (E, results).
        elapsed: The time of each worker's cancelled or lost task, else 0, shape (E, n).
        latency: The latency that each worker has paid, shown once in a round, shape (E, n).
    """
    busy_time += latency
    np.add.at(busy_time, (np.arange(len(worker))[:, None], worker), duration)
    busy_time += elapsed


def check_memory(rows: int, n: int, results: int, delay: int = 0) -> None:
    """Check that observations and the bounds of their space fit the memory.

    They take some 64 bytes per entry, and 40 for each round that an observation is late.

    Raises:
        ValueError: If they do not fit.
    """
    needed = (64 + 40 * delay) * rows * (results + n)
    memory = installed_memory()
    if not (memory < math.inf):
        memory = 2.0**36
    if needed > memory:
        if delay > 0:
            cure = "use a smaller budget, a smaller delay or fewer rows"
        else:
            cure = "use a smaller budget or fewer rows"
        raise ValueError(
            f"the feedback of {rows} rows with {results} results each needs about"
            f" {needed / 1e9:,.0f} GB of memory, and this machine has {memory / 1e9:,.0f} GB:"
            f" {cure}",
        )
