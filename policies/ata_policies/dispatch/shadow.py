"""The search for the shadow price of least cost with the rule ``by_margin``, by simulation."""

import math
from typing import Annotated, NamedTuple, Self

import numpy as np

from ata_gym.simulation.heap import comes_first
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, copy_rows, helper, inlined, kernel
from ata_gym.utils.ranges import Counts, Times, Within
from ata_policies.dispatch.margin import DispatchWorkers, Running, start_workers

# workers times results in a simulated round; of more, a part stands for the whole
_MOST_WORK = 8_000
CANDIDATES = 8  # shadow prices that are compared
_PRICES_BELOW = 4  # how many of them are below the price
# how far they are from each other; without a price the best may be far
_OCTAVES = 0.5
_FREE_OCTAVES = 1.0
# how much the rounds before count after one more, so that 50 count: beliefs change, and rounds
# differ
_DECAY = 0.98
# where worker time has no price, rounds may be longer by this share of the worker time that is
# saved; both are shares of a round in which all workers work
_FREE = 0.03


@inlined
def _slice(worker: int, task: int, replicate: int, size: int) -> int:
    """Return which of its ``size`` times a task takes in a replicate, by mixing bits.

    ``size`` is a power of two. Over ``size`` replicates in a row a task takes each time once.
    """
    # a number of 64 bits for each worker, task and block of replicates
    word = np.uint64(worker) * np.uint64(0x9E3779B97F4A7C15)
    word ^= np.uint64(task) * np.uint64(0xC2B2AE3D27D4EB4F)
    word ^= np.uint64(replicate // size) * np.uint64(0xD6E8FEB86659FD93)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    # each step maps the numbers below ``size`` one to one: the factor is odd
    factor = (word >> np.uint64(20)) | np.uint64(1)
    place = (np.uint64(replicate) ^ word) * factor + (word >> np.uint64(40))
    place &= np.uint64(size - 1)
    return int(place ^ (place >> np.uint64(2)))


@helper()
def _play_round(
    workers: DispatchWorkers,
    factor: Floats,
    shadow: float,
    budget: int,
    replicate: int,
    first: Floats,
    first_sums: Floats,
) -> tuple[float, float]:
    """Play a round by the rule; return its round time and worker time.

    Where ``first`` has entries, they are the times of each worker's first task of the round, with
    the latency before it, and ``first_sums`` are these times added up.
    """
    delayed = first.size > 0
    # What the rule goes by: the first time of a worker, until this task is done.
    if delayed:
        rule = DispatchWorkers(
            first.copy(), first_sums.copy(), workers.mean, workers.order, workers.useful
        )
    else:
        rule = workers
    times = rule.times
    n, size = workers.times.shape
    absent = np.zeros(n, np.int8)
    busy = np.zeros(n, np.int8)
    tasks = np.zeros(n, np.int64)
    running = Running(np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64))
    worker = running.worker
    finish = np.empty(n)
    begun = np.empty(n)
    time = 0.0
    worker_time = 0.0
    # places below ``ongoing`` are of tasks that go on, and up to ``count`` of tasks that start now
    ongoing = 0
    for missing in range(budget, 0, -1):
        for a in range(ongoing):
            running.age[a] = time - begun[a]
        count = start_workers(rule, factor, absent, shadow, missing, running, ongoing, busy)
        for a in range(ongoing, count):
            i = worker[a]
            begun[a] = time
            finish[a] = time + times[i, _slice(i, tasks[i], replicate, size)]
            tasks[i] += 1
        earliest = 0
        for a in range(1, count):
            if comes_first(finish[a], worker[a], finish[earliest], worker[earliest]):
                earliest = a
        time = finish[earliest]
        worker_time += time - begun[earliest]
        busy[worker[earliest]] = 0
        if delayed and tasks[worker[earliest]] == 1:
            i = worker[earliest]
            copy(workers.times[i], rule.times[i])
            copy(workers.sums[i], rule.sums[i])
        # the last running worker takes the place of the one that is done
        ongoing = count - 1
        worker[earliest] = worker[ongoing]
        begun[earliest] = begun[ongoing]
        finish[earliest] = finish[ongoing]
    for a in range(ongoing):
        worker_time += time - begun[a]
    return time, worker_time


