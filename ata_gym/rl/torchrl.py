"""TorchRL: the native vector env as an env of TorchRL, all rows in one call.

This module needs torchrl.
"""

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
    raise MissingExtraError(
        "ata_gym.rl.torchrl needs TorchRL: pip install torchrl",
        name=error.name,
    ) from None

_DTYPES = {np.dtype(name): getattr(torch, name) for name in ("float32", "float64", "int8", "int64")}


class NativeTorchEnv(EnvBase):  # type: ignore[misc]
    """A native vector env of this package for TorchRL: a batch of E rows in one object.

    The batch size is (E,). Observations of ``observation="workers"`` and ``"flat"`` have the key
    "observation"; observations of "feedback" have their own keys. The masks of ``action="assign"``
    and ``"start"``, (E, k), are under "action_mask". Whole numbers are actions of class
    ``Categorical``. Rewards, (E, 1), are float32. The end of an episode is "truncated". ``info``
    holds the arrays of the last step. ``set_seed(s)`` seeds row e with s + e at the next reset of
    all rows.

    Args:
        envs: A vector env of ``gymnasium.make_vec`` for an id of this package, with
            ``autoreset_mode="Disabled"``, since TorchRL itself decides which rows are reset.
        device: The device of the tensors.

    Raises:
        ValueError: For another vector env, and for ``action="allocation"``, since no spec of
            TorchRL holds integers with a given sum.

    Example:
        >>> form = {"observation": "workers", "action": "shares"}
        >>> env = make_env("ata_gym/TaskAllocation-v0", n_envs=4, seed=0, **form)
        >>> steps = env.rollout(10)
        >>> steps["observation"].shape, steps["next", "reward"].shape
        (torch.Size([4, 10, 5, 20]), torch.Size([4, 10, 1]))
    """

    def __init__(
        self,
        envs: gym.vector.VectorEnv[Any, Any, Any],
        device: torch.device | str = "cpu",
    ) -> None:
        bare = native_rows(
            envs,
            gym.vector.AutoresetMode.DISABLED,
            "TorchRL says which rows are reset",
        )
        rows = envs.num_envs
        super().__init__(device=device, batch_size=torch.Size([rows]))
        self.envs = envs
        self.bare = bare
        self.info: dict[str, Any] = {}
        self._next_seed: int | None = None
        spec = partial(_spec, rows=rows, device=device)
        self.action_spec = spec(envs.single_action_space)
        observation_space = envs.single_observation_space
        if isinstance(observation_space, spaces.Dict):
            spaces_by_key = observation_space.spaces
        else:
            spaces_by_key = {"observation": observation_space}
        specs = {key: spec(space) for key, space in spaces_by_key.items()}
        if isinstance(envs.single_action_space, spaces.Discrete):
            choices = int(envs.single_action_space.n)
            specs["action_mask"] = Categorical(
                2,
                shape=(rows, choices),
                dtype=torch.bool,
                device=device,
            )
        self.observation_spec = Composite(specs, shape=(rows,), device=device)
        self.reward_spec = Unbounded(shape=(rows, 1), dtype=torch.float32, device=device)
        flags = ("done", "terminated", "truncated")
        flag = Categorical(2, shape=(rows, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite(
            {name: flag.clone() for name in flags},
            shape=(rows,),
            device=device,
        )

    def _reset(self, tensordict: Any = None, **_: Any) -> Any:
        if tensordict is None:
            mask = None
        else:
            mask = tensordict.get("_reset", None)
        if mask is None or bool(mask.all()):
            observation, self.info = self.envs.reset(seed=self._next_seed)
            self._next_seed = None
        else:
            rows = mask.reshape(self.envs.num_envs).cpu().numpy()
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
        """The tensors of an observation, with masks of actions and flags of the end."""
        if isinstance(observation, dict):
            fields = observation
        else:
            fields = {"observation": observation}
        tensors = {key: self._tensor(field) for key, field in fields.items()}
        if "action_mask" in self.observation_spec:
            tensors["action_mask"] = self._tensor(self.bare.action_masks())
        ended = self._tensor(truncated[:, None])
        tensors |= {
            "done": ended,
            "truncated": ended.clone(),
            "terminated": torch.zeros_like(ended),
        }
        return TensorDict(tensors, batch_size=self.batch_size, device=self.device)

    def _tensor(self, array: Any) -> Tensor:
        """An array as a tensor on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def make_env(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    **arguments: Any,
) -> NativeTorchEnv:
    """Make rows of an id of this package for TorchRL.

    Args:
        env_id: The id of the env.
        n_envs: The number of rows E.
        seed: Seed of row 0 at the next reset; row e has ``seed`` + e.
        device: The device of the tensors.
        **arguments: Arguments of the env.
    """
    env = NativeTorchEnv(
        gym.make_vec(env_id, num_envs=n_envs, autoreset_mode="Disabled", **arguments),
        device,
    )
    env.set_seed(seed)
    return env


def _spec(space: spaces.Space[Any], rows: int, device: torch.device | str) -> Any:
    """Return the spec of E rows of a space, with ValueError if TorchRL has none."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), shape=(rows,), device=device)
    # Every ``MultiDiscrete`` space of this package is of zeros and ones.
    if isinstance(space, spaces.MultiDiscrete):
        return Categorical(2, shape=(rows, *space.shape), device=device)
    if isinstance(space, spaces.Box):
        dtype = _DTYPES[space.dtype]
        shape = (rows, *space.shape)
        low, high = (
            torch.as_tensor(bound, dtype=dtype).expand(shape) for bound in (space.low, space.high)
        )
        return Bounded(low, high, shape=shape, dtype=dtype, device=device)
    raise ValueError(
        f'TorchRL has no spec for {space}: make the env with action="shares", or "assign" in'
        " TaskAllocation",
    )
