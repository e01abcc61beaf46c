"""From scores to an allocation: a minimiser of the proxy loss max_i a_i s_i, with rules for ties and scores of 0."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import gufunc, helper
from ata_gym.utils.validation import whole_number

_FAR = 2.0**200
"""A scaled score that no level reaches."""


@helper()
def _multiples(s: Floats, inverse: Floats, level: float, held: Floats) -> None:
    """Fill in how many multiples m s_i, m >= 1, are at most ``level``."""
    for i in range(len(s)):
        m = math.floor(level * inverse[i])
        m = m - 1.0 if m * s[i] > level else m + 0.0  # the product decides, the quotient only guesses
        held[i] = m + 1.0 if (m + 1.0) * s[i] <= level else m + 0.0


@helper("reassoc", "nsz")
def _sum(x: Floats) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@helper()
def _largest(held: Floats, s: Floats, work: Floats) -> float:
    """The largest multiple held; positive floats are ordered as their bits are, and integer maxima vectorise."""
    for i in range(len(s)):
        work[i] = held[i] * s[i]
    bits = work.view(np.int64)
    best = np.int64(0)
    for i in range(len(bits)):
        best = max(best, bits[i])
    bits[0] = best
    largest: float = work[0]
    return largest


@helper()
def _next(held: Floats, s: Floats, work: Floats) -> float:
    """The smallest multiple not held."""
    for i in range(len(s)):
        work[i] = (held[i] + 1.0) * s[i]
    bits = work.view(np.int64)
    best = bits[0]
    for i in range(len(bits)):
        best = min(best, bits[i])
    bits[0] = best
    smallest: float = work[0]
    return smallest


@helper()
def _share_out(s: Floats, inverse: Floats, held: Floats, work: Floats, budget: int, out: Ints) -> None:
    """Add to ``out`` the B smallest elements of the multiset {m s_i : m >= 1}; of equal ones the lowest index first.

    Looks for a level with exactly B multiples below it, by interpolation and bisection. Every probe moves an end of the
    interval to a multiple, so the search ends where the multiples left are all equal.
    """
    n = len(out)
    total = _sum(inverse)
    low, low_count, low_next = 0.0, 0.0, 0.0
    high, high_count = (budget + n) / total * (1.0 + 1e-9), float(budget + n)
    level = (budget + min(0.5 * n, 0.8 * budget)) / total
    left = np.int64(0)
    while True:
        _multiples(s, inverse, level, held)
        count = _sum(held)
        width = high - low
        if count < budget:
            low, low_count, low_next = level, count, _next(held, s, work)
        elif count > budget:
            high, high_count = np.nextafter(_largest(held, s, work), 0.0), count
        if count == budget:
            break
        if low_next > high:  # what is left are equal multiples
            _multiples(s, inverse, low, held)
            left = budget - np.int64(low_count)
            break
        slow = high - low > 0.5 * width
        share = 0.5 if slow else (budget - low_count + 0.5) / (high_count - low_count + 1.0)
        level = min(max(low + (high - low) * share, low_next), high)
    i = 0
    while left > 0:
        if (held[i] + 1.0) * s[i] == low_next:
            held[i] += 1.0
            left -= 1
        i += 1
    for i in range(n):
        out[i] += np.int64(held[i])


@helper()
def _choose(members: Ints, size: int, chosen: int, draws: Floats) -> None:
    """Bring a random subset of ``chosen`` of the first ``size`` members to the front; with no draws, the first."""
    if len(draws) > 0:
        for k in range(chosen):
            other = k + np.int64(draws[k] * (size - k))
            members[k], members[other] = members[other], members[k]


@helper()
def _gather(scores: Floats, untried: Mask, wanted: bool, members: Ints) -> None:
    """List the workers with score 0 that were (or were not) tried; no branch, since nothing predicts it."""
    size = 0
    for i in range(len(scores)):
        members[size] = i
        size += (scores[i] == 0.0) & (untried[i] == wanted)


@gufunc("void(float64[:], int64[:], boolean[:], float64[:], int64[:])", "(n),(),(n),(k)->(n)")
def allocate_kernel(scores: Floats, budget: Ints, untried: Mask, draws: Floats, out: Ints) -> None:
    """Allocate as :func:`allocate` does, without checks; workers with a score of infinity get nothing."""
    n = len(scores)
    left = budget[0]
    smallest = math.inf  # of the scores above 0
    zeros, never = 0, 0
    for i in range(n):
        out[i] = 0
        zero = scores[i] == 0.0
        zeros += zero
        never += zero & untried[i]
    if zeros < n:
        for i in range(n):
            smallest = scores[i] if 0.0 < scores[i] < smallest else smallest
    if zeros > 0:
        members = np.empty(zeros + 1, np.int64)  # with a place to spare
        if never > 0:
            _gather(scores, untried, True, members)
            chosen = min(left, never)
            _choose(members, never, chosen if chosen < never else 0, draws)
            for k in range(chosen):
                out[members[k]] = 1
            left -= chosen
        tried = zeros - never
        if left > 0 and (tried > 0 or smallest == math.inf):  # evenly over the tried ones, or over all if none was
            if tried > 0:
                _gather(scores, untried, False, members)
            size = tried if tried > 0 else never
            each, chosen = left // size, left % size
            _choose(members, size, chosen, draws)
            for k in range(chosen):
                out[members[k]] += 1
            if each > 0:
                for k in range(size):
                    out[members[k]] += each
            left = 0
    if left > 0:
        # scaled by a power of two, in two halves, so that no multiple that matters overflows or is subnormal
        _, exponent = math.frexp(smallest)
        half = math.ldexp(1.0, -(exponent // 2))
        rest = math.ldexp(1.0, -(exponent - exponent // 2))
        cap = math.ldexp(_FAR, min(exponent, 0)) if exponent < 0 else math.inf  # scaling up must not overflow
        scratch = np.empty((4, (n + 31) // 32 * 32))  # filled up to whole vectors with scores that no level reaches
        s, inverse = scratch[0], scratch[1]
        for i in range(n):
            s[i] = min(scores[i], cap) * half * rest
        s[n:] = 0.0
        for i in range(len(s)):
            s[i] = s[i] if 0.0 < s[i] < math.inf else _FAR
            inverse[i] = 1.0 / s[i]
        _share_out(s, inverse, scratch[2], scratch[3], left, out)


def allocate(
    scores: ArrayLike,
    budget: int,
    rng: np.random.Generator | Keys | None = None,
    untried: ArrayLike | None = None,
    available: ArrayLike | None = None,
) -> Ints:
    """Allocate ``budget`` tasks to the workers with the lowest scores: a minimiser of max_i a_i s_i (the paper's RAS).

    Tasks go one at a time to the worker with the least (a_i + 1) s_i, the lowest index first; the result is found by a
    search for the level at which B tasks are done, a few passes over the scores, with no loop over tasks. Scores of 0:
    workers never tried come first, one task each, chosen uniformly if there are more of them than tasks; they get no
    more while others exist. What is left is split evenly over the other workers with score 0, the remainder to a
    uniformly random subset of them. If there are none, it goes by the scores above 0.

    Parameters
    ----------
    scores
        (..., n) estimated task times, finite and at least 0.
    budget
        Tasks B to hand out, from 1 to 2**50.
    rng
        For the random choices among scores of 0: a generator, or one uint64 key per row, shape (...,). By default the
        lowest indices are chosen.
    untried
        (..., n) which workers were never tried; only asked where the score is 0. By default none.
    available
        (..., n) which workers may get tasks; the scores of the others are not looked at. By default all.

    Returns
    -------
    (..., n) integers, each row summing to ``budget``. If an argument is out of its range or no worker of a row is
    available, ValueError is raised.

    Examples
    --------
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
    draws = np.empty(0)
    if rng is not None and lowest == 0.0:
        needed = -(-min(s.shape[-1], budget) // 8) * 8  # whole vectors
        if isinstance(rng, np.random.Generator):
            draws = rng.random((*s.shape[:-1], needed))
        else:
            keys = np.asarray(rng)
            if keys.dtype != np.uint64 or keys.shape != s.shape[:-1]:
                wanted = f"a numpy Generator or one uint64 key per row, shape {s.shape[:-1]}"
                raise ValueError(f"rng must be {wanted}, not {keys.dtype} of shape {keys.shape}")
            draws = uniforms(keys, needed)
    never = np.zeros(s.shape[-1], np.bool_) if untried is None else np.asarray(untried, np.bool_)
    allocation: Ints = allocate_kernel(s, np.int64(budget), never, draws)
    return allocation


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

    Workers of infinite mean get nothing. ValueError is raised if every mean is infinite, the pool is no ``Pool``, or
    the budget is not a whole number in its range.

    >>> from ata_gym import scenario
    >>> proxy_optimal(scenario("icml2025-cifar100").pool, 23)[:10]
    array([9, 4, 3, 2, 1, 1, 1, 1, 1, 0])
    """
    means = checked_pool(pool).mean()
    usable = np.isfinite(means)
    if not usable.any():
        raise ValueError(
            "each worker of this pool has an infinite mean task time: no allocation is better than another"
        )
    allocation = np.zeros(pool.n, np.int64)
    allocation[usable] = allocate(means[usable], budget)
    return allocation
