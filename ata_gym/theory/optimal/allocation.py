"""The allocation of least expected round time, or least cost where worker time has a price."""

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools import Pool
from ata_gym.pools.families import TRACE_BY_ROUND
from ata_gym.pools.validation import checked_costs
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.allocation.proxy_loss import proxy_loss, proxy_optimal
from ata_gym.theory.optimal.branch_and_bound import branch_and_bound, improve
from ata_gym.theory.optimal.table import SLACK, round_table
from ata_gym.theory.round_time.expected import (
    cycle_length,
    depends_on_rounds,
    expected_round_time,
    replayed_times,
    replays_rounds,
)
from ata_gym.theory.round_time.worker_times import rescaled
from ata_gym.theory.simulated.costs import can_simulate, simulate
from ata_gym.theory.simulated.slices import slice_means
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import non_negative, whole_number

_PROVED_GAP = 1e-6  # a gap of this part of the cost counts as none
_BETAS = (0.0, 0.75, 1.5, 3.0)
_SUPPORT_GROWTH = 1.3
_SAMPLE_SIZE = 256  # slices of each distribution, and rounds played with each candidate
_KEPT_CANDIDATES = 5


class Optimum(NamedTuple):
    """An allocation, its cost, and how far from the least cost it can be."""

    allocation: Ints
    """The tasks of each worker, shape (n,)."""
    round_time: float
    """The expected round time, in units of time."""
    worker_time: float
    """The expected worker time, in units of time."""
    cost: float
    """The expected round time + price * expected worker time."""
    gap: float
    """No allocation costs less by more than this; 0 where it is proved optimal."""


