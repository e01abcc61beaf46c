"""What an allocation costs without some of its tasks, and when a newcomer that does them is of use."""

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

_HALVINGS = 12  # steps of the search for the means at which a worker is useful, each of which halves an interval
_QUANTILES = (np.arange(32) + 0.5) / 32  # levels of equally likely round times of an allocation


class Reduced(NamedTuple):
    """The allocation of m candidates without k of its tasks, for each of L numbers k: 0, 1, 2, 4, ..., and all."""

    removed: Ints  # (L,) k
    allocation: Ints  # (E, L, m)
    round_time: Floats  # (E, L, 32) equally likely round times
    cost: Floats  # (E, L) expected round time + price * worker time
    limit: Floats  # (E, L) the mean below which a worker that did the k tasks would make it cheaper than with all


def remove_tasks(
    times: Floats, shape: Floats, allocation: Ints, prices: Floats | float, price: Floats | float
) -> Reduced:
    """Take tasks away, those first without which the rest costs least, and see what a newcomer could gain by them.

    Each ``allocation``, (E, m), has as many tasks; the ``shape``, (E, S), is that of a newcomer's times over its mean.
    A unit of time costs the ``prices``, (E, m), of the candidates, and the ``price``, (E,), of a newcomer.

    There are two tasks of time 1 each, and one of time 2. A newcomer is of use if it does the latter in less than 2, or
    all three in less than 2:

    >>> times = np.array([[[1.0, 1.0], [2.0, 2.0]]])
    >>> reduced = remove_tasks(times, np.ones((1, 2)), np.array([[2, 1]]), 0.0, 0.0)
    >>> reduced.removed, reduced.limit.round(1)
    (array([0, 1, 2, 3]), array([[inf, 2. , 1. , 0.7]]))
    """
    total, orders = int(allocation[0].sum()), time_orders(shape.shape[1])
    removed = np.array([0, *sorted({min(1 << k, total) for k in range(total.bit_length() + 1)})])
    each = np.zeros(allocation.shape)
    return Reduced(removed, *_remove(times, orders, allocation, removed, shape, each + prices, price, _QUANTILES))


class _Tables(NamedTuple):
    """What m workers do to the cost on a grid, with their tasks and with one fewer."""

    chance: Floats  # (m, 128) that the worker has done its tasks
    fewer: Floats  # (m, 128) that it has done all but one
    beyond: Floats  # (m,) the mean time that its tasks take beyond the grid
    later: Floats  # (m,) the mean time that all but one of them take beyond it


@helper()
def _fill(worker: Worker, tasks: int, grid: Grid, out: Floats) -> float:
    out[:] = 1.0
    if tasks == 0:
        return 0.0
    sums = np.empty(len(worker.times))
    add_tasks(worker, tasks, 0, np.zeros(len(sums)), sums)
    beyond: float = fill_chances(sums, grid, out)
    return beyond


@helper("reassoc", "nsz")
def _integral(product: Floats, fewer: Floats, chance: Floats) -> float:
    total = 0.0
    for k in range(len(product)):
        total += product[k] * fewer[k] / chance[k]
    return total


@helper()
def _product(tables: _Tables, out: Floats) -> None:
    out[:] = 1.0
    for i in range(len(tables.chance)):
        for k in range(POINTS):
            out[k] *= tables.chance[i, k]


@helper()
def _take_away(
    tables: _Tables, tasks: Ints, number: int, price: Floats, mean: Floats, grid: Grid, product: Floats, gone: Ints
) -> None:
    """Fill in from which workers one task each is taken away, 1 or 0: those whose task costs most, at most number."""
    change = np.empty(len(tasks))
    for i in range(len(tasks)):
        change[i] = tables.later[i] - tables.beyond[i] - price[i] * mean[i]
        change[i] -= grid.step * _integral(product, tables.fewer[i], tables.chance[i])
    gone[:] = 0
    for _ in range(number):
        which = -1
        for i in range(len(tasks)):
            if tasks[i] > 0 and gone[i] == 0 and (which < 0 or change[i] < change[which]):
                which = i
        if which < 0:
            break
        gone[which] = 1


