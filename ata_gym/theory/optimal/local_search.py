"""Local search for the allocation of least expected cost, on tables of what workers need for their tasks.

A search of its own beside ``branch_and_bound``: fast enough to plan between two rounds, and for thousands of workers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.simulation.keys import permutations
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import gufunc, helper
from ata_gym.utils.validation import non_negative, whole_number

_SHUFFLE = 3
"""A stream of keys of its own."""
_SUMMED = 32
"""Tasks whose times are added up one by one; the spread of more is scaled."""
_POINTS = 128
"""Of the grid of round times."""
_BEYOND = 0.03
"""Expected number of workers that are busy beyond the grid."""
_FLOOR = 1e-12
"""The least chance in a table: products are divided by it."""
_PAIRS = 24
"""Givers, and takers, that seem best alone: all pairs of them are tried."""
_TOGETHER = 8
"""Most tasks moved at once."""
_GRIDS = 6
"""Most grids in a search: it is made anew where the round time has fallen."""
_HALVINGS = 12
_STEPS = 9
"""Of the search for the mean at which a worker is useful."""


class Search(NamedTuple):
    """What a search found for n workers."""

    allocation: Ints
    """(n,)"""
    cost: float
    """Expected round time + price * worker time, in units of time."""
    limit: Floats
    """(n,) the mean below which a worker with its distribution's shape would be useful; infinite where it has a task"""
    free: float
    """The cost if one task were done by a worker that needs no time."""
    moves: int
    """Made; the search was not over if they are as many as allowed."""


def local_search(
    times: ArrayLike,
    allocation: ArrayLike,
    price: float = 0.0,
    *,
    doubt: ArrayLike = 0.0,
    moves: int = 1000,
    tolerance: float = 1e-5,
) -> Search:
    """Improve an allocation step by step, on sampled task times, by the expected cost itself. Ours.

    With F_i(a, t) the chance that worker i has done a tasks by time t, the cost is

        integral of 1 - prod_i F_i(a_i, t) dt + price * sum_i a_i mean_i.

    The times of a tasks are sums over shuffled samples (Latin hypercube), scaled to their exact mean and variance; they
    become F on a grid that keeps the mean. Beyond the grid, which few reach, workers count one by one. A step moves a
    task from a giver to a taker, the best pair of those that are best alone; where none gains, up to 8 tasks at once
    between different workers, or all tasks of a worker. It ends when nothing gains more than ``tolerance`` of the cost.

    Parameters
    ----------
    times
        (n, S) equally likely task times of each worker, finite, at least 0. Workers that cannot be of use should be
        left out: the work is in proportion to n.
    allocation
        (n,) where to begin: whole numbers of at least 0, one above it.
    doubt
        (n,) squared relative standard deviation of what is known of each mean: it adds (a_i mean_i)^2 doubt_i to the
        variance of a_i tasks.
    moves
        Most steps.

    Raises
    ------
    ValueError
        For an argument of another shape or out of these bounds.

    Examples
    --------
    >>> found = local_search([[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]], [0, 0, 7])
    >>> found.allocation, round(found.cost, 2), found.limit.round(1)
    (array([5, 2, 0]), 5.0, array([inf, inf,  5.]))
    """
    table, start = np.asarray(times, np.float64), np.asarray(allocation)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"times must have shape (n, S), a row per worker, not {table.shape}")
    if start.shape != table.shape[:1] or start.dtype.kind not in "iu" or start.min() < 0 or start.max() < 1:
        raise ValueError(f"allocation must be {len(table)} whole numbers of at least 0, one of them above it")
    if not (table.min() >= 0.0 and table.max() < np.inf):
        raise ValueError("times must be finite and at least 0")
    price, moves = non_negative("price", price), whole_number("moves", moves, least=0)
    unit = 2.0 ** math.frexp(float(table.mean(axis=1).max()))[1]  # so that no square overflows
    doubts = np.broadcast_to(np.asarray(doubt, np.float64), start.shape)
    orders = _orders(table.shape[1])
    begin = start.astype(np.int64)
    found, limit, cost, free, made = _search(table / unit, doubts, orders, begin, price, tolerance, moves)
    return Search(found, float(cost) * unit, limit * unit, float(free) * unit, int(made))