def optimal_allocation(
    pool: Pool,
    budget: int,
    price: float = 0.0,
    unit_costs: ArrayLike | None = None,
) -> Optimum:
    """Find the allocation of least expected round time + price * expected worker time.

    It is proved optimal, or has a gap: no allocation costs less by more than the gap. Workers of
    infinite mean get nothing. The result depends on the arguments alone, never on the clock.

    Good allocations come from the beta rule (``allocate_by_cost``, for several beta) and from local
    search. Since E[C(a)] >= a_i mu_i, with the mean latency where there is one, they limit the
    tasks of every worker. A latency counts as worker time where its worker has tasks. Branch and
    bound follows, on a grid of times (of rounds, if all workers replay traces by round). It opens
    the best node first, until no allocation can cost less by more than 1e-6 of the cost, or 50,000
    nodes were opened. Ours.

    Size: let m be the number of workers whose mean is at most the round time of the good
    allocations; the others get nothing. The search takes place while (m + 1) (B + 1) times the size
    of the grid, 100 to 4,000 times, is below 2**25. It proves most pools of up to 20 workers and 40
    tasks, and far larger pools whose workers differ in speed only. Beyond, the gap comes from the
    root of the search tree (B up to some 1,000), then from the proxy loss and the price, as in
    pools that mix traces by round with other families or latencies. The error of the grid counts in
    the gap: up to 1e-3 of the round time with long records by task.

    Args:
        pool: The workers.
        budget: Results B that a round needs: the tasks of the allocation.
        price: What one unit of worker time costs in units of round time, at least 0.
        unit_costs: What a unit of each worker's time counts for in worker time, shape (n,); by
            default 1.

    Raises:
        ValueError: If every mean is infinite, or an argument is out of its range.

    Example:
        >>> from ata_gym import scenario
        >>> pool = scenario("icml2025-cifar100").pool
        >>> for price in (0.0, 0.01, 0.1):
        ...     best = optimal_allocation(pool, 23, price)
        ...     print(best.allocation[:8], round(best.round_time, 1), round(best.cost, 1), best.gap)
        [10  5  3  2  1  1  1  0] 727.6 727.6 0.0
        [11  5  3  2  1  1  0  0] 729.3 757.7 0.0
        [12  5  3  2  1  0  0  0] 751.8 1007.0 0.0
    """
    budget = whole_number("budget", budget)
    price = non_negative("price", price)
    proxy = proxy_optimal(pool, budget)
    pool, unit = rescaled(pool, float(pool.mean().min()))
    rounds = cycle_length(pool)
    mean = _means_of_cycle(pool, rounds)
    costs = checked_costs(unit_costs, pool.n)
    work = np.where(np.isfinite(mean), costs * mean, 0.0)
    if pool.latency is None:
        latency = np.zeros(pool.n)
    else:
        latency = _means_of_cycle(pool.latency, rounds)
    start_work = np.where(np.isfinite(mean), costs * latency, 0.0)

    # No allocation pays less for its worker time: every task costs at least the cheapest one, and
    # at least one worker pays a latency.
    finite = np.isfinite(mean)
    least_worker_time = budget * float(work[finite].min()) + float(start_work[finite].min())
    if not np.isfinite(price * least_worker_time):
        raise ValueError(
            f"price {price:g} times the worker time of {budget} tasks is above the largest number:"
            " give a smaller price",
        )

    def evaluate(allocation: Ints) -> Optimum:
        """The costs of an allocation, without a gap yet."""
        round_time = expected_round_time(pool, allocation)
        worker_time = float(allocation @ work)
        if pool.latency is not None:
            worker_time += float((allocation > 0) @ start_work)
        return Optimum(allocation, round_time, worker_time, round_time + price * worker_time, 0.0)

    several = _candidates(pool, mean, work, start_work, proxy, budget, price)
    best = min((evaluate(a) for a in several), key=lambda optimum: optimum.cost)
    lower = _least_relaxed_cost(mean, budget, price * costs)
    if np.array_equal(mean, pool.mean()) and (
        pool.latency is None or np.array_equal(latency, pool.latency.mean())
    ):
        lower = max(lower, price * least_worker_time + float(proxy_loss(proxy, mean, latency)))
    # A better allocation has a round time below this limit, so every worker's mean time is, too.
    # Costs at a large price differ by less than their rounding, times do not.
    limit = best.round_time + price * (best.worker_time - least_worker_time)
    workers = np.flatnonzero(mean + latency <= limit * (1 + SLACK))
    table, error = round_table(pool, budget, limit, best.allocation, workers, mean, costs)
    if table is not None:
        # The price of the worker time is added to the tail of each row.
        tasks = np.arange(1, table.tails.size) - np.repeat(table.first_row, table.max_tasks)
        table.tails[1:] += price * tasks * np.repeat(work[table.workers], table.max_tasks)
        table.tails[1:] += price * np.repeat(start_work[table.workers], table.max_tasks)
        proof = branch_and_bound(table, budget, improve(table, best.allocation[table.workers]))
        allocation = np.zeros(pool.n, np.int64)
        allocation[table.workers] = proof.allocation
        proved = evaluate(allocation)
        if replays_rounds(pool)[workers].all() or not depends_on_rounds(pool)[workers].any():
            lower = max(
                lower, proof.lower_bound * (1 - SLACK) - error - abs(proved.cost - proof.value)
            )
        best = min(best, proved, key=lambda optimum: optimum.cost)
    if best.cost - lower > _PROVED_GAP * best.cost:
        gap = best.cost - lower
    else:
        gap = 0.0
    return Optimum(
        best.allocation,
        best.round_time * unit,
        best.worker_time * unit,
        best.cost * unit,
        gap * unit,
    )


