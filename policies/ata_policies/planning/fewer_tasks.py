"""What an allocation costs without some of its tasks.

And below which mean a newcomer is of use that does these tasks.
"""

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, helper, kernel
from ata_policies.planning.completion_times import (
    POINTS,
    Grid,
    Worker,
    add_tasks,
    fill_chances,
    fill_later,
    mean_and_variance,
    mean_beyond,
    time_orders,
)

# steps of the search for the means at which a worker is useful, each of which halves an interval
_HALVINGS = 12
_QUANTILES = (np.arange(32) + 0.5) / 32  # levels of equally likely round times of an allocation


class Reduced(NamedTuple):
    """The allocation of m candidates without k of its tasks, for each of L numbers k.

    These are 0, 1, 2, 4, ..., and the number of all tasks.
    """

    removed: Ints
    """(L,) the numbers k."""
    allocation: Ints
    """(E, L, m) the tasks that remain."""
    round_time: Floats
    """(E, L, 32) equally likely round times."""
    cost: Floats
    """(E, L) expected round time + price * worker time."""
    least: Floats
    """(E, L, J) the cost where a newcomer does the k tasks, of which only its latency takes time.

    There are J latencies that a newcomer may have.
    """
    limit: Floats
    """(E, L, J) the mean time below which a newcomer that does the k tasks lowers the cost.

    Compared with the whole allocation; infinite for k = 0.
    """


def remove_tasks(
    times: Floats,
    shape: Floats,
    allocation: Ints,
    prices: Floats | float,
    price: Floats | float,
    latency: Floats | float = 0.0,
    newcomer_latency: Floats | float = 0.0,
) -> Reduced:
    """Take tasks away, first the tasks without which the rest costs least.

    The result tells, too, below which mean a newcomer that does these tasks is of use. In the
    example there are two tasks of time 1 each, and one of time 2. A newcomer is of use if it does
    the task of time 2 in less than 2, or all three tasks in less than 2.

    Args:
        times: (E, m, S) equally likely task times of the candidates.
        shape: (E, S) equally likely task times of a newcomer, over their mean.
        allocation: (E, m) the tasks of the candidates, as many in each row.
        prices: (E, m), or one, what a unit of a candidate's time costs.
        price: (E,), or one, what a unit of a newcomer's time costs.
        latency: (E, m, S), or one, equally likely latencies of the candidates, in an order that
            their task times do not share.
        newcomer_latency: (E, J, S), or one, equally likely latencies of each of J newcomers.

    Example:
        >>> times = np.array([[[1.0, 1.0], [2.0, 2.0]]])
        >>> reduced = remove_tasks(times, np.ones((1, 2)), np.array([[2, 1]]), 0.0, 0.0)
        >>> reduced.removed, reduced.limit[:, :, 0].round(1)
        (array([0, 1, 2, 3]), array([[inf, 2. , 1. , 0.7]]))
    """
    total = int(allocation[0].sum())
    orders = time_orders(shape.shape[1])
    # 1, 2, 4, ... tasks, and all of them.
    powers = {min(1 << k, total) for k in range(total.bit_length() + 1)}
    removed = np.array([0, *sorted(powers)])
    zeros = np.zeros(allocation.shape)
    latencies = np.broadcast_to(latency, times.shape)
    newcomer_latencies = np.zeros((len(shape), 1, shape.shape[1])) + newcomer_latency
    arguments = times, latencies, orders, allocation, removed, shape, newcomer_latencies
    return Reduced(removed, *_remove(*arguments, zeros + prices, price, _QUANTILES))


class _Tables(NamedTuple):
    """What m workers do to the cost on a grid, with their tasks and with one task fewer."""

    chance: Floats
    """(m, 128) the chance that the worker has done its tasks."""
    fewer: Floats
    """(m, 128) the chance that it has done all but one of them."""
    beyond: Floats
    """(m,) the mean time that its tasks take beyond the grid."""
    later: Floats
    """(m,) the mean time that all but one of its tasks take beyond the grid."""


