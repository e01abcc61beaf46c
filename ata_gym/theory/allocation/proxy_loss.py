"""From scores to an allocation: a minimiser of the proxy loss max_i a_i s_i, with rules for ties and scores of 0."""

import math

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.simulation.keys import uniforms
from ata_gym.theory.allocation.smallest_multiples import allocate_kernel
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.validation import whole_number


def allocate(
    scores: ArrayLike, budget: int, keys: Keys | None = None, untried: ArrayLike | None = None,
    available: ArrayLike | None = None,
) -> Ints:  # fmt: skip
    """Allocate ``budget`` tasks to the workers with the lowest scores: a minimiser of max_i a_i s_i (the paper's RAS).

    Tasks go one at a time to the worker with the least (a_i + 1) s_i, the lowest index first; the result is found by a
    search for the level at which B tasks are done, a few passes over the scores, with no loop over tasks. Scores of 0:
    workers never tried come first, one task each, chosen uniformly if there are more of them than tasks; they get no
    more while others exist. What is left is split evenly over the other workers with score 0, the remainder to a
    uniformly random subset of them. If there are none, it goes by the scores above 0.

    - ``scores``: (..., n) estimated task times, finite and at least 0.
    - ``budget``: tasks B to hand out, from 1 to 2**50; each row of what is returned, (..., n), sums to it.
    - ``keys``: one uint64 key per row, shape (...,), for the random choices among scores of 0, as ``stream_keys`` makes
      them. By default the lowest indices are chosen.
    - ``untried``: (..., n) which workers were never tried; only asked where the score is 0. By default none.
    - ``available``: (..., n) which workers may get tasks; the scores of the others are not looked at. By default all.

    ValueError is raised if an argument is out of its range or no worker of a row is available.

    >>> allocate([1.0, 2.0, 4.0], 7)
    array([4, 2, 1])
    >>> allocate([0.0, 0.0, 1.0], 5, untried=[True, False, False])
    array([1, 4, 0])
    >>> allocate([1.0, 2.0, 4.0], 6, available=[False, True, True])
    array([0, 4, 2])
    """
    s = np.asarray(scores, np.float64)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ValueError(f"scores must have shape (..., n) with n of at least 1, not {s.shape}")
    budget = whole_number("budget", budget)
    highest = s
    if available is not None:
        mask = availability(available, s.shape)
        highest, s = np.where(mask, s, 0.0), np.where(mask, s, math.inf)
    lowest = s.min() if s.size else 0.0
    if not (lowest >= 0.0 and highest.max(initial=0.0) < math.inf):
        raise ValueError("scores must be finite and at least 0, as task times are; one is NaN, infinite or negative")
    if keys is not None:
        keys = np.asarray(keys)
        if keys.dtype != np.uint64 or keys.shape != s.shape[:-1]:
            wanted = f"one uint64 key per row, shape {s.shape[:-1]}"
            raise ValueError(f"keys must hold {wanted}, not {keys.dtype} of shape {keys.shape}")
    return allocate_scores(s, budget, keys, None if untried is None else np.asarray(untried, np.bool_))


def allocate_scores(
    scores: Floats, budget: int, keys: Keys | None = None, untried: Mask | None = None, available: Mask | None = None
) -> Ints:
    """Allocate as :func:`allocate` does, without its checks; workers with a score of infinity get nothing."""
    n = scores.shape[-1]
    if available is not None:
        scores = np.where(available, scores, math.inf)
    draws = np.empty(0)
    if keys is not None and not scores.all():
        draws = uniforms(keys, -(-min(n, budget) // 8) * 8)  # whole vectors
    never = np.zeros(n, np.bool_) if untried is None else untried
    return np.asarray(allocate_kernel(scores, np.int64(budget), never, draws))


def availability(available: ArrayLike, shape: tuple[int, ...]) -> Mask:
    """Return the mask of workers that may get tasks as booleans; ValueError where it does not fit or a row has none."""
    mask = np.asarray(available, np.bool_)
    try:
        fits = mask.shape[-1:] == shape[-1:] and bool(np.broadcast_shapes(mask.shape, shape))
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"available must have a shape that broadcasts with {shape}, not {mask.shape}")
    if not mask.any(axis=-1).all():
        raise ValueError("at least one worker must be available in each row")
    return mask


def proxy_loss(allocation: ArrayLike, means: ArrayLike) -> Floats:
    """The paper's proxy of the expected round time, max_i a_i mu_i, of shape (...,) for two arrays of shape (..., n).

    A worker without a task counts 0, even where its mean is infinite.

    >>> float(proxy_loss([2, 1], [3.0, 5.0]))
    6.0
    """
    a, mu = np.asarray(allocation), np.asarray(means, np.float64)
    loss: Floats = np.max(np.where(a == 0, 0.0, mu) * a, axis=-1)
    return loss


def proxy_optimal(pool: Pool, budget: int) -> Ints:
    """The minimiser of the proxy loss under the true means, shape (n,): the paper's OFTA.

    Workers of infinite mean get nothing. ValueError is raised if every mean is infinite, or an argument out of range.

    >>> from ata_gym import scenario
    >>> proxy_optimal(scenario("icml2025-cifar100").pool, 23)[:10]
    array([9, 4, 3, 2, 1, 1, 1, 1, 1, 0])
    """
    means = checked_pool(pool).mean()
    if not np.isfinite(means).any():
        raise ValueError("every worker of this pool has an infinite mean task time: no allocation is the best")
    return allocate_scores(means, whole_number("budget", budget))
