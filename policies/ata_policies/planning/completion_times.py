"""How long a worker needs for some tasks: the distribution of the sum of their times, on a grid of times."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.simulation.keys import permutations
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import helper

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


@helper("reassoc", "nsz")
def mean_and_variance(times: Floats) -> tuple[float, float]:
    """The mean and the variance of equally likely times."""
    total = 0.0
    for s in range(len(times)):
        total += times[s]
    mean = total / len(times)
    return mean, _squares(times, mean) / len(times)


@helper("reassoc", "nsz")
def _squares(times: Floats, centre: float) -> float:
    squares = 0.0
    for s in range(len(times)):
        squares += (times[s] - centre) ** 2
    return squares


@helper()
def add_tasks(worker: Worker, tasks: int, added: int, total: Floats, out: Floats) -> int:
    """Fill in equally likely times of ``tasks`` tasks together, scaled to their exact mean and variance.

    The times of each task come in an order of its own (Latin hypercube sampling). ``total`` holds the sum of the times
    of the first ``added`` tasks, and then that of as many as are returned.
    """
    size, times = len(total), worker.times
    for j in range(added, min(tasks, len(worker.orders))):
        order = worker.orders[j]
        for s in range(size):
            total[s] += times[order[s]]
    added = max(added, min(tasks, len(worker.orders)))
    centre = added * worker.mean
    squares = _squares(total, centre)
    variance = tasks * worker.variance + (tasks * worker.mean) ** 2 * worker.doubt
    factor = math.sqrt(variance / (squares / size)) if squares > 0.0 else 0.0
    for s in range(size):
        out[s] = max(tasks * worker.mean + (total[s] - centre) * factor, 0.0)
    return added


@helper()
def fill_chances(sums: Floats, grid: Grid, out: Floats) -> float:
    """Fill in the chance of each time of the grid to be at least one of the ``sums``; return the mean time beyond it.

    The ``sums`` become places on the grid. A sum between two times counts for both in part, so that the mean stays as
    it is.
    """
    points, size = len(out), len(sums)
    beyond = 0.0
    out[:] = 0.0
    for s in range(size):
        sums[s] = (sums[s] - grid.low) / grid.step
    for s in range(size):
        place = sums[s]
        if place >= points:
            beyond += place - points
        elif not place > 0.0:
            out[0] += 1.0
        else:
            k = int(place)
            later = place - k
            out[k] += 1.0 - later
            if k + 1 < points:
                out[k + 1] += later
    total, share = 0.0, 1.0 / size
    for k in range(points):
        total += out[k]
        out[k] = max(total * share, _LEAST_CHANCE)
    return grid.step * beyond / size


@helper()
def fill_later(product: Floats, out: Floats) -> None:
    """Fill in the sums of ``product``, (128,), from each point of the grid on, and zeros beyond it, (130,)."""
    total = 0.0
    out[POINTS:] = 0.0
    for k in range(POINTS - 1, -1, -1):
        total += product[k]
        out[k] = total


@helper("reassoc", "nsz")
def mean_beyond(sums: Floats, factor: float, grid: Grid, later: Floats) -> float:
    """The mean time beyond the grid minus the integral of a product on it and of the chances of one more worker.

    Its ``sums`` are multiplied by the ``factor``; ``later`` is that of ``fill_later``. The same as ``fill_chances``
    and the sum of the chances times the product, without a table.
    """
    total = 0.0
    for s in range(len(sums)):
        place = max((sums[s] * factor - grid.low) / grid.step, 0.0)
        inside = min(place, float(POINTS))
        k = int(inside)
        total += place - inside - later[k] - (inside - k) * (later[k + 1] - later[k])
    return grid.step * total / len(sums)
