"""The allocation that minimises the expected round time itself, found by branch and bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.allocation import proxy_loss, proxy_optimal
from ata_gym.checks import whole_number
from ata_gym.concave import allocate_by_cost
from ata_gym.pools import Pool
from ata_gym.quadrature import adaptive_rule
from ata_gym.round_time import cycle, expected_round_time, replayed
from ata_gym.search import SLACK, Table, branch_and_bound, improve
from ata_gym.simulation import Floats, Ints
from ata_gym.sums import BY_ROUND, jumps, starts, sums, survival

_BETAS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
PROVED = 1e-6
"""A gap of this part of the round time counts as none."""
_GRID = 1e-8
"""Aim of a panel of the grid, in units of the round time."""
_TAIL = 1e-9
_NODES = 4096
_EDGES = 128
_LARGEST = 2**25
"""Numbers in a table of sums: 256 MiB."""
_PRODUCT: np.ufunc = np.multiply
_MINIMUM: np.ufunc = np.minimum


class Optimum(NamedTuple):
    """An allocation and how far from the least expected round time it can be."""

    allocation: Ints
    """(n,)"""
    round_time: float
    """Its expected round time, in units of time."""
    gap: float
    """No allocation is faster by more than this, in units of time; 0 where the allocation is proved optimal."""
    nodes: int
    """Nodes of the search tree that were opened."""


def optimal_allocation(pool: Pool, budget: int, node_limit: int = 50_000) -> Optimum:
    """Find the allocation of ``budget`` tasks that minimises the expected round time, proved or with a certified gap.

    Good allocations come from a rule (tasks go one by one to the least j mu_i + beta sd_i sqrt(j) for worker i's j-th
    task, for several beta) and from local search. Since E[C(a)] >= a_i mu_i, they limit the tasks of every worker.
    Then branch and bound on a grid of times (of rounds, if all workers replay traces by round): best node first, until
    no allocation can be faster by more than 1e-6 of the round time, or ``node_limit`` nodes are open. The result
    depends on the arguments alone, never on the clock.

    Size: count the m workers whose mean is at most the round time found; the others get nothing. The search takes place
    while (m + 1) (B + 1) times the size of the grid, 100 to 4,000 times, is below 2**25. It proves most pools of up to
    20 workers and 40 tasks, and far larger ones whose workers differ in speed only. Beyond, the gap comes from the root
    of the search tree (B up to some 1,000), then from the proxy loss, as in pools that mix traces by round with other
    families. The grid's own error counts in the gap: up to 1e-3 of the round time with long records by task.

    Parameters
    ----------
    pool
        The workers. Those of infinite mean get nothing.
    budget
        Tasks B to hand out, at least 1.
    node_limit
        Most nodes of the search tree, at least 0.

    Raises
    ------
    ValueError
        If every mean is infinite, or the budget or the node limit is not a whole number in its range.

    Examples
    --------
    >>> from ata_gym import scenario
    >>> best = optimal_allocation(scenario("icml2025-cifar100").pool, 23)
    >>> best.allocation[:9], round(best.round_time, 1), best.gap
    (array([10,  5,  3,  2,  1,  1,  1,  0,  0]), 727.6, 0.0)
    """
    budget, node_limit = whole_number("budget", budget), whole_number("node_limit", node_limit, least=0)
    proxy = proxy_optimal(pool, budget)
    mean = means_of_cycle(pool)
    lower = float(proxy_loss(proxy, mean)) if np.array_equal(mean, pool.mean()) else 0.0
    timed = ((expected_round_time(pool, a), a) for a in _candidates(pool, budget, proxy))
    value, best = min(timed, key=lambda one: one[0])
    workers = np.flatnonzero(mean <= value * (1 + SLACK))
    table, error = round_table(pool, budget, value, best, workers, mean)
    nodes = 0
    if table is not None:
        proof = branch_and_bound(table, budget, improve(table, best[table.workers]), node_limit)
        nodes = proof.nodes
        allocation = np.zeros(pool.n, np.int64)
        allocation[table.workers] = proof.allocation
        exact = expected_round_time(pool, allocation)
        together = pool.laws.family[workers] == BY_ROUND
        if together.all() or not together.any():
            lower = max(lower, proof.lower * (1 - SLACK) - error - abs(exact - proof.value))
        if exact < value:
            value, best = exact, allocation
    gap = value - lower
    return Optimum(best, value, gap if gap > PROVED * value else 0.0, nodes)


def means_of_cycle(pool: Pool) -> Floats:
    """Mean task time per worker, shape (n,): over one common cycle of traces by round."""
    mean, rounds = pool.mean(), cycle(pool)
    for i in np.flatnonzero((pool.laws.family == BY_ROUND) & (rounds % pool.laws.length != 0)).tolist():
        mean[i] = replayed(pool, i).mean()
    return mean


def _candidates(pool: Pool, budget: int, proxy: Ints) -> list[Ints]:
    """The minimiser of the proxy loss, and allocations by the beta rule, for spreads up to the mean and in full."""
    usable = np.isfinite(pool.mean())
    mean, sd = pool.mean()[usable], pool.sd()[usable]
    result = {proxy.tobytes(): proxy}
    for spread in (np.minimum(sd, mean), np.where(np.isfinite(sd), sd, mean)):
        for beta in _BETAS:
            allocation = np.zeros(pool.n, np.int64)
            allocation[usable] = allocate_by_cost(mean, beta * spread, budget)
            result.setdefault(allocation.tobytes(), allocation)
    return list(result.values())


def round_table(
    pool: Pool, budget: int, value: float, start: Ints, workers: Ints, mean: Floats
) -> tuple[Table | None, float]:
    """The table of what ``workers`` need for any number of tasks, least spread first, and its error; None if too large.

    Tasks that alone would take a worker longer than ``value``, the round time of ``start``, need not be considered.
    """
    laws = pool.laws
    kinds = (laws.first, laws.scale, laws.shift, laws.shape, laws.family, mean, pool.sd())
    workers = workers[np.lexsort([kind[workers] for kind in kinds])]
    most = np.minimum(np.floor(value * (1 + SLACK) / mean[workers]), budget).astype(np.int64)
    if most.sum() > _LARGEST // _NODES:
        return None, np.inf
    first = np.cumsum(most) - most
    columns = np.repeat(workers, most)
    tasks = np.arange(columns.size) - np.repeat(first, most) + 1
    same = np.append(False, np.all([kind[workers[1:]] == kind[workers[:-1]] for kind in kinds], axis=0))
    if (laws.family[workers] == BY_ROUND).all():
        rounds = cycle(pool)
        if columns.size * rounds > _LARGEST:
            return None, np.inf
        combine, unit, error = _MINIMUM, 0.0, 0.0
        weights, tails = np.full(rounds, 1 / rounds), np.zeros(columns.size)
        rows = -np.stack([replayed(pool, i) for i in columns.tolist()]) * tasks[:, None]
    else:
        combine, unit = _PRODUCT, 1.0
        rows, weights, tails, error = _on_grid(pool, columns, tasks, value, start[columns] == tasks)
    rows = np.concatenate([np.full((1, weights.size), unit), rows])
    return Table(workers, rows, np.append(0.0, tails), weights, first, most, same, combine, unit), error


def _on_grid(
    pool: Pool, columns: Ints, tasks: Ints, value: float, start: NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats, float]:
    """P(S <= t) on a grid of times t for all columns, the grid's weights, the tails beyond it, and its error.

    The grid fits all columns and the round time of those of ``start``: a product is steeper than its factors.
    """
    laws = sums(pool, columns, tasks, fine=False)
    mean, sd = tasks * pool.mean()[columns], np.sqrt(tasks) * pool.sd()[columns]
    slowest = np.append(np.diff(columns) != 0, True)
    end = 2 * value
    while True:
        late = survival(laws, np.array([end]))[:, 0]
        together = late[slowest].sum()
        if min(together, together**2) * end <= _TAIL * value:
            break
        end *= 2
    narrow = sd < 0.02 * mean
    steps = mean[narrow] + np.array([-6, -3, 0, 3, 6])[:, None] * sd[narrow]
    inside = np.concatenate([starts(laws)[tasks <= 2], steps.ravel(), jumps(laws)])
    edges = np.unique(inside[(inside > 0) & (inside < end)])
    edges = np.concatenate([[0.0], edges[:: edges.size // _EDGES + 1], [end]])

    def functions(t: Floats) -> Floats:
        busy = survival(laws, t)
        return np.concatenate([busy, [1.0 - np.prod(1.0 - busy[start], axis=0)]])

    rule = adaptive_rule(functions, edges, _GRID * value, _NODES)
    busy = rule.values[:-1]
    tails = np.where(late * end > _TAIL * value, np.maximum(mean - busy @ rule.weights, 0.0), 0.0)
    return 1.0 - busy, rule.weights, tails, rule.error
