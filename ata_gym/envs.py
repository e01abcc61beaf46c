"""The two environments, each as a single env and as a native vector env, all thin over ``simulation``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ata_gym.checks import whole_number
from ata_gym.scenarios import Scenario
from ata_gym.simulation import Outcome, allocation_round, race_round
from ata_gym.spaces import Allocation, RaceAllocation
from ata_gym.world import Episodes, Face, Observation, Play, PoolLike, World


class TaskAllocationEnv(Face, gym.Env[Observation, NDArray[Any]]):
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

    Raises
    ------
    ValueError
        For arguments or actions that make no sense; the env stays as it was.

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> env = gym.make("ata_gym/TaskAllocation-v0", pool={"family": "exponential", "scale": [1.0, 2.0]}, budget=3)
    >>> blank, _ = env.reset(seed=0)
    >>> feedback, reward, terminated, truncated, info = env.step(np.array([2, 1]))
    >>> feedback["worker"]
    array([0, 0, 1])
    >>> reward == -info["round_time"]
    True
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]
    _play: Play = staticmethod(allocation_round)
    _space: type[Allocation] = Allocation

    def __init__(
        self,
        scenario: str | Scenario | None = None,
        pool: PoolLike | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float = 0.0,
    ) -> None:
        self._world = World.of(scenario, pool, budget, horizon, price)
        self._episodes = Episodes(self._world, 1, self._play)
        self._over = np.ones(1, np.bool_)
        self.observation_space = self._world.observation_space()
        self.action_space: Allocation = self._space(self.n, self.budget)

    def run_on(self, play: Play) -> None:
        """Take rounds from elsewhere than the pool, such as from tasks that are really run and timed.

        Parameters
        ----------
        play
            Called as ``simulation.race_round`` is, with one row. What it raises leaves the env as it was.
        """
        self._episodes.source = play

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; with a seed its noise is that of episode 0, without one that of the next."""
        super().reset(seed=seed, options=options)
        if seed is not None or not self._episodes.seeded():
            self.np_random  # noqa: B018 - draws a seed where none was given
            self._episodes.rekey(0, self.np_random_seed)
        self._episodes.begin(slice(None))
        self._over[:] = False
        return {name: field[0] for name, field in self._episodes.blank(1).items()}, {}

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run one round with an allocation of shape (n,)."""
        if self._over[0]:
            raise ValueError("no episode is running: call reset() first")
        episodes = self._episodes
        outcome = episodes.play(self.action_space.check(action)[None])
        round_time, worker_time = float(outcome.round_time[0]), float(outcome.worker_time[0])
        truncated = bool(episodes.over()[0])
        self._over[:] = truncated
        observation = {"worker": outcome.worker[0], "time": outcome.time[0], "elapsed": outcome.elapsed[0]}
        info = {
            "round_time": round_time,
            "worker_time": worker_time,
            "runtime": float(episodes.runtime[0]),
            "total_worker_time": float(episodes.total_worker_time[0]),
        }
        return observation, -(round_time + self._world.price * worker_time), False, truncated, info


class TaskRaceEnv(TaskAllocationEnv):
    """More is started than needed: 0 <= a_i <= B, the sum is at least B, and the round ends at the B-th result.

    The rest is cancelled; its time so far counts as worker time and is seen as ``elapsed``. GTA is a = (B, ..., B). The
    arguments are those of ``TaskAllocationEnv``.
    """

    _play = staticmethod(race_round)
    _space = RaceAllocation


class TaskAllocationVectorEnv(Face, gym.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows of ``TaskAllocationEnv`` in one call: row e, seeded s + e, gives the bits of a single env seeded s + e.

    Parameters
    ----------
    num_envs
        How many rows E.
    autoreset_mode
        ``NEXT_STEP`` (the step after an episode's end ignores the row's action and resets it) or ``SAME_STEP``.
    scenario, pool, budget, horizon, price
        As for the single env.

    Examples
    --------
    >>> import gymnasium as gym, ata_gym
    >>> envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, scenario="icml2025-regret")
    >>> _ = envs.reset(seed=0)
    >>> envs.step(envs.action_space.sample())[1].shape
    (4,)
    """

    _play: Play = staticmethod(allocation_round)
    _space: type[Allocation] = Allocation

    def __init__(
        self,
        num_envs: int = 1,
        scenario: str | Scenario | None = None,
        pool: PoolLike | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float = 0.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs = whole_number("num_envs", num_envs)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode must be NEXT_STEP or SAME_STEP; this env resets its rows itself")
        self.metadata = {**TaskAllocationEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self._world = World.of(scenario, pool, budget, horizon, price)
        self._episodes = Episodes(self._world, self.num_envs, self._play)
        self._over = np.zeros(self.num_envs, np.bool_)  # the next step resets these
        self.single_observation_space = self._world.observation_space()
        self.single_action_space = self._space(self.n, self.budget)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space: Allocation = self._space(self.n, self.budget, rows=self.num_envs)
        self._idle = np.zeros(self.n, np.int64)  # the action of a row that is being reset
        self._idle[0] = self.budget

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every row; ``seed`` s seeds row e with s + e, a sequence each row with its own."""
        del options
        seeds = self._row_seeds(seed)
        for row, own in enumerate(seeds):
            if own is not None:
                self._episodes.rekey(row, own)
        self._episodes.begin(slice(None))
        self._over[:] = False
        return self._episodes.blank(self.num_envs), {}

    def _row_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None or isinstance(seed, (int, np.integer)):
            if seed is None and self._episodes.seeded():
                return [None] * self.num_envs
            # as in the single env: Gymnasium checks a seed, and draws one where none was ever given
            self._np_random, self._np_random_seed = seeding.np_random(None if seed is None else int(seed))
            return [self._np_random_seed + e for e in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"seed has {len(seed)} entries; it must be one number, or one for each of {self.num_envs} rows"
            )
        fresh = self._episodes.episode < 0
        return [seeding.np_random(own)[1] if own is not None or fresh[e] else None for e, own in enumerate(seed)]

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Run one round in every row with allocations of shape (E, n)."""
        if not self._episodes.seeded():
            raise ValueError("no episode is running: call reset() first")
        episodes, starting = self._episodes, self._over.copy()
        any_starting = bool(starting.any())
        if any_starting and np.shape(actions) == self.action_space.shape:
            actions = np.where(starting[:, None], self._idle, actions)
        outcome = episodes.play(self.action_space.check(actions))
        observation = {"worker": outcome.worker, "time": outcome.time, "elapsed": outcome.elapsed}
        reward = -(outcome.round_time + self._world.price * outcome.worker_time)
        if any_starting:
            self._restart(observation, starting)
            reward[starting] = 0.0
        truncated = episodes.over() & ~starting
        info = self._info(outcome, ~starting)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._over[:] = truncated
        elif truncated.any():
            info = self._final(observation, info, truncated)
            self._restart(observation, truncated)
        return observation, reward, np.zeros(self.num_envs, np.bool_), truncated, info

    def _restart(self, observation: Observation, rows: NDArray[np.bool_]) -> None:
        self._episodes.begin(rows)
        for name, blank in self._episodes.blank(int(rows.sum())).items():
            observation[name][rows] = blank

    def _info(self, outcome: Outcome, played: NDArray[np.bool_]) -> dict[str, Any]:
        """Gymnasium's form: an array for each entry, and a mask of the rows that it holds for."""
        values = {
            "round_time": outcome.round_time,
            "worker_time": outcome.worker_time,
            "runtime": self._episodes.runtime.copy(),
            "total_worker_time": self._episodes.total_worker_time.copy(),
        }
        if not played.all():
            values = {name: np.where(played, value, 0.0) for name, value in values.items()}
        return {**values, **{f"_{name}": played for name in values}}

    def _final(self, observation: Observation, info: dict[str, Any], rows: NDArray[np.bool_]) -> dict[str, Any]:
        """Move what the ended rows saw to ``final_obs`` and ``final_info``, as Gymnasium does under SAME_STEP."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(rows):
            final_obs[row] = {name: field[row].copy() for name, field in observation.items()}
        masked: dict[str, Any] = {
            "final_obs": final_obs,
            "_final_obs": rows.copy(),
            "_final_info": rows.copy(),
        }
        masked["final_info"] = {
            name: field & rows if name.startswith("_") else np.where(rows, field, 0.0) for name, field in info.items()
        }
        kept = {
            name: field & ~rows if name.startswith("_") else np.where(rows, 0.0, field) for name, field in info.items()
        }
        return {**kept, **masked}


class TaskRaceVectorEnv(TaskAllocationVectorEnv):
    """E rows of ``TaskRaceEnv``; the arguments are those of ``TaskAllocationVectorEnv``."""

    _play = staticmethod(race_round)
    _space = RaceAllocation
