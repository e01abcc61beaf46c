"""The allocation that costs least where worker time has a price, found by branch and bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.allocation import proxy_loss, proxy_optimal
from ata_gym.checks import whole_number
from ata_gym.concave import allocate_by_cost
from ata_gym.optimal import PROVED, means_of_cycle, optimal_allocation, round_table
from ata_gym.planning import simulate
from ata_gym.pools import Pool
from ata_gym.round_time import expected_round_time
from ata_gym.samples import known_sample
from ata_gym.search import SLACK, branch_and_bound, improve
from ata_gym.simulation import Floats, Ints
from ata_gym.sums import BY_ROUND

_BETAS = (0.0, 0.75, 1.5, 3.0)
_GROWTH = 1.3
_SIZE = 256
_KEPT = 5


class Best(NamedTuple):
    """An allocation and how far from the least cost it can be."""

    allocation: Ints
    """(n,)"""
    cost: float
    """Its expected round time + price * expected worker time, in units of time."""
    gap: float
    """No allocation costs less by more than this, in units of time; 0 where the allocation is proved best."""


def best_allocation(pool: Pool, budget: int, price: float = 0.0, node_limit: int = 50_000) -> Best:
    """Find the allocation of ``budget`` tasks with the least expected round time + price * expected worker time.

    As ``optimal_allocation``, which it is for a price of 0: expected worker time is a sum over the workers, so it adds
    to the bounds of the search tree what each worker's tasks cost. Good allocations come from the beta rule on the m
    fastest workers, for several m and beta, and from local search. Ours.

    Parameters
    ----------
    pool
        The workers. Those of infinite mean get nothing.
    budget
        Tasks B to hand out, at least 1.
    price
        What one unit of worker time costs in units of round time, at least 0.
    node_limit
        Most nodes of the search tree, at least 0.

    Raises
    ------
    ValueError
        If every mean is infinite, the price is negative or not finite, or the budget or the node limit is not a whole
        number in its range.

    Examples
    --------
    >>> from ata_gym import scenario
    >>> pool = scenario("icml2025-cifar100").pool
    >>> for price in (0.01, 0.1):
    ...     best = best_allocation(pool, 23, price)
    ...     print(best.allocation[:7], round(best.cost, 1), best.gap)
    [11  5  3  2  1  1  0] 757.7 0.0
    [12  5  3  2  1  0  0] 1007.0 0.0
    """
    budget, node_limit = whole_number("budget", budget), whole_number("node_limit", node_limit, least=0)
    if not 0.0 <= price < np.inf:
        raise ValueError(f"price must be a finite number of at least 0, not {price!r}")
    if price == 0.0:
        optimum = optimal_allocation(pool, budget, node_limit)
        return Best(optimum.allocation, optimum.round_time, optimum.gap)
    mean = means_of_cycle(pool)
    work = np.where(np.isfinite(mean), mean, 0.0)

    def cost(allocation: Ints) -> float:
        return expected_round_time(pool, allocation) + price * float(allocation @ work)

    proxy = proxy_optimal(pool, budget)
    candidates = np.unique(np.concatenate([proxy[None], beta_candidates(mean, pool.sd(), budget)]), axis=0)
    order = np.argsort(simulate(known_sample(pool, _SIZE), candidates, budget, _SIZE).total(price), kind="stable")
    value, best = min(((cost(a), a) for a in candidates[order[:_KEPT]]), key=lambda one: one[0])
    least = price * budget * float(mean.min())  # nobody's time is cheaper than the fastest worker's
    lower = least
    if np.array_equal(mean, pool.mean()):
        lower += float(proxy_loss(proxy, mean))
    limit = value - least  # on the round time, so on any worker's time
    workers = np.flatnonzero(mean <= limit * (1 + SLACK))
    table, error = round_table(pool, budget, limit, best, workers, mean)
    if table is not None:
        tasks = np.arange(1, table.tails.size) - np.repeat(table.first, table.most)
        table.tails[1:] += price * tasks * np.repeat(mean[table.workers], table.most)
        proof = branch_and_bound(table, budget, improve(table, best[table.workers]), node_limit)
        allocation = np.zeros(pool.n, np.int64)
        allocation[table.workers] = proof.allocation
        exact = cost(allocation)
        together = pool.laws.family[workers] == BY_ROUND
        if together.all() or not together.any():
            lower = max(lower, proof.lower * (1 - SLACK) - error - abs(exact - proof.value))
        if exact < value:
            value, best = exact, allocation
    gap = value - lower
    return Best(best, value, gap if gap > PROVED * value else 0.0)


def beta_candidates(mean: Floats, sd: Floats, budget: int) -> Ints:
    """Allocations by the beta rule on the m fastest workers, shape (C, n), for m growing by 1.3 and several beta.

    Workers of infinite mean get nothing; a standard deviation counts up to the mean.

    >>> beta_candidates(np.array([1.0, 3.0]), np.array([0.1, 0.3]), 4)
    array([[3, 1],
           [4, 0]])
    """
    order = np.argsort(mean, kind="stable")[: int(np.isfinite(mean).sum())]
    supports = np.unique(np.ceil(_GROWTH ** np.arange(np.log(budget) / np.log(_GROWTH) + 2)).astype(np.int64))
    supports = np.unique(np.minimum(supports, min(order.size, budget)))
    spread = np.minimum(sd, mean)
    result = np.zeros((supports.size * len(_BETAS), mean.size), np.int64)
    for row, (m, beta) in enumerate((m, beta) for m in supports for beta in _BETAS):
        fast = order[:m]
        result[row, fast] = allocate_by_cost(mean[fast], beta * spread[fast], budget)
    return np.unique(result, axis=0)