@helper()
def _fill(worker: Worker, tasks: int, grid: Grid, out: Floats) -> float:
    """Fill in the chance that a worker has done its tasks; return the mean time beyond the grid."""
    out[:] = 1.0
    if tasks == 0:
        return 0.0
    sums = np.empty(len(worker.times))
    add_tasks(worker, tasks, 0, np.zeros(len(sums)), sums)
    beyond: float = fill_chances(sums, grid, out)
    return beyond


@helper("reassoc", "nsz")
def _integral(product: Floats, fewer: Floats, chance: Floats) -> float:
    """Return the sum of a product in which one worker's chance is replaced by ``fewer``."""
    total = 0.0
    for k in range(len(product)):
        total += product[k] * fewer[k] / chance[k]
    return total


@helper()
def _product(tables: _Tables, out: Floats) -> None:
    """Fill in the chance that all workers have done their tasks, (128,)."""
    out[:] = 1.0
    for i in range(len(tables.chance)):
        for k in range(POINTS):
            out[k] *= tables.chance[i, k]


@helper()
def _take_away(
    tables: _Tables,
    tasks: Ints,
    number: int,
    price: Floats,
    mean: Floats,
    latency: Floats,
    grid: Grid,
    product: Floats,
    taken_away: Ints,
) -> None:
    """Fill in from which workers a task is taken away, 1 or 0, (m,).

    These are the workers whose task costs most, at most ``number`` of them, one task each.
    ``mean`` and ``latency``, (m,), are mean task times and latencies.
    """
    change = np.empty(len(tasks))
    for i in range(len(tasks)):
        change[i] = tables.later[i] - tables.beyond[i] - price[i] * mean[i]
        if tasks[i] == 1:
            change[i] -= price[i] * latency[i]
        change[i] -= grid.step * _integral(product, tables.fewer[i], tables.chance[i])
    taken_away[:] = 0
    for _ in range(number):
        dearest = -1
        for i in range(len(tasks)):
            if tasks[i] > 0 and taken_away[i] == 0 and (dearest < 0 or change[i] < change[dearest]):
                dearest = i
        if dearest < 0:
            break
        taken_away[dearest] = 1


@helper()
def _fill_quantiles(product: Floats, grid: Grid, mean: float, levels: Floats, out: Floats) -> None:
    """Fill in the quantiles of the round time at some levels.

    The last one is such that their mean is the expected round time.
    """
    k = 0
    total = 0.0
    last = len(levels) - 1
    for q in range(last):
        while k < POINTS and product[k] < levels[q]:
            k += 1
        out[q] = grid.low + grid.step * k
        total += out[q]
    out[last] = max(len(levels) * mean - total, out[last - 1])


@helper()
def _useful_mean(
    newcomer: Worker,
    tasks: int,
    product: Floats,
    linear: float,
    cost: float,
    price: float,
    grid: Grid,
) -> tuple[float, float]:
    """Return the cost with a newcomer of mean 0, and below which mean it is less than ``cost``.

    Args:
        newcomer: A worker of mean 1; its latency does not change with the mean.
        tasks: How many tasks it does.
        product: (128,) the chance that all others have done their tasks.
        linear: The linear part of the cost of the others.
        cost: The cost to compare with.
        price: What a unit of the newcomer's time costs.
        grid: The times.
    """
    sums = np.empty(len(newcomer.times))
    later = np.empty(POINTS + 2)
    latency = newcomer.latency.mean()
    add_tasks(newcomer, tasks, 0, np.zeros(len(sums)), sums)
    for s in range(len(sums)):
        sums[s] -= newcomer.latency[s]
    fill_later(product, later)
    least = linear + price * latency + mean_beyond(sums, 0.0, newcomer.latency, grid, later)
    if least >= cost:
        return least, 0.0
    # bisection: the cost increases with the mean, and is at least the time of the newcomer's tasks
    lower = 0.0
    upper = cost / tasks
    for _ in range(_HALVINGS):
        middle = 0.5 * (lower + upper)
        beyond = mean_beyond(sums, middle, newcomer.latency, grid, later)
        if linear + price * (latency + tasks * middle) + beyond < cost:
            lower = middle
        else:
            upper = middle
    return least, lower


