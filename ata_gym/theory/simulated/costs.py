"""What allocations cost on average, by playing rounds on sampled task times."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools.distributions import NEVER, Distributions
from ata_gym.pools.families import CODES
from ata_gym.simulation.keys import NoiseKeys, permutations
from ata_gym.simulation.rounds import allocation_round
from ata_gym.typing import Floats, Ints

_SHUFFLE = 2  # a stream of keys of its own
_BLOCK = 2**21  # numbers computed at once
_REMEMBERED = 64  # orders of more tasks than this are not cached
_LARGE = 900  # times beyond 2**900 are divided by a power of two, so that no sum overflows
_LARGEST = 2**28  # task times that may be made for a simulation: 2 GiB


class Costs(NamedTuple):
    """What C candidates cost in a round on average, in units of time."""

    round_time: Floats
    worker_time: Floats  # (C,) each

    def total(self, price: float) -> Floats:
        """Round time + price * worker time, shape (C,)."""
        return self.round_time + price * self.worker_time


def simulate(times: Floats, allocations: Ints, budget: int, replicates: int = 256) -> Costs:
    """Estimate the expected round time and worker time of allocations, by playing ``replicates`` rounds with each.

    The task times of a round are independent draws from the workers' samples: the j-th task of worker i takes, over the
    replicates, each of its times equally often, in an order that depends on i and j only (Latin hypercube sampling). So
    candidates are compared on the same task times, in this call and in later ones, and the result is deterministic. The
    error of a round time is less than sd / sqrt(replicates), and the difference of similar candidates has far less.

    - ``times``: (n, S) equally likely task times of each worker, finite and at least 0; rows of workers without a task
      are not looked at.
    - ``allocations``: (C, n) the candidates, at least one: tasks for each worker, ``budget`` in total.
    - ``replicates``: rounds to play with each candidate, best a multiple of S; ValueError if they need more than 2**28
      task times.

    >>> times = np.array([[1.0, 3.0], [2.0, 6.0]])
    >>> simulate(times, np.array([[2, 0], [0, 2]]), budget=2).round_time
    array([4., 8.])
    """
    used = np.flatnonzero(allocations.any(axis=0))
    tasks = allocations[:, used]
    most = _up_to_power(int(tasks.max()))  # so that few different ones are remembered
    unit = 2.0 ** max(0, math.frexp(float(times[used].max()))[1] - _LARGE)
    distributions, started = replay(times / unit, used, most, replicates)
    key, zeros = np.zeros(1, np.uint64), np.zeros(1, np.int64)
    costs = []
    blocks = -(-len(tasks) * replicates * (used.size + budget) // _BLOCK)
    for block in np.array_split(tasks, min(blocks, len(tasks))):
        before, rows = np.tile(started, (len(block), 1)), np.repeat(block, replicates, axis=0)
        rounds = allocation_round(distributions, NoiseKeys(key, zeros, zeros, before), rows, budget)
        costs.append([part.reshape(-1, replicates).mean(axis=1) for part in (rounds.round_time, rounds.worker_time)])
    return Costs(*(np.concatenate(parts) * unit for parts in zip(*costs, strict=True)))


def can_simulate(workers: int, budget: int, replicates: int) -> bool:
    """Whether so many rounds of so many workers with up to ``budget`` tasks each are few enough to be played."""
    return workers * replicates * _up_to_power(budget) <= _LARGEST


def _up_to_power(tasks: int) -> int:
    return 1 << (tasks - 1).bit_length()


def replay(times: Floats, used: Ints, most: int, replicates: int) -> tuple[Distributions, Ints]:
    """Traces of the workers used, ``most`` tasks for each replicate, and where those begin; ValueError if too many."""
    if not can_simulate(used.size, most, replicates):
        raise ValueError(
            f"playing {replicates} rounds of {used.size} workers with up to {most} tasks each needs more than 2**28 "
            "task times: use a smaller budget, or fewer workers or replicates"
        )
    picks = (2 * np.arange(replicates) + 1) * times.shape[1] // (2 * replicates)
    orders = _orders if most <= _REMEMBERED else _orders.__wrapped__
    table = np.concatenate([times[i, picks[orders(i, most, replicates)]].ravel() for i in used.tolist()])
    family, length, never = (np.full(used.size, value) for value in (CODES["trace-by-task"], replicates * most, NEVER))
    ones, begin = np.ones(used.size), np.arange(replicates)[:, None] * np.full(used.size, most)
    return Distributions(family, 0.0 * ones, ones, ones, table, np.cumsum(length) - length, length, never), begin


@lru_cache(maxsize=1024)
def _orders(worker: int, tasks: int, replicates: int) -> NDArray[np.int32]:
    """A permutation of the replicates for each task of a worker, shape (replicates, tasks)."""
    return np.ascontiguousarray(permutations(_SHUFFLE, tasks, replicates, worker).T, np.int32)
