"""Real-valued actions: numbers from -1 to 1 become tasks for each worker."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import short, whole_number

SCALE = 3.0
"""Two workers' shares differ by a factor of at most exp(2 SCALE); see ``tasks_of_shares`` for how it was chosen."""


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
    return _rounded(weights, np.asarray(budget))


def _rounded(weights: Floats, total: NDArray[np.integer]) -> Ints:
    """Tasks, (..., n), in proportion to weights of at most 1 whose rows have a 1; ``total`` of each row, (...)."""
    goal = total[..., None]
    real = goal * (weights / weights.sum(axis=-1, keepdims=True))
    tasks: Ints = np.floor(real).astype(np.int64)
    left = goal - tasks.sum(axis=-1, keepdims=True)
    n = tasks.shape[-1]
    if ((left < 0) | (left > n)).any():
        raise ValueError(f"budget must be small enough for exact shares in floating point, not {total.max()}")
    order = np.argsort(tasks - real, axis=-1, kind="stable")
    one_more = np.take_along_axis(tasks, order, axis=-1) + (np.arange(n) < left)
    np.put_along_axis(tasks, order, one_more, axis=-1)
    return tasks


def checked_reals(action: object, shape: tuple[int, ...]) -> Floats:
    """The action as finite real numbers of this shape; ValueError if it is something else, integers included.

    Integers are refused, as an allocation that is played as shares by mistake would give nearly everything to one
    worker.
    """
    try:
        given = np.asarray(action)
    except Exception as error:
        raise ValueError(f"the action must be numbers of shape {shape}: {error}") from error
    if given.shape != shape:
        raise ValueError(f"the action must have shape {shape}, not {given.shape}")
    if given.dtype.kind != "f":
        raise ValueError(
            f"the action must be real numbers from -1 to 1, of dtype float32, not {given.dtype}: an allocation is an "
            'action of an env with action="allocation"'
        )
    if not np.isfinite(given).all():
        raise ValueError(f"the action must be finite, without NaN, not {short(action)}")
    return given.astype(np.float64)


def tasks_of_shares(action: Floats, budget: int, scale: float, present: Mask | None = None) -> Ints:
    """An allocation, (..., n), from x of the same shape: B softmax(scale x), by ``largest_remainder``.

    Places without a worker (``present`` is False) get nothing.
    """
    return _rounded(_weights(action, scale, present), np.asarray(budget))


def race_of_shares(action: Floats, budget: int, scale: float, present: Mask | None = None) -> Ints:
    """Tasks of a race, (..., n), from shares and a total, (..., n + 1).

    The last number, from -1 to 1, is the total on a logarithmic scale from B to n B; it is shared as in
    ``tasks_of_shares``, and no worker gets more than B.
    """
    n = action.shape[-1] - 1
    part = (np.clip(action[..., -1], -1, 1) + 1) / 2
    total = np.rint(budget * float(n) ** part).astype(np.int64)
    return np.minimum(_rounded(_weights(action[..., :-1], scale, present), total), budget)


def _weights(action: Floats, scale: float, present: Mask | None) -> Floats:
    logits = scale * action
    if present is not None:
        logits = np.where(present, logits, -np.inf)
    weights: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights
