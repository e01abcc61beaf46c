"""Local search for the allocation of least expected cost, in moves of single tasks.

The tables of ``completion_times`` tell what a task more or less of a worker does to the cost.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, dot, helper, inlined, kernel
from ata_policies.planning.completion_times import (
    FEWER,
    MORE,
    POINTS,
    Grid,
    SearchWorkers,
    Tables,
    fill_tables,
    mean_and_variance,
    place_grid,
    time_orders,
    unit_of,
    worker_at,
)

MOVES = 60  # most moves of a search; the next plan begins where it ended
_LEAST_GAIN = 1e-5  # the share of the cost that a move must gain
_MOST_PAIRED = 24  # givers, and takers, that are best alone: all pairs of them are tried
_MOST_MOVED = 8  # most tasks moved at once
_MOST_GRIDS = 6  # most grids in a search: it is made anew where the round time has fallen
# the share of the cost by which bounds of it may be wrong, since distributions are samples
_BOUND_ERROR = 1e-3


class SearchResult(NamedTuple):
    """What a search found for n workers, in each row."""

    allocation: Ints
    """(..., n)."""
    cost: Floats
    """(...,) expected round time + price * worker time, in units of time."""
    moves: Ints
    """(...,) moves made; the search was not over if they are as many as allowed."""


def local_search(
    times: ArrayLike,
    starts: ArrayLike,
    prices: ArrayLike = 0.0,
    *,
    latency: ArrayLike = 0.0,
    doubt: ArrayLike = 0.0,
    moves: int = MOVES,
) -> SearchResult:
    """Improve an allocation step by step, by the expected cost itself, on sampled task times.

    Ours. With F_i(a, t) the chance that worker i has done a tasks by time t, the cost is

        integral of 1 - prod_i F_i(a_i, t) dt + sum_i price_i (c_i 1{a_i > 0} + a_i mean_i),

    where c_i is the worker's mean latency, for which its first task waits. The times of a tasks are
    sums over shuffled samples (Latin hypercube), scaled to their exact mean and variance; they
    become F on a grid that keeps the mean. Beyond the grid, which few reach, workers count one by
    one. A move takes a task from a giver to a taker, the best pair of those that are best alone;
    where none gains, up to 8 tasks at once between different workers, or all tasks of a worker. The
    search ends when nothing gains more than 1e-5 of the cost, or after so many ``moves``. Of
    several starts the best result is returned.

    Args:
        times: (..., n, S) equally likely task times of each worker, finite, at least 0. The
            processor time grows in proportion to n.
        starts: (n,) or (..., k, n) where to begin: whole numbers of at least 0, one above it.
        prices: One, or (..., n), what a unit of each worker's time costs.
        latency: One, or (..., n, S), equally likely latencies of each worker, in an order that its
            task times do not share.
        doubt: (..., n) squared relative standard deviation of what is known of each mean: it adds
            (a_i mean_i)^2 doubt_i to the variance of a_i tasks.
        moves: Most moves from one start.

    Example:
        >>> result = local_search([[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]], [0, 0, 7])
        >>> result.allocation, round(float(result.cost), 2)
        (array([5, 2, 0]), 5.0)
    """
    table = np.asarray(times, np.float64)
    begin = np.atleast_2d(np.asarray(starts, np.int64))
    shape = table.shape[:-1]
    orders = time_orders(table.shape[-1])
    latencies = _of_shape(latency, table.shape)
    doubts = _of_shape(doubt, shape)
    paid = _of_shape(prices, shape)
    return SearchResult(*_search(table, latencies, doubts, orders, begin, paid, moves))


def _of_shape(values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Return values of a shape to which they broadcast."""
    array = np.asarray(values, np.float64)
    # much quicker than to broadcast what has the shape already
    if array.shape == shape:
        return array
    return np.broadcast_to(array, shape)


class _Costs(NamedTuple):
    """The cost of the allocation, and of each allocation that differs from it by one task."""

    product: Floats
    """(128,) the chance that all workers have done their tasks."""
    alone: Floats
    """(2, m) the cost with one task fewer or more of a worker, minus ``linear``.

    Infinite where the worker has no task to give.
    """
    linear: float
    """The linear part: the end of the grid, what is beyond it, and what worker time costs."""
    total: float
    """The cost: the linear part minus the integral of ``product``."""


