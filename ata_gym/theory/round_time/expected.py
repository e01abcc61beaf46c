"""The expected round time of an allocation: the expected maximum of the workers' sums of task times."""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.units import rescaled
from ata_gym.theory.round_time.worker_times import BY_ROUND, Sums, jumps, recorded, starts, sums, survival
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import LARGEST_COUNT

_RELATIVE = 1e-11  # aim of a panel of the quadrature, and of the tail, in units of the largest mean of a sum
_LEVELS = np.concatenate([1.0 - np.logspace(-9, -2, 8), np.linspace(0.95, 0.05, 19), np.logspace(-2, -12, 11)])
_BISECTIONS = 52
_BLOCK = 2**21  # probabilities computed at once
_ROUNDS = 2**20


@overload
def expected_round_time(pool: Pool, allocation: ArrayLike, with_error: Literal[False] = ...) -> float: ...
@overload
def expected_round_time(pool: Pool, allocation: ArrayLike, with_error: Literal[True]) -> tuple[float, float]: ...
def expected_round_time(pool: Pool, allocation: ArrayLike, with_error: bool = False) -> float | tuple[float, float]:
    """Expected round time E[C(a)] = E[max_i S_i(a_i)], S_i the sum of a_i task times of worker i, by quadrature.

    E[C(a)] is the integral over t >= 0 of 1 - prod_i P(S_i(a_i) <= t). Two kinds of distributions:

    * known: deterministic, exponential and gamma times, traces, and any family where a worker has one task. The result
      is exact up to the quadrature, about 1e-10 of its value.
    * convolved numerically: two or more uniform, half-normal, log-normal, Weibull or Pareto times, about 1e-10 too, or
      1e-8 for coefficients of variation below 1e-7.

    Tasks of a trace by task take consecutive rows of their worker's record, which starts over at its end. Each row is
    equally likely to be the first, independently of other workers: the long-run distribution under a fixed allocation
    where the lengths of the records have no common factor. Records of more than 4,096 rows are reduced to so many
    values, the means of groups of rows of similar time. All tasks of a round take the same row of traces by round, and
    so do all workers: the mean is over rounds, one common cycle of the records (at most its first 2**20 rounds).

    Parameters
    ----------
    pool, allocation
        The workers, and (n,) their tasks: non-negative integers with any sum, or ValueError is raised.
    with_error
        Whether to return an estimate of the error too, usually too large: what halving all panels of the quadrature
        changed, and what a thousand times larger tolerance of convolved distributions changes (or groups twice as large
        in long records).

    Returns
    -------
    The expected round time, and its error if asked for, in units of time; inf where a worker with a task has an
    infinite mean.

    Examples
    --------
    >>> from ata_gym.pools import exponential
    >>> round(expected_round_time(exponential([1.0, 1.0, 1.0]), [1, 1, 1]), 9)  # 1 + 1/2 + 1/3
    1.833333333
    >>> round(expected_round_time(exponential([2.0, 5.0]), [3, 0]), 9)
    6.0
    """
    tasks = _checked(checked_pool(pool), allocation)
    busy = np.flatnonzero(tasks)
    unit = 1.0
    if np.isfinite(pool.mean()[busy]).all():
        pool, unit = rescaled(pool, float(pool.mean()[busy].max(initial=0.0)))
    if not np.isfinite(pool.mean()[busy]).all():
        value, error = np.inf, 0.0
    elif (pool.distributions.family[busy] == BY_ROUND).all():
        value, error = float(_last(pool, busy, tasks).mean()), 0.0
    else:
        value, error = _expected_maximum(pool, busy, tasks, fine=True)
        if with_error:
            error += abs(value - _expected_maximum(pool, busy, tasks, fine=False)[0])
    return (value * unit, error * unit) if with_error else value * unit


def cycle(pool: Pool) -> int:
    """Return the rounds after which all traces by round of a pool start over together, or one ends; at most 2**20."""
    distributions = pool.distributions
    together = distributions.family == BY_ROUND
    first_end = int(distributions.limit[together].min(initial=_ROUNDS))
    return min(lcm(*np.unique(distributions.length[together]).tolist()), first_end)