def tabulate(times: Floats, doubt: Floats, tasks: Ints, low: float, step: float) -> tuple[Floats, Floats]:
    """F of some tasks at 128 points ``low + step k``, shape (..., 128), and the mean time beyond the grid, (...,).

    ``times`` has shape (..., S), ``doubt`` and ``tasks`` (...,); see :func:`local_search`. No task takes no time.
    """
    distributions, beyond = _tabulate(times, doubt, _orders(times.shape[-1]), tasks, low + step * np.arange(_POINTS))
    return np.asarray(distributions), np.asarray(beyond)


@lru_cache(maxsize=8)
def _orders(size: int) -> NDArray[np.int64]:
    """A permutation of the slices for each task, shape (tasks, size); the first task has them as they are."""
    orders = permutations(_SHUFFLE, _SUMMED, size)
    orders[0] = np.arange(size)
    return np.ascontiguousarray(orders, np.int64)


@helper()
def _add_tasks(times: Floats, orders: Ints, before: int, tasks: int, total: Floats) -> int:
    """Add the times of the tasks from ``before`` on, up to as many as are added up; return how many there are."""
    last = min(tasks, len(orders))
    for j in range(before, last):
        for s in range(len(times)):
            total[s] += times[orders[j, s]]
    return max(before, last)


@helper()
def _scale(total: Floats, added: int, tasks: int, mean: float, variance: float, doubt: float, out: Floats) -> None:
    """Fill in the times of ``tasks`` tasks, from those of the tasks added up, by their mean and variance."""
    size = len(total)
    centre, have = added * mean, 0.0
    for s in range(size):
        have += (total[s] - centre) ** 2
    want = tasks * variance + (tasks * mean) ** 2 * doubt
    factor = math.sqrt(want / (have / size)) if have > 0.0 else 0.0
    for s in range(size):
        out[s] = max(tasks * mean + (total[s] - centre) * factor, 0.0)


@helper()
def _distribution(sums: Floats, low: float, step: float, out: Floats) -> float:
    """Fill in F at the points of the grid, and return the mean time beyond it; a time is shared by two points."""
    points, size = len(out), len(sums)
    high, beyond = low + step * points, 0.0
    out[:] = 0.0
    for s in range(size):
        place = (sums[s] - low) / step
        if place >= points:
            beyond += sums[s] - high
        elif not place > 0.0:
            out[0] += 1.0
        else:
            k = int(place)
            later = place - k
            out[k] += 1.0 - later
            if k + 1 < points:
                out[k + 1] += later
    total = 0.0
    for k in range(points):
        total += out[k]
        out[k] = max(total / size, _FLOOR)
    return beyond / size


@helper("reassoc", "nsz")
def _dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@helper("reassoc", "nsz")
def _dot3(x: Floats, y: Floats, z: Floats) -> float:
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k] * z[k]
    return total


@helper()
def _least(value: Floats, allowed: NDArray[np.bool_], out: Ints) -> int:
    """Fill in the places of the least values that are allowed, least first; return how many there are."""
    found = 0
    for i in range(len(value)):
        if allowed[i] and (found < len(out) or value[i] < value[out[found - 1]]):
            at = found if found < len(out) else found - 1
            found = min(found + 1, len(out))
            while at > 0 and value[i] < value[out[at - 1]]:
                out[at] = out[at - 1]
                at -= 1
            out[at] = i
    return found


@helper()
def _together(
    product: Floats, fewer: Floats, more: Floats, less: Floats, extra: Floats, gives: NDArray[np.bool_],
    takes: NDArray[np.bool_], tasks: int, alone: int, step: float, change: Ints,
) -> float:  # fmt: skip
    """Take ``tasks`` tasks from different workers and give them to others, each step the best one; return the cost.

    Where ``alone`` is a worker, all its tasks have been taken from it before. The cost is relative to the grid's end.
    """
    m, cost = len(less), 0.0
    change[:] = 0
    for side in range(2):
        if side == 0 and alone >= 0:
            continue
        for _ in range(tasks):
            best, which = math.inf, -1
            for i in range(m):
                if change[i] == 0 and i != alone and (gives[i] if side == 0 else takes[i]):
                    ratio, linear = (fewer[i], less[i]) if side == 0 else (more[i], extra[i])
                    value = linear - step * _dot(product, ratio)
                    if value < best:
                        best, which = value, i
            if which < 0:
                return math.inf
            change[which] = -1 if side == 0 else 1
            cost += less[which] if side == 0 else extra[which]
            ratio = fewer[which] if side == 0 else more[which]
            for k in range(len(product)):
                product[k] *= ratio[k]
    total: float = product.sum()
    return cost - step * total


