"""The envs whose steps are rounds, each as a single env and as a native vector env, all thin over ``simulation``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from ata_gym.base import SingleEnv, VectorEnv
from ata_gym.simulation import Outcome, allocation_round, race_round
from ata_gym.spaces import Allocation, RaceAllocation
from ata_gym.world import Episodes, Turn, World

Play = Callable[..., Outcome]


class AllocationEpisodes(Episodes):
    """Episodes whose steps are rounds with an allocation decided beforehand."""

    _space: type[Allocation] = Allocation
    source: Play = staticmethod(allocation_round)
    """Where rounds come from."""

    def __init__(self, world: World, rows: int) -> None:
        super().__init__(world, rows, results=world.budget)

    def actions(self, rows: int | None = None) -> Allocation:
        """Allocations."""
        return self._space(self.world.pool.n, self.world.budget, rows)

    def play(self, action: NDArray[Any]) -> Turn:
        """Run one round of every row."""
        outcome = self.source(
            self.course.laws,
            self.keys,
            self.episode,
            self.round,
            self.started,
            action,
            self.world.budget,
            *self.course.hazards,
        )
        self.started = outcome.started
        self.runtime += outcome.round_time
        self.total_worker_time += outcome.worker_time
        info: dict[str, NDArray[Any]] = {
            "round_time": outcome.round_time,
            "worker_time": outcome.worker_time,
            "runtime": self.runtime.copy(),
            "total_worker_time": self.total_worker_time.copy(),
        }
        if self.course.faulty:
            info["lost"] = outcome.lost
        over = self.finish()
        observation = {"worker": outcome.worker, "time": outcome.time, "elapsed": outcome.elapsed}
        if self.world.signals:
            observation["signal"] = self.signals()
        return Turn(observation, outcome.round_time, outcome.worker_time, info, over)


class RaceEpisodes(AllocationEpisodes):
    """The same, with races."""

    _space = RaceAllocation
    source = staticmethod(race_round)


class TaskAllocationEnv(SingleEnv):
    """A round needs B results; the action says how many tasks each of n workers runs, and sums to B.

    Parameters
    ----------
    scenario
        The name of a world (see ``ata-gym scenarios``), or
    pool, budget
        the workers, as a ``Pool`` or as plain data, and the results B that a round needs.
    horizon
        Rounds in an episode; by default the scenario's, or no end.
    price
        What one unit of worker time costs in units of runtime; the reward is -(round time + price * worker time).
    signals
        Whether the observation has the key ``signal``, shape (n, 2): each worker's load of cpu and memory in the coming
        round, from 0 to 1, which drives its speed under ``ata_gym.changes.Load``, and else is 0.

    Raises
    ------
    ValueError
        For arguments or actions that make no sense; the env stays as it was.

    Notes
    -----
    Where workers may die (`ata_gym.changes.Spot` and `Mortal`), a round still gives exactly B results: what the dead
    leave undone is handed on. What a worker lost when it died is its ``elapsed``; ``info["lost"]`` counts such tasks.

    Examples
    --------
    >>> import gymnasium as gym, numpy as np, ata_gym
    >>> env = gym.make("ata_gym/TaskAllocation-v0", pool={"family": "exponential", "scale": [1.0, 2.0]}, budget=3)
    >>> blank, _ = env.reset(seed=0)
    >>> feedback, reward, terminated, truncated, info = env.step(np.array([2, 1]))
    >>> feedback["worker"]
    array([0, 0, 1])
    >>> reward == -info["round_time"]
    True
    """

    _kind = AllocationEpisodes
    _episodes: AllocationEpisodes
    action_space: Allocation

    def run_on(self, play: Play) -> None:
        """Take rounds from elsewhere than the pool, such as from tasks that are really run and timed.

        Parameters
        ----------
        play
            Called as ``simulation.race_round`` is, with one row. What it raises leaves the env as it was.

        Raises
        ------
        ValueError
            If the pool changes: what is really run changes by itself.
        """
        if self.pool.changes:
            raise ValueError("rounds from elsewhere cannot follow a pool that changes: make the env from a plain pool")
        self._episodes.source = play


class TaskRaceEnv(TaskAllocationEnv):
    """More is started than needed: 0 <= a_i <= B, the sum is at least B, and the round ends at the B-th result.

    The rest is cancelled; its time so far counts as worker time and is seen as ``elapsed``. GTA is a = (B, ..., B). The
    arguments are those of ``TaskAllocationEnv``.
    """

    _kind = RaceEpisodes


class TaskAllocationVectorEnv(VectorEnv):
    """E rows of ``TaskAllocationEnv`` in one call: row e, seeded s + e, gives the bits of a single env seeded s + e.

    Parameters
    ----------
    num_envs
        How many rows E.
    autoreset_mode
        ``NEXT_STEP`` (the step after an episode's end ignores the row's action and resets it) or ``SAME_STEP``.
    scenario, pool, budget, horizon, price, signals
        As for the single env.

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, scenario="icml2025-regret")
    >>> _ = envs.reset(seed=0)
    >>> envs.step(envs.action_space.sample())[1].shape
    (4,)
    """

    _kind = AllocationEpisodes


class TaskRaceVectorEnv(TaskAllocationVectorEnv):
    """E rows of ``TaskRaceEnv``; the arguments are those of ``TaskAllocationVectorEnv``."""

    _kind = RaceEpisodes