@kernel("(n,s),(n,s),(n),(n),(),(f,s),(f,s),(),(),(),(n),(),(),(),(c,q)->(),(),(c,q)")
def _search_step(
    times: Floats,
    sums: Floats,
    mean: Floats,
    order: Ints,
    useful: Ints,
    first: Floats,
    first_sums: Floats,
    budget: Ints,
    price: Floats,
    octaves: Floats,
    factor: Floats,
    awake: Mask,
    chosen: Ints,
    rounds: Floats,
    totals: Floats,
    new_chosen: Ints,
    new_rounds: Floats,
    new_totals: Floats,
) -> None:
    """Play a round with each shadow price in a row that is awake; see ``ShadowSearch``."""
    new_chosen[0] = chosen[0]
    new_rounds[0] = rounds[0]
    copy_rows(totals, new_totals)
    if not awake[0] or useful[0] == 0:
        return
    replicate = int(rounds[0])
    # how many workers, and results, one of them stands for
    weight = max(math.sqrt(useful[0] * budget[0] / _MOST_WORK), 1.0)
    results = max(int(budget[0] / weight + 0.5), 1)
    weight = max(min(budget[0] / results, float(useful[0])), 1.0)
    sample = np.empty(int(useful[0] / weight), np.int64)
    count = 0
    # every ``weight``-th worker, from an offset on that changes from round to round
    offset = ((replicate * 5) % 8 + 0.5) / 8.0
    for p in range(len(sample)):
        sample[count] = order[min(int((p + offset) * weight), useful[0] - 1)]
        # a worker may have been forgotten since the order was made
        count += mean[sample[count]] < math.inf
    if count == 0:
        return
    workers = DispatchWorkers(times, sums, mean, sample[:count], useful)
    for c in range(CANDIDATES):
        shadow = price[0] * 2.0 ** ((c - _PRICES_BELOW) * octaves[0])
        round_time, worker_time = _play_round(
            workers, factor, shadow * weight, results, replicate, first, first_sums
        )
        new_totals[c, 0] = _DECAY * totals[c, 0] + round_time
        new_totals[c, 1] = _DECAY * totals[c, 1] + worker_time * weight
    new_chosen[0] = np.argmin(new_totals[:, 0] + price[0] * new_totals[:, 1])
    new_rounds[0] += 1.0


class ShadowSearch(NamedTuple):
    """Where the search is, in E rows.

    Eight shadow prices are compared by simulated rounds, and the one of least cost T + p W is
    chosen, where T and W are round time and worker time, of the last 50 rounds or so, and p is the
    price. A round is played with each of them at once, of the same workers, on the same task times,
    and with the draws that the rule applies, so that what it costs to try workers counts. They are
    p / 4, p / 2.8, p / 2, ..., 2.8 p. Where worker time has no price,

        p = 0.03 / useful workers,

    so rounds get longer by 3 % at most if that saves all of the worker time, and by less if it
    saves less; and the shadow prices are p / 16, p / 8, ..., 8 p, because a low one may drop
    nobody, and twice as much may change nothing. A simulated round has at most 8,000 workers times
    results: of more workers, and of the results, every k-th stands for k. Ours.
    """

    chosen: Annotated[Ints, Within(0, CANDIDATES - 1)]
    """(E,) which of the shadow prices was best."""
    rounds: Counts
    """(E,) how many rounds were simulated with each shadow price."""
    totals: Times
    """(E, 8, 2) the round times and worker times with each shadow price, added up."""

    @classmethod
    def start(cls, rows: int) -> Self:
        """Begin at the price itself."""
        return cls(np.full(rows, _PRICES_BELOW), np.zeros(rows), np.zeros((rows, CANDIDATES, 2)))

    def go_on(
        self,
        workers: DispatchWorkers,
        budget: int,
        price: float,
        factor: Floats | float = 1.0,
        awake: Mask | bool = True,
        first: DispatchWorkers | None = None,
    ) -> "ShadowSearch":
        """Simulate one round with each shadow price.

        Args:
            workers: What is known of the workers.
            budget: Results that end a round.
            price: What a unit of worker time costs.
            factor: (E, n) multiplies the times; see ``by_margin``.
            awake: (E,) the rows in which a round is simulated.
            first: The same workers, with the times of the first task of a round and the latency
                before it; by default there is no latency.
        """
        arguments = (
            budget,
            _worth(workers, price),
            _octaves(price),
            np.broadcast_to(factor, workers.mean.shape),
            awake,
        )
        if first is None:
            nothing = np.empty((len(workers.mean), 0, workers.times.shape[-1]))
            first_arrays = nothing, nothing
        else:
            first_arrays = first.times, first.sums
        return ShadowSearch(*_search_step(*workers, *first_arrays, *arguments, *self))

    def shadow(self, workers: DispatchWorkers, price: float) -> Floats:
        """Return the shadow prices, (E,)."""
        return np.asarray(
            _worth(workers, price) * 2.0 ** ((self.chosen - _PRICES_BELOW) * _octaves(price)),
        )


def _octaves(price: float) -> float:
    """Return how far neighbouring shadow prices are from each other, in powers of two."""
    if price > 0.0:
        return _OCTAVES
    return _FREE_OCTAVES


def _worth(workers: DispatchWorkers, price: float) -> Floats:
    """Return what a unit of worker time is worth, (E,): its price if it has one."""
    if price > 0.0:
        return np.full(len(workers.mean), price)
    return _FREE / np.maximum(workers.useful, 1)