@helper("reassoc", "nsz")
def _dot3(x: Floats, y: Floats, z: Floats) -> float:
    """Return the sum of x_k y_k z_k."""
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k] * z[k]
    return total


@helper()
def _costs(tables: Tables, tasks: Ints, grid: Grid) -> _Costs:
    """Compute the cost of the allocation ``tasks``, (m,), and of its neighbours."""
    m = len(tasks)
    product = np.empty(POINTS)
    neighbours = np.empty((2, m))
    linear = grid.low + grid.step * POINTS
    product[:] = 1.0
    for i in range(m):
        if tasks[i] > 0:
            for k in range(POINTS):
                product[k] *= tables.chance[i, k]
            linear += tables.beyond[i] + tables.paid[i]
    cost = linear - grid.step * product.sum()
    # a change of one worker multiplies the product by its ratio, so no product is formed again
    for i in range(m):
        neighbours[FEWER, i] = math.inf
        if tables.gives[i]:
            integral = grid.step * dot(product, tables.ratio[FEWER, i])
            neighbours[FEWER, i] = tables.linear[FEWER, i] - integral
        integral = grid.step * dot(product, tables.ratio[MORE, i])
        neighbours[MORE, i] = tables.linear[MORE, i] - integral
    return _Costs(product, neighbours, linear, cost)


@helper()
def _least(value: Floats) -> Ints:
    """Return the places of the 24 least finite values at most, least first."""
    places = np.empty(_MOST_PAIRED, np.int64)
    count = 0
    for i in range(len(value)):
        if value[i] < math.inf and (count < _MOST_PAIRED or value[i] < value[places[count - 1]]):
            if count < _MOST_PAIRED:
                place = count
            else:
                place = count - 1  # the greatest of the values kept is replaced
            count = min(count + 1, _MOST_PAIRED)
            while place > 0 and value[i] < value[places[place - 1]]:
                places[place] = places[place - 1]
                place -= 1
            places[place] = i
    return places[:count]


@helper()
def _best_pair(
    tables: Tables,
    costs: _Costs,
    givers: Ints,
    step: float,
    limit: float,
) -> tuple[int, int]:
    """Return the best giver and taker with a cost below ``limit``; -1 and -1 if there are none."""
    best_value = limit
    giver = -1
    taker = -1
    takers = _least(costs.alone[MORE])
    for i in givers:
        # a bound: both changes add at least the sum of what each of them adds alone, up to
        # ``_BOUND_ERROR``; takers come least first, so the first one beyond it ends the loop
        bound = (
            best_value
            + (1.0 + _BOUND_ERROR) * costs.total
            - 2.0 * costs.linear
            - costs.alone[FEWER, i]
        )
        for j in takers:
            if costs.alone[MORE, j] > bound:
                break
            if i != j:
                linear = costs.linear + tables.linear[FEWER, i] + tables.linear[MORE, j]
                value = linear - step * _dot3(
                    costs.product,
                    tables.ratio[FEWER, i],
                    tables.ratio[MORE, j],
                )
                if value < best_value:
                    best_value = value
                    giver = i
                    taker = j
    return giver, taker


@helper()
def _move_several(
    tables: Tables,
    step: float,
    number: int,
    first_side: int,
    product: Floats,
    change: Ints,
) -> float:
    """Take a task from each of ``number`` workers, and give one to each of as many others.

    Each time the best worker is chosen, given the choices before.

    Args:
        tables: What one task fewer or more of each worker does.
        step: The step of the grid.
        number: How many tasks are moved.
        first_side: ``FEWER``, or ``MORE`` where tasks are only given.
        product: (128,) the chance that all workers have done their tasks; overwritten.
        change: (m,) zeros, but for workers that are left out; overwritten with the changes.

    Returns:
        The cost of the allocation then, minus the linear part of the cost before; infinite if there
        are too few workers.
    """
    cost = 0.0
    for side in range(first_side, 2):
        for _ in range(number):
            best_value = math.inf
            best_worker = -1
            for i in range(len(change)):
                if change[i] == 0 and (side == MORE or tables.gives[i]):
                    value = tables.linear[side, i] - step * dot(product, tables.ratio[side, i])
                    if value < best_value:
                        best_value = value
                        best_worker = i
            if best_worker < 0:
                return math.inf
            if side == FEWER:
                change[best_worker] = -1
            else:
                change[best_worker] = 1
            cost += tables.linear[side, best_worker]
            # the next choice sees the product with this change
            for k in range(POINTS):
                product[k] *= tables.ratio[side, best_worker, k]
    total: float = product.sum()
    return cost - step * total


