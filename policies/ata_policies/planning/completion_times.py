"""How long workers need for their tasks, as tables of chances on a grid of times.

The time of several tasks is the sum of their times: equally likely sums are formed from equally
likely task times, and become the chance to be done by each time of the grid.
"""

import math
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper
from ata_policies.beliefs.distributions.tails import picked
from ata_policies.beliefs.moments import LatencyBelief

POINTS = 128  # points of a grid: with so many, the cost of an allocation is right to 1 %
# tasks whose times are added up one by one; more tasks take the deviations of 32 tasks, scaled
_MOST_ADDED = 32
_LEAST_CHANCE = 1e-12  # the least chance in a table: chances are divided by each other
# the stream of keys for the orders of the times: no other use of ``permutations`` has it
_ORDERS = 3
_BEYOND = 0.03  # expected number of workers that are busy beyond the grid
_HALVINGS = 12  # steps of the search for the end of the grid, each of which halves an interval
# the stream of keys for the order of latencies: no other use of ``permutations`` has it
_LATENCY_ORDER = 5
_LATENCY_LEVELS = 8  # latencies for which it is worked out below which mean a newcomer is of use
_LONGEST_LATENCY = 2.0**400  # in units near the least mean time: squares must not overflow
FEWER = 0  # index of the tables for one task fewer
MORE = 1  # index of the tables for one task more


class Latencies(NamedTuple):
    """What is known of the latencies of the n workers of E rows."""

    mean: Floats
    """(E, n) their expected means."""
    spread: Floats
    """(E, n) the standard deviations of what is known of the means."""
    shape: Floats
    """(E, S) equally likely latencies of a worker, over their mean, in no order."""

    @classmethod
    def from_belief(cls, belief: LatencyBelief, exponent: Ints, size: int) -> Self:
        """Return them as log-normal, with the coefficient of variation that all workers show.

        Args:
            belief: What was learned.
            exponent: (E, 1) they are in the unit 2**exponent.
            size: The number S of equally likely latencies.
        """
        if not belief.counts.any():
            none = np.zeros(belief.counts.shape)
            return cls(none, none, np.ones((len(none), size)))
        mean, spread = (np.ldexp(moment, -exponent) for moment in belief.known())
        # The logarithm of log-normal latencies of a CV has the variance ln(1 + CV^2).
        deviation = np.sqrt(np.log1p(belief.variation() ** 2))[:, None]
        shape = np.exp(deviation * _latency_quantiles(size))
        return cls(
            np.minimum(mean, _LONGEST_LATENCY),
            np.minimum(spread, _LONGEST_LATENCY),
            shape / shape.mean(axis=1, keepdims=True),
        )

    def levels(self) -> Floats:
        """Return mean latencies from each row's least to its largest, evenly spaced, (E, J).

        They are one where all workers of each row have the same.
        """
        least = self.mean.min(axis=1)
        largest = self.mean.max(axis=1)
        if (least == largest).all():
            return np.asarray(least[:, None])
        return np.linspace(least, largest, _LATENCY_LEVELS, axis=1)

    def at_workers(self, by_level: Floats, workers: Ints) -> Floats:
        """Return values of some workers, (E, L, m), from values at the levels of latency.

        Args:
            by_level: (E, L, J) the values; between two levels they are interpolated.
            workers: (E, m) the workers.
        """
        number = by_level.shape[2]
        if number == 1:
            return by_level * np.ones(workers.shape[1])
        levels = self.levels()
        width = levels[:, -1:] - levels[:, :1]
        # a row in which all are alike has equal values at all levels
        place = (picked(self.mean, workers) - levels[:, :1]) / np.where(width > 0.0, width, 1.0)
        place *= number - 1
        below = np.minimum(place.astype(np.int64), number - 2)[:, None]
        part = place[:, None] - below
        low = np.take_along_axis(by_level, below, axis=2)
        high = np.take_along_axis(by_level, below + 1, axis=2)
        return np.asarray(low + part * (high - low))