@kernel("(n,s),(n,s),(j,s),(n),(l),(s),(c,s),(n),(),(q)->(l,n),(l,q),(l),(l,c),(l,c)")
def _remove(
    times: Floats,
    latency: Floats,
    orders: Ints,
    start: Ints,
    removed: Ints,
    shape: Floats,
    newcomer_latency: Floats,
    prices: Floats,
    price: Floats,
    levels: Floats,
    remaining: Ints,
    round_time: Floats,
    cost: Floats,
    least: Floats,
    limit: Floats,
) -> None:
    """Take away tasks level by level; see ``remove_tasks``."""
    used = np.flatnonzero(start)
    m = len(used)
    times = times[used]
    latency = latency[used]
    tasks = start[used]
    paid = prices[used]
    taken_away = np.empty(m, np.int64)
    mean = np.empty(m)
    reach = 0.0
    total = 0
    variance = np.empty(m)
    mean_latency = np.empty(m)
    for i in range(m):
        mean[i], variance[i] = mean_and_variance(times[i])
        mean_latency[i], latency_variance = mean_and_variance(latency[i])
        total += tasks[i]
        # a time that few rounds exceed: the last worker's mean and four standard deviations
        deviation = math.sqrt(tasks[i] * variance[i] + latency_variance)
        reach = max(reach, mean_latency[i] + tasks[i] * mean[i] + 4.0 * deviation)
    # any positive step will do where all times are 0
    grid = Grid(0.0, (reach if reach > 0.0 else 1.0) / (POINTS - 2))
    tables = _Tables(np.empty((m, POINTS)), np.empty((m, POINTS)), np.empty(m), np.empty(m))
    for i in range(m):
        worker = Worker(times[i], orders, mean[i], variance[i], 0.0, latency[i])
        tables.beyond[i] = _fill(worker, tasks[i], grid, tables.chance[i])
        tables.later[i] = _fill(worker, tasks[i] - 1, grid, tables.fewer[i])
    product = np.empty(POINTS)
    task_count = total
    _product(tables, product)
    centre, width = mean_and_variance(shape)
    for level in range(len(removed)):
        # each pass takes away one task at least
        while task_count > total - removed[level] and task_count > 0:
            number = task_count - total + removed[level]
            _take_away(tables, tasks, number, paid, mean, mean_latency, grid, product, taken_away)
            for i in range(m):
                if taken_away[i] > 0:
                    tasks[i] -= 1
                    task_count -= 1
                    worker = Worker(times[i], orders, mean[i], variance[i], 0.0, latency[i])
                    # the tables for one task fewer are now the tables of its tasks
                    copy(tables.fewer[i], tables.chance[i])
                    tables.beyond[i] = tables.later[i]
                    tables.later[i] = _fill(worker, max(tasks[i] - 1, 0), grid, tables.fewer[i])
            _product(tables, product)
        linear = grid.step * POINTS
        work = 0.0
        for i in range(m):
            linear += tables.beyond[i]
            work += paid[i] * tasks[i] * mean[i]
            if tasks[i] > 0:
                work += paid[i] * mean_latency[i]
        cost[level] = linear + work - grid.step * product.sum()
        _fill_quantiles(product, grid, cost[level] - work, levels, round_time[level])
        remaining[level] = 0
        least[level] = cost[level]
        limit[level] = math.inf
        for i in range(m):
            remaining[level, used[i]] = tasks[i]
        if removed[level] > 0:
            for c in range(len(newcomer_latency)):
                newcomer = Worker(shape, orders, centre, width, 0.0, newcomer_latency[c])
                least[level, c], limit[level, c] = _useful_mean(
                    newcomer,
                    removed[level],
                    product,
                    linear + work,
                    cost[0],
                    price[0],
                    grid,
                )
