"""How long a worker needs for some tasks: the distribution of the sum of their times, on a grid of times."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.simulation.keys import permutations
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import gufunc, helper

POINTS = 128  # points of a grid: with so many, the cost of an allocation is right to 1 %
_ADDED = 32  # tasks whose times are added up one by one; the deviations of more are those of 32, scaled
_LEAST_CHANCE = 1e-12  # the least chance in a table: chances are divided by each other
_ORDERS = 3  # the stream of keys for the orders of the times: no other use of ``permutations`` has it


class Worker(NamedTuple):
    """One worker, for kernels."""

    times: Floats  # (S,) equally likely task times
    orders: Ints  # (tasks, S) the order of the times for each task, from ``time_orders``
    mean: float
    variance: float
    doubt: float  # squared relative standard deviation of what is known of the mean


class Grid(NamedTuple):
    """The times ``low + step k``, for k = 0, ..., 127."""

    low: float
    step: float


@lru_cache(maxsize=8)
def time_orders(size: int) -> NDArray[np.int64]:
    """A random order of ``size`` times for each task, shape (tasks, size); the first task has them as they are."""
    orders = permutations(_ORDERS, _ADDED, size)
    orders[0] = np.arange(size)
    return np.ascontiguousarray(orders, np.int64)


def tabulate(times: Floats, doubt: Floats, tasks: Ints, grid: Grid) -> tuple[Floats, Floats]:
    """The chance that some tasks are done by each time of the grid, (..., 128), and the mean time beyond it, (...,).

    ``times`` has shape (..., S), ``doubt`` and ``tasks`` have shape (...,); see ``Worker``. No task takes no time.

    >>> done, beyond = tabulate(np.array([3.0, 3.0]), np.zeros(()), np.array([1, 2]), Grid(0.0, 2.0))
    >>> done[:, :4].round(1), beyond
    (array([[0. , 0.5, 1. , 1. ],
           [0. , 0. , 0. , 1. ]]), array([0., 0.]))
    """
    times_of_grid = grid.low + grid.step * np.arange(POINTS)
    done, beyond = _tabulate(times, doubt, time_orders(times.shape[-1]), tasks, times_of_grid)
    return np.asarray(done), np.asarray(beyond)


@helper()
def add_tasks(worker: Worker, tasks: int, added: int, total: Floats, out: Floats) -> int:
    """Fill in equally likely times of ``tasks`` tasks together, scaled to their exact mean and variance.

    The times of each task come in an order of its own (Latin hypercube sampling). ``total`` holds the sum of the times
    of the first ``added`` tasks, and then that of as many as are returned.
    """
    size, times = len(total), worker.times
    for j in range(added, min(tasks, len(worker.orders))):
        for s in range(size):
            total[s] += times[worker.orders[j, s]]
    added = max(added, min(tasks, len(worker.orders)))
    centre, squares = added * worker.mean, 0.0
    for s in range(size):
        squares += (total[s] - centre) ** 2
    variance = tasks * worker.variance + (tasks * worker.mean) ** 2 * worker.doubt
    factor = math.sqrt(variance / (squares / size)) if squares > 0.0 else 0.0
    for s in range(size):
        out[s] = max(tasks * worker.mean + (total[s] - centre) * factor, 0.0)
    return added


@helper()
def fill_chances(sums: Floats, grid: Grid, out: Floats) -> float:
    """Fill in the chance of each time of the grid to be at least one of the ``sums``; return the mean time beyond it.

    A sum between two times counts for both in part, so that the mean stays as it is.
    """
    points, size = len(out), len(sums)
    high, beyond = grid.low + grid.step * points, 0.0
    out[:] = 0.0
    for s in range(size):
        place = (sums[s] - grid.low) / grid.step
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
        out[k] = max(total / size, _LEAST_CHANCE)
    return beyond / size


@gufunc(
    "void(float64[:], float64[:], int64[:,:], int64[:], float64[:], float64[:], float64[:])",
    "(s),(),(j,s),(),(g)->(g),()",
)
def _tabulate(
    times: Floats, doubt: Floats, orders: Ints, tasks: Ints, grid: Floats, done: Floats, beyond: Floats
) -> None:
    done[:], beyond[0] = 1.0, 0.0
    if tasks[0] > 0:
        worker, sums = Worker(times, orders, times.mean(), times.var(), doubt[0]), np.empty(len(times))
        add_tasks(worker, tasks[0], 0, np.zeros(len(times)), sums)
        beyond[0] = fill_chances(sums, Grid(grid[0], grid[1] - grid[0]), done)
