"""The rows of an env whose steps are decisions within a round."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.envs.spaces.dispatch import Dispatch, checked_dispatch
from ata_gym.envs.states.backend import check_completion
from ata_gym.envs.states.batch_state import LARGEST, BatchState, Feedback, StepResult
from ata_gym.scenarios import Scenario
from ata_gym.simulation.dispatch import Completion, RoundState, dispatch_step
from ata_gym.typing import Bits, Floats, Mask
from ata_gym.utils.ranges import Within, declared
from ata_gym.utils.validation import short


class DispatchState(BatchState):
    """A step leads from one decision to the next result, of which a round needs B."""

    forms: ClassVar[tuple[str, ...]] = ("dispatch", "start")

    def __init__(self, scenario: Scenario, rows: int, signals: bool = False, backend: Any = None) -> None:
        if backend is not None and not callable(getattr(backend, "dispatch", None)):
            raise ValueError(
                "the backend of TaskDispatch-v0 must have a method dispatch, called as "
                f"ata_gym.simulation.dispatch.dispatch_step is, and {short(backend)} has none"
            )
        if scenario.unit_costs is not None:
            raise ValueError(
                "TaskDispatch-v0 counts every worker's time alike, and takes no unit_costs: play TaskAllocation-v0 or "
                "TaskRace-v0"
            )
        super().__init__(scenario, rows, signals, backend, results=1)
        self._go_on: Callable[..., Completion] = dispatch_step if backend is None else backend.dispatch
        self.round_state = RoundState.start(rows, scenario.pool.n, scenario.budget)

    def action_space(self) -> Dispatch:
        return Dispatch(self.scenario.pool.n)

    def check_action(self, action: object, shape: tuple[int, ...]) -> Bits:
        return checked_dispatch(action, shape)

    def observation_space(self) -> spaces.Dict:
        n, budget = self.scenario.pool.n, self.scenario.budget
        in_round: dict[str, spaces.Space[Any]] = {
            "missing": spaces.Box(0, budget, (1,), np.int64),  # never 0; Gymnasium warns of a box with one element
            "started": spaces.Box(0, budget, (n,), np.int64),
            "running": spaces.Box(0, 1, (n,), np.int8),
            "age": spaces.Box(0.0, LARGEST, (n,), np.float64),
        }
        return spaces.Dict({**super().observation_space(), **in_round})

    def no_feedback(self, rows: Mask | slice) -> Feedback:
        observation = super().no_feedback(rows)
        count, n = observation["elapsed"].shape
        return observation | _seen(RoundState.start(count, n, self.scenario.budget), np.zeros((count, n)))

    def start_episode(self, rows: Mask | slice) -> None:
        super().start_episode(rows)
        field: NDArray[Any]
        for field in self.round_state:
            field[rows] = 0
        self.round_state.missing[rows] = self.scenario.budget

    def step(self, action: NDArray[Any]) -> StepResult:
        before, process, budget = self.round_state, self.process, self.scenario.budget
        at = self._go_on(process.distributions, self.noise_keys(), before, action, budget, process.disturbances)
        if not self.simulated:
            check_completion(at, before, budget)
        self.started, self.round_state = at.started, at.round_state
        runtime, total = self.runtime + at.round_time, self.total_worker_time + at.worker_time
        ended = at.round_over
        if ended.any():
            self.runtime = np.where(at.round_over, runtime, self.runtime)
            self.total_worker_time = np.where(at.round_over, total, self.total_worker_time)
            ended = at.round_over & self.next_round(at.round_over)
        info = self.info(at.round_time, at.worker_time, at.round_state.lost.copy(), runtime, total)
        info["round_over"] = at.round_over
        feedback = self.feedback(at.worker[:, None], at.duration[:, None], at.elapsed)
        passed, worked = at.round_time - before.now, at.worker_time - before.spent
        return StepResult(feedback | _seen(at.round_state, at.age), passed, worked, info, ended)

    def info_so_far(self) -> dict[str, NDArray[Any]]:
        now, spent, lost = self.round_state.now, self.round_state.spent, self.round_state.lost
        lost = np.where(self.round_state.missing < self.scenario.budget, lost, 0)  # else those of the round before
        runtime, total = self.runtime + now, self.total_worker_time + spent
        info = self.info(now.copy(), spent.copy(), lost, runtime, total)
        return info | {"round_over": np.zeros(self.rows, np.bool_)}

    def ranges(self) -> dict[str, Within]:
        return super().ranges() | {name: within for name, _, within in declared(self.round_state) if within}

    def check(self, given: Mapping[str, NDArray[Any]]) -> None:
        """ValueError unless each running task has begun, and has not ended."""
        running, now = given["running"] > 0, given["now"][:, None]
        if (running & ((given["begun"] > now) | (given["finish"] < now))).any():
            raise ValueError("'begun' and 'finish' must be before and after 'now' where a task is running")

    def remembered(self) -> dict[str, NDArray[Any]]:
        return super().remembered() | self.round_state._asdict()


def _seen(round_state: RoundState, age: Floats) -> Feedback:  # what an observation holds of the round, in fresh arrays
    return {
        "missing": round_state.missing[:, None].copy(), "started": round_state.tasks.copy(),
        "running": round_state.running.copy(), "age": age,
    }  # fmt: skip
