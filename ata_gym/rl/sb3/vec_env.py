"""Our native vector env as a ``VecEnv`` of Stable-Baselines3: all rows in one call, without an env object for each."""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from ata_gym.rl.native_rows import native_rows


class NativeVecEnv(VecEnv):
    """A native vector env of this package for Stable-Baselines3.

    ``envs`` is as ``gymnasium.make_vec`` gives it for an id of this package, with ``autoreset_mode="SameStep"``, as
    Stable-Baselines3 resets its envs; ValueError otherwise. ``infos`` are as from a ``DummyVecEnv`` of ``Monitor``
    envs: a row whose episode has ended has ``terminal_observation``, ``TimeLimit.truncated`` and ``episode`` (return
    "r", length "l" and time "t"), and those of other rows are empty. ``info`` holds the arrays of all rows.

    >>> envs = make_vec_env("ata_gym/TaskAllocation-v0", n_envs=4, observation="workers", action="shares", seed=0)
    >>> observation = envs.reset()
    >>> observation, rewards, dones, infos = envs.step(np.zeros((4, 5), np.float32))
    >>> observation.shape, rewards.shape, dones.any()
    ((4, 5, 20), (4,), np.False_)
    """

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        mode = gym.vector.AutoresetMode.SAME_STEP
        bare = native_rows(envs, mode, "Stable-Baselines3 resets its envs")
        self.envs, self.bare = envs, bare
        self.info: dict[str, Any] = {}
        self._actions: NDArray[Any] = np.empty(0)
        self._seed: int | None = None
        self._options_given: dict[str, Any] | None = None
        self._returns, self._lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
        self._started = perf_counter()
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> VecEnvObs:
        observation: VecEnvObs
        observation, self.info = self.envs.reset(seed=self._seed, options=self._options_given)
        self.reset_infos = self._infos()
        self._seed = self._options_given = None
        self._returns[:], self._lengths[:] = 0.0, 0
        return observation

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for ``step_wait``."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Take one step in every row."""
        observation, rewards, _, truncated, self.info = self.envs.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        infos = self._infos()
        for row in np.flatnonzero(truncated).tolist():
            passed = round(perf_counter() - self._started, 6)
            infos[row] |= {
                "terminal_observation": self.info["final_obs"][row],
                "TimeLimit.truncated": True,
                "episode": {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": passed},
            }
        self._returns[truncated], self._lengths[truncated] = 0.0, 0
        return observation, rewards.astype(np.float32), truncated, infos

    def _infos(self) -> list[dict[str, Any]]:
        return [{} for _ in range(self.num_envs)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed row e with ``seed`` + e at the next reset, and return the seeds."""
        self._seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        return [self._seed + e for e in range(self.num_envs)]

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Keep options for the next reset of all rows. ValueError for options that differ by row."""
        if isinstance(options, list):
            if any(one != options[0] for one in options):
                raise ValueError("the options of a reset are for all rows: give one dict")
            options = options[0] if options else None
        self._options_given = options

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self._of_rows(self.bare.get_attr(attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Not possible: AttributeError. ``envs.set_attr`` keeps attributes of the caller's own, of all rows."""
        raise AttributeError(f"{attr_name} cannot be set here: make the env with other arguments, or see envs.set_attr")

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """What the method of that name gives, for some rows."""
        return self._of_rows(self.bare.call(method_name, *method_args, **method_kwargs), indices)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Rows are not wrapped; but ``infos`` have what ``Monitor`` adds."""
        monitored = wrapper_class.__name__ == "Monitor"
        return self._of_rows([monitored] * self.num_envs, indices)

    def has_attr(self, attr_name: str) -> bool:
        """Whether the envs have such an attribute."""
        return hasattr(self.bare, attr_name)

    def _of_rows(self, values: Sequence[Any], indices: VecEnvIndices) -> list[Any]:
        rows: Iterable[int] = self._get_indices(indices)
        return [values[row] for row in rows]


def make_vec_env(env_id: str, n_envs: int = 1, seed: int | None = None, **arguments: Any) -> NativeVecEnv:
    """Make E rows of an id of this package for Stable-Baselines3, with arguments of the env."""
    envs = NativeVecEnv(gym.make_vec(env_id, num_envs=n_envs, autoreset_mode="SameStep", **arguments))
    envs.seed(seed)
    return envs