class Worker(NamedTuple):
    """A worker, as kernels take it."""

    times: Floats
    """(S,) equally likely task times."""
    orders: Ints
    """(tasks, S) the order of the times for each task, from ``time_orders``."""
    mean: float
    """Mean of the ``times``."""
    variance: float
    """Variance of the ``times``."""
    doubt: float
    """Squared relative standard deviation of what is known of the mean."""
    latency: Floats
    """(S,) equally likely latencies, in any order that the task times do not share."""


class Grid(NamedTuple):
    """The times ``low + step k``, for k = 0, ..., 127."""

    low: float
    """The first time."""
    step: float
    """From one time to the next one."""


@lru_cache(maxsize=8)
def time_orders(size: int) -> NDArray[np.int64]:
    """Draw an order of ``size`` times for each task, shape (tasks, size).

    The first task has the times as they are. The orders are the same in every call.
    """
    orders = permutations(_ORDERS, _MOST_ADDED, size)
    orders[0] = np.arange(size)
    return np.ascontiguousarray(orders, np.int64)


@helper("reassoc", "nsz")
def mean_and_variance(times: Floats) -> tuple[float, float]:
    """Return the mean and the variance of equally likely times."""
    total = 0.0
    for s in range(len(times)):
        total += times[s]
    mean = total / len(times)
    return mean, _squares(times, mean) / len(times)


@helper("reassoc", "nsz")
def _squares(times: Floats, centre: float) -> float:
    """Add up the squared distances of the times from a centre."""
    squares = 0.0
    for s in range(len(times)):
        squares += (times[s] - centre) ** 2
    return squares


@helper()
def unit_of(times: Floats, latency: Floats, starts: Ints) -> float:
    """Return the power of two above all times of the workers that have tasks in a start.

    In this unit no square overflows, and none that counts is 0; a power of two changes no bits.
    Others have times of any size: rows of few workers are filled up with workers of huge means.
    """
    longest = 0.0
    for k in range(len(starts)):
        for i in range(len(times)):
            if starts[k, i] > 0:
                for s in range(times.shape[1]):
                    longest = max(longest, times[i, s], latency[i, s])
    return math.ldexp(1.0, math.frexp(longest)[1])


@helper()
def add_tasks(worker: Worker, tasks: int, added: int, total: Floats, out: Floats) -> int:
    """Fill in equally likely sums of the latency and the times of ``tasks`` tasks, at least one.

    The times of each task come in an order of its own (Latin hypercube sampling). Their sums are
    scaled to the exact mean and variance of so many tasks, and the latencies are added.

    Args:
        worker: Whose tasks they are.
        tasks: How many tasks are added up.
        added: How many tasks ``total`` holds already.
        total: (S,) the sums of the first ``added`` tasks alone; overwritten with the sums of as
            many tasks as are returned, so that the next call can go on from there.
        out: (S,) overwritten with the scaled sums.

    Returns:
        How many tasks ``total`` holds now: ``tasks``, or 32 if that is less.
    """
    size = len(total)
    times = worker.times
    for j in range(added, min(tasks, len(worker.orders))):
        order = worker.orders[j]
        for s in range(size):
            total[s] += times[order[s]]
    added = max(added, min(tasks, len(worker.orders)))
    # the sums are shifted to the exact mean, and stretched around it to the exact variance; doubt
    # of the mean shifts all tasks alike, so that its standard deviation grows with their number
    centre = added * worker.mean
    squares = _squares(total, centre)
    variance = tasks * worker.variance + (tasks * worker.mean) ** 2 * worker.doubt
    if squares > 0.0:
        factor = math.sqrt(variance / (squares / size))
    else:
        factor = 0.0
    for s in range(size):
        out[s] = max(tasks * worker.mean + (total[s] - centre) * factor, 0.0) + worker.latency[s]
    return added


