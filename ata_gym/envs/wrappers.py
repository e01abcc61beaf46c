"""Wrappers for learners with real-valued actions: ``action="shares"`` for an env that is already made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ata_gym.envs.interface.shares import SCALE, checked_reals, tasks_of_shares
from ata_gym.envs.spaces import Allocation, RaceAllocation
from ata_gym.typing import Ints
from ata_gym.utils.validation import real

__all__ = ["LogitActions", "VectorLogitActions"]


class LogitActions(gym.ActionWrapper[Any, NDArray[np.float32], Ints], RecordConstructorArgs):
    """Real-valued actions: a vector of [-1, 1]^n becomes an allocation.

    The action x gives the allocation that rounds B softmax(scale x) by ``largest_remainder``. Finite actions outside
    the box are not clipped.

    Parameters
    ----------
    env
        An env whose actions are allocations of shape (n,).
    scale
        The logits are scale * x: two workers' shares differ by a factor of at most exp(2 scale).

    Raises
    ------
    TypeError, ValueError
        If the env has other actions, or is a race, whose total such an action does not tell; if scale is not positive
        and finite. ``step`` raises ValueError for an action of another shape, of integers, or that is not finite, and
        the env stays as it was.

    Examples
    --------
    >>> import gymnasium, ata_gym
    >>> pool = {"family": "exponential", "scale": [1.0, 2.0, 4.0]}
    >>> env = LogitActions(gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=6), scale=10.0)
    >>> env.action_space
    Box(-1.0, 1.0, (3,), float32)
    >>> env.action(np.array([0.0, 0.0, -0.1], dtype=np.float32))
    array([3, 2, 1])
    """

    def __init__(self, env: gym.Env[Any, Ints], scale: float = SCALE) -> None:
        RecordConstructorArgs.__init__(self, scale=scale)
        super().__init__(env)
        self._allocations, self._scale = _allocations(env.action_space), real("scale", scale)
        self.action_space = _unit_box(self._allocations)

    def action(self, action: NDArray[np.float32]) -> Ints:
        """Turn logits / scale, shape (n,), into an allocation, shape (n,)."""
        return _to_allocation(action, self._scale, self._allocations)


if TYPE_CHECKING:
    _VectorActionWrapper = gym.vector.VectorActionWrapper[Any, NDArray[np.float32], Ints, NDArray[Any]]
else:  # not generic in Gymnasium 1.1
    _VectorActionWrapper = gym.vector.VectorActionWrapper


class VectorLogitActions(_VectorActionWrapper, RecordConstructorArgs):
    """`LogitActions` for a vector env, with actions of shape (E, n); parameters and errors are the same.

    >>> import gymnasium, ata_gym
    >>> envs = gymnasium.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, scenario="icml2025-regret")
    >>> VectorLogitActions(envs).action_space.shape == (4, envs.unwrapped.n)
    True
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Ints, NDArray[Any]], scale: float = SCALE) -> None:
        RecordConstructorArgs.__init__(self, scale=scale)
        super().__init__(env)
        self._allocations, self._scale = _allocations(env.action_space), real("scale", scale)
        self.single_action_space = _unit_box(_allocations(env.single_action_space))
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    @property
    def autoreset_mode(self) -> gym.vector.AutoresetMode:
        """That of the env."""
        mode: gym.vector.AutoresetMode = self.metadata["autoreset_mode"]
        return mode

    def actions(self, actions: NDArray[np.float32]) -> Ints:
        """Turn logits / scale, shape (E, n), into allocations, shape (E, n)."""
        return _to_allocation(actions, self._scale, self._allocations)


def _to_allocation(action: object, scale: float, allocations: Allocation) -> Ints:
    return tasks_of_shares(checked_reals(action, allocations.shape), allocations.budget, scale)


def _allocations(space: Space[Any]) -> Allocation:
    if not isinstance(space, Allocation):
        raise TypeError(f"the env must have allocations as its actions, not {space}")
    if isinstance(space, RaceAllocation):
        raise TypeError('a race has a total beside its shares: make the env with action="shares"')
    return space


def _unit_box(allocations: Allocation) -> Space[NDArray[np.float32]]:
    return Box(-1.0, 1.0, allocations.shape, np.float32)
