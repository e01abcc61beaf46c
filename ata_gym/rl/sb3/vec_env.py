"""The native vector env as a ``VecEnv`` of Stable-Baselines3: all rows in one call."""

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

    Where the episode of a row has ended, its infos are as from a ``DummyVecEnv`` of ``Monitor``
    envs: the numbers of the last round, such as ``runtime``, ``terminal_observation``,
    ``TimeLimit.truncated`` and ``episode`` (return "r", length "l" and time "t"). The infos of
    other rows are empty, which is faster; ``info`` holds the arrays of all rows.

    Args:
        envs: A vector env of ``gymnasium.make_vec`` for an id of this package, with
            ``autoreset_mode="SameStep"``, as Stable-Baselines3 resets its envs.

    Raises:
        ValueError: For another vector env.

    Example:
        >>> form = {"observation": "workers", "action": "shares"}
        >>> envs = make_vec_env("ata_gym/TaskAllocation-v0", n_envs=4, seed=0, **form)
        >>> observation = envs.reset()
        >>> observation, rewards, dones, infos = envs.step(np.zeros((4, 5), np.float32))
        >>> observation.shape, rewards.shape, dones.any()
        ((4, 5, 20), (4,), np.False_)
    """

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        mode = gym.vector.AutoresetMode.SAME_STEP
        bare = native_rows(envs, mode, "Stable-Baselines3 resets its envs")
        self.envs = envs
        self.bare = bare
        self.info: dict[str, Any] = {}
        self._actions: NDArray[Any] = np.empty(0)
        self._seed: int | None = None
        self._next_options: dict[str, Any] | None = None
        self._returns = np.zeros(envs.num_envs)
        self._lengths = np.zeros(envs.num_envs, np.int64)
        self._started = perf_counter()
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> VecEnvObs:
        observation: VecEnvObs
        observation, self.info = self.envs.reset(seed=self._seed, options=self._next_options)
        self.reset_infos = self._infos()
        self._seed = None
        self._next_options = None
        self._returns[:] = 0.0
        self._lengths[:] = 0
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
        last = _without_masks(self.info.get("final_info", {}))
        for row in np.flatnonzero(truncated).tolist():
            seconds = round(perf_counter() - self._started, 6)
            episode = {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": seconds}
            infos[row] |= {name: values[row] for name, values in last.items()}
            infos[row] |= {
                "terminal_observation": self.info["final_obs"][row],
                "TimeLimit.truncated": True,
                "episode": episode,
            }
        self._returns[truncated] = 0.0
        self._lengths[truncated] = 0
        return observation, rewards.astype(np.float32), truncated, infos

    def _infos(self) -> list[dict[str, Any]]:
        """An empty dict for each row."""
        return [{} for _ in range(self.num_envs)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed row e with ``seed`` + e at the next reset, and return the seeds."""
        if seed is None:
            self._seed = int(np.random.default_rng().integers(2**31))
        else:
            self._seed = seed
        return [self._seed + e for e in range(self.num_envs)]

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Keep options for the next reset of all rows.

        Raises:
            ValueError: For options that differ by row.
        """
        if isinstance(options, list):
            if any(row_options != options[0] for row_options in options):
                raise ValueError("the options of a reset are for all rows: give one dict")
            if options:
                options = options[0]
            else:
                options = None
        self._next_options = options

    def close(self) -> None:
        self.envs.close()

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """The picture of each row, of envs that were made with ``render_mode="rgb_array"``.

        Raises:
            ValueError: For envs that were made with another one.
        """
        if self.render_mode != "rgb_array":
            raise ValueError(
                f"the envs have the render_mode {self.render_mode!r}: make them with"
                ' render_mode="rgb_array"',
            )
        pictures: Any = self.envs.render()
        return list(pictures)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self._of_rows(self.bare.get_attr(attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Raise an error, as attributes of one row cannot be set.

        ``envs.set_attr`` keeps attributes of the caller's own, of all rows.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(
            f"{attr_name} cannot be set here: make the env with other arguments, or see"
            " envs.set_attr",
        )

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call the method of that name, and return its results for some rows."""
        return self._of_rows(self.bare.call(method_name, *method_args, **method_kwargs), indices)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: VecEnvIndices = None) -> list[bool]:
        """Whether rows have the wrapper: only ``Monitor``, whose entries ``infos`` have."""
        monitored = wrapper_class.__name__ == "Monitor"
        return self._of_rows([monitored] * self.num_envs, indices)

    def has_attr(self, attr_name: str) -> bool:
        """Whether the envs have an attribute of that name."""
        return hasattr(self.bare, attr_name)

    def _of_rows(self, values: Sequence[Any], indices: VecEnvIndices) -> list[Any]:
        """The values of some rows."""
        rows: Iterable[int] = self._get_indices(indices)
        return [values[row] for row in rows]


def _without_masks(info: dict[str, Any]) -> dict[str, Any]:
    """The infos of a vector env without which rows have them."""
    return {name: values for name, values in info.items() if not name.startswith("_")}


def make_vec_env(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    **arguments: Any,
) -> NativeVecEnv:
    """Make rows of an id of this package for Stable-Baselines3.

    Args:
        env_id: The id of the env.
        n_envs: The number of rows E.
        seed: Seed of row 0 at the next reset; row e has ``seed`` + e.
        **arguments: Arguments of the env.
    """
    rows = gym.make_vec(env_id, num_envs=n_envs, autoreset_mode="SameStep", **arguments)
    envs = NativeVecEnv(rows)
    envs.seed(seed)
    return envs
