"""The expected round times of allocations: the expected maximum of sums of task times."""

from collections.abc import Callable
from functools import partial
from math import lcm

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools.families import DETERMINISTIC, RECORDED, TRACE_BY_ROUND
from ata_gym.pools.pool import Pool, checked_pool, from_distributions
from ata_gym.pools.validation import as_array
from ata_gym.theory.round_time.convolution import adaptive_curve
from ata_gym.theory.round_time.distribution import random_latency
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.worker_times import (
    GROUPS,
    Sums,
    coarse_edges,
    excess,
    knots,
    renumbered,
    rescaled,
    share_moments,
    starts,
    sums,
    survival,
)
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.validation import LARGEST_COUNT

_PANEL_TOLERANCE = 1e-11  # aim of a panel of the quadrature, in units of the largest mean of a sum
_LATE_TOGETHER = 1e-12  # the part of two workers late together that is left out, in the same units
_LEVELS = np.concatenate(
    [1.0 - np.logspace(-9, -2, 8), np.linspace(0.95, 0.05, 19), np.logspace(-2, -12, 11)],
)
"""Probabilities at whose quantiles the first panels have edges."""
_BISECTIONS = 52
_BLOCK_SIZE = 2**21  # probabilities computed at once
_LONGEST_CYCLE = 2**20  # rounds of a cycle at most
_COARSE_TOLERANCE = 1e-6  # as _PANEL_TOLERANCE, where many allocations are computed together
_COARSE_LATE_TOGETHER = 1e-7  # as _LATE_TOGETHER, there
_DOUBTFUL_ERROR = 3e-7
"""The estimated error, as a part of the value, from which an allocation is computed alone."""
_MOST_NODES = 8192  # most nodes of a quadrature for many allocations
_MOST_EDGES = 512  # most edges of its first panels
_MOST_PIECES = 10**5  # most pieces of the curve of a maximum
_MOST_ROUNDS = 4096
"""Rounds of a cycle in which the rest of a share is random, at most: each takes a quadrature."""
_PAIRS_PER_BLOCK = 4096
"""Pairs of an allocation and a busy worker at once: 256 MiB on 8,192 nodes."""


def expected_round_time(pool: Pool, allocation: ArrayLike) -> float:
    """The expected round time E[C(a)] = E[max_i S_i(a_i)] of an allocation, by quadrature.

    S_i(a_i) is the sum of a_i task times of worker i. E[C(a)] is the integral over t >= 0 of 1 -
    prod_i P(S_i(a_i) <= t), inf where a worker with a task has an infinite mean. It is right to
    about 1e-10 of its value, also where sums of uniform, half-normal, log-normal, Weibull or Pareto
    times are convolved numerically; to 1e-8 if these times have coefficients of variation below
    1e-7. Where all times are recorded or constant, the integral is a sum.

    Tasks of a trace by task take consecutive rows of their worker's record, which starts over at
    its end. Each row is equally likely to be the first, independently of other workers. This is the
    long-run distribution under a fixed allocation where the lengths of the records have no common
    factor. All tasks of a round take the same row of traces by round, and so do all workers: the
    mean is over rounds, one common cycle of the records (at most its first 2**20 rounds).

    Where the pool has a latency c, S_i(a_i) is c_i and the sum of a_i task times, and 0 without
    tasks. A random latency is convolved numerically with the sum, to the same error; beside a
    density, a record of more than 512 times is reduced to 512 values, an error below 5e-5. Where
    tasks or latencies are replayed by round, and what is left of a share is random, each round of
    the cycle takes a quadrature of its own.

    Args:
        pool: The workers.
        allocation: Tasks of each worker, shape (n,): integers from 0 to 2**50 with any sum.

    Returns:
        The expected round time, in the pool's unit of time.

    Raises:
        ValueError: If the pool or the allocation is not valid, or a cycle is too long for a
            quadrature in each of its rounds.

    Example:
        >>> from ata_gym.pools import exponential
        >>> round(expected_round_time(exponential([1.0, 1.0, 1.0]), [1, 1, 1]), 9)  # 1 + 1/2 + 1/3
        1.833333333

        With a latency of 2 before the first task of a round:

        >>> round(expected_round_time(exponential([1.0, 1.0]).with_latency(2.0), [1, 1]), 9)
        3.5
    """
    return _single_round_time(
        pool, _checked_allocation(checked_pool(pool), allocation), by_round_together=True
    )


