"""Real-valued actions: numbers from -1 to 1 become tasks for each worker."""

import numpy as np
from numpy.typing import NDArray

from ata_gym.envs.spaces.allocation import checked_shape
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import short

SCALE = 3.0
"""The scale of the logits: shares of two workers differ by a factor of at most exp(2 SCALE)."""


def checked_shares(action: object, shape: tuple[int, ...]) -> Floats:
    """The action as real numbers from -1 to 1, of this shape.

    A number outside counts as the nearer bound. Agents whose policy is a normal distribution send
    such numbers, and some RL libraries leave it to the env to clip them.

    Raises:
        ValueError: For numbers that are not finite, another shape, and integers: an allocation that
            is played as shares by mistake would give nearly everything to one worker.
    """
    array = checked_shape(action, shape)
    if array.dtype.kind != "f":
        raise ValueError(
            f"the action must be real numbers from -1 to 1, of dtype float32, not {array.dtype}: an"
            ' allocation is an action of an env with action="allocation"',
        )
    if not np.isfinite(array).all():
        raise ValueError(f"the action must be finite, without NaN, not {short(action)}")
    return np.clip(array.astype(np.float64), -1.0, 1.0)


def tasks_of_shares(action: Floats, budget: int, scale: float, present: Mask | None = None) -> Ints:
    """An allocation, shape (..., n): B softmax(scale x), rounded by largest remainders.

    Args:
        action: The numbers x, shape (..., n).
        budget: The budget B.
        scale: The scale of the logits.
        present: Places that hold a worker, shape (..., n); the others get nothing. None means all.

    Raises:
        ValueError: For a budget beyond exact floating point.

    Example:
        >>> tasks_of_shares(np.array([0.0, 0.0, -0.1]), budget=6, scale=10.0)
        array([3, 2, 1])
    """
    return _tasks(action, np.asarray(budget), scale, present)


def race_of_shares(action: Floats, budget: int, scale: float, present: Mask | None = None) -> Ints:
    """The tasks of a race, shape (..., n), from shares and a total.

    The last number, from -1 to 1, is the total on a logarithmic scale from B to n B. It is shared
    as in ``tasks_of_shares``, and no worker gets more than B.

    Args:
        action: The shares and the total, shape (..., n + 1).
        budget: The budget B.
        scale: The scale of the logits.
        present: Places that hold a worker, shape (..., n); None means all.

    Raises:
        ValueError: For a budget beyond exact floating point.
    """
    n = action.shape[-1] - 1
    part = (action[..., -1] + 1) / 2
    total = np.rint(budget * float(n) ** part).astype(np.int64)
    return np.minimum(_tasks(action[..., :-1], total, scale, present), budget)


def _tasks(action: Floats, total: NDArray[np.integer], scale: float, present: Mask | None) -> Ints:
    """``total`` tasks of each row, shape (...), in proportion to exp(scale x).

    They are rounded by Hamilton's method of largest remainders. With real shares q_i each worker
    gets floor(q_i) tasks. The tasks that are left go one each to the workers with the largest
    q_i - floor(q_i), ties to the lowest index (Balinski and Young, *Fair Representation*, 1982).
    """
    if present is None:
        logits = scale * action
    else:
        logits = np.where(present, scale * action, -np.inf)
    # The largest exponent is 0, so that none overflows.
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    goal = total[..., None]
    real = goal * (weights / weights.sum(axis=-1, keepdims=True))
    tasks: Ints = np.floor(real).astype(np.int64)
    remaining = goal - tasks.sum(axis=-1, keepdims=True)
    n = tasks.shape[-1]
    if ((remaining < 0) | (remaining > n)).any():
        raise ValueError(
            f"budget must be small enough for exact shares in floating point, not {total.max()}",
        )
    # The sort is stable, so that ties go to the lowest index.
    order = np.argsort(tasks - real, axis=-1, kind="stable")
    one_more = np.take_along_axis(tasks, order, axis=-1) + (np.arange(n) < remaining)
    np.put_along_axis(tasks, order, one_more, axis=-1)
    return tasks
