"""The allocation of least expected round time, or of least cost where worker time has a price."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools import Pool
from ata_gym.pools.validation import checked_costs
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.allocation.proxy_loss import proxy_loss, proxy_optimal
from ata_gym.theory.optimal.branch_and_bound import branch_and_bound, improve
from ata_gym.theory.optimal.table import SLACK, round_table
from ata_gym.theory.round_time.expected import cycle, expected_round_time, replayed
from ata_gym.theory.round_time.worker_times import BY_ROUND, rescaled
from ata_gym.theory.simulated.costs import can_simulate, simulate
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import non_negative, whole_number

_PROVED = 1e-6  # a gap of this part of the cost counts as none
_BETAS = (0.0, 0.75, 1.5, 3.0)
_GROWTH = 1.3
_SIZE = 256  # slices of each distribution, and rounds played with each candidate
_KEPT = 5


class Optimum(NamedTuple):
    """An allocation, what it costs, and how far from the least cost it can be."""

    allocation: Ints  # (n,)
    round_time: float  # expected, in units of time
    worker_time: float  # expected, in units of time
    cost: float  # expected round time + price * expected worker time
    gap: float  # no allocation costs less by more than this; 0 where the allocation is proved optimal


def optimal_allocation(pool: Pool, budget: int, price: float = 0.0, unit_costs: ArrayLike | None = None) -> Optimum:
    """Find the allocation of ``budget`` tasks with the least expected round time + price * expected worker time.

    It is proved optimal, or has a gap: no allocation costs less by more than that. Good allocations come from the beta
    rule (``allocate_by_cost``, for several beta) and from local search. Since E[C(a)] >= a_i mu_i, they limit the tasks
    of every worker. Then branch and bound on a grid of times (of rounds, if all workers replay traces by round): best
    node first, until no allocation can cost less by more than 1e-6 of the cost, or 50,000 nodes were opened. The result
    depends on the arguments alone, never on the clock. Ours.

    Size: count the m workers whose mean is at most the round time found; the others get nothing. The search takes place
    while (m + 1) (B + 1) times the size of the grid, 100 to 4,000 times, is below 2**25. It proves most pools of up to
    20 workers and 40 tasks, and far larger ones whose workers differ in speed only. Beyond, the gap comes from the root
    of the search tree (B up to some 1,000), then from the proxy loss and the price, as in pools that mix traces by
    round with other families. The grid's own error counts in the gap: up to 1e-3 of the round time with long records by
    task.

    A unit of each worker's time counts for ``unit_costs``, (n,), in worker time, by default for 1.

    Workers of infinite mean get nothing. ValueError is raised if every mean is infinite, or an argument is out of its
    range.

    >>> from ata_gym import scenario
    >>> pool = scenario("icml2025-cifar100").pool
    >>> for price in (0.0, 0.01, 0.1):
    ...     best = optimal_allocation(pool, 23, price)
    ...     print(best.allocation[:8], round(best.round_time, 1), round(best.cost, 1), best.gap)
    [10  5  3  2  1  1  1  0] 727.6 727.6 0.0
    [11  5  3  2  1  1  0  0] 729.3 757.7 0.0
    [12  5  3  2  1  0  0  0] 751.8 1007.0 0.0
    """
    budget, price = whole_number("budget", budget), non_negative("price", price)
    proxy = proxy_optimal(pool, budget)
    pool, unit = rescaled(pool, float(pool.mean().min()))
    mean, costs = _means_of_cycle(pool), checked_costs(unit_costs, pool.n)
    work = np.where(np.isfinite(mean), costs * mean, 0.0)

    def evaluate(allocation: Ints) -> Optimum:
        round_time, worker_time = expected_round_time(pool, allocation), float(allocation @ work)
        return Optimum(allocation, round_time, worker_time, round_time + price * worker_time, 0.0)

    best = min((evaluate(a) for a in _candidates(pool, mean, work, proxy, budget, price)), key=lambda one: one.cost)
    least = price * budget * float(work[np.isfinite(mean)].min())  # nobody does a task at less
    lower = _least_relaxed_cost(mean, budget, price * costs)
    if np.array_equal(mean, pool.mean()):
        lower = max(lower, least + float(proxy_loss(proxy, mean)))
    limit = best.cost - least  # on the round time, so on any worker's time
    workers = np.flatnonzero(mean <= limit * (1 + SLACK))
    table, error = round_table(pool, budget, limit, best.allocation, workers, mean, costs)
    if table is not None:
        tasks = np.arange(1, table.tails.size) - np.repeat(table.first, table.most)
        table.tails[1:] += price * tasks * np.repeat(work[table.workers], table.most)
        proof = branch_and_bound(table, budget, improve(table, best.allocation[table.workers]))
        allocation = np.zeros(pool.n, np.int64)
        allocation[table.workers] = proof.allocation
        found = evaluate(allocation)
        together = pool.distributions.family[workers] == BY_ROUND
        if together.all() or not together.any():
            lower = max(lower, proof.lower * (1 - SLACK) - error - abs(found.cost - proof.value))
        best = min(best, found, key=lambda one: one.cost)
    gap = best.cost - lower if best.cost - lower > _PROVED * best.cost else 0.0
    round_time, worker_time, cost = (time * unit for time in best[1:4])
    return Optimum(best.allocation, round_time, worker_time, cost, gap * unit)


def _candidates(pool: Pool, mean: Floats, work: Floats, proxy: Ints, budget: int, price: float) -> Ints:
    """A few good allocations, shape (C, n): of the minimiser ``proxy`` of the proxy loss and those of the beta rule.

    They are the five that cost least in simulated rounds, or by the proxy loss where those are too many.
    """
    keys = mean, np.where(np.isfinite(mean), work, np.inf)
    by_rule = (beta_candidates(mean, pool.sd(), budget, key) for key in keys)
    several = np.unique(np.concatenate([proxy[None], *by_rule]), axis=0)
    if can_simulate(int(several.any(axis=0).sum()), budget, _SIZE):
        costs = simulate(known_sample(pool, _SIZE), several, budget, _SIZE).total(price)
        costs += price * (several @ np.where(np.isfinite(mean), work - mean, 0.0))
    else:
        costs = proxy_loss(several, mean) + price * (several @ work)
    return np.asarray(several[np.argsort(costs, kind="stable")[:_KEPT]])


def beta_candidates(mean: Floats, sd: Floats, budget: int, key: Floats) -> Ints:
    """Allocations by the beta rule on the m workers of least ``key``, shape (C, n), for m growing by 1.3, several beta.

    Workers of infinite mean get nothing; a standard deviation counts up to the mean.
    """
    order = np.argsort(key, kind="stable")[: int(np.isfinite(mean).sum())]
    supports = np.unique(np.ceil(_GROWTH ** np.arange(np.log(budget) / np.log(_GROWTH) + 2)).astype(np.int64))
    supports = np.unique(np.minimum(supports, min(order.size, budget)))
    spread = np.minimum(sd, mean)
    result = np.zeros((supports.size * len(_BETAS), mean.size), np.int64)
    for row, (m, beta) in enumerate((m, beta) for m in supports for beta in _BETAS):
        fast = order[:m]
        result[row, fast] = allocate_by_cost(mean[fast], beta * spread[fast], budget)
    return np.unique(result, axis=0)


def _least_relaxed_cost(mean: Floats, budget: int, prices: Floats) -> float:
    """Return the least max_i a_i mu_i + sum_i price_i a_i mu_i over real a that sum to the budget: a bound from below.

    The m workers whose tasks cost least are busy for B / (1 / mu_1 + ... + 1 / mu_m) each, for the best m.
    """
    mean, prices = mean[np.isfinite(mean)], prices[np.isfinite(mean)]
    order = np.lexsort((mean, prices * mean))
    busy = budget / np.cumsum(1.0 / mean[order])
    return float(np.min((1.0 + np.cumsum(prices[order])) * busy)) * (1 - 1e-12)


def _means_of_cycle(pool: Pool) -> Floats:
    """Mean task time per worker, shape (n,): over one common cycle of traces by round."""
    mean, rounds = pool.mean(), cycle(pool)
    together = pool.distributions.family == BY_ROUND
    for i in np.flatnonzero(together & (rounds % pool.distributions.length != 0)).tolist():
        mean[i] = replayed(pool, i).mean()
    return mean
