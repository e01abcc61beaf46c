"""What allocations cost on average, by playing rounds on sampled task times."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools.distributions import NO_LIMIT, Distributions
from ata_gym.pools.families import TRACE_BY_TASK
from ata_gym.simulation.keys import NoiseKeys, permutations
from ata_gym.simulation.rounds import allocation_round
from ata_gym.typing import Floats, Ints

_SHUFFLE = 2  # a stream of keys of its own
_SHUFFLE_LATENCY = 3  # and one for latencies
_BLOCK_SIZE = 2**21  # numbers computed at once
_MOST_CACHED = 64  # orders of more tasks than this are not cached
_LARGE_EXPONENT = 900  # times beyond 2**900 are divided by a power of two, so that no sum overflows
_MOST_TIMES = 2**28  # task times that may be made for a simulation: 2 GiB


class Costs(NamedTuple):
    """The average costs of C candidates in a round, in units of time."""

    round_time: Floats
    """The average round time of each candidate, shape (C,)."""
    worker_time: Floats
    """The average worker time of each candidate, shape (C,)."""

    def total(self, price: float) -> Floats:
        """Round time + price * worker time, shape (C,)."""
        return self.round_time + price * self.worker_time


def simulate(
    times: Floats,
    allocations: Ints,
    budget: int,
    replicates: int = 256,
    latency: Floats | None = None,
) -> Costs:
    """Estimate the expected round time and worker time of allocations, by playing rounds.

    The task times of a round are independent draws from the workers' samples. Over the replicates,
    the j-th task of worker i takes each of its times equally often, in an order that depends on i
    and j only (Latin hypercube sampling). So candidates are compared on the same task times, in
    this call and in later ones, and the result is deterministic. The error of a round time is less
    than sd / sqrt(replicates), and the difference of similar candidates has a far smaller error.

    Args:
        times: Equally likely task times of each worker, shape (n, S), finite and at least 0; rows
            of workers without a task are not read.
        allocations: The candidates, shape (C, n), at least one: tasks for each worker, ``budget``
            in total.
        budget: Results B that a round needs.
        replicates: Rounds to play with each candidate, best a multiple of S.
        latency: Equally likely latencies of each worker, shape (n, any), finite and at least 0.
            Each round has a latency of each worker, drawn as task times are; it is paid before the
            first task. By default there is none.

    Raises:
        ValueError: If the rounds need more than 2**28 task times.

    Example:
        >>> times = np.array([[1.0, 3.0], [2.0, 6.0]])
        >>> simulate(times, np.array([[2, 0], [0, 2]]), budget=2).round_time
        array([4., 8.])
        >>> latency = np.array([[5.0], [0.0]])
        >>> simulate(times, np.array([[2, 0], [0, 2]]), budget=2, latency=latency).round_time
        array([9., 8.])
    """
    used = np.flatnonzero(allocations.any(axis=0))
    tasks = allocations[:, used]
    # Rounded up to a power of two, so that few different orders are cached.
    max_tasks = _up_to_power(int(tasks.max()))
    longest = float(times[used].max())
    if latency is not None:
        longest = max(longest, float(latency[used].max()))
    unit = 2.0 ** max(0, math.frexp(longest)[1] - _LARGE_EXPONENT)
    delays = None if latency is None else latency / unit
    distributions, started = replay(times / unit, used, max_tasks, replicates, delays)
    key = np.zeros(1, np.uint64)
    zeros = np.zeros(1, np.int64)
    costs = []
    blocks = -(-len(tasks) * replicates * (used.size + budget) // _BLOCK_SIZE)
    for block in np.array_split(tasks, min(blocks, len(tasks))):
        # A row per candidate and replicate, with the replicates of a candidate next to each other.
        started_before = np.tile(started, (len(block), 1))
        rows = np.repeat(block, replicates, axis=0)
        rounds = allocation_round(
            distributions, NoiseKeys(key, zeros, zeros, started_before), rows, budget
        )
        parts = (rounds.round_time, rounds.worker_time)
        costs.append([part.reshape(-1, replicates).mean(axis=1) for part in parts])
    return Costs(*(np.concatenate(parts) * unit for parts in zip(*costs, strict=True)))


def can_simulate(workers: int, budget: int, replicates: int) -> bool:
    """Whether ``replicates`` rounds of the workers need at most 2**28 task times.

    Args:
        workers: The number of workers.
        budget: The most tasks of a worker.
        replicates: The number of rounds.
    """
    return workers * replicates * _up_to_power(budget) <= _MOST_TIMES


def _up_to_power(tasks: int) -> int:
    """The least power of two that is at least ``tasks``."""
    return 1 << (tasks - 1).bit_length()


def replay(
    times: Floats, workers: Ints, tasks: int, replicates: int, latency: Floats | None = None
) -> tuple[Distributions, Ints]:
    """Traces of some workers, and the task at which each replicate begins.

    Args:
        times: Equally likely task times of each worker, shape (n, S).
        workers: The workers of the traces, shape (m,).
        tasks: The tasks of a worker in each replicate.
        replicates: The number of replicates.
        latency: Equally likely latencies of each worker, shape (n, any), or None. A latency is a
            part of the first time of a replicate.

    Returns:
        The traces by task of the workers, and the first task of each replicate and worker, shape
        (replicates, m).

    Raises:
        ValueError: If the traces have more than 2**28 task times.
    """
    if not can_simulate(workers.size, tasks, replicates):
        raise ValueError(
            f"playing {replicates} rounds of {workers.size} workers with up to {tasks} tasks each"
            " needs more than 2**28 task times: use a smaller budget, or fewer workers or"
            " replicates",
        )
    # The replicates are spread evenly over the S times.
    picks = (2 * np.arange(replicates) + 1) * times.shape[1] // (2 * replicates)
    # ``__wrapped__`` is the function without its cache.
    orders = _orders if tasks <= _MOST_CACHED else _orders.__wrapped__
    records = [times[i, picks[orders(i, tasks, replicates)]] for i in workers.tolist()]
    if latency is not None:
        drawn = (2 * np.arange(replicates) + 1) * latency.shape[1] // (2 * replicates)
        for record, i in zip(records, workers.tolist(), strict=True):
            order = permutations(_SHUFFLE_LATENCY, 1, replicates, i)[0]
            record[:, 0] += latency[i, drawn[order]]
    table = np.concatenate([record.ravel() for record in records])
    family = np.full(workers.size, TRACE_BY_TASK)
    length = np.full(workers.size, replicates * tasks)
    limit = np.full(workers.size, NO_LIMIT)
    zeros = np.zeros(workers.size)
    ones = np.ones(workers.size)
    starts = np.cumsum(length) - length
    begin = np.arange(replicates)[:, None] * np.full(workers.size, tasks)
    return Distributions(family, zeros, ones, ones, table, starts, length, limit), begin


@lru_cache(maxsize=1024)
def _orders(worker: int, tasks: int, replicates: int) -> NDArray[np.int32]:
    """A permutation of the replicates for each task of a worker, shape (replicates, tasks)."""
    return np.ascontiguousarray(permutations(_SHUFFLE, tasks, replicates, worker).T, np.int32)