@helper()
def _best_several(
    tables: Tables,
    costs: _Costs,
    tasks: Ints,
    givers: Ints,
    step: float,
    limit: float,
    change: Ints,
) -> bool:
    """Fill in the best ``change`` of several tasks at once; return whether one was found.

    Its cost must be below ``limit``. It is 2, 4 or 8 tasks between different workers, or all tasks
    of one giver that has 2 to 8 tasks.
    """
    best_value = limit
    product = np.empty(POINTS)
    trial_change = np.empty(len(tasks), np.int64)
    number = 2
    while number <= _MOST_MOVED:
        copy(costs.product, product)
        trial_change[:] = 0
        value = costs.linear + _move_several(tables, step, number, FEWER, product, trial_change)
        if value < best_value:
            best_value = value
            copy(trial_change, change)
        number *= 2
    for i in givers:
        # all tasks of one worker go to others: its chances are divided out of the product
        if 1 < tasks[i] <= _MOST_MOVED:
            for k in range(POINTS):
                product[k] = costs.product[k] / tables.chance[i, k]
            trial_change[:] = 0
            trial_change[i] = -tasks[i]
            value = costs.linear - tables.beyond[i] - tables.paid[i]
            value += _move_several(tables, step, tasks[i], MORE, product, trial_change)
            if value < best_value:
                best_value = value
                copy(trial_change, change)
    return best_value < limit


@inlined
def _best_move(tables: Tables, costs: _Costs, tasks: Ints, step: float, change: Ints) -> bool:
    """Fill in the best ``change`` of a pair, or else of several; return whether one gains."""
    limit = costs.total - _LEAST_GAIN * costs.total
    givers = _least(costs.alone[FEWER])
    change[:] = 0
    giver, taker = _best_pair(tables, costs, givers, step, limit)
    if giver >= 0:
        change[giver] = -1
        change[taker] = 1
        return True
    gains: bool = _best_several(tables, costs, tasks, givers, step, limit, change)
    return gains


@inlined
def _descend(
    workers: SearchWorkers,
    tasks: Ints,
    tables: Tables,
    grid: Grid,
    moves_left: int,
) -> tuple[_Costs, int]:
    """Move ``tasks`` while a move gains, on one grid; return the costs and the moves left."""
    # at first all tables are filled in, and later the tables of workers that a move has changed
    change = np.ones(len(tasks), np.int64)
    size = workers.times.shape[1]
    total = np.empty(size)
    sums = np.empty(size)
    while True:  # at most ``moves_left`` moves
        for i in range(len(tasks)):
            if change[i] != 0:
                worker = worker_at(workers, i)
                fill_tables(tables, i, worker, tasks[i], workers.price[i], grid, total, sums)
        costs = _costs(tables, tasks, grid)
        if moves_left <= 0 or not _best_move(tables, costs, tasks, grid.step, change):
            return costs, moves_left
        tasks += change
        moves_left -= 1