@helper()
def _grid(sums: Floats, used: int) -> tuple[float, float]:
    """Where the grid of round times begins, and its step, from the times of the workers used, shape (used, S)."""
    size = sums.shape[1]
    least, high = 0.0, 0.0
    for u in range(used):
        least, high = max(least, sums[u].min()), max(high, sums[u].max())
    below, above = least, high
    if used * _BEYOND * size > 0.0:
        for _ in range(_HALVINGS):
            middle, late = 0.5 * (below + above), 0
            for u in range(used):
                for s in range(size):
                    late += sums[u, s] > middle
            if late > _BEYOND * size:
                below = middle
            else:
                above = middle
    high = max(above, 1.2 * least)
    low = 0.6 * least
    return low, max(high - low, 1e-300) / (_POINTS - 2)


@gufunc(
    "void(float64[:,:], float64[:], int64[:,:], int64[:], float64[:], float64[:], int64[:],"
    " int64[:], float64[:], float64[:], float64[:], int64[:])",
    "(m,s),(m),(j,s),(m),(),(),()->(m),(m),(),(),()",
)
def _search(
    times: Floats, doubt: Floats, orders: Ints, start: Ints, price: Floats, tolerance: Floats, most: Ints,
    tasks: Ints, limit: Floats, least: Floats, free: Floats, made: Ints,
) -> None:  # fmt: skip
    """Search as :func:`local_search` does; fill in the allocation, limits, costs and moves."""
    m, size = times.shape
    mean, variance, fixed = np.empty(m), np.empty(m), price[0]
    for i in range(m):
        mean[i], variance[i] = times[i].mean(), times[i].var()
        tasks[i] = start[i]
    raw, sums, scaled = np.empty(size), np.empty((m, size)), np.empty(size)
    now, fewer, more = np.empty((m, _POINTS)), np.empty((m, _POINTS)), np.empty((m, _POINTS))
    less, extra, tail = np.empty(m), np.empty(m), np.empty(m)
    alone_less, alone_more = np.empty(m), np.empty(m)
    product, trial = np.empty(_POINTS), np.empty(_POINTS)
    gives, takes = np.zeros(m, np.bool_), np.ones(m, np.bool_)
    givers, takers, change = np.empty(_PAIRS, np.int64), np.empty(_PAIRS, np.int64), np.empty(m, np.int64)
    best_change = np.empty(m, np.int64)
    made[0], cost, low, step = 0, math.inf, 0.0, 1.0
    for _ in range(_GRIDS):
        used = 0
        for i in range(m):
            if tasks[i] > 0:
                raw[:] = 0.0
                added = _add_tasks(times[i], orders, 0, tasks[i], raw)
                _scale(raw, added, tasks[i], mean[i], variance[i], doubt[i], sums[used])
                used += 1
        low, step = _grid(sums, used)
        high = low + step * _POINTS
        stale = np.ones(m, np.bool_)
        before = cost
        while True:
            for i in range(m):
                if stale[i]:  # its tables are those of another number of tasks
                    stale[i], gives[i] = False, tasks[i] > 0
                    raw[:] = 0.0
                    fewer[i], now[i] = 1.0, 1.0
                    below, here, added = 0.0, 0.0, 0
                    if tasks[i] > 1:
                        added = _add_tasks(times[i], orders, 0, tasks[i] - 1, raw)
                        _scale(raw, added, tasks[i] - 1, mean[i], variance[i], doubt[i], scaled)
                        below = _distribution(scaled, low, step, fewer[i])
                    if tasks[i] > 0:
                        added = _add_tasks(times[i], orders, added, tasks[i], raw)
                        _scale(raw, added, tasks[i], mean[i], variance[i], doubt[i], scaled)
                        here = _distribution(scaled, low, step, now[i])
                    added = _add_tasks(times[i], orders, added, tasks[i] + 1, raw)
                    _scale(raw, added, tasks[i] + 1, mean[i], variance[i], doubt[i], scaled)
                    above = _distribution(scaled, low, step, more[i])
                    for k in range(_POINTS):
                        fewer[i, k] /= now[i, k]
                        more[i, k] /= now[i, k]
                    tail[i], less[i] = here, below - here - fixed * mean[i]
                    extra[i] = above - here + fixed * mean[i]
            product[:] = 1.0
            linear = high
            for i in range(m):
                if tasks[i] > 0:
                    for k in range(_POINTS):
                        product[k] *= now[i, k]
                    linear += tail[i] + fixed * tasks[i] * mean[i]
            cost = linear - step * product.sum()
            for i in range(m):
                alone_less[i] = less[i] - step * _dot(product, fewer[i]) if gives[i] else math.inf
                alone_more[i] = extra[i] - step * _dot(product, more[i])
            if made[0] >= most[0]:
                break
            enough = cost - tolerance[0] * cost
            giver_count, taker_count = _least(alone_less, gives, givers), _least(alone_more, takes, takers)
            best, giver, taker = enough, -1, -1
            for u in range(giver_count):
                for v in range(taker_count):
                    i, j = givers[u], takers[v]
                    if i != j:
                        value = linear + less[i] + extra[j] - step * _dot3(product, fewer[i], more[j])
                        if value < best:
                            best, giver, taker = value, i, j
            if giver >= 0:
                tasks[giver] -= 1
                tasks[taker] += 1
                stale[giver] = stale[taker] = True
                made[0] += 1
                continue
            # several tasks at once
            number = 2
            while number <= _TOGETHER:
                trial[:] = product
                value = linear + _together(trial, fewer, more, less, extra, gives, takes, number, -1, step, change)
                if value < best:
                    best, giver = value, 0
                    best_change[:] = change
                number *= 2
            for u in range(giver_count):
                i = givers[u]
                if 1 < tasks[i] <= _TOGETHER:
                    for k in range(_POINTS):
                        trial[k] = product[k] / now[i, k]
                    value = linear - tail[i] - fixed * tasks[i] * mean[i]
                    value += _together(trial, fewer, more, less, extra, gives, takes, tasks[i], i, step, change)
                    if value < best:
                        best, giver = value, 0
                        best_change[:] = change
                        best_change[i] = -tasks[i]
            if giver < 0:
                break
            for i in range(m):
                tasks[i] += best_change[i]
                stale[i] = best_change[i] != 0
            made[0] += 1
        if made[0] >= most[0] or not cost < before * (1.0 - tolerance[0]):
            break
    least[0] = cost
    # the means at which idle workers would be useful
    giver, best = -1, math.inf
    for i in range(m):
        if gives[i] and alone_less[i] < best:
            giver, best = i, alone_less[i]
    free[0] = linear + best
    for k in range(_POINTS):
        product[k] *= fewer[giver, k]
    for i in range(m):
        limit[i] = math.inf
        if tasks[i] == 0:
            under, over, middle = 0.0, cost, cost
            lower, upper = free[0] - cost, 0.0
            for _ in range(_STEPS if lower < 0.0 else 0):  # false position, with Illinois' halving of what stays
                factor = middle / mean[i] if mean[i] > 0.0 else 0.0
                for s in range(size):
                    scaled[s] = times[i, s] * factor
                beyond = _distribution(scaled, low, step, trial)
                value = linear + less[giver] + beyond + fixed * middle - step * _dot(product, trial) - cost
                if value < 0.0:
                    under, lower, upper = middle, value, 0.5 * upper
                else:
                    over, upper, lower = middle, value, 0.5 * lower
                if upper - lower > 0.0:
                    middle = over - upper * (over - under) / (upper - lower)
            limit[i] = under


@gufunc(
    "void(float64[:], float64[:], int64[:,:], int64[:], float64[:], float64[:], float64[:])",
    "(s),(),(j,s),(),(g)->(g),()",
)
def _tabulate(
    times: Floats, doubt: Floats, orders: Ints, tasks: Ints, grid: Floats, out: Floats, beyond: Floats
) -> None:
    """Fill in F on the grid, and the mean time beyond it."""
    out[:], beyond[0] = 1.0, 0.0
    if tasks[0] > 0:
        raw, scaled = np.zeros(len(times)), np.empty(len(times))
        added = _add_tasks(times, orders, 0, tasks[0], raw)
        _scale(raw, added, tasks[0], times.mean(), times.var(), doubt[0], scaled)
        beyond[0] = _distribution(scaled, grid[0], grid[1] - grid[0], out)
