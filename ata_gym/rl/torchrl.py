"""TorchRL: the native vector env as an env of TorchRL, all rows in one call. This module needs torchrl."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ata_gym.rl.native_rows import native_rows
from ata_gym.utils.extras import MissingExtraError

try:
    import torch
    from tensordict import TensorDict
    from torch import Tensor
    from torchrl.data import Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase
except ModuleNotFoundError as error:
    if error.name not in {"tensordict", "torch", "torchrl"}:
        raise
    raise MissingExtraError("ata_gym.rl.torchrl needs TorchRL: pip install torchrl", name=error.name) from None

_DTYPES = {np.dtype(name): getattr(torch, name) for name in ("float32", "float64", "int8", "int64")}


class NativeTorchEnv(EnvBase):  # type: ignore[misc]
    """A native vector env of this package for TorchRL: a batch of E rows, without an env object for each.

    ``envs`` is as ``gymnasium.make_vec`` gives it for an id of this package, with ``autoreset_mode="Disabled"``, since
    TorchRL itself says which rows are reset. ValueError otherwise, and for ``action="allocation"``, since no spec of
    TorchRL holds integers with a given sum.

    The batch size is (E,). Observations of ``observation="workers"`` and ``"flat"`` have the key "observation"; those
    of "feedback" have their own keys. The masks of ``action="assign"`` and ``"start"``, (E, k), are under
    "action_mask". Whole numbers are actions of class ``Categorical``. Rewards, (E, 1), are float32. The end of an
    episode is "truncated". ``info`` holds the arrays of the last step. ``set_seed(s)`` seeds row e with s + e at the
    next reset of all rows.

    >>> env = make_env("ata_gym/TaskAllocation-v0", n_envs=4, observation="workers", action="shares", seed=0)
    >>> steps = env.rollout(10)
    >>> steps["observation"].shape, steps["next", "reward"].shape
    (torch.Size([4, 10, 5, 20]), torch.Size([4, 10, 1]))
    """

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any], device: torch.device | str = "cpu") -> None:
        bare = native_rows(envs, gym.vector.AutoresetMode.DISABLED, "TorchRL says which rows are reset")
        rows = envs.num_envs
        super().__init__(device=device, batch_size=torch.Size([rows]))
        self.envs, self.bare = envs, bare
        self.info: dict[str, Any] = {}
        self._next_seed: int | None = None
        spec = partial(_spec, rows=rows, device=device)
        self.action_spec = spec(envs.single_action_space)
        seen = envs.single_observation_space
        of_key = seen.spaces if isinstance(seen, spaces.Dict) else {"observation": seen}
        shown = {key: spec(space) for key, space in of_key.items()}
        if isinstance(envs.single_action_space, spaces.Discrete):
            choices = int(envs.single_action_space.n)
            shown["action_mask"] = Categorical(2, shape=(rows, choices), dtype=torch.bool, device=device)
        self.observation_spec = Composite(shown, shape=(rows,), device=device)
        self.reward_spec = Unbounded(shape=(rows, 1), dtype=torch.float32, device=device)
        flags = ("done", "terminated", "truncated")
        flag = Categorical(2, shape=(rows, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite({name: flag.clone() for name in flags}, shape=(rows,), device=device)

    def _reset(self, tensordict: Any = None, **_: Any) -> Any:
        marked = None if tensordict is None else tensordict.get("_reset", None)
        if marked is None or bool(marked.all()):
            observation, self.info = self.envs.reset(seed=self._next_seed)
            self._next_seed = None
        else:
            rows = marked.reshape(self.envs.num_envs).cpu().numpy()
            observation, self.info = self.envs.reset(options={"reset_mask": rows})
        return self._tensordict(observation, np.zeros(self.envs.num_envs, np.bool_))

    def _step(self, tensordict: Any) -> Any:
        actions = tensordict["action"].detach().cpu().numpy()
        observation, reward, _, truncated, self.info = self.envs.step(actions)
        tensors = self._tensordict(observation, truncated)
        return tensors.set("reward", self._tensor(reward.astype(np.float32)[:, None]))

    def _set_seed(self, seed: int | None) -> None:
        self._next_seed = seed

    def close(self, *, raise_if_closed: bool = True) -> None:
        self.envs.close()
        super().close(raise_if_closed=raise_if_closed)

    def _tensordict(self, observation: Any, truncated: Any) -> Any:
        seen = observation if isinstance(observation, dict) else {"observation": observation}
        tensors = {key: self._tensor(field) for key, field in seen.items()}
        if "action_mask" in self.observation_spec:
            tensors["action_mask"] = self._tensor(self.bare.action_masks())
        ended = self._tensor(truncated[:, None])
        tensors |= {"done": ended, "truncated": ended.clone(), "terminated": torch.zeros_like(ended)}
        return TensorDict(tensors, batch_size=self.batch_size, device=self.device)

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def make_env(
    env_id: str, n_envs: int = 1, seed: int | None = None, device: torch.device | str = "cpu", **arguments: Any
) -> NativeTorchEnv:
    """Make E rows of an id of this package for TorchRL, with arguments of the env."""
    env = NativeTorchEnv(gym.make_vec(env_id, num_envs=n_envs, autoreset_mode="Disabled", **arguments), device)
    env.set_seed(seed)
    return env


def _spec(space: spaces.Space[Any], rows: int, device: torch.device | str) -> Any:
    """The spec of E rows of a space; ValueError for a space that TorchRL does not have."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), shape=(rows,), device=device)
    if isinstance(space, spaces.MultiDiscrete):  # of zeros and ones
        return Categorical(2, shape=(rows, *space.shape), device=device)
    if isinstance(space, spaces.Box):
        dtype, shape = _DTYPES[space.dtype], (rows, *space.shape)
        low, high = (torch.as_tensor(bound, dtype=dtype).expand(shape) for bound in (space.low, space.high))
        return Bounded(low, high, shape=shape, dtype=dtype, device=device)
    raise ValueError(
        f'TorchRL has no spec for {space}: make the env with action="shares", or "assign" in TaskAllocation'
    )