@helper()
def fill_chances(sums: Floats, grid: Grid, out: Floats) -> float:
    """Fill in the chance of being done by each time of the grid.

    A sum between two times counts for both in part, so that the mean stays as it is.

    Args:
        sums: (S,) equally likely completion times; overwritten with their places on the grid.
        grid: The times.
        out: (128,) overwritten with the chances, 1e-12 at least.

    Returns:
        The mean time beyond the end of the grid.
    """
    points = len(out)
    size = len(sums)
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
    total = 0.0
    share = 1.0 / size
    for k in range(points):
        total += out[k]
        out[k] = max(total * share, _LEAST_CHANCE)
    return grid.step * beyond / size


@helper()
def fill_later(product: Floats, out: Floats) -> None:
    """Fill in the sums of ``product`` from each point of the grid to its end.

    Args:
        product: (128,) a value at each point.
        out: (130,) overwritten with the sums, and zeros beyond the grid.
    """
    total = 0.0
    out[POINTS:] = 0.0
    for k in range(POINTS - 1, -1, -1):
        total += product[k]
        out[k] = total


@helper("reassoc", "nsz")
def mean_beyond(sums: Floats, factor: float, latency: Floats, grid: Grid, later: Floats) -> float:
    """Return a worker's mean time beyond the grid minus an integral on the grid.

    The integral is of a product, such as the chance that all others are done, times the chance that
    the worker is done. ``fill_chances`` and the sum of the chances times the product give the same;
    this needs no table.

    Args:
        sums: (S,) equally likely sums of the worker's task times.
        factor: The sums are multiplied by it.
        latency: (S,) what is added to them.
        grid: The times.
        later: (130,) what ``fill_later`` makes of the product.
    """
    total = 0.0
    for s in range(len(sums)):
        # the sum of the product from this place on, interpolated between two points of the grid
        place = max((sums[s] * factor + latency[s] - grid.low) / grid.step, 0.0)
        inside = min(place, float(POINTS))
        k = int(inside)
        total += place - inside - later[k] - (inside - k) * (later[k + 1] - later[k])
    return grid.step * total / len(sums)


class SearchWorkers(NamedTuple):
    """The m workers of a search; see ``Worker``."""

    times: Floats
    """(m, S) equally likely task times."""
    orders: Ints
    """(tasks, S) from ``time_orders``, the same for all workers."""
    mean: Floats
    """(m,) mean task times."""
    variance: Floats
    """(m,) variances of the task times."""
    doubt: Floats
    """(m,) squared relative standard deviations of what is known of the means."""
    price: Floats
    """(m,) what a unit of each worker's time costs."""
    latency: Floats
    """(m, S) equally likely latencies."""


class Tables(NamedTuple):
    """What the tasks of m workers do to the cost, on a grid.

    Each worker has some tasks; the tables for one task fewer have index 0, for one more index 1.
    """

    chance: Floats
    """(m, 128) the chance that the worker has done its tasks."""
    beyond: Floats
    """(m,) the mean time that its tasks take beyond the grid."""
    paid: Floats
    """(m,) what the time of its tasks costs, by the price of worker time."""
    ratio: Floats
    """(2, m, 128) the chance for one task fewer or more, over ``chance``."""
    linear: Floats
    """(2, m) what one task fewer or more adds to the linear part of the cost."""
    gives: Mask
    """(m,) whether the worker has a task to give."""


@helper()
def worker_at(workers: SearchWorkers, i: int) -> Worker:
    """Return worker i."""
    return Worker(
        workers.times[i],
        workers.orders,
        workers.mean[i],
        workers.variance[i],
        workers.doubt[i],
        workers.latency[i],
    )


@helper()
def time_of_share(worker: Worker, tasks: int, latency: float) -> float:
    """Return the mean time of ``tasks`` tasks of a worker of this mean latency; 0 without tasks."""
    if tasks > 0:
        return latency + tasks * worker.mean
    return 0.0


