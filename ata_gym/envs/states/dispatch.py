"""The rows of an env whose steps are decisions within a round."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.changes.change import LastRound
from ata_gym.envs.spaces.dispatch import Dispatch, checked_dispatch
from ata_gym.envs.states.backend import Backend, DispatchBackend, check_completion
from ata_gym.envs.states.batch_state import (
    LARGEST_TIME,
    BatchState,
    Feedback,
    StepResult,
    add_busy_time,
)
from ata_gym.scenarios import Scenario
from ata_gym.simulation.dispatch import Completion, RoundState, dispatch_step
from ata_gym.typing import Bits, Floats, Mask
from ata_gym.utils.ranges import Within, declared
from ata_gym.utils.validation import short


class DispatchState(BatchState):
    """A step leads from one decision to the next result, of which a round needs B."""

    forms: ClassVar[tuple[str, ...]] = ("dispatch", "start")
    step_is_round: ClassVar[bool] = False

    def __init__(
        self,
        scenario: Scenario,
        rows: int,
        signals: bool = False,
        backend: Backend | DispatchBackend | None = None,
    ) -> None:
        has_dispatch = isinstance(backend, DispatchBackend) and callable(backend.dispatch)
        if backend is not None and not has_dispatch:
            raise ValueError(
                "the backend of TaskDispatch-v0 must have a method dispatch, called as "
                f"ata_gym.simulation.dispatch.dispatch_step is, and {short(backend)} has none",
            )
        if scenario.unit_costs is not None:
            raise ValueError(
                "TaskDispatch-v0 counts every worker's time alike, and takes no unit_costs: play"
                " TaskAllocation-v0 or TaskRace-v0",
            )
        super().__init__(scenario, rows, signals, backend, results=1)
        self._run_to_result: Callable[..., Completion]
        if isinstance(backend, DispatchBackend):
            self._run_to_result = backend.dispatch
        else:
            self._run_to_result = dispatch_step
        self.round_state = RoundState.start(rows, scenario.pool.n, scenario.budget)
        self.busy_time = np.zeros((rows, scenario.pool.n))
        """How long each worker has been busy in the round, shape (E, n).

        It is kept where a change follows the load, without tasks that are running.
        """

    def action_space(self) -> Dispatch:
        return Dispatch(self.scenario.pool.n)

    def check_action(self, action: object, shape: tuple[int, ...]) -> Bits:
        return checked_dispatch(action, shape)

    def observation_space(self) -> spaces.Dict:
        n = self.scenario.pool.n
        budget = self.scenario.budget
        round_fields: dict[str, spaces.Space[Any]] = {
            # It is never 0, but Gymnasium warns of a box with one element.
            "missing": spaces.Box(0, budget, (1,), np.int64),
            "started": spaces.Box(0, budget, (n,), np.int64),
            "running": spaces.Box(0, 1, (n,), np.int8),
            "age": spaces.Box(0.0, LARGEST_TIME, (n,), np.float64),
        }
        return spaces.Dict({**super().observation_space(), **round_fields})

    def no_feedback(self, rows: Mask | slice) -> Feedback:
        observation = super().no_feedback(rows)
        count, n = observation["elapsed"].shape
        start = RoundState.start(count, n, self.scenario.budget)
        return observation | _round_feedback(start, np.zeros((count, n)))

    def start_episode(self, rows: Mask | slice) -> None:
        super().start_episode(rows)
        field: NDArray[Any]
        for field in self.round_state:
            field[rows] = 0
        self.round_state.missing[rows] = self.scenario.budget
        self.busy_time[rows] = 0.0

    def step(self, action: NDArray[Any]) -> StepResult:
        previous = self.round_state
        process = self.process
        budget = self.scenario.budget
        completion = self._run_to_result(
            process.distributions,
            self.noise_keys(),
            previous,
            action,
            budget,
            process.disturbances,
        )
        if not self.simulated:
            check_completion(completion, previous, budget)
        last_round = None
        if self.scenario.follows_load:
            last_round = self._follow(completion, previous)
        self.started = completion.started
        self.round_state = completion.round_state
        runtime = self.runtime + completion.round_time
        total = self.total_worker_time + completion.worker_time
        # The sums of the episode hold finished rounds only.
        ended = completion.round_over
        if ended.any():
            self.runtime = np.where(completion.round_over, runtime, self.runtime)
            self.total_worker_time = np.where(completion.round_over, total, self.total_worker_time)
            ended = completion.round_over & self.next_round(completion.round_over, last_round)
        info = self.info(
            completion.round_time,
            completion.worker_time,
            completion.round_state.lost.copy(),
            runtime,
            total,
        )
        info["round_over"] = completion.round_over
        feedback = self.feedback(
            completion.worker[:, None],
            completion.duration[:, None],
            completion.elapsed,
            completion.latency,
        )
        time = completion.round_time - previous.time
        worker_time = completion.worker_time - previous.worker_time
        feedback |= _round_feedback(completion.round_state, completion.age)
        return StepResult(feedback, time, worker_time, info, ended)

    def _follow(self, completion: Completion, previous: RoundState) -> LastRound:
        """Add up the times of a result, and return the round so far.

        Args:
            completion: The result.
            previous: The state of the round before the result.
        """
        add_busy_time(
            self.busy_time,
            completion.worker[:, None],
            completion.duration[:, None],
            completion.elapsed,
            completion.latency,
        )
        tasks = previous.tasks + completion.started - self.started
        last_round = self.last_round(tasks, self.busy_time.copy(), completion.round_time)
        self.busy_time[completion.round_over] = 0.0
        return last_round

    def info_so_far(self) -> dict[str, NDArray[Any]]:
        round_time = self.round_state.time
        worker_time = self.round_state.worker_time
        # Where the round has not begun, ``lost`` still counts the round before.
        has_begun = self.round_state.missing < self.scenario.budget
        lost = np.where(has_begun, self.round_state.lost, 0)
        runtime = self.runtime + round_time
        total = self.total_worker_time + worker_time
        info = self.info(round_time.copy(), worker_time.copy(), lost, runtime, total)
        return info | {"round_over": np.zeros(self.rows, np.bool_)}

    def ranges(self) -> dict[str, Within]:
        ranges = {name: within for name, _, within in declared(self.round_state) if within}
        return super().ranges() | ranges | {"busy_time": Within(0.0, LARGEST_TIME)}

    def check(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Check the numbers of a checkpoint together.

        Raises:
            ValueError: Unless each running task has begun, and has not ended.
        """
        running = checkpoint["running"] > 0
        time = checkpoint["time"][:, None]
        # A worker that still pays its latency begins later.
        late = (checkpoint["task_start"] > time) & (checkpoint["latency"] == 0.0)
        if (running & (late | (checkpoint["finish"] < time))).any():
            raise ValueError(
                "'task_start' and 'finish' must be before and after 'time' where a task is running",
            )

    def checkpoint_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = super().checkpoint_arrays() | self.round_state._asdict()
        if self.scenario.follows_load:
            arrays["busy_time"] = self.busy_time
        return arrays


def _round_feedback(round_state: RoundState, age: Floats) -> Feedback:
    """The keys of an observation that show the round, in fresh arrays."""
    return {
        "missing": round_state.missing[:, None].copy(),
        "started": round_state.tasks.copy(),
        "running": round_state.running.copy(),
        "age": age,
    }
