"""Wrappers for learners with real-valued actions, and the rounding of shares to whole tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from ata_gym.envs.spaces import Allocation
from ata_gym.typing import Ints
from ata_gym.utils.validation import real, whole_number

__all__ = ["LogitActions", "VectorLogitActions", "largest_remainder"]


def largest_remainder(shares: ArrayLike, budget: int) -> Ints:
    """Round shares of the budget to whole tasks: Hamilton's method of largest remainders.

    With real shares q_i = B w_i / sum_j w_j, each worker gets floor(q_i) tasks, and the tasks that are left go one each
    to the workers with the largest remainders q_i - floor(q_i), ties to the lowest index. So each number of tasks
    differs from q_i by at most 1.

    Parameters
    ----------
    shares
        (..., n) weights w of the workers, finite and non-negative, of any scale; each row needs a positive one.
    budget
        Budget B, at least 1, and small enough for exact shares in floating point. ValueError otherwise.

    Returns
    -------
    (..., n) tasks per worker; each row sums to the budget.

    References
    ----------
    M. L. Balinski and H. P. Young, *Fair Representation*, Yale University Press, 1982.

    Examples
    --------
    >>> largest_remainder([5.0, 3.0, 1.0], budget=4)
    array([2, 1, 1])
    >>> largest_remainder([[1.0, 1.0, 1.0], [0.0, 0.0, 9.0]], budget=4)
    array([[2, 1, 1],
           [0, 0, 4]])
    """
    whole_number("budget", budget)
    weights = np.asarray(shares, dtype=np.float64)
    if weights.ndim == 0 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"shares must be finite numbers of at least 0, shape (..., n), not {shares!r}")
    largest = weights.max(axis=-1, keepdims=True, initial=0.0)
    if not (largest > 0).all():
        raise ValueError("each row of shares must have a positive one")
    weights = weights / largest  # so that the sum cannot overflow
    real = budget * (weights / weights.sum(axis=-1, keepdims=True))
    tasks: Ints = np.floor(real).astype(np.int64)
    left = budget - tasks.sum(axis=-1, keepdims=True)
    n = tasks.shape[-1]
    if ((left < 0) | (left > n)).any():
        raise ValueError(f"budget must be small enough for exact shares in floating point, not {budget}")
    order = np.argsort(tasks - real, axis=-1, kind="stable")
    one_more = np.take_along_axis(tasks, order, axis=-1) + (np.arange(n) < left)
    np.put_along_axis(tasks, order, one_more, axis=-1)
    return tasks


class LogitActions(gym.ActionWrapper[Any, NDArray[np.float32], Ints], RecordConstructorArgs):
    """Real-valued actions: a vector of [-1, 1]^n becomes an allocation.

    The action x gives the allocation that rounds B softmax(scale x) by `largest_remainder`. It sums to the budget in a
    race too, where that is legal. Finite actions outside the box are not clipped.

    Parameters
    ----------
    env
        An env whose actions are allocations of shape (n,).
    scale
        The logits are scale * x: two workers' shares differ by a factor of at most exp(2 scale).

    Raises
    ------
    TypeError, ValueError
        If the env has other actions; if scale is not positive and finite. ``step`` raises ValueError for an action of
        another shape or that is not finite, and the env stays as it was.

    Examples
    --------
    >>> import gymnasium, ata_gym
    >>> pool = {"family": "exponential", "scale": [1.0, 2.0, 4.0]}
    >>> env = LogitActions(gymnasium.make("ata_gym/TaskAllocation-v0", pool=pool, budget=6))
    >>> env.action_space
    Box(-1.0, 1.0, (3,), float32)
    >>> env.action(np.array([0.0, 0.0, -0.1], dtype=np.float32))
    array([3, 2, 1])
    """

    def __init__(self, env: gym.Env[Any, Ints], scale: float = 10.0) -> None:
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

    def __init__(self, env: gym.vector.VectorEnv[Any, Ints, NDArray[Any]], scale: float = 10.0) -> None:
        RecordConstructorArgs.__init__(self, scale=scale)
        super().__init__(env)
        self._allocations, self._scale = _allocations(env.action_space), real("scale", scale)
        self.single_action_space = _unit_box(_allocations(env.single_action_space))
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def actions(self, actions: NDArray[np.float32]) -> Ints:
        """Turn logits / scale, shape (E, n), into allocations, shape (E, n)."""
        return _to_allocation(actions, self._scale, self._allocations)


def _to_allocation(action: ArrayLike, scale: float, allocations: Allocation) -> Ints:
    try:
        logits = scale * np.asarray(action, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the action must be numbers of shape {allocations.shape}: {error}") from error
    if logits.shape != allocations.shape:
        raise ValueError(f"the action must have shape {allocations.shape}, not {logits.shape}")
    if not np.isfinite(logits).all():
        raise ValueError(f"the action must be finite, without NaN, not {action!r}")
    return largest_remainder(np.exp(logits - logits.max(axis=-1, keepdims=True)), allocations.budget)


def _allocations(space: Space[Any]) -> Allocation:
    if not isinstance(space, Allocation):
        raise TypeError(f"the env must have allocations as its actions, not {space}")
    return space


def _unit_box(allocations: Allocation) -> Space[NDArray[np.float32]]:
    return Box(-1.0, 1.0, allocations.shape, np.float32)
