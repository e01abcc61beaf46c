"""What all vector envs share: seeds, autoreset as in Gymnasium's own, rewards and info."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.utils import create_zero_array
from numpy.typing import NDArray

from ata_gym.changes import Change
from ata_gym.envs.batch_state import Observation
from ata_gym.envs.single import EnvProperties, SingleEnv
from ata_gym.envs.spaces import Allocation, Dispatch
from ata_gym.scenarios import PoolData, Scenario, resolve
from ata_gym.typing import Mask
from ata_gym.utils.validation import flag, short, whole_number


class VectorEnv(EnvProperties, gym.vector.VectorEnv[Observation, NDArray[Any], NDArray[Any]]):
    """E rows in one call, reset as in Gymnasium's own vector envs."""

    def __init__(
        self,
        num_envs: int = 1,
        scenario: str | Scenario | None = None,
        pool: PoolData | None = None,
        budget: int | None = None,
        horizon: int | None = None,
        price: float | None = None,
        changes: Iterable[Change | Mapping[str, Any]] | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        signals: bool = False,
        backend: object = None,
    ) -> None:
        if backend is not None:
            raise ValueError("a backend runs the tasks of a single env: use gymnasium.make, not make_vec")
        self.num_envs = whole_number("num_envs", num_envs)
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {**SingleEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.scenario = resolve(scenario, pool, budget, horizon, price, changes)
        self._state = self._state_class(self.scenario, self.num_envs, flag("signals", signals))
        self._ended = np.zeros(self.num_envs, np.bool_)  # the next step resets these
        self.single_observation_space = self._state.observation_space()
        self.single_action_space = self._state.action_space()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space: Allocation | Dispatch = self._state.action_space(self.num_envs)
        self._idle: NDArray[Any] = create_zero_array(self.single_action_space)  # the action of a row that is reset

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode in every row; ``seed`` s seeds row e with s + e, a sequence each row with its own."""
        seeds = self._row_seeds(seed)
        for row, own in enumerate(seeds):
            if own is not None:
                self._state.seed_row(row, own)
        self._state.start_episode(slice(None))
        self._ended[:] = False
        return self._state.no_feedback(slice(None)), {}

    def _row_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None or isinstance(seed, (int, np.integer)):
            if seed is None and self._state.seeded():
                return [None] * self.num_envs
            # as in the single env: Gymnasium checks a seed, and draws one where none was ever given
            self._np_random, self._np_random_seed = seeding.np_random(None if seed is None else int(seed))
            return [self._np_random_seed + e for e in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(
                f"seed has {len(seed)} entries; it must be one number, or one for each of {self.num_envs} rows"
            )
        fresh = self._state.episode < 0
        return [seeding.np_random(own)[1] if own is not None or fresh[e] else None for e, own in enumerate(seed)]

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take one step in every row with actions of shape (E, n)."""
        if not self._state.seeded():
            raise ValueError("no episode is running: call reset() first")
        starting = self._ended.copy()
        any_starting = bool(starting.any())
        if any_starting and np.shape(actions) == self.action_space.shape:
            actions = np.where(starting[:, None], self._idle, actions)
        result = self._state.step(self.action_space.check(actions))
        observation, played = result.observation, ~starting
        reward = -(result.time + self.scenario.price * result.worker_time)
        if any_starting:
            self._restart(observation, starting)
            reward[starting] = 0.0
        truncated = result.ended & played
        info = result.info if not any_starting else _only(result.info, played)
        info |= {f"_{name}": played for name in info}
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._ended[:] = truncated
        elif truncated.any():
            info = self._final(observation, info, truncated)
            self._restart(observation, truncated)
        return observation, reward, np.zeros(self.num_envs, np.bool_), truncated, info

    def _restart(self, observation: Observation, rows: Mask) -> None:
        self._state.start_episode(rows)
        for name, blank in self._state.no_feedback(rows).items():
            observation[name][rows] = blank

    def _final(self, observation: Observation, info: dict[str, Any], rows: Mask) -> dict[str, Any]:
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


def _autoreset_mode(given: object) -> AutoresetMode:
    modes = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    if isinstance(given, str | AutoresetMode):
        for mode in modes:
            if given in (mode, mode.value):
                return mode
    raise ValueError(f"autoreset_mode must be NEXT_STEP or SAME_STEP, as this env resets its rows, not {short(given)}")


def _only(info: Mapping[str, NDArray[Any]], rows: Mask) -> dict[str, Any]:
    """Keep the entries of some rows, with zeros elsewhere; in the masks too."""
    return {name: np.where(rows, value, value.dtype.type(0)) for name, value in info.items()}
