"""What all envs do alike, whatever a step of theirs is: seeds, resets, checks, rewards and info."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Space
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.checks import whole_number
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.simulation import Floats
from ata_gym.world import Actions, Episodes, Observation, PoolLike, World


class Face:
    """What the single and the vector env say of their world, and what they remember."""

    _kind: type[Any]
    """Its ``Episodes``, made from a world and a number of rows."""
    _world: World
    _episodes: Episodes
    _over: NDArray[np.bool_]
    """Rows whose episode has ended, shape (E,); before the first reset none has begun either."""

    @property
    def pool(self) -> Pool:
        """The workers and the law of their task times, for those who may know."""
        return self._world.pool

    @property
    def n(self) -> int:
        """How many workers there are."""
        return self._world.pool.n

    @property
    def budget(self) -> int:
        """Results B that a round needs."""
        return self._world.budget

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode; None: no end."""
        return self._world.horizon

    @property
    def price(self) -> float:
        """What one unit of worker time costs in units of runtime."""
        return self._world.price

    @property
    def scenario(self) -> Scenario | None:
        """The named world, if it has a name."""
        return self._world.scenario

    def conditions(self) -> Conditions:
        """What the workers are like in the coming round, or in the one under way; for those who may know.

        The arrays have a leading row axis in a vector env alone.
        """
        return self._episodes.conditions()

    def means(self) -> Floats:
        """Exact mean task times under these conditions, shape (n,), or (E, n) of a vector env.

        They are infinite for workers that are away from the round's start, and for a trace replayed by round they are
        the recorded times of the round itself: there the law of a round is a point. Where nothing changes they are
        those of the pool.
        """
        return self._episodes.conditions().means(self.pool)

    def checkpoint(self) -> dict[str, NDArray[Any]]:
        """Everything that the env remembers, as arrays to save; ``restore`` goes on from there bit for bit."""
        return self._episodes.checkpoint(self._over)

    def restore(self, checkpoint: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a ``checkpoint`` of an env of the same world and as many rows.

        Raises
        ------
        ValueError
            If it does not fit; the env stays as it was.
        """
        self._episodes.restore(checkpoint, self._over)


class SingleEnv(Face, gym.Env[Observation, NDArray[Any]]):
    """One row, without the row axis."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]

    def __init__(
        self,
        scenario: str | Scenario | None = None,
        pool: PoolLike | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float = 0.0,
        signals: bool = False,
    ) -> None:
        self._world = World.of(scenario, pool, budget, horizon, price, signals)
        self._episodes = self._kind(self._world, 1)
        self._over = np.ones(1, np.bool_)
        self.observation_space: Space[Any] = self._episodes.observations()
        self.action_space: Actions = self._episodes.actions()

    def conditions(self) -> Conditions:  # noqa: D102 - as of the face
        return super().conditions().row(0)

    def means(self) -> Floats:  # noqa: D102
        means: Floats = super().means()[0]
        return means

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
        return {name: field[0] for name, field in self._episodes.blank(slice(None)).items()}, {}

    def step(self, action: NDArray[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Take one step with an action of shape (n,)."""
        if self._over[0]:
            raise ValueError("no episode is running: call reset() first")
        turn = self._episodes.play(self.action_space.check(action)[None])
        self._over[:] = turn.over
        observation = {name: field[0] for name, field in turn.observation.items()}
        reward = -(turn.time.item() + self._world.price * turn.worker_time.item())
        info = {name: value.item() for name, value in turn.info.items()}
        return observation, reward, False, turn.over.item(), info


class VectorEnv(Face, gym.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows in one call, which are reset as Gymnasium's own vector envs do it."""

    def __init__(
        self,
        num_envs: int = 1,
        scenario: str | Scenario | None = None,
        pool: PoolLike | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float = 0.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        signals: bool = False,
    ) -> None:
        self.num_envs = whole_number("num_envs", num_envs)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            raise ValueError("autoreset_mode must be NEXT_STEP or SAME_STEP; this env resets its rows itself")
        self.metadata = {**SingleEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self._world = World.of(scenario, pool, budget, horizon, price, signals)
        self._episodes = self._kind(self._world, self.num_envs)
        self._over = np.zeros(self.num_envs, np.bool_)  # the next step resets these
        self.single_observation_space = self._episodes.observations()
        self.single_action_space = self._episodes.actions()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space: Actions = self._episodes.actions(self.num_envs)
        # the action of a row that is being reset
        self._idle: NDArray[Any] = create_zero_array(self.single_action_space)

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
        return self._episodes.blank(slice(None)), {}

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
        """Take one step in every row with actions of shape (E, n)."""
        if not self._episodes.seeded():
            raise ValueError("no episode is running: call reset() first")
        starting = self._over.copy()
        any_starting = bool(starting.any())
        if any_starting and np.shape(actions) == self.action_space.shape:
            actions = np.where(starting[:, None], self._idle, actions)
        turn = self._episodes.play(self.action_space.check(actions))
        observation, played = turn.observation, ~starting
        reward = -(turn.time + self._world.price * turn.worker_time)
        if any_starting:
            self._restart(observation, starting)
            reward[starting] = 0.0
        truncated = turn.over & played
        info = turn.info if not any_starting else _only(turn.info, played)
        info |= {f"_{name}": played for name in info}
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._over[:] = truncated
        elif truncated.any():
            info = self._final(observation, info, truncated)
            self._restart(observation, truncated)
        return observation, reward, np.zeros(self.num_envs, np.bool_), truncated, info

    def _restart(self, observation: Observation, rows: NDArray[np.bool_]) -> None:
        self._episodes.begin(rows)
        for name, blank in self._episodes.blank(rows).items():
            observation[name][rows] = blank

    def _final(self, observation: Observation, info: dict[str, Any], rows: NDArray[np.bool_]) -> dict[str, Any]:
        """Move what the ended rows saw to ``final_obs`` and ``final_info``, as Gymnasium does under SAME_STEP."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(rows):
            final_obs[row] = {name: field[row].copy() for name, field in observation.items()}
        return {
            **_only(info, ~rows),
            "final_obs": final_obs,
            "_final_obs": rows.copy(),
            "final_info": _only(info, rows),
            "_final_info": rows.copy(),
        }


def _only(info: Mapping[str, NDArray[Any]], rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Keep the entries of some rows, with zeros elsewhere; in the masks too."""
    return {name: np.where(rows, value, value.dtype.type(0)) for name, value in info.items()}