@helper()
def _fill_quantiles(product: Floats, grid: Grid, mean: float, levels: Floats, out: Floats) -> None:
    k, total, last = 0, 0.0, len(levels) - 1
    for q in range(last):
        while k < POINTS and product[k] < levels[q]:
            k += 1
        out[q] = grid.low + grid.step * k
        total += out[q]
    out[last] = max(len(levels) * mean - total, out[last - 1])


@helper()
def _useful_mean(
    newcomer: Worker, tasks: int, product: Floats, linear: float, cost: float, price: float, grid: Grid
) -> float:  # the mean below which a newcomer that did these tasks would make the rest cheaper than the `cost`
    sums, later = np.empty(len(newcomer.times)), np.empty(POINTS + 2)
    add_tasks(newcomer, tasks, 0, np.zeros(len(sums)), sums)
    fill_later(product, later)
    under, over = 0.0, cost / tasks
    for _ in range(_HALVINGS):
        middle = 0.5 * (under + over)
        beyond = mean_beyond(sums, middle, grid, later)
        if linear + price * tasks * middle + beyond < cost:
            under = middle
        else:
            over = middle
    return under


@kernel("(n,s),(j,s),(n),(l),(s),(n),(),(q)->(l,n),(l,q),(l),(l)")
def _remove(
    times: Floats, orders: Ints, start: Ints, removed: Ints, shape: Floats, prices: Floats, price: Floats,
    levels: Floats, left: Ints, round_time: Floats, cost: Floats, limit: Floats,
) -> None:  # fmt: skip
    used = np.flatnonzero(start)
    m, times, tasks, paid = len(used), times[used], start[used], prices[used]
    gone, mean, reach, total = np.empty(m, np.int64), np.empty(m), 0.0, 0
    variance = np.empty(m)
    for i in range(m):
        mean[i], variance[i] = mean_and_variance(times[i])
        total += tasks[i]
        # a time that few rounds exceed: the last worker's mean and four standard deviations
        reach = max(reach, tasks[i] * mean[i] + 4.0 * math.sqrt(tasks[i] * variance[i]))
    grid = Grid(0.0, (reach if reach > 0.0 else 1.0) / (POINTS - 2))
    tables = _Tables(np.empty((m, POINTS)), np.empty((m, POINTS)), np.empty(m), np.empty(m))
    for i in range(m):
        worker = Worker(times[i], orders, mean[i], variance[i], 0.0)
        tables.beyond[i] = _fill(worker, tasks[i], grid, tables.chance[i])
        tables.later[i] = _fill(worker, tasks[i] - 1, grid, tables.fewer[i])
    product, here = np.empty(POINTS), total
    _product(tables, product)
    centre, width = mean_and_variance(shape)
    newcomer = Worker(shape, orders, centre, width, 0.0)
    for level in range(len(removed)):
        while here > total - removed[level] and here > 0:  # each pass takes away one task at least
            _take_away(tables, tasks, here - total + removed[level], paid, mean, grid, product, gone)
            for i in range(m):
                if gone[i] > 0:
                    tasks[i] -= 1
                    here -= 1
                    worker = Worker(times[i], orders, mean[i], variance[i], 0.0)
                    copy(tables.fewer[i], tables.chance[i])
                    tables.beyond[i] = tables.later[i]
                    tables.later[i] = _fill(worker, max(tasks[i] - 1, 0), grid, tables.fewer[i])
            _product(tables, product)
        linear, work = grid.step * POINTS, 0.0
        for i in range(m):
            linear += tables.beyond[i]
            work += paid[i] * tasks[i] * mean[i]
        cost[level] = linear + work - grid.step * product.sum()
        _fill_quantiles(product, grid, cost[level] - work, levels, round_time[level])
        left[level], limit[level] = 0, math.inf
        for i in range(m):
            left[level, used[i]] = tasks[i]
        if removed[level] > 0:
            limit[level] = _useful_mean(newcomer, removed[level], product, linear + work, cost[0], price[0], grid)