def _candidates(
    pool: Pool,
    mean: Floats,
    work: Floats,
    start_work: Floats,
    proxy: Ints,
    budget: int,
    price: float,
) -> Ints:
    """A few good allocations, shape (C, n), from the beta rule and the minimiser ``proxy``.

    They are the five that cost least in simulated rounds, or by the proxy loss where the rounds
    would be too many. ``proxy`` minimises the proxy loss.
    """
    latency = None
    keys = [mean, np.where(np.isfinite(mean), work, np.inf)]
    if pool.latency is not None:
        latency = pool.latency.mean()
        keys.append(mean + latency)
    by_rule = (beta_candidates(mean, pool.sd(), budget, key, latency) for key in keys)
    several = np.unique(np.concatenate([proxy[None], *by_rule]), axis=0)
    if can_simulate(int(several.any(axis=0).sum()), budget, _SAMPLE_SIZE):
        sample = slice_means(pool, _SAMPLE_SIZE)
        delays = None
        if pool.latency is not None:
            delays = slice_means(pool.latency, _SAMPLE_SIZE)
        costs = simulate(sample, several, budget, _SAMPLE_SIZE, delays).total(price)
        # The simulation counts a unit of every worker's time as 1; here is the rest.
        costs += price * (several @ np.where(np.isfinite(mean), work - mean, 0.0))
        if latency is not None:
            costs += price * ((several > 0) @ (start_work - latency))
    else:
        costs = proxy_loss(several, mean, latency) + price * (several @ work)
        costs += price * ((several > 0) @ start_work)
    return np.asarray(several[np.argsort(costs, kind="stable")[:_KEPT_CANDIDATES]])


def beta_candidates(
    mean: Floats, sd: Floats, budget: int, key: Floats, latency: Floats | None = None
) -> Ints:
    """Allocations by the beta rule on the m workers of least ``key``, shape (C, n).

    They are made for several beta, and for m that grows by a factor of 1.3. Workers of infinite
    mean get nothing; a standard deviation counts up to the mean.

    Args:
        mean: Mean task times, shape (n,), in units of time.
        sd: Standard deviations of the task times, shape (n,).
        budget: Tasks of each allocation.
        key: The order of the workers, shape (n,); workers of infinite mean must come last.
        latency: Mean latencies, shape (n,), in units of time, or None.
    """
    order = np.argsort(key, kind="stable")[: int(np.isfinite(mean).sum())]
    growths = np.arange(np.log(budget) / np.log(_SUPPORT_GROWTH) + 2)
    supports = np.ceil(_SUPPORT_GROWTH**growths).astype(np.int64)
    supports = np.unique(np.minimum(supports, min(order.size, budget)))
    spread = np.minimum(sd, mean)
    result = np.zeros((supports.size * len(_BETAS), mean.size), np.int64)
    for row, (m, beta) in enumerate(product(supports, _BETAS)):
        fast = order[:m]
        late = None if latency is None else latency[fast]
        result[row, fast] = allocate_by_cost(mean[fast], beta * spread[fast], budget, latency=late)
    return np.unique(result, axis=0)


def _least_relaxed_cost(mean: Floats, budget: int, prices: Floats) -> float:
    """A lower bound of the cost: the least over real a that sum to the budget.

    The cost is max_i a_i mu_i + sum_i price_i a_i mu_i, without latencies. At the minimum, the m
    workers whose tasks cost least are busy for B / (1 / mu_1 + ... + 1 / mu_m) each, for the best
    m.
    """
    finite = np.isfinite(mean)
    mean = mean[finite]
    prices = prices[finite]
    order = np.lexsort((mean, prices * mean))
    busy = budget / np.cumsum(1.0 / mean[order])
    return float(np.min((1.0 + np.cumsum(prices[order])) * busy)) * (1 - 1e-12)


def _means_of_cycle(pool: Pool, rounds: int) -> Floats:
    """Mean task time per worker, shape (n,), over one common cycle of traces by round.

    Args:
        pool: The workers, or their latencies.
        rounds: The rounds of the cycle.
    """
    mean = pool.mean()
    together = pool.distributions.family == TRACE_BY_ROUND
    for i in np.flatnonzero(together & (rounds % pool.distributions.length != 0)).tolist():
        mean[i] = replayed_times(pool, i, rounds).mean()
    return mean
