"""The env whose steps are decisions within a round, as a single env and as a native vector env."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ata_gym.base import SingleEnv, VectorEnv
from ata_gym.dispatch_space import Dispatch
from ata_gym.simulation import Underway, dispatch_step
from ata_gym.world import LARGEST, Episodes, Observation, Turn, World


class DispatchEpisodes(Episodes):
    """Episodes whose steps lead from one decision to the next result, of which a round needs B."""

    def __init__(self, world: World, rows: int) -> None:
        super().__init__(world, rows, results=1)
        self.underway = Underway.start(rows, world.pool.n, world.budget)

    def actions(self, rows: int | None = None) -> Dispatch:
        """Who should be working."""
        return Dispatch(self.world.pool.n, rows)

    def observations(self) -> spaces.Dict:
        """The feedback, and where the round is."""
        n, budget = self.world.pool.n, self.world.budget
        return spaces.Dict(
            {
                **super().observations(),
                "missing": spaces.Box(0, budget, (1,), np.int64),  # never 0; Gymnasium warns of a box with one element
                "started": spaces.Box(0, budget, (n,), np.int64),
                "running": spaces.Box(0, 1, (n,), np.int8),
                "age": spaces.Box(0.0, LARGEST, (n,), np.float64),
            }
        )

    def blank(self, which: NDArray[Any] | slice) -> Observation:
        """No feedback, at the start of a round."""
        blank = super().blank(which)
        rows, n = blank["elapsed"].shape
        return blank | _seen(Underway.start(rows, n, self.world.budget), np.zeros((rows, n)))

    def begin(self, rows: NDArray[Any] | slice) -> None:
        """Start the next episode of some rows, and its first round."""
        super().begin(rows)
        field: NDArray[Any]
        for field in self.underway:
            field[rows] = 0
        self.underway.missing[rows] = self.world.budget

    def play(self, action: NDArray[Any]) -> Turn:
        """Go on to the next result of every row."""
        before = self.underway
        at = dispatch_step(
            self.course.laws,
            self.keys,
            self.episode,
            self.round,
            self.started,
            before,
            action,
            self.world.budget,
            *self.course.hazards,
        )
        self.started, self.underway = at.started, at.underway
        runtime, total = self.runtime + at.round_time, self.total_worker_time + at.worker_time
        over = at.round_over
        if over.any():
            self.runtime = np.where(over, runtime, self.runtime)
            self.total_worker_time = np.where(over, total, self.total_worker_time)
            over = over & self.finish(over)
        info = {
            "round_time": at.round_time,
            "worker_time": at.worker_time,
            "runtime": runtime,
            "total_worker_time": total,
            "round_over": at.round_over,
        }
        if self.course.faulty:
            info["lost"] = at.underway.lost.copy()
        feedback = {"worker": at.worker[:, None], "time": at.time[:, None], "elapsed": at.elapsed}
        if self.world.signals:
            feedback["signal"] = self.signals()
        passed, worked = at.round_time - before.now, at.worker_time - before.spent
        return Turn(feedback | _seen(at.underway, at.age), passed, worked, info, over)

    def _remembered(self, over: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        return super()._remembered(over) | self.underway._asdict()


def _seen(underway: Underway, age: NDArray[np.float64]) -> Observation:
    """What is seen of a round, in arrays of its own."""
    return {
        "missing": underway.missing[:, None].copy(),
        "started": underway.tasks.copy(),
        "running": underway.running.copy(),
        "age": age,
    }


class TaskDispatchEnv(SingleEnv):
    """A round needs B results; at each one the action says which idle workers start one more task.

    The action is a vector of n zeros and ones: who should be working. An idle worker with a 1 starts one task now; the
    entry of a worker that is running a task has no effect. If nobody would be working, everybody starts. Then time
    passes until the next result; of results at the same moment the lowest worker's comes first, in a step of its own.
    At the B-th result the round ends: what is still running is cancelled, its time so far counts as worker time and is
    seen as ``elapsed``, and everybody is idle.

    The feedback of a step is one result: ``worker``, ``time`` and ``elapsed`` as in the other envs. Beside it, of the
    round: ``missing`` results (B where a round begins), tasks ``started`` by each worker, who is ``running`` one, and
    its ``age``. ``info`` holds the round time and worker time so far, and ``round_over``. The rewards of a round add up
    to -(round time + price * worker time). The horizon counts rounds.

    A worker that dies (`ata_gym.changes.Spot` and `Mortal`) is no longer running, and a 1 for it has no effect. What it
    lost is its ``elapsed`` at the round's end; ``info["lost"]`` counts such tasks of the round.

    Parameters
    ----------
    scenario, pool, budget, horizon, price, signals
        As for ``TaskAllocationEnv``, which is the special case "1 while ``started`` is below the allocation", as
        ``TaskRaceEnv`` is: the same task times, round times and worker times, bit for bit.

    Raises
    ------
    ValueError
        For arguments or actions that make no sense; the env stays as it was.

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
    """

    _kind = DispatchEpisodes
    action_space: Dispatch


class TaskDispatchVectorEnv(VectorEnv):
    """E rows of ``TaskDispatchEnv``; the arguments are those of ``TaskAllocationVectorEnv``.

    The rows take their steps together, but each is inside a round of its own.

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> envs = gym.make_vec("ata_gym/TaskDispatch-v0", num_envs=4, scenario="icml2025-regret")
    >>> _ = envs.reset(seed=0)
    >>> envs.step(envs.action_space.sample())[1].shape
    (4,)
    """

    _kind = DispatchEpisodes
