"""Allocation by scores: a minimiser of the proxy loss max_i a_i s_i, with rules for ties."""

import math

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.simulation.keys import uniforms
from ata_gym.theory.allocation.smallest_multiples import allocate_kernel
from ata_gym.theory.allocation.with_latency import latency_kernel
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.validation import whole_number


def allocate(
    scores: ArrayLike,
    budget: int,
    keys: Keys | None = None,
    untried: ArrayLike | None = None,
    available: ArrayLike | None = None,
    latency: ArrayLike | None = None,
) -> Ints:
    """Allocate ``budget`` tasks to the workers with the lowest scores.

    The allocation minimises max_i a_i s_i (the paper's RAS). Tasks go one at a time to the worker
    with the least (a_i + 1) s_i, the lowest index first. The result is found by a search for the
    level at which B tasks are done: a few passes over the scores, with no loop over tasks.

    Scores of 0 have rules of their own. Workers never tried come first, one task each, chosen
    uniformly if there are more of them than tasks; they get no more while others exist. The tasks
    that are left are split evenly over the other workers with score 0, the remainder to a uniformly
    random subset of these workers. If there are none, the tasks go by the scores above 0.

    With latencies c, the allocation minimises the largest c_i + a_i s_i of workers with tasks. A
    task goes to the worker with the least c_i + (a_i + 1) s_i. Any number of tasks of a worker of
    score 0 costs c_i; of the tried ones, the workers of least latency share what costs as much or
    more.

    Args:
        scores: Estimated task times, shape (..., n), finite and at least 0.
        budget: Tasks B to hand out, from 1 to 2**50.
        keys: One uint64 key per row, shape (...,), for the random choices among scores of 0, as
            ``stream_keys`` makes them. By default the lowest indices are chosen.
        untried: Which workers were never tried, shape (..., n); read only where the score is 0. By
            default none.
        available: Which workers may get tasks, shape (..., n); the scores of the others are not
            read. By default all.
        latency: What each worker pays before its first task, in the unit of the scores, finite and
            at least 0; its shape broadcasts with (..., n). By default nothing.

    Returns:
        The tasks of each worker, shape (..., n); each row sums to ``budget``.

    Raises:
        ValueError: If an argument is out of its range or no worker of a row is available.

    Example:
        >>> allocate([1.0, 2.0, 4.0], 7)
        array([4, 2, 1])
        >>> allocate([0.0, 0.0, 1.0], 5, untried=[True, False, False])
        array([1, 4, 0])
        >>> allocate([1.0, 2.0, 4.0], 6, available=[False, True, True])
        array([0, 4, 2])
        >>> allocate([1.0, 2.0, 4.0], 7, latency=[9.0, 0.0, 0.0])
        array([1, 4, 2])
    """
    s = np.asarray(scores, np.float64)
    if s.ndim == 0 or s.shape[-1] == 0:
        raise ValueError(f"scores must have shape (..., n) with n of at least 1, not {s.shape}")
    budget = whole_number("budget", budget)
    highest = s
    # Scores of workers that are not available may be anything.
    if available is not None:
        mask = availability(available, s.shape)
        highest = np.where(mask, s, 0.0)
        s = np.where(mask, s, math.inf)
    if s.size:
        lowest = s.min()
    else:
        lowest = 0.0
    if not (lowest >= 0.0 and highest.max(initial=0.0) < math.inf):
        raise ValueError(
            "scores must be finite and at least 0, as task times are; one is NaN, infinite or"
            " negative",
        )
    if keys is not None:
        keys = np.asarray(keys)
        if keys.dtype != np.uint64 or keys.shape != s.shape[:-1]:
            requirement = f"one uint64 key per row, shape {s.shape[:-1]}"
            raise ValueError(
                f"keys must hold {requirement}, not {keys.dtype} of shape {keys.shape}"
            )
    if untried is None:
        is_untried = None
    else:
        is_untried = np.asarray(untried, np.bool_)
    if latency is None:
        latencies = None
    else:
        latencies = _checked_latencies(latency, s.shape)
    return allocate_scores(s, budget, keys, is_untried, latency=latencies)


