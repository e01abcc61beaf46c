"""The expected round times of allocations: the expected maximum of the workers' sums of task times."""

from collections.abc import Callable
from math import lcm

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.pools.validation import as_array
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.worker_times import BY_ROUND, Sums, coarse_edges, jumps, rescaled, starts, sums, survival
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import LARGEST_COUNT

_RELATIVE = 1e-11  # aim of a panel of the quadrature, and of the tail, in units of the largest mean of a sum
_LEVELS = np.concatenate([1.0 - np.logspace(-9, -2, 8), np.linspace(0.95, 0.05, 19), np.logspace(-2, -12, 11)])
_BISECTIONS = 52
_BLOCK = 2**21  # probabilities computed at once
_ROUNDS = 2**20
_COARSE = 1e-6  # the same aim where many allocations are looked at
_NODES, _EDGES = 8192, 512  # most nodes of such a quadrature, and most edges of its first panels
_PAIRS = 4096  # pairs of an allocation and a busy worker that are evaluated at once: 256 MiB on so many nodes


def expected_round_time(pool: Pool, allocation: ArrayLike) -> float:
    """Expected round time E[C(a)] = E[max_i S_i(a_i)], S_i the sum of a_i task times of worker i, by quadrature.

    E[C(a)] is the integral over t >= 0 of 1 - prod_i P(S_i(a_i) <= t), inf where a worker with a task has an infinite
    mean. It is right to about 1e-10 of its value, also where sums of uniform, half-normal, log-normal, Weibull or
    Pareto times are convolved numerically; to 1e-8 if these have coefficients of variation below 1e-7.

    Tasks of a trace by task take consecutive rows of their worker's record, which starts over at its end. Each row is
    equally likely to be the first, independently of other workers: the long-run distribution under a fixed allocation
    where the lengths of the records have no common factor. Records of more than 4,096 rows are reduced to so many
    values, the means of groups of rows of similar time. All tasks of a round take the same row of traces by round, and
    so do all workers: the mean is over rounds, one common cycle of the records (at most its first 2**20 rounds).

    ``allocation`` holds the workers' tasks, shape (n,): non-negative integers with any sum, or ValueError is raised.

    >>> from ata_gym.pools import exponential
    >>> round(expected_round_time(exponential([1.0, 1.0, 1.0]), [1, 1, 1]), 9)  # 1 + 1/2 + 1/3
    1.833333333
    """
    tasks = _checked(checked_pool(pool), allocation)
    busy = np.flatnonzero(tasks)
    if not np.isfinite(pool.mean()[busy]).all():
        return np.inf
    pool, unit = rescaled(pool, float(pool.mean()[busy].max(initial=0.0)))
    if not np.isfinite(pool.mean()[busy]).all():
        return np.inf
    if (pool.distributions.family[busy] == BY_ROUND).all():
        return float(_last(pool, busy, tasks).mean()) * unit
    return _expected_maximum(pool, busy, tasks) * unit