@helper()
def time_of_task(worker: Worker, tasks: int, latency: float) -> float:
    """Return what the last of ``tasks`` tasks, at least one, adds to the mean time of a share."""
    if tasks == 1:
        return latency + worker.mean
    return worker.mean


@helper()
def place_grid(workers: SearchWorkers, tasks: Ints) -> Grid:
    """Place a grid where the workers' completion times are, with ``tasks``, (m,).

    It begins at 0.6 of the time before which the last worker cannot be done: the greatest of the
    workers' least completion times. It ends where 0.03 workers are expected to be busy, or at 1.2
    of that time if this is later.
    """
    m, size = workers.times.shape
    total = np.empty(size)
    sums = np.empty((m, size))
    used = 0
    for i in range(m):
        if tasks[i] > 0:
            total[:] = 0.0
            add_tasks(worker_at(workers, i), tasks[i], 0, total, sums[used])
            used += 1
    earliest = 0.0
    latest = 0.0
    for u in range(used):
        earliest = max(earliest, sums[u].min())
        latest = max(latest, sums[u].max())
    # bisection of the time at which the shares of late sums, over the workers, add up to 0.03
    lower = earliest
    upper = latest
    if used > 0:
        for _ in range(_HALVINGS):
            middle = 0.5 * (lower + upper)
            late = 0
            for u in range(used):
                for s in range(size):
                    late += sums[u, s] > middle
            if late > _BEYOND * size:
                lower = middle
            else:
                upper = middle
    latest = max(upper, 1.2 * earliest)
    low = 0.6 * earliest
    # the last point but one is at the end; the step stays positive where all times are 0
    return Grid(low, max(latest - low, 1e-300) / (POINTS - 2))


@helper()
def fill_tables(
    tables: Tables,
    i: int,
    worker: Worker,
    tasks: int,
    price: float,
    grid: Grid,
    total: Floats,
    sums: Floats,
) -> None:
    """Fill in what worker i does to the cost with its tasks, with one fewer and with one more.

    Args:
        tables: Overwritten at index i.
        i: Index of the worker in the tables.
        worker: The worker itself.
        tasks: How many tasks it has.
        price: What a unit of its time costs.
        grid: The times.
        total: (S,) work space.
        sums: (S,) work space.
    """
    chance_fewer = tables.ratio[FEWER, i]
    chance = tables.chance[i]
    chance_more = tables.ratio[MORE, i]
    chance_fewer[:] = 1.0
    chance[:] = 1.0
    total[:] = 0.0
    beyond_fewer = 0.0
    beyond = 0.0
    # the sums of fewer tasks are part of the sums of more: ``total`` is carried on
    added = 0
    if tasks > 1:
        added = add_tasks(worker, tasks - 1, added, total, sums)
        beyond_fewer = fill_chances(sums, grid, chance_fewer)
    if tasks > 0:
        added = add_tasks(worker, tasks, added, total, sums)
        beyond = fill_chances(sums, grid, chance)
    add_tasks(worker, tasks + 1, added, total, sums)
    beyond_more = fill_chances(sums, grid, chance_more)
    # ratios, so that the product over all workers changes by a factor; without tasks a chance is 1
    if tasks > 0:
        for k in range(POINTS):
            chance_fewer[k] /= chance[k]
            chance_more[k] /= chance[k]
    tables.gives[i] = tasks > 0
    tables.beyond[i] = beyond
    latency = worker.latency.mean()
    tables.paid[i] = price * time_of_share(worker, tasks, latency)
    tables.linear[FEWER, i] = beyond_fewer - beyond - price * time_of_task(worker, tasks, latency)
    tables.linear[MORE, i] = beyond_more - beyond + price * time_of_task(worker, tasks + 1, latency)


@lru_cache(maxsize=8)
def _latency_quantiles(size: int) -> Floats:
    """Return equally likely normal deviations in a random order, (size,), the same in each call."""
    return np.asarray(ndtri((permutations(_LATENCY_ORDER, 1, size)[0] + 0.5) / size))
