"""The env whose steps are decisions within a round, as a single env and as a native vector env."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.envs.batch_state import (
    LARGEST,
    BatchState,
    DispatchBackend,
    Observation,
    StepResult,
    check_fit,
    check_measured,
)
from ata_gym.envs.single import SingleEnv
from ata_gym.envs.spaces.dispatch import Dispatch, checked_dispatch
from ata_gym.envs.vector import VectorEnv
from ata_gym.scenarios import Scenario
from ata_gym.simulation.dispatch import Completion, RoundState, dispatch_step
from ata_gym.typing import Floats, Mask
from ata_gym.utils.ranges import Within, declared
from ata_gym.utils.validation import short


class DispatchState(BatchState):
    """A step leads from one decision to the next result, of which a round needs B."""

    forms: ClassVar[tuple[str, ...]] = ("dispatch", "start")

    def __init__(
        self, scenario: Scenario, rows: int, signals: bool = False, backend: DispatchBackend | None = None
    ) -> None:
        if backend is not None and not callable(getattr(backend, "dispatch", None)):
            raise ValueError(
                "the backend of TaskDispatch-v0 must have a method dispatch, called as "
                f"ata_gym.simulation.dispatch.dispatch_step is, and {short(backend)} has none"
            )
        check_fit(backend, scenario)
        super().__init__(scenario, rows, 1, signals)
        self._go_on: Callable[..., Completion] = dispatch_step if backend is None else backend.dispatch
        self.simulated = backend is None
        self.round_state = RoundState.start(rows, scenario.pool.n, scenario.budget)

    def action_space(self) -> Dispatch:
        """Vectors that say which workers should be working."""
        return Dispatch(self.scenario.pool.n)

    def checker(self, rows: int) -> Callable[[object], NDArray[Any]]:
        """The check of zeros and ones."""
        return partial(checked_dispatch, shape=(rows, self.scenario.pool.n))

    def observation_space(self) -> spaces.Dict:
        """The feedback, and the state of the round."""
        n, budget = self.scenario.pool.n, self.scenario.budget
        return spaces.Dict(
            {
                **super().observation_space(),
                "missing": spaces.Box(0, budget, (1,), np.int64),  # never 0; Gymnasium warns of a box with one element
                "started": spaces.Box(0, budget, (n,), np.int64),
                "running": spaces.Box(0, 1, (n,), np.int8),
                "age": spaces.Box(0.0, LARGEST, (n,), np.float64),
            }
        )

    def no_feedback(self, rows: Mask | slice) -> Observation:
        """What some rows see after their reset, at the start of a round."""
        observation = super().no_feedback(rows)
        count, n = observation["elapsed"].shape
        return observation | _seen(RoundState.start(count, n, self.scenario.budget), np.zeros((count, n)))

    def start_episode(self, rows: Mask | slice) -> None:
        """Start the next episode of some rows, and its first round."""
        super().start_episode(rows)
        field: NDArray[Any]
        for field in self.round_state:
            field[rows] = 0
        self.round_state.missing[rows] = self.scenario.budget

    def step(self, action: NDArray[Any]) -> StepResult:
        """Go on to the next result of every row."""
        before = self.round_state
        process = self.process
        now = process.distributions, self.keys, self.episode, self.round, self.started
        at = self._go_on(*now, before, action, self.scenario.budget, process.disturbances)
        if not self.simulated:
            _check_completion(at, before, self.scenario.budget)
        self.started, self.round_state = at.started, at.round_state
        runtime, total = self.runtime + at.round_time, self.total_worker_time + at.worker_time
        ended = at.round_over
        if ended.any():
            self.runtime = np.where(at.round_over, runtime, self.runtime)
            self.total_worker_time = np.where(at.round_over, total, self.total_worker_time)
            ended = at.round_over & self.next_round(at.round_over)
        info = {
            "round_time": at.round_time,
            "worker_time": at.worker_time,
            "runtime": runtime,
            "total_worker_time": total,
            "round_over": at.round_over,
        }
        if self.faulty:
            info["lost"] = at.round_state.lost.copy()
        feedback = self.feedback(at.worker[:, None], at.duration[:, None], at.elapsed)
        passed, worked = at.round_time - before.now, at.worker_time - before.spent
        return StepResult(feedback | _seen(at.round_state, at.age), passed, worked, info, ended)

    def ranges(self) -> dict[str, Within]:
        """Those of every env, and of the rounds."""
        return super().ranges() | {name: within for name, _, within in declared(self.round_state) if within}

    def check(self, given: Mapping[str, NDArray[Any]]) -> None:
        """A running task has begun, and has not ended."""
        running, now = given["running"] > 0, given["now"][:, None]
        if (running & ((given["begun"] > now) | (given["finish"] < now))).any():
            raise ValueError("'begun' and 'finish' must be before and after 'now' where a task is running")

    def remembered(self) -> dict[str, NDArray[Any]]:
        """That of every env, and where the rows are in their rounds."""
        return super().remembered() | self.round_state._asdict()


def _check_completion(at: Completion, before: RoundState, budget: int) -> None:
    """ValueError unless a backend gave what ``dispatch_step`` would: one result more, and no time less."""
    rows, n = before.running.shape
    shapes = ((rows,), (rows,), (rows, n), (rows, n), (rows,), (rows,), (rows,), (rows, n))
    check_measured(at, shapes, n)
    over = before.missing == 1
    missing = np.where(over, budget, before.missing - 1)
    state = at.round_state
    if not (np.array_equal(at.round_over, over) and np.array_equal(state.missing, missing)):
        raise ValueError(
            f"the backend must give one result of the {before.missing.tolist()} that are missing, so that "
            f"{missing.tolist()} are, not {np.asarray(state.missing).tolist()}"
        )
    for name, field in before._asdict().items():
        given = np.shape(getattr(state, name))
        if given != field.shape:
            raise ValueError(f"the backend's {name} must have shape {field.shape}, not {given}")
    if (at.round_time < before.now).any() or (at.worker_time < before.spent).any():
        raise ValueError("the backend's round_time and worker_time must not become less within a round")
    if not ((state.tasks >= 0) & (state.tasks <= budget) & (state.running >= 0) & (state.running <= 1)).all():
        raise ValueError(f"the backend's tasks must be from 0 to {budget}, and running 0 or 1")


def _seen(round_state: RoundState, age: Floats) -> Observation:
    """What an observation holds of the round, in fresh arrays."""
    return {
        "missing": round_state.missing[:, None].copy(),
        "started": round_state.tasks.copy(),
        "running": round_state.running.copy(),
        "age": age,
    }


class TaskDispatchEnv(SingleEnv):
    """A round needs B results; at each one the action says which idle workers start one more task.

    Description
    -----------
    An idle worker that is asked to starts one task now; then time passes until the next result. Of results at the same
    moment the lowest worker's comes first, in a step of its own. At the B-th result the round ends: tasks that are
    still running are cancelled, their time so far counts as worker time and is seen as ``elapsed``, and all workers are
    idle. A step is one result, so that a round takes B steps.

    ``TaskAllocationEnv`` and ``TaskRaceEnv`` are the special case "1 while ``started`` is below the allocation", with
    the same task times, round times and worker times, bit for bit.

    Action Space
    ------------
    ``Dispatch(n)``: a vector of n zeros and ones; it batches and flattens as ``MultiDiscrete`` does. The entry of a
    worker that is running a task has no effect, and neither has a 1 for a dead one. If no worker would be running a
    task, all start one. Anything else raises ValueError, and leaves the env as it was.

    Observation Space
    -----------------
    A ``Dict`` of the last result, and of where the round is:

    | key | shape | dtype | meaning |
    |---|---|---|---|
    | ``worker`` | (1,) | int64 | who computed the result; -1 after a reset |
    | ``duration`` | (1,) | float64 | how long its task took; 0 after a reset |
    | ``elapsed`` | (n,) | float64 | at a round's end, the time of each worker's cancelled or lost task, else 0 |
    | ``missing`` | (1,) | int64 | results that the round still needs; B at its start |
    | ``started`` | (n,) | int64 | tasks that each worker has started in the round |
    | ``running`` | (n,) | int8 | whether each worker is running a task, 0 or 1 |
    | ``age`` | (n,) | float64 | for how long that task has been running |

    ``signal`` and ``present`` are there as in ``TaskAllocationEnv``.

    Rewards
    -------
    Of a step: -(time that passed + price * worker time in it). Those of a round add up to
    -(round time + price * worker time).

    Starting State
    --------------
    No feedback, all workers idle, and all B results missing.

    Episode End
    -----------
    Truncation at the end of the round with the number ``horizon``, which counts rounds; an episode is never terminated.
    The limit ``max_episode_steps`` of ``gymnasium.make`` counts steps, B in each round.

    Information
    -----------
    | key | meaning |
    |---|---|
    | ``round_time``, ``worker_time`` | of the round so far |
    | ``runtime``, ``total_worker_time`` | of the episode so far |
    | ``round_over`` | whether this result was the B-th |
    | ``lost`` | where workers may die: tasks that were lost in the round so far |
    | ``action_mask`` | with ``action="start"``: which actions are of use |

    Arguments
    ---------
    ``gymnasium.make("ata_gym/TaskDispatch-v0", scenario="five-workers", price=0.1)``.

    Parameters
    ----------
    scenario, pool, budget, changes, horizon, price, signals, observation, reward_unit, render_mode
        As for ``TaskAllocationEnv``.
    backend
        What runs the tasks in place of the simulation: its method ``dispatch`` is called as
        ``ata_gym.simulation.dispatch.dispatch_step`` is, with one row. An error that it raises leaves the env as it
        was.
    action
        "dispatch", or "start": one worker at a time starts a task; the number n, or a worker that is not idle, lets
        time pass. It has masks.

    Reset options
    -------------
    ``pool``, ``changes``, ``price`` and ``horizon``, as in ``TaskAllocationEnv``.

    Notes
    -----
    A worker that dies (`ata_gym.changes.Spot` and `Crash`) is no longer running. The time of the task that it lost is
    its ``elapsed`` at the round's end.

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> env = gym.make("ata_gym/TaskDispatch-v0", pool={"family": "deterministic", "scale": [2.0, 3.0]}, budget=2)
    >>> observation, _ = env.reset(seed=0)
    >>> observation, reward, _, _, info = env.step(np.array([1, 1]))
    >>> observation["worker"], observation["missing"], observation["running"], observation["age"]
    (array([0]), array([1]), array([0, 1], dtype=int8), array([0., 2.]))
    >>> observation, reward, _, _, info = env.step(np.array([0, 1]))
    >>> reward, info["round_time"], info["worker_time"], info["round_over"]
    (-1.0, 3.0, 5.0, True)

    Version History
    ---------------
    v0: the first version.
    """

    _state_class = DispatchState
    action_space: Dispatch


class TaskDispatchVectorEnv(VectorEnv):
    """E rows of ``TaskDispatchEnv``; the arguments are those of ``TaskAllocationVectorEnv``.

    The rows take their steps together, but each row has a round of its own.

    >>> import gymnasium as gym, ata_gym
    >>> gym.make_vec("ata_gym/TaskDispatch-v0", num_envs=4, scenario="icml2025-regret").action_space.shape
    (4, 20)
    """

    _state_class = DispatchState
