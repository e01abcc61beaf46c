"""The expected round times of several allocations at once, on common nodes of a quadrature."""

from __future__ import annotations

import numpy as np

from ata_gym.pools.pool import Pool
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.units import rescaled
from ata_gym.theory.round_time.worker_times import Sums, jumps, starts, sums, survival
from ata_gym.typing import Floats, Ints

_RELATIVE = 1e-6
"""Aim of a panel of the quadrature, and of the tail, in units of the least of the largest means of a sum."""
_NODES, _EDGES = 8192, 512  # most nodes of a quadrature, and most edges of its first panels
_BLOCK = 4096  # pairs of an allocation and a busy worker that are evaluated at once: 256 MiB on so many nodes


def expected_round_times(pool: Pool, allocations: Ints) -> Floats:
    """Expected round times of allocations, shape (C, n); returns shape (C,).

    They are those of ``expected_round_time`` to about 1e-6 of their values, for records of thousands of rows to 1e-3.
    What a worker needs for a number of tasks is computed once for all allocations that give it so many. Here workers
    that replay a trace by round are taken to be independent of each other. The expected round time is infinite where a
    worker with a task has an infinite mean.

    >>> from ata_gym.pools import exponential
    >>> expected_round_times(exponential([1.0, 1.0, 1.0]), np.array([[1, 1, 1], [3, 0, 0]])).round(6)
    array([1.833333, 3.      ])
    """
    distinct, back = np.unique(allocations, axis=0, return_inverse=True)
    found = np.full(len(distinct), np.inf)
    finite = np.isfinite(np.where(distinct > 0, pool.mean(), 0.0)).all(axis=1)
    found[~distinct.any(axis=1)] = 0.0
    todo = np.flatnonzero(finite & distinct.any(axis=1))
    if todo.size:
        blocks = -(-np.count_nonzero(distinct[todo]) // _BLOCK)
        parts = [_in_block(pool, distinct[block]) for block in np.array_split(todo, min(int(blocks), todo.size))]
        found[todo] = np.concatenate(parts)
    return found[back.ravel()]


def _in_block(pool: Pool, allocations: Ints) -> Floats:
    """The expected round times of allocations that each have a task, and none for a worker of infinite mean."""
    row, worker = np.nonzero(allocations)
    pool, unit = rescaled(pool, float(pool.mean()[worker].max()))
    first = np.searchsorted(row, np.arange(len(allocations)))
    (workers, tasks), pair = np.unique(np.stack([worker, allocations[row, worker]]), axis=1, return_inverse=True)
    pair = pair.ravel()
    distributions = sums(pool, workers, tasks, fine=False)
    mean, sd = tasks * pool.mean()[workers], np.sqrt(tasks) * pool.sd()[workers]
    lowest = starts(distributions)
    longest = np.maximum.reduceat(mean[pair], first)
    end, long = _end(distributions, 2 * max(float(lowest[pair].max()), float(longest.max())), float(longest.min()))
    narrow = sd < 0.02 * mean
    steps = mean[narrow] + np.array([-6, -3, 0, 3, 6])[:, None] * sd[narrow]
    inside = np.unique(np.concatenate([lowest, steps.ravel(), jumps(distributions)]))
    inside = inside[(inside > 0) & (inside < end)]
    edges = np.concatenate([[0.0], inside[:: inside.size // _EDGES + 1], [end]])

    def functions(t: Floats) -> Floats:
        """P(round time > t) of each allocation, and P(sum > t) of the pairs whose tails matter beyond the end."""
        busy = survival(distributions, t)
        with np.errstate(divide="ignore"):
            together = np.add.reduceat(np.log1p(-busy)[pair], first, axis=0)
        return np.concatenate([-np.expm1(together), busy[long]])

    rule = adaptive_rule(functions, edges, _RELATIVE * float(longest.min()), _NODES)
    covered = rule.values @ rule.weights
    tails = np.zeros(mean.size)
    tails[long] = np.maximum(mean[long] - covered[len(allocations) :], 0.0)
    return (covered[: len(allocations)] + np.add.reduceat(tails[pair], first)) * unit


def _end(distributions: list[Sums], end: float, scale: float) -> tuple[float, Ints]:
    """Where the integral may stop, since two sums that are late together are negligible; which pairs have a tail there.

    P(some sum > t) is the sum of P(sum > t) out there, and the integral of that over all t is the mean.
    """
    while True:
        late = survival(distributions, np.array([end]))[:, 0]
        if late.sum() ** 2 * end <= _RELATIVE * scale:
            return end, np.flatnonzero(late * end > _RELATIVE * scale / late.size)
        end *= 2
