"""What races cost on average: rounds played in one kernel on task times that are the same for every race."""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.simulation.heap import Heap, build_heap, sift_down, take_off_top
from ata_gym.theory.simulated.costs import Costs
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import inlined, kernel, phase

_LARGE = 900  # times beyond 2**900 are divided by a power of two, so that no sum overflows
_LONGER = 1.25  # a round is first played as if it took at most so many times as long as the longest before it
_LARGEST = 2**28  # tasks that may be started in the rounds played with a race


def race_costs(times: Floats, races: Ints, budget: int, replicates: int, factors: Floats | None = None) -> Costs:
    """Estimate the expected round time and worker time of races by playing ``replicates`` rounds with each.

    The rounds are those of ``ata_gym.simulation.rounds.race_round``, where nobody dies. The j-th task of worker i
    takes, over the replicates, each of its times equally often, in an order that depends on i and j only, so that races
    are compared on the same task times, in this call and in later ones. ValueError for more than 2**28 tasks.

    - ``times``: (n, S) equally likely task times of each worker, finite and at least 0.
    - ``races``: (C, n) tasks for each worker, at least ``budget`` in total.
    - ``factors``: (n, F) where the distributions are uncertain: all times of a worker in a round are multiplied by one
      of them, each in equally many rounds; by default 1.

    Both start their two tasks, worker 0 ends the round at 2, and worker 1 is cancelled:

    >>> race_costs(np.array([[1.0], [5.0]]), np.array([[2, 2], [2, 0]]), budget=2, replicates=4)
    Costs(round_time=array([2., 2.]), worker_time=array([4., 2.]))
    """
    if replicates * (len(times) + budget) > _LARGEST:
        raise ValueError(
            f"playing {replicates} rounds of {len(times)} workers and {budget} results has more than 2**28 tasks: "
            "use a smaller budget, or fewer workers or replicates"
        )
    unit = 2.0 ** max(0, math.frexp(float(times.max(initial=0.0)))[1] - _LARGE)
    if factors is None:
        factors = np.ones((len(times), 1))
    scaled = times / unit if unit > 1.0 else times
    played = _play(scaled, factors, races, np.int64(budget), np.int64(replicates))
    return Costs(*(part * unit for part in played))


@inlined
def _shuffled(replicate: Any, replicates: Any, mask: Any, task: Any) -> Any:
    """The place of a replicate in the order of a task, which is a number of 64 bits: a permutation by mixing bits."""
    # the number's own bits, mixed (splitmix64; Steele, Lea and Flood, "Fast splittable pseudorandom numbers", 2014)
    z = np.uint64(task * np.uint64(0x9E3779B97F4A7C15))
    z = np.uint64((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    z = np.uint64((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    z = np.uint64(z ^ (z >> np.uint64(31)))
    x = np.uint64(replicate)
    # each step maps the numbers up to the mask one to one; numbers that are no replicate are mapped again, and since
    # the replicate itself is one of the numbers that are met in turn, this ends
    while True:
        for shift in (np.uint64(0), np.uint64(21), np.uint64(42)):
            own = np.uint64(z >> shift)
            x = np.uint64((x ^ own) & mask)
            x = np.uint64((x * ((own >> np.uint64(9)) | np.uint64(1))) & mask)
            x = np.uint64(x ^ (x >> np.uint64(3)))
        if x < replicates:
            return x


class _Sample(NamedTuple):
    """The task times of all rounds."""

    times: Floats  # (n, S) as for ``race_costs``
    factors: Floats  # (n, F)
    time: Ints  # (R,) which of its times a task takes in the round of each place of its order
    factor: Ints  # (R,) which of its factors a worker has, likewise
    mask: Any  # the least 2**k - 1 that is as large as any round


@phase
def _place(sample: _Sample, replicate: int, worker: int, task: int) -> Any:
    number = (np.uint64(worker) << np.uint64(32)) | np.uint64(task)
    return np.int64(_shuffled(np.uint64(replicate), np.uint64(len(sample.time)), sample.mask, number))


@phase
def _fill_first(sample: _Sample, replicate: int, factor: Floats, first: Floats) -> None:
    for i in range(len(first)):
        if sample.factors.shape[1] > 1:
            factor[i] = sample.factors[i, sample.factor[_place(sample, replicate, i, 0xFFFFFFFF)]]
        first[i] = factor[i] * sample.times[i, sample.time[_place(sample, replicate, i, 0)]]


@phase
def _play_round(
    sample: _Sample, race: Ints, budget: int, replicate: int, first: Floats, factor: Floats, until: float,
    heap: Heap, started: Ints,
) -> tuple[float, float]:  # fmt: skip
    """The round time and worker time of a round if it is over by ``until``, else infinities.

    Workers whose first task takes longer are busy until the end, whatever they do. The last arrays are overwritten.
    """
    times, size, late = sample.times, 0, 0
    for i in range(len(race)):
        if race[i] > 0:
            if first[i] <= until:
                heap.key[size], heap.worker[size], started[i] = first[i], i, 1
                size += 1
            else:
                late += 1
    build_heap(heap, size)
    idle = 0.0
    for _ in range(budget - 1):
        if size == 0:
            break
        i, now = heap.worker[0], heap.key[0]
        if started[i] < race[i]:
            heap.key[0] = now + factor[i] * times[i, sample.time[_place(sample, replicate, i, started[i])]]
            started[i] += 1
        else:
            idle += now
            size = take_off_top(heap, size)
        sift_down(heap, size, 0)
    if size == 0 or heap.key[0] > until:
        return math.inf, math.inf
    return heap.key[0], idle + (size + late) * heap.key[0]


@kernel("(n,s),(n,f),(c,n),(),()->(c),(c)")
def _play(
    times: Floats, factors: Floats, races: Ints, budget: Ints, replicates: Ints, round_time: Floats, worker_time: Floats
) -> None:
    n, slices = times.shape
    rounds = replicates[0]
    mask = np.uint64(1)
    while mask < np.uint64(rounds):  # doubled each time; there are at most 2**28 rounds
        mask = np.uint64(mask << np.uint64(1))
    middle = 2 * np.arange(rounds) + 1
    time, factor = middle * slices // (2 * rounds), middle * factors.shape[1] // (2 * rounds)
    sample = _Sample(times, factors, time, factor, np.uint64(mask - np.uint64(1)))
    heap, own, started = Heap(np.empty(n), np.empty(n, np.int64)), factors[:, 0].copy(), np.zeros(n, np.int64)
    first, longest = np.empty(n), np.full(len(races), math.inf)
    round_time[:] = worker_time[:] = 0.0
    for r in range(rounds):
        _fill_first(sample, r, own, first)
        for c in range(len(races)):
            until = _LONGER * longest[c]
            took, busy = _play_round(sample, races[c], budget[0], r, first, own, until, heap, started)
            if took == math.inf:
                took, busy = _play_round(sample, races[c], budget[0], r, first, own, math.inf, heap, started)
            longest[c] = max(took, longest[c]) if r > 0 else took
            round_time[c] += took
            worker_time[c] += busy
    round_time /= rounds
    worker_time /= rounds
