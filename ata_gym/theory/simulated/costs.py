"""What allocations or races cost on average, by playing rounds on sampled task times."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.pools.distributions import NEVER, Distributions
from ata_gym.pools.families import CODES
from ata_gym.simulation.keys import NoiseKeys, permutations
from ata_gym.simulation.rounds import allocation_round, race_round
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number

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


def simulate(times: ArrayLike, allocations: ArrayLike, budget: int, replicates: int = 256, race: bool = False) -> Costs:
    """Estimate the expected round time and worker time of allocations, or races, by playing ``replicates`` rounds each.

    The task times of a round are independent draws from the workers' samples: the j-th task of worker i takes, over the
    replicates, each of its times equally often, in an order that depends on i and j only (Latin hypercube sampling). So
    candidates are compared on the same task times, in this call and in later ones, and the result is deterministic. The
    error of a round time is less than sd / sqrt(replicates), and the difference of similar candidates has far less.

    - ``times``: (n, S) equally likely task times of each worker, finite and at least 0; rows of workers without a task
      are not looked at.
    - ``allocations``: (C, n) the candidates: tasks for each worker, at least ``budget`` in total, exactly so unless
      ``race``.
    - ``replicates``: rounds to play with each candidate, best a multiple of S; ValueError if they need more than 2**28
      task times.
    - ``race``: whether the first B = ``budget`` results end the round, so that all other tasks are cancelled.

    >>> times = np.array([[1.0, 3.0], [2.0, 6.0]])
    >>> simulate(times, [[2, 0], [0, 2]], budget=2).round_time
    array([4., 8.])
    """
    budget, replicates = whole_number("budget", budget), whole_number("replicates", replicates)
    table, tasks = np.asarray(times, np.float64), _checked(allocations, budget, race)
    if table.ndim != 2 or table.shape[0] != tasks.shape[1] or table.shape[1] == 0:
        raise ValueError(f"times must have shape ({tasks.shape[1]}, S), a row per worker, not {table.shape}")
    if len(tasks) == 0:
        return Costs(np.empty(0), np.empty(0))
    used = np.flatnonzero(tasks.any(axis=0))
    if not (table[used].min() >= 0.0 and table[used].max() < np.inf):
        raise ValueError("times of workers with a task must be finite and at least 0")
    tasks = np.minimum(tasks[:, used], budget)
    most = _up_to_power(int(tasks.max()))  # so that few different ones are remembered
    unit = 2.0 ** max(0, math.frexp(float(table[used].max()))[1] - _LARGE)
    distributions, started = replay(table / unit, used, most, replicates)
    play = race_round if race else allocation_round
    key, zeros = np.zeros(1, np.uint64), np.zeros(1, np.int64)
    costs = []
    blocks = -(-len(tasks) * replicates * (used.size + budget) // _BLOCK)
    for block in np.array_split(tasks, min(blocks, len(tasks))):
        before, rows = np.tile(started, (len(block), 1)), np.repeat(block, replicates, axis=0)
        rounds = play(distributions, NoiseKeys(key, zeros, zeros, before), rows, budget)
        costs.append([part.reshape(-1, replicates).mean(axis=1) for part in (rounds.round_time, rounds.worker_time)])
    return Costs(*(np.concatenate(parts) * unit for parts in zip(*costs, strict=True)))


def can_simulate(workers: int, budget: int, replicates: int) -> bool:
    """Whether so many rounds of so many workers with up to ``budget`` tasks each are few enough to be played."""
    return workers * replicates * _up_to_power(budget) <= _LARGEST


def _up_to_power(tasks: int) -> int:
    return 1 << (tasks - 1).bit_length()


def _checked(allocations: ArrayLike, budget: int, race: bool) -> Ints:
    tasks = np.asarray(allocations)
    if tasks.ndim != 2 or tasks.dtype.kind not in "iu":
        raise ValueError(f"allocations must be integers of shape (C, n), not {tasks.dtype} of shape {tasks.shape}")
    sums = tasks.sum(axis=1)
    if tasks.size and (tasks.min() < 0 or sums.min() < budget or (sums.max() > budget and not race)):
        needed = "at least" if race else "exactly"
        raise ValueError(f"each allocation must be non-negative and sum to {needed} the budget {budget}")
    return tasks.astype(np.int64)


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