def _checked_latencies(latency: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return the latencies of workers whose scores have a shape, with ValueError if they cannot."""
    latencies = np.asarray(latency, np.float64)
    try:
        fits = np.broadcast_shapes(latencies.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"latency must have a shape that broadcasts to {shape}, not {latencies.shape}"
        )
    if not ((latencies >= 0.0) & (latencies < math.inf)).all():
        raise ValueError(
            "latency must be finite and at least 0, a time that a worker pays before its first"
            " task; one is NaN, infinite or negative",
        )
    return np.broadcast_to(latencies, shape)


def allocate_scores(
    scores: Floats,
    budget: int,
    keys: Keys | None = None,
    untried: Mask | None = None,
    available: Mask | None = None,
    latency: Floats | None = None,
) -> Ints:
    """Allocate as :func:`allocate` does, without its checks.

    Workers with a score of infinity get nothing.

    Args:
        scores: Estimated task times, shape (..., n).
        budget: Tasks B to hand out.
        keys: One key per row, shape (...,), or None.
        untried: Workers that were never tried, shape (..., n), or None.
        available: Workers that may get tasks, shape (..., n), or None.
        latency: What each worker pays before its first task, shape (..., n), or None.

    Returns:
        The tasks of each worker, shape (..., n).
    """
    n = scores.shape[-1]
    if available is not None:
        scores = np.where(available, scores, math.inf)
    draws = np.empty(0)
    if keys is not None and not scores.all():
        # At most one draw per task; the number is rounded up to whole vectors of eight.
        draws = uniforms(keys, -(-min(n, budget) // 8) * 8)
    if untried is None:
        is_untried = np.zeros(n, np.bool_)
    else:
        is_untried = untried
    if latency is not None:
        return np.asarray(latency_kernel(scores, latency, np.int64(budget), is_untried, draws))
    return np.asarray(allocate_kernel(scores, np.int64(budget), is_untried, draws))


def availability(available: ArrayLike, shape: tuple[int, ...]) -> Mask:
    """Return the mask of the workers that may get tasks, as booleans.

    Args:
        available: The mask; its shape broadcasts with ``shape``.
        shape: The shape of the scores, (..., n).

    Raises:
        ValueError: If the mask does not fit the shape, or a row has no available worker.
    """
    mask = np.asarray(available, np.bool_)
    # A mask of one worker would broadcast over all workers, so the last axis must be equal.
    fits = mask.shape[-1:] == shape[-1:]
    try:
        fits = fits and bool(np.broadcast_shapes(mask.shape, shape))
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"available must have a shape that broadcasts with {shape}, not {mask.shape}",
        )
    if not mask.any(axis=-1).all():
        raise ValueError("at least one worker must be available in each row")
    return mask


def proxy_loss(allocation: ArrayLike, means: ArrayLike, latency: ArrayLike | None = None) -> Floats:
    """The paper's proxy of the expected round time, max_i a_i mu_i, shape (...,).

    A worker without a task counts 0, even where its mean is infinite. With mean latencies c it is
    the largest c_i + a_i mu_i of the workers with tasks.

    Args:
        allocation: Tasks a of each worker, shape (..., n).
        means: Mean task times mu, shape (..., n), in units of time.
        latency: Mean latencies c, shape (..., n), in units of time. By default there are none.

    Example:
        >>> float(proxy_loss([2, 1], [3.0, 5.0]))
        6.0
        >>> float(proxy_loss([2, 1], [3.0, 5.0], latency=[1.0, 4.0]))
        9.0
    """
    a = np.asarray(allocation)
    mu = np.asarray(means, np.float64)
    busy = np.where(a == 0, 0.0, mu) * a
    if latency is not None:
        busy = busy + np.where(a == 0, 0.0, latency)
    loss: Floats = np.max(busy, axis=-1)
    return loss


def proxy_optimal(pool: Pool, budget: int) -> Ints:
    """The minimiser of the proxy loss under the true means, shape (n,): the paper's OFTA.

    Workers of infinite mean get nothing. Mean latencies of the pool count.

    Args:
        pool: The workers.
        budget: Results B that a round needs.

    Raises:
        ValueError: If every mean is infinite, or an argument is out of its range.

    Example:
        >>> from ata_gym import scenario
        >>> proxy_optimal(scenario("icml2025-cifar100").pool, 23)[:10]
        array([9, 4, 3, 2, 1, 1, 1, 1, 1, 0])
    """
    means = checked_pool(pool).mean()
    if not np.isfinite(means).any():
        raise ValueError(
            "every worker of this pool has an infinite mean task time: no allocation is the best",
        )
    budget = whole_number("budget", budget)
    return allocate_scores(means, budget, latency=mean_latency(pool))


def mean_latency(pool: Pool) -> Floats | None:
    """The mean latency of each worker, shape (n,), or None where the pool has none."""
    if pool.latency is None:
        return None
    return pool.latency.mean()