@inlined
def _from_start(
    workers: SearchWorkers,
    tasks: Ints,
    tables: Tables,
    moves: int,
    end: Ints,
) -> tuple[float, int]:
    """Improve ``tasks`` on one grid after another; return what they cost, and the moves left.

    No move gains from the tasks in ``end``, where an earlier search ended; the tasks with which
    this search ends in the same way are written there.
    """
    moves_left = moves
    cost = math.inf
    for _ in range(_MOST_GRIDS):
        # the search from another start ended here, so its result stands
        if (tasks == end).all():
            return math.inf, moves_left
        moves_before = moves_left
        cost_before = cost
        grid = place_grid(workers, tasks)
        costs, moves_left = _descend(workers, tasks, tables, grid, moves_left)
        cost = costs.total
        if moves_left == moves_before:
            copy(tasks, end)
        if (
            moves_left <= 0
            or moves_left == moves_before
            or not cost < cost_before * (1.0 - _LEAST_GAIN)
        ):
            break
    return cost, moves_left


@helper()
def _keep(
    times: Floats,
    latency: Floats,
    doubt: Floats,
    orders: Ints,
    starts: Ints,
    price: Floats,
) -> tuple[SearchWorkers, Ints]:
    """Keep the workers that may be of use; return them and their places.

    A worker is of none if a share of one task is longer in the mean than the expected cost of a
    start, for which E max X <= max E X + (sum of variances)^.5 gives an upper bound.
    """
    n, size = times.shape
    mean = np.empty(n)
    variance = np.empty(n)
    mean_latency = np.empty(n)
    latency_variance = np.empty(n)
    highest_price = 0.0
    for i in range(n):
        mean[i], variance[i] = mean_and_variance(times[i])
        mean_latency[i], latency_variance[i] = mean_and_variance(latency[i])
        highest_price = max(highest_price, price[i])
    bound = 0.0
    for k in range(len(starts)):
        longest = 0.0
        worker_time = 0.0
        squares = 0.0
        for i in range(n):
            if starts[k, i] > 0:
                load = starts[k, i] * mean[i]
                squares += starts[k, i] * variance[i] + load * load * doubt[i] + latency_variance[i]
                longest = max(longest, load + mean_latency[i])
                worker_time += load + mean_latency[i]
        bound = max(bound, longest + math.sqrt(squares) + highest_price * worker_time)
    places = np.empty(n, np.int64)
    m = 0
    for i in range(n):
        # negated, so that all workers are kept where extreme times make the bound no number
        if not mean[i] + mean_latency[i] > (1.0 + _BOUND_ERROR) * bound:
            places[m] = i
            m += 1
    workers = SearchWorkers(
        np.empty((m, size)),
        orders,
        np.empty(m),
        np.empty(m),
        np.empty(m),
        np.empty(m),
        np.empty((m, size)),
    )
    for k in range(m):
        i = places[k]
        copy(times[i], workers.times[k])
        copy(latency[i], workers.latency[k])
        workers.mean[k] = mean[i]
        workers.variance[k] = variance[i]
        workers.doubt[k] = doubt[i]
        workers.price[k] = price[i]
    return workers, places[:m]


@kernel("(n,s),(n,s),(n),(j,s),(k,n),(n),()->(n),(),()")
def _search(
    times: Floats,
    latency: Floats,
    doubt: Floats,
    orders: Ints,
    starts: Ints,
    price: Floats,
    moves: Ints,
    allocation: Ints,
    cost: Floats,
    moves_made: Ints,
) -> None:
    """Search from each start in turn, and keep the best result; see ``local_search``."""
    unit = unit_of(times, latency, starts)
    workers, places = _keep(times / unit, latency / unit, doubt, orders, starts, price)
    m = len(places)
    ratio = np.empty((2, m, POINTS))
    linear = np.empty((2, m))
    tables = Tables(
        np.empty((m, POINTS)),
        np.empty(m),
        np.empty(m),
        ratio,
        linear,
        np.zeros(m, np.bool_),
    )
    tasks = np.empty(m, np.int64)
    end = np.full(m, -1)
    allocation[:] = 0
    cost[0] = math.inf
    for k in range(len(starts)):
        for i in range(m):
            tasks[i] = starts[k, places[i]]
        total, moves_left = _from_start(workers, tasks, tables, moves[0], end)
        if total < cost[0] or k == 0:
            # not by an index array, for which numba compiles the text of an error, too
            for i in range(m):
                allocation[places[i]] = tasks[i]
            cost[0] = total
            moves_made[0] = moves[0] - moves_left
    cost[0] *= unit