def expected_round_times(pool: Pool, allocations: Ints) -> Floats:
    """Expected round times of allocations, shape (C, n); returns shape (C,).

    They are those of ``expected_round_time`` to about 1e-6 of their values, for records of thousands of rows to 1e-3.
    What a worker needs for a number of tasks is computed once for all allocations that give it so many. Here workers
    that replay a trace by round are taken to be independent of each other. The expected round time is infinite where a
    worker with a task has an infinite mean.
    """
    distinct, back = np.unique(allocations, axis=0, return_inverse=True)
    found = np.full(len(distinct), np.inf)
    finite = np.isfinite(np.where(distinct > 0, pool.mean(), 0.0)).all(axis=1)
    found[~distinct.any(axis=1)] = 0.0
    todo = np.flatnonzero(finite & distinct.any(axis=1))
    if todo.size:
        blocks = -(-np.count_nonzero(distinct[todo]) // _PAIRS)
        parts = [_in_block(pool, distinct[block]) for block in np.array_split(todo, min(int(blocks), todo.size))]
        found[todo] = np.concatenate(parts)
    return found[back.ravel()]


def _in_block(pool: Pool, allocations: Ints) -> Floats:
    row, worker = np.nonzero(allocations)
    pool, unit = rescaled(pool, float(pool.mean()[worker].max()))
    first = np.searchsorted(row, np.arange(len(allocations)))
    (workers, tasks), pair = np.unique(np.stack([worker, allocations[row, worker]]), axis=1, return_inverse=True)
    pair = pair.ravel()
    distributions = sums(pool, workers, tasks, fine=False)
    mean, sd = tasks * pool.mean()[workers], np.sqrt(tasks) * pool.sd()[workers]
    lowest = starts(distributions)
    longest = np.maximum.reduceat(mean[pair], first)
    latest, scale = max(float(lowest[pair].max()), float(longest.max())), float(longest.min())
    end, long = _end(distributions, 2 * latest, scale, _COARSE, _COARSE)
    edges = coarse_edges(distributions, lowest, mean, sd, end, _EDGES)

    def functions(t: Floats) -> Floats:
        """P(round time > t) of each allocation, and P(sum > t) of the pairs whose tails matter beyond the end."""
        busy = survival(distributions, t)
        with np.errstate(divide="ignore"):
            together = np.add.reduceat(np.log1p(-busy)[pair], first, axis=0)
        return np.concatenate([-np.expm1(together), busy[long]])

    rule = adaptive_rule(functions, edges, _COARSE * scale, _NODES)
    covered = rule.values @ rule.weights
    tails = np.zeros(mean.size)
    tails[long] = np.maximum(mean[long] - covered[len(allocations) :], 0.0)
    return (covered[: len(allocations)] + np.add.reduceat(tails[pair], first)) * unit


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
    tasks = as_array(allocation)
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


def _expected_maximum(pool: Pool, busy: Ints, tasks: Ints) -> float:
    together = pool.distributions.family[busy] == BY_ROUND
    alone, joint = busy[~together], busy[together]
    distributions = sums(pool, alone, tasks[alone])
    means = tasks[alone] * pool.mean()[alone]
    if joint.size:
        last = _last(pool, joint, tasks)
        distributions.append(Sums.recorded(last, alone.size))
        means = np.append(means, last.mean())
    lowest = starts(distributions)
    begin, scale = float(lowest.max()), float(means.max())
    first = 2 * max(begin, scale)
    end, long = _end(distributions, first, scale, _RELATIVE, 1e-12, 32 * first)
    tail = np.flatnonzero(long)

    def functions(t: Floats) -> Floats:
        """The integrand, and the sum of P(S_i > t) over the sums whose tails matter beyond the end."""
        return _in_blocks(distributions, t, lambda busy_at: np.stack([_any(busy_at), busy_at[tail].sum(axis=0)]))

    inside = np.concatenate([[begin], lowest[tail], jumps(distributions), _quantiles(distributions, begin, end)])
    edges = np.unique(np.concatenate([[0.0, end], inside[(inside > 0) & (inside < end)]]))
    rule = adaptive_rule(functions, edges, _RELATIVE * scale)
    covered, of_tails = rule.values @ rule.weights
    # P(some S_i > t) is the sum of P(S_i > t) out there, and the integral of that over all t is the mean.
    return float(covered + means[tail].sum() - of_tails)


def _end(
    distributions: list[Sums], end: float, scale: float, alone: float, together: float, least: float = 0.0
) -> tuple[float, NDArray[np.bool_]]:
    """Where the integral may stop, and which sums still have a tail there: more than ``alone``, in units of ``scale``.

    It stops where no sum has a tail, or from ``least`` on where the chance that two are late together is negligible.
    """
    while True:
        late = survival(distributions, np.array([end]))[:, 0]
        long = late * end > alone * scale / late.size
        if not long.any() or (end > least and late.sum() ** 2 * end <= together * scale):
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


def _any(busy: Floats) -> Floats:  # 1 - prod_i (1 - p_i) over the first axis, without loss of small numbers
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.log1p(-busy).sum(axis=0)))


def _in_blocks(distributions: list[Sums], t: Floats, reduce: Callable[[Floats], Floats]) -> Floats:
    """Reduce P(S_i > t), shape (m, times), over i, a few times at once where there are very many sums."""
    m = sum(distribution.column.size for distribution in distributions)
    parts = -(-t.size * m // _BLOCK)
    return np.concatenate([reduce(survival(distributions, part)) for part in np.array_split(t, max(1, parts))], axis=-1)