def expected_round_times(pool: Pool, allocations: Ints) -> Floats:
    """The expected round times of several allocations, shape (C,).

    They are right to 1e-6 of their values. Most follow from one quadrature on common nodes: the
    distribution of a worker's time for a number of tasks is computed once for all allocations that
    give it so many. Some are computed one by one: allocations of recorded or constant times alone,
    of long records, and allocations whose error could be larger by the estimate of the quadrature,
    as where hundreds of narrow sums are in different places. Here workers that replay a trace by
    round are taken to be independent of each other. The expected round time is infinite where a
    worker with a task has an infinite mean.

    Args:
        pool: The workers.
        allocations: Tasks of each worker, shape (C, n).
    """
    distinct, inverse = np.unique(allocations, axis=0, return_inverse=True)
    round_times = np.zeros(len(distinct))
    busy = distinct > 0
    endless = (busy & ~np.isfinite(pool.mean())).any(axis=1)
    round_times[endless] = np.inf
    steps = _has_steps(pool)
    length = pool.distributions.length
    if pool.latency is not None:
        steps &= _has_steps(pool.latency) | ~random_latency(pool)
        length = np.maximum(length, pool.latency.distributions.length)
    apart = ~(busy & ~steps).any(axis=1) | (busy & (length > GROUPS)).any(axis=1)
    finite = ~endless & busy.any(axis=1)
    for k in np.flatnonzero(finite & apart).tolist():
        round_times[k] = _single_round_time(pool, distinct[k], by_round_together=False)
    together = np.flatnonzero(finite & ~apart)
    if together.size:
        blocks = -(-np.count_nonzero(distinct[together]) // _PAIRS_PER_BLOCK)
        parts = [
            _block_round_times(pool, distinct[part])
            for part in np.array_split(together, min(int(blocks), together.size))
        ]
        round_times[together] = np.concatenate(parts)
    return round_times[inverse.ravel()]


def _has_steps(pool: Pool) -> Mask:
    """Which workers have recorded or constant times, shape (n,)."""
    return np.isin(pool.distributions.family, (*RECORDED, DETERMINISTIC))


def _block_round_times(pool: Pool, allocations: Ints) -> Floats:
    """Expected round times, shape (C,), of allocations with tasks and finite means."""
    values, errors = _on_common_nodes(pool, allocations)
    for k in np.flatnonzero(~(errors <= _DOUBTFUL_ERROR * values)).tolist():
        values[k] = _single_round_time(pool, allocations[k], by_round_together=False)
    return values


def _on_common_nodes(pool: Pool, allocations: Ints) -> tuple[Floats, Floats]:
    """Expected round times and estimates of their errors, shape (C,) each, by one quadrature."""
    row, worker = np.nonzero(allocations)
    pool, unit = rescaled(pool, float(pool.mean()[worker].max()))
    # The busy workers of allocation c are the entries from ``first[c]`` on; ``pair`` maps each
    # entry to its column, a distinct pair of a worker and a number of tasks.
    first = np.searchsorted(row, np.arange(len(allocations)))
    (workers, tasks), pair = np.unique(
        np.stack([worker, allocations[row, worker]]),
        axis=1,
        return_inverse=True,
    )
    pair = pair.ravel()
    distributions = sums(pool, workers, tasks, fine=False)
    mean, sd = share_moments(pool, workers, tasks)
    lowest = starts(distributions)
    longest = np.maximum.reduceat(mean[pair], first)
    latest = max(float(lowest.max()), float(longest.max()))
    scale = float(longest.min())
    end, beyond = _end(distributions, 2 * latest, _COARSE_LATE_TOGETHER * longest, pair, first)
    edges = coarse_edges(distributions, lowest, mean, sd, end, _MOST_EDGES)

    def functions(t: Floats) -> Floats:
        """P(round time > t) of each allocation."""
        busy = survival(distributions, t)
        # In logarithms, so that small probabilities keep their digits.
        with np.errstate(divide="ignore"):
            log_idle = np.log1p(-busy)[pair]
        log_all_idle = np.add.reduceat(log_idle, first, axis=0)
        return np.asarray(-np.expm1(log_all_idle))

    rule = adaptive_rule(functions, edges, _COARSE_TOLERANCE * scale, _MOST_NODES)
    return (rule.integrals + beyond) * unit, rule.errors * unit


def cycle_length(pool: Pool) -> int:
    """The rounds after which all traces by round of a pool start over, or one ends.

    The number is at most 2**20. Latencies that are replayed by round count, too.
    """
    distributions = pool.distributions
    together = distributions.family == TRACE_BY_ROUND
    first_end = int(distributions.limit[together].min(initial=_LONGEST_CYCLE))
    lengths = np.unique(distributions.length[together]).tolist()
    if pool.latency is not None:
        delays = pool.latency.distributions
        lengths += np.unique(delays.length[delays.family == TRACE_BY_ROUND]).tolist()
    return min(lcm(*lengths), first_end)


def replays_rounds(pool: Pool) -> Mask:
    """Which workers have shares that follow from the round alone, shape (n,)."""
    if pool.latency is None:
        return depends_on_rounds(pool)
    fixed = np.isin(pool.distributions.family, (TRACE_BY_ROUND, DETERMINISTIC))
    by_round = pool.latency.distributions.family == TRACE_BY_ROUND
    return np.asarray(fixed & (by_round | ~random_latency(pool)) & depends_on_rounds(pool))


def depends_on_rounds(pool: Pool) -> Mask:
    """Which workers have tasks or a latency that are replayed by round, shape (n,)."""
    depends = pool.distributions.family == TRACE_BY_ROUND
    if pool.latency is not None:
        depends |= pool.latency.distributions.family == TRACE_BY_ROUND
    return np.asarray(depends)


def replayed_shares(pool: Pool, worker: int, tasks: int) -> Floats:
    """The times of a share in a cycle, shape (cycle_length,), of one of ``replays_rounds``."""
    times = tasks * replayed_times(pool, worker)
    if pool.latency is not None:
        times += replayed_times(pool.latency, worker, cycle_length(pool))
    return times


def replayed_times(pool: Pool, worker: int, rounds: int | None = None) -> Floats:
    """The times of a worker in the rounds of a cycle, shape (rounds,).

    Args:
        pool: The workers, or their latencies.
        worker: One that replays a trace by round, or of constant times.
        rounds: The length of the cycle; by default ``cycle_length``.
    """
    length = cycle_length(pool) if rounds is None else rounds
    if pool.distributions.family[worker] != TRACE_BY_ROUND:
        return np.full(length, pool.mean()[worker])
    record = np.resize(pool.record(worker), length)
    distributions = pool.distributions
    return np.asarray(distributions.shift[worker] + distributions.scale[worker] * record)


def _at_round(pool: Pool, k: int) -> Pool:
    """The pool in round k of a cycle: the times that are replayed by round are constants."""
    by_round = pool.distributions.family == TRACE_BY_ROUND
    times = np.zeros(pool.n)
    for i in np.flatnonzero(by_round).tolist():
        times[i] = replayed_times(pool, i, k + 1)[k]
    constants = pool.distributions._replace(
        family=np.where(by_round, DETERMINISTIC, pool.distributions.family),
        shift=np.where(by_round, times, pool.distributions.shift),
        scale=np.where(by_round, 0.0, pool.distributions.scale),
    )
    latency = pool.latency
    if latency is not None:
        latency = _at_round(latency, k)
    return from_distributions(constants, latency)


def _checked_allocation(pool: Pool, allocation: ArrayLike) -> Ints:
    """Return an allocation to the pool as int64, with ValueError if it is none."""
    tasks = as_array(allocation)
    if tasks.dtype.kind not in "iu" or tasks.shape != (pool.n,):
        raise ValueError(
            f"an allocation is one integer per worker, shape ({pool.n},), not {tasks.dtype} of"
            f" shape {tasks.shape}",
        )
    if (tasks < 0).any() or (tasks > LARGEST_COUNT).any():
        raise ValueError(
            f"an allocation has entries from 0 to 2**50, not {tasks.min()} to {tasks.max()}",
        )
    return tasks.astype(np.int64)


def _single_round_time(pool: Pool, tasks: Ints, by_round_together: bool) -> float:
    """The expected round time of one allocation, (n,).

    With ``by_round_together``, workers that replay a trace by round share their rounds.
    """
    busy = np.flatnonzero(tasks)
    if not np.isfinite(pool.mean()[busy]).all():
        return np.inf
    pool, unit = rescaled(pool, float(pool.mean()[busy].max(initial=0.0)))
    if not np.isfinite(pool.mean()[busy]).all():
        return np.inf
    together = replays_rounds(pool)[busy] & by_round_together
    if by_round_together and not np.array_equal(together, depends_on_rounds(pool)[busy]):
        return _mean_over_rounds(pool, tasks) * unit
    if together.all():
        return float(_last_times(pool, busy, tasks).mean()) * unit
    alone = busy[~together]
    joint = busy[together]
    distributions = sums(pool, alone, tasks[alone])
    means = share_moments(pool, alone, tasks[alone])[0]
    if joint.size:
        last_time = _last_times(pool, joint, tasks)
        distributions.append(Sums.from_values(last_time, alone.size))
        means = np.append(means, last_time.mean())
    return _expected_maximum(distributions, float(means.max())) * unit


def _mean_over_rounds(pool: Pool, tasks: Ints) -> float:
    """The expected round time, by a quadrature in each round of a cycle."""
    rounds = cycle_length(pool)
    if rounds > _MOST_ROUNDS:
        raise ValueError(
            "the expected round time of workers that replay some times by round and draw others is"
            f" worked out for cycles of at most {_MOST_ROUNDS:,} rounds, and theirs has {rounds:,}"
        )
    values = [
        _single_round_time(_at_round(pool, k), tasks, by_round_together=False)
        for k in range(rounds)
    ]
    return float(np.mean(values))


def _last_times(pool: Pool, workers: Ints, tasks: Ints) -> Floats:
    """When the last of these workers is done, shape (cycle_length,); all replay by round."""
    last_time = np.zeros(cycle_length(pool))
    for i in workers.tolist():
        np.maximum(last_time, replayed_shares(pool, i, int(tasks[i])), out=last_time)
    return last_time


def _expected_maximum(distributions: list[Sums], scale: float) -> float:
    """The expected maximum of independent sums; ``scale`` is the largest of their means.

    With R the maximum of the recorded sums, and M the maximum of all others, E max(R, M) is the
    mean of R + E[(M - R)+]. The second part is a smooth function of R.
    """
    recorded = renumbered(
        distribution for distribution in distributions if distribution.standard.constant
    )
    continuous = renumbered(
        distribution for distribution in distributions if not distribution.standard.constant
    )
    if not recorded:
        return _by_quadrature(continuous, scale)
    time, late = _maximum_of_steps(recorded)
    if continuous:
        ends = time + _excess_of_maximum(continuous, scale, time)
    else:
        ends = time
    return float(ends[0] + np.diff(ends) @ late)


def _by_quadrature(distributions: list[Sums], scale: float) -> float:
    """The expected maximum of independent sums with a density."""
    begin = float(starts(distributions).max())
    end, beyond = _single_end(distributions, 2 * max(begin, scale), scale)
    late = partial(_late, distributions)
    inner_edges = np.concatenate([[begin], knots(distributions), _quantiles(late, begin, end)])
    edges = np.unique(
        np.concatenate([[0.0, end], inner_edges[(inner_edges > 0) & (inner_edges < end)]])
    )
    rule = adaptive_rule(lambda t: late(t)[None], edges, _PANEL_TOLERANCE * scale)
    return float(rule.integrals[0] + beyond)


def _maximum_of_steps(distributions: list[Sums]) -> tuple[Floats, Floats]:
    """The values of the maximum of sums that take recorded values, and their probabilities.

    P(all S_i <= t) is 1 at the largest value. Below each value of a sum it is less by a factor: the
    sum's probability to be below the value, over its probability to be at most the value.

    Returns:
        The values, increasing, shape (q,), and P(maximum > value) of all but the last, shape
        (q - 1,).
    """
    begin = starts(distributions).max()
    times = [np.array([begin])]
    rises = [np.zeros(1)]
    for distribution in distributions:
        values = (
            distribution.shift[:, None]
            + distribution.scale[:, None] * distribution.standard.knots[1:]
        )
        rise = np.diff(np.log1p(-distribution.standard.survival(distribution.standard.knots)))
        later = values > begin
        times.append(values[later])
        rises.append(np.broadcast_to(rise, values.shape)[later])
    time = np.concatenate(times)
    order = np.argsort(time, kind="stable")
    # Sums of logarithms of the factors from the largest value down.
    fall = np.cumsum(np.concatenate(rises)[order][:0:-1])[::-1]
    return time[order], -np.expm1(-fall)


def _excess_of_maximum(distributions: list[Sums], scale: float, times: Floats) -> Floats:
    """E[(M - t)+] at increasing times, for the maximum M of independent sums with a density.

    ``scale`` is the largest mean of the sums; the result has the shape of ``times``.
    """
    begin = float(starts(distributions).max())
    end, beyond = _single_end(distributions, 2 * max(begin, scale, float(times[-1])), scale)
    inner_edges = knots(distributions)
    edges = np.unique(
        np.concatenate(
            [[0.0, end - begin], inner_edges[(inner_edges > begin) & (inner_edges < end)] - begin]
        ),
    )

    def late(x: Floats) -> Floats:
        return _late(distributions, begin + x.ravel()).reshape(x.shape)

    curve = adaptive_curve(late, edges, scale, _PANEL_TOLERANCE, max_pieces=_MOST_PIECES)
    before = curve.integral(np.clip(times - begin, 0.0, end - begin))
    total = float(curve.integral(edges[-1:])[0]) + beyond
    return np.asarray(np.maximum(begin - times, 0.0) + total - before)


def _late(distributions: list[Sums], t: Floats) -> Floats:
    """P(some S_i > t) for times of shape (k,)."""
    return _reduced_survival(distributions, t, _probability_of_any)


def _single_end(distributions: list[Sums], end: float, scale: float) -> tuple[float, float]:
    """Where the integral of P(some S_i > t) may stop, at ``end`` or later, and the rest beyond."""
    columns = np.arange(sum(distribution.column.size for distribution in distributions))
    negligible = np.array([_LATE_TOGETHER * scale])
    end, beyond = _end(distributions, end, negligible, columns, np.zeros(1, np.int64))
    return end, float(beyond[0])


def _end(
    distributions: list[Sums],
    end: float,
    negligible: Floats,
    pair: Ints,
    first: Ints,
) -> tuple[float, Floats]:
    """Where the integrals of C allocations may stop, at ``end`` or later, and the rest beyond.

    Beyond a time t, the integral of P(some S_i > t) is the integral I of the sum of P(S_i > t),
    minus at most the sum of P(S_i > t) times I. The integrals stop where this product is
    ``negligible``, shape (C,), and the rest, shape (C,), is I. The columns of allocation c are in
    ``pair``, from ``first[c]`` on.
    """
    # The loop ends, as P(S_i > t) vanishes and no integral is more than a mean.
    while True:
        late = np.add.reduceat(survival(distributions, np.array([end]))[pair, 0], first)
        beyond = np.add.reduceat(excess(distributions, end)[pair], first)
        if not (late * beyond > negligible).any():
            return end, beyond
        end *= 2


def _quantiles(late: Callable[[Floats], Floats], begin: float, end: float) -> Floats:
    """The times at which P(some S_i > t) crosses the levels, by bisection.

    As edges of panels, they make the quadrature see even the narrowest step.
    """
    low = np.full(_LEVELS.size, begin)
    high = np.full(_LEVELS.size, end)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = late(middle) > _LEVELS
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return low


def _probability_of_any(busy: Floats) -> Floats:
    """Return 1 - prod_i (1 - p_i) over the first axis, without loss of small numbers."""
    with np.errstate(divide="ignore"):
        return np.asarray(-np.expm1(np.log1p(-busy).sum(axis=0)))


def _reduced_survival(
    distributions: list[Sums], t: Floats, reduce: Callable[[Floats], Floats]
) -> Floats:
    """Reduce P(S_i > t), shape (m, times), over i, a few times at once for very many sums."""
    m = sum(distribution.column.size for distribution in distributions)
    parts = -(-t.size * m // _BLOCK_SIZE)
    return np.concatenate(
        [reduce(survival(distributions, part)) for part in np.array_split(t, max(1, parts))],
        axis=-1,
    )