def replayed(pool: Pool, worker: int) -> Floats:
    """Return the task times of a worker that replays a trace by round, shape (cycle,)."""
    _, shift, scale, *_ = pool.distributions
    return np.asarray(shift[worker] + scale[worker] * np.resize(pool.record(worker), cycle(pool)))


def _checked(pool: Pool, allocation: ArrayLike) -> Ints:
    try:
        tasks = np.asarray(allocation)
    except ValueError:  # rows of unequal lengths
        tasks = np.array(None)
    if tasks.dtype.kind not in "iu" or tasks.shape != (pool.n,):
        raise ValueError(
            f"an allocation is one integer per worker, shape ({pool.n},), not {tasks.dtype} of shape {tasks.shape}"
        )
    if (tasks < 0).any() or (tasks > LARGEST_COUNT).any():
        raise ValueError(f"an allocation has entries from 0 to 2**50, not {tasks.min()} to {tasks.max()}")
    return tasks.astype(np.int64)


def _last(pool: Pool, workers: Ints, tasks: Ints) -> Floats:
    """When the last of these workers, all replaying traces by round, is done, shape (cycle,)."""
    last = np.zeros(cycle(pool))
    for i in workers.tolist():
        np.maximum(last, tasks[i] * replayed(pool, i), out=last)
    return last


def _expected_maximum(pool: Pool, busy: Ints, tasks: Ints, fine: bool) -> tuple[float, float]:
    """Integrate P(some S_i > t), and give what halving all panels changed."""
    together = pool.distributions.family[busy] == BY_ROUND
    alone, joint = busy[~together], busy[together]
    distributions = sums(pool, alone, tasks[alone], fine)
    means = tasks[alone] * pool.mean()[alone]
    if joint.size:
        last = _last(pool, joint, tasks)
        distributions.append(recorded(last, alone.size, fine))
        means = np.append(means, last.mean())
    lowest = starts(distributions)
    begin, scale = float(lowest.max()), float(means.max())
    end, long = _end(distributions, max(begin, scale), scale)
    tail = np.flatnonzero(long)

    def functions(t: Floats) -> Floats:
        """The integrand, and the sum of P(S_i > t) over the sums whose tails matter beyond the end."""
        return _in_blocks(distributions, t, lambda busy_at: np.stack([_any(busy_at), busy_at[tail].sum(axis=0)]))

    inside = np.concatenate([[begin], lowest[tail], jumps(distributions), _quantiles(distributions, begin, end)])
    edges = np.unique(np.concatenate([[0.0, end], inside[(inside > 0) & (inside < end)]]))
    rule = adaptive_rule(functions, edges, _RELATIVE * scale)
    covered, of_tails = rule.values @ rule.weights
    # P(some S_i > t) is the sum of P(S_i > t) out there, and the integral of that over all t is the mean.
    return float(covered + means[tail].sum() - of_tails), rule.error


def _end(distributions: list[Sums], first: float, scale: float) -> tuple[float, NDArray[np.bool_]]:
    """Where the integral may stop, and which sums still have a tail there.

    It stops where no sum has a tail, or where two sums being late together has become negligible.
    """
    end = 2 * first
    while True:
        late = survival(distributions, np.array([end]))[:, 0]
        long = late * end > _RELATIVE * scale / late.size
        if not long.any() or (end > 64 * first and late.sum() ** 2 * end <= 1e-12 * scale):
            return end, long
        end *= 2


def _quantiles(distributions: list[Sums], begin: float, end: float) -> Floats:
    """Where P(some S_i > t) crosses certain levels, so that the panels find even the narrowest step."""
    low, high = np.full(_LEVELS.size, begin), np.full(_LEVELS.size, end)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = _in_blocks(distributions, middle, _any) > _LEVELS
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low


def _any(busy: Floats) -> Floats:
    """1 - prod_i (1 - p_i) over the first axis, without loss of small numbers."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.log1p(-busy).sum(axis=0)))


def _in_blocks(distributions: list[Sums], t: Floats, reduce: Callable[[Floats], Floats]) -> Floats:
    """Reduce P(S_i > t), shape (m, times), over i, a few times at once where there are very many sums."""
    m = sum(distribution.column.size for distribution in distributions)
    parts = -(-t.size * m // _BLOCK)
    return np.concatenate([reduce(survival(distributions, part)) for part in np.array_split(t, max(1, parts))], axis=-1)
