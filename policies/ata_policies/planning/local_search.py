"""Local search for the allocation of least expected cost, on tables of what workers need for their tasks."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.theory.allocation.beta_rule import beta_kernel
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, helper, inlined, kernel
from ata_policies.beliefs.distributions.tails import picked
from ata_policies.planning.completion_times import (
    POINTS,
    Grid,
    Worker,
    add_tasks,
    fill_chances,
    mean_and_variance,
    time_orders,
)
from ata_policies.planning.knowledge import Candidates

MOVES = 60  # most moves of a search; the next plan begins where it ended
_TOLERANCE = 1e-5  # the share of the cost that a move must gain
_LEAST_SHARE = 0.4  # of the workers in use so far: so many at least are those of the other start
_BEYOND = 0.03  # expected number of workers that are busy beyond the grid
_PAIRS = 24  # Givers, and takers, that are best alone: all pairs of them are tried
_TOGETHER = 8  # most tasks moved at once
_GRIDS = 6  # most grids in a search: it is made anew where the round time has fallen
_ROUNDING = 1e-3  # the share of the cost by which bounds of it may be wrong, since distributions are samples
_HALVINGS = 12  # steps of the search for the end of the grid, each of which halves an interval
_FEWER, _MORE = 0, 1


class Search(NamedTuple):
    """What a search found for n workers, in each row."""

    allocation: Ints  # (..., n)
    cost: Floats  # (...,) expected round time + price * worker time, in units of time
    moves: Ints  # (...,) moves made; the search was not over if they are as many as allowed


def search(candidates: Candidates, last: Ints, budget: int, prices: Floats, draw: Floats) -> Search:
    """Search from the last allocation, (E, n), and from the beta rule on the k fastest workers; the better result.

    The number k is drawn, from 0.4 to 1.4 times the workers in use, by ``draw``, (E,), which is uniform from 0 to 1.
    Where there is no last allocation, the search begins from the beta rule on all workers. The ``prices``, (n,), are
    those of a unit of each worker's time.
    """
    near, mean = candidates.members, candidates.times.mean(axis=2)
    start, order, number = near.of(last) * near.there, np.lexsort((mean, ~near.there)), near.there.sum(axis=1)
    begun, used = start.sum(axis=1) == budget, (start > 0).sum(axis=1)
    most = np.where(begun, np.minimum((used * (_LEAST_SHARE + draw)).astype(np.int64) + 1, number), number)
    mean = np.where(np.arange(order.shape[1]) < most[:, None], picked(mean, order), np.inf)
    by_rule, none = np.empty_like(start), np.zeros_like(mean)
    np.put_along_axis(by_rule, order, beta_kernel(mean, picked(candidates.spread, order), budget, none > 0.0, none), 1)
    starts = np.stack([np.where(begun[:, None], start, by_rule), by_rule], axis=1)
    return local_search(candidates.times, starts, prices[near.workers], doubt=candidates.doubt)


def local_search(
    times: ArrayLike, starts: ArrayLike, prices: ArrayLike = 0.0, *, doubt: ArrayLike = 0.0, moves: int = MOVES
) -> Search:
    """Improve an allocation step by step, on sampled task times, by the expected cost itself. Ours.

    With F_i(a, t) the chance that worker i has done a tasks by time t, the cost is

        integral of 1 - prod_i F_i(a_i, t) dt + sum_i price_i a_i mean_i.

    The times of a tasks are sums over shuffled samples (Latin hypercube), scaled to their exact mean and variance; they
    become F on a grid that keeps the mean. Beyond the grid, which few reach, workers count one by one. A move takes a
    task from a giver to a taker, the best pair of those that are best alone; where none gains, up to 8 tasks at once
    between different workers, or all tasks of a worker. The search ends when nothing gains more than 1e-5 of the cost,
    or after so many ``moves``. Of several starts the best result is returned.

    - ``times``: (..., n, S) equally likely task times of each worker, finite, at least 0; the work is as n.
    - ``starts``: (n,) or (..., k, n) where to begin: whole numbers of at least 0, one above it.
    - ``prices``: one, or (..., n), what a unit of each worker's time costs.
    - ``doubt``: (..., n) squared relative standard deviation of what is known of each mean: it adds
      (a_i mean_i)^2 doubt_i to the variance of a_i tasks.

    >>> found = local_search([[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]], [0, 0, 7])
    >>> found.allocation, round(float(found.cost), 2)
    (array([5, 2, 0]), 5.0)
    """
    table, begin = np.asarray(times, np.float64), np.atleast_2d(np.asarray(starts, np.int64))
    each, orders = table.shape[:-1], time_orders(table.shape[-1])
    doubts, paid = (np.broadcast_to(np.asarray(given, np.float64), each) for given in (doubt, prices))
    return Search(*_search(table, doubts, orders, begin, paid, moves))


class _Workers(NamedTuple):
    """The m workers of a search, as ``Worker`` has them."""

    times: Floats
    orders: Ints
    mean: Floats
    variance: Floats
    doubt: Floats
    price: Floats  # of a unit of the time of each


class _Tables(NamedTuple):
    """What tasks do to the cost on a grid, for m workers: their own number, one fewer [0] and one more [1]."""

    chance: Floats  # (m, 128) that the worker has done its tasks
    beyond: Floats  # (m,) the mean time that they take beyond the grid
    paid: Floats  # (m,) what their time costs, by the price of worker time
    ratio: Floats  # (2, m, 128) the chance for one task fewer or more, over ``chance``
    linear: Floats  # (2, m) what one task fewer or more adds to the linear part of the cost
    gives: Mask  # (m,) whether the worker has a task to give


class _Costs(NamedTuple):
    """The cost of the allocation, and of those that differ from it by one task."""

    product: Floats  # (128,) the chance that all workers have done their tasks
    alone: Floats  # (2, m) the cost of one task fewer or more of a worker, minus ``linear``; infinite where impossible
    linear: float  # the linear part: the end of the grid, what is beyond it, and what worker time costs
    total: float  # the cost: the linear part minus the integral of ``product``


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
def _worker(workers: _Workers, i: int) -> Worker:
    return Worker(workers.times[i], workers.orders, workers.mean[i], workers.variance[i], workers.doubt[i])


@helper()
def _place_grid(workers: _Workers, tasks: Ints) -> Grid:
    """A grid from 0.6 of the time at which the last worker has begun to be done to where hardly any is still busy."""
    m, size = workers.times.shape
    total, sums, used = np.empty(size), np.empty((m, size)), 0
    for i in range(m):
        if tasks[i] > 0:
            total[:] = 0.0
            add_tasks(_worker(workers, i), tasks[i], 0, total, sums[used])
            used += 1
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
    return Grid(low, max(high - low, 1e-300) / (POINTS - 2))


@helper()
def _fill_tables(
    tables: _Tables, i: int, worker: Worker, tasks: int, price: float, grid: Grid, total: Floats, sums: Floats
) -> None:  # fill in what worker i does to the cost with `tasks` tasks, one fewer and one more
    fewer, chance, more = tables.ratio[_FEWER, i], tables.chance[i], tables.ratio[_MORE, i]
    fewer[:], chance[:], total[:] = 1.0, 1.0, 0.0
    below, here, added = 0.0, 0.0, 0
    if tasks > 1:
        added = add_tasks(worker, tasks - 1, added, total, sums)
        below = fill_chances(sums, grid, fewer)
    if tasks > 0:
        added = add_tasks(worker, tasks, added, total, sums)
        here = fill_chances(sums, grid, chance)
    add_tasks(worker, tasks + 1, added, total, sums)
    above = fill_chances(sums, grid, more)
    if tasks > 0:
        for k in range(POINTS):
            fewer[k] /= chance[k]
            more[k] /= chance[k]
    tables.gives[i], tables.beyond[i], tables.paid[i] = tasks > 0, here, price * tasks * worker.mean
    tables.linear[_FEWER, i] = below - here - price * worker.mean
    tables.linear[_MORE, i] = above - here + price * worker.mean


@helper()
def _costs(tables: _Tables, tasks: Ints, grid: Grid) -> _Costs:
    m = len(tasks)
    product, alone, linear = np.empty(POINTS), np.empty((2, m)), grid.low + grid.step * POINTS
    product[:] = 1.0
    for i in range(m):
        if tasks[i] > 0:
            for k in range(POINTS):
                product[k] *= tables.chance[i, k]
            linear += tables.beyond[i] + tables.paid[i]
    cost = linear - grid.step * product.sum()
    for i in range(m):
        alone[_FEWER, i] = math.inf
        if tables.gives[i]:
            alone[_FEWER, i] = tables.linear[_FEWER, i] - grid.step * _dot(product, tables.ratio[_FEWER, i])
        alone[_MORE, i] = tables.linear[_MORE, i] - grid.step * _dot(product, tables.ratio[_MORE, i])
    return _Costs(product, alone, linear, cost)


@helper()
def _least(value: Floats) -> Ints:  # the places of the least finite values, least first
    places, found = np.empty(_PAIRS, np.int64), 0
    for i in range(len(value)):
        if value[i] < math.inf and (found < _PAIRS or value[i] < value[places[found - 1]]):
            at = found if found < _PAIRS else found - 1
            found = min(found + 1, _PAIRS)
            while at > 0 and value[i] < value[places[at - 1]]:
                places[at] = places[at - 1]
                at -= 1
            places[at] = i
    return places[:found]


@helper()
def _best_pair(tables: _Tables, costs: _Costs, givers: Ints, step: float, enough: float) -> tuple[int, int]:
    best, giver, taker = enough, -1, -1
    takers = _least(costs.alone[_MORE])
    for i in givers:
        # both changes together cost no less than each of them alone
        most = best + (1.0 + _ROUNDING) * costs.total - 2.0 * costs.linear - costs.alone[_FEWER, i]
        for j in takers:
            if costs.alone[_MORE, j] > most:
                break
            if i != j:
                linear = costs.linear + tables.linear[_FEWER, i] + tables.linear[_MORE, j]
                value = linear - step * _dot3(costs.product, tables.ratio[_FEWER, i], tables.ratio[_MORE, j])
                if value < best:
                    best, giver, taker = value, i, j
    return giver, taker


@helper()
def _move_several(tables: _Tables, step: float, number: int, first: int, product: Floats, change: Ints) -> float:
    """Take a task from each of ``number`` workers, and give one to each of as many others, each time the best one.

    Where ``first`` is 1, tasks are only given. Workers with a ``change`` are left out. The function returns the cost of
    the allocation then, minus the linear part of the cost before; infinite if there are too few workers.
    """
    cost = 0.0
    for side in range(first, 2):
        for _ in range(number):
            best, which = math.inf, -1
            for i in range(len(change)):
                if change[i] == 0 and (side == _MORE or tables.gives[i]):
                    value = tables.linear[side, i] - step * _dot(product, tables.ratio[side, i])
                    if value < best:
                        best, which = value, i
            if which < 0:
                return math.inf
            change[which] = -1 if side == _FEWER else 1
            cost += tables.linear[side, which]
            for k in range(POINTS):
                product[k] *= tables.ratio[side, which, k]
    total: float = product.sum()
    return cost - step * total


@helper()
def _best_several(
    tables: _Tables, costs: _Costs, tasks: Ints, givers: Ints, step: float, enough: float, change: Ints
) -> bool:  # fill in the best change of several tasks at once whose cost is below `enough`; return whether there is one
    best, product, other = enough, np.empty(POINTS), np.empty(len(tasks), np.int64)
    number = 2
    while number <= _TOGETHER:
        copy(costs.product, product)
        other[:] = 0
        value = costs.linear + _move_several(tables, step, number, _FEWER, product, other)
        if value < best:
            best = value
            copy(other, change)
        number *= 2
    for i in givers:
        if 1 < tasks[i] <= _TOGETHER:  # all tasks of one worker go to others
            for k in range(POINTS):
                product[k] = costs.product[k] / tables.chance[i, k]
            other[:] = 0
            other[i] = -tasks[i]
            value = costs.linear - tables.beyond[i] - tables.paid[i]
            value += _move_several(tables, step, tasks[i], _MORE, product, other)
            if value < best:
                best = value
                copy(other, change)
    return best < enough


@inlined
def _best_move(tables: _Tables, costs: _Costs, tasks: Ints, step: float, change: Ints) -> bool:
    enough, givers = costs.total - _TOLERANCE * costs.total, _least(costs.alone[_FEWER])
    change[:] = 0
    giver, taker = _best_pair(tables, costs, givers, step, enough)
    if giver >= 0:
        change[giver], change[taker] = -1, 1
        return True
    found: bool = _best_several(tables, costs, tasks, givers, step, enough, change)
    return found


@inlined
def _descend(workers: _Workers, tasks: Ints, tables: _Tables, grid: Grid, left: int) -> tuple[_Costs, int]:
    change, size = np.ones(len(tasks), np.int64), workers.times.shape[1]
    total, sums = np.empty(size), np.empty(size)
    while True:  # at most ``left`` moves
        for i in range(len(tasks)):
            if change[i] != 0:
                _fill_tables(tables, i, _worker(workers, i), tasks[i], workers.price[i], grid, total, sums)
        costs = _costs(tables, tasks, grid)
        if left <= 0 or not _best_move(tables, costs, tasks, grid.step, change):
            return costs, left
        tasks += change
        left -= 1


@inlined
def _from_start(workers: _Workers, tasks: Ints, tables: _Tables, most: int, end: Ints) -> tuple[float, int]:
    """Improve the tasks on one grid after another; return what they cost, and the moves left."""
    left, cost = most, math.inf
    for _ in range(_GRIDS):
        if (tasks == end).all():  # no move gained from here in a search from another start
            return math.inf, left
        before, cost_before, grid = left, cost, _place_grid(workers, tasks)
        costs, left = _descend(workers, tasks, tables, grid, left)
        cost = costs.total
        if left == before:
            copy(tasks, end)
        if left <= 0 or left == before or not cost < cost_before * (1.0 - _TOLERANCE):
            break
    return cost, left


@helper()
def _keep(times: Floats, doubt: Floats, orders: Ints, starts: Ints, price: Floats) -> tuple[_Workers, Ints]:
    mean, variance, most = np.empty(len(times)), np.empty(len(times)), 0.0
    for i in range(len(times)):
        mean[i], variance[i] = mean_and_variance(times[i])
    for k in range(len(starts)):
        together = starts[k] * mean
        squares = starts[k] * variance + together * together * doubt  # E max X <= max E X + (sum of variances)^.5
        most = max(most, together.max() + math.sqrt(squares.sum()) + price.max() * together.sum())
    kept = np.flatnonzero(~(mean > (1.0 + _ROUNDING) * most))  # all of them where extreme times make it no number
    return _Workers(times[kept], orders, mean[kept], variance[kept], doubt[kept], price[kept]), kept


@kernel("(n,s),(n),(j,s),(k,n),(n),()->(n),(),()")
def _search(
    times: Floats, doubt: Floats, orders: Ints, starts: Ints, price: Floats, most: Ints,
    best: Ints, cost: Floats, made: Ints,
) -> None:  # fmt: skip
    unit = math.ldexp(1.0, math.frexp(times.max())[1])  # so that no square overflows; a power of two changes no bits
    workers, kept = _keep(times / unit, doubt, orders, starts, price)
    m = len(kept)
    ratio, linear = np.empty((2, m, POINTS)), np.empty((2, m))
    tables = _Tables(np.empty((m, POINTS)), np.empty(m), np.empty(m), ratio, linear, np.zeros(m, np.bool_))
    tasks, end, best[:], cost[0] = np.empty(m, np.int64), np.full(m, -1), 0, math.inf
    for k in range(len(starts)):
        for i in range(m):
            tasks[i] = starts[k, kept[i]]
        total, left = _from_start(workers, tasks, tables, most[0], end)
        if total < cost[0] or k == 0:
            for i in range(m):  # not by an index array, for which numba compiles the text of an error, too
                best[kept[i]] = tasks[i]
            cost[0], made[0] = total, most[0] - left
    cost[0] *= unit
