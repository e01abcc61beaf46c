"""What races cost on average, in rounds that are played in one kernel.

The task times are the same for every race.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.simulation.heap import Heap, build_heap, sift_down, take_off_top
from ata_gym.theory.simulated.costs import Costs
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import inlined, kernel, phase

# times beyond 2**900 are divided by a power of two, so that no sum overflows
_LARGEST_EXPONENT = 900
# a round is first played as if it took at most so many times as long as the longest before it
_LIMIT_FACTOR = 1.25
_MOST_TASKS = 2**28  # tasks that may be started in the rounds played with a race


def race_costs(
    times: Floats,
    races: Ints,
    budget: int,
    replicates: int,
    factors: Floats | None = None,
    latency: Floats | None = None,
) -> Costs:
    """Estimate the expected round time and worker time of races by playing rounds with each.

    The rounds are played as by ``ata_gym.simulation.rounds.race_round``, where nobody dies. The
    j-th task of worker i takes, over the replicates, each of its times equally often, in an order
    that depends on i and j only. So races are compared on the same task times, in this call and in
    later ones.

    In the example, both workers of the first race start their two tasks; worker 0 ends the round at
    2, and worker 1 is cancelled.

    Args:
        times: (n, S) equally likely task times of each worker, finite and at least 0.
        races: (C, n) tasks for each worker, at least ``budget`` in total.
        budget: Results that end a round.
        replicates: Rounds played with each race.
        factors: (n, F) where the distributions are uncertain: all times of a worker in a round are
            multiplied by one of them, each in equally many rounds; by default 1.
        latency: (n, L) equally likely latencies of each worker, which it pays before the first task
            of a round, also where it is cancelled; by default there is none.

    Raises:
        ValueError: If more than 2**28 tasks would be started.

    Example:
        >>> race_costs(np.array([[1.0], [5.0]]), np.array([[2, 2], [2, 0]]), budget=2, replicates=4)
        Costs(round_time=array([2., 2.]), worker_time=array([4., 2.]))
    """
    if replicates * (len(times) + budget) > _MOST_TASKS:
        raise ValueError(
            f"playing {replicates} rounds of {len(times)} workers and {budget} results has more"
            " than 2**28 tasks: use a smaller budget, or fewer workers or replicates",
        )
    if latency is None:
        latency = np.zeros((len(times), 1))
    longest = max(float(times.max(initial=0.0)), float(latency.max(initial=0.0)))
    # Sums of times in this unit do not overflow, and a power of two loses no digit.
    unit = 2.0 ** max(0, math.frexp(longest)[1] - _LARGEST_EXPONENT)
    if factors is None:
        factors = np.ones((len(times), 1))
    if unit > 1.0:
        scaled = times / unit
        latency = latency / unit
    else:
        scaled = times
    played = _play(scaled, factors, latency, races, np.int64(budget), np.int64(replicates))
    return Costs(*(time * unit for time in played))


@inlined
def _shuffled(replicate: Any, replicates: Any, mask: Any, task: Any) -> Any:
    """Return the place of a replicate in the order of a task, a permutation by mixing bits.

    The ``task`` is a number of 64 bits, and the ``mask`` the least 2**k - 1 as large as any
    replicate.
    """
    # the number's own bits, mixed (splitmix64; Steele, Lea and Flood, "Fast splittable pseudorandom
    # numbers", 2014)
    z = np.uint64(task * np.uint64(0x9E3779B97F4A7C15))
    z = np.uint64((z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9))
    z = np.uint64((z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB))
    z = np.uint64(z ^ (z >> np.uint64(31)))
    x = np.uint64(replicate)
    # each step maps the numbers up to the mask one to one; numbers that are no replicate are mapped
    # again, and since the replicate itself is one of the numbers that are met in turn, this ends
    while True:
        for shift in (np.uint64(0), np.uint64(21), np.uint64(42)):
            bits = np.uint64(z >> shift)
            x = np.uint64((x ^ bits) & mask)
            x = np.uint64((x * ((bits >> np.uint64(9)) | np.uint64(1))) & mask)
            x = np.uint64(x ^ (x >> np.uint64(3)))
        if x < replicates:
            return x


class _Sample(NamedTuple):
    """The task times of all rounds."""

    times: Floats
    """(n, S) equally likely task times, as for ``race_costs``."""
    factors: Floats
    """(n, F) by one of which all times of a worker in a round are multiplied."""
    time: Ints
    """(R,) which of its times a task takes in the round at each place of its order."""
    factor: Ints
    """(R,) which of its factors a worker has in the round at each place of its order."""
    latency: Floats
    """(n, L) equally likely latencies, as for ``race_costs``."""
    late: Ints
    """(R,) which of its latencies a worker has in the round at each place of its order."""
    mask: Any
    """The least 2**k - 1 that is as large as any round."""


@phase
def _place(sample: _Sample, replicate: int, worker: int, task: int) -> Any:
    """Return the place of a round in the order of a worker's task."""
    number = (np.uint64(worker) << np.uint64(32)) | np.uint64(task)
    return np.int64(
        _shuffled(np.uint64(replicate), np.uint64(len(sample.time)), sample.mask, number),
    )


@phase
def _fill_first(sample: _Sample, replicate: int, factor: Floats, first_times: Floats) -> None:
    """Fill in each worker's ``factor`` and when its first task ends in a round, (n,) each."""
    for i in range(len(first_times)):
        # the order of the factors is one that no task has: no worker starts 2**32 tasks
        if sample.factors.shape[1] > 1:
            factor[i] = sample.factors[i, sample.factor[_place(sample, replicate, i, 0xFFFFFFFF)]]
        first_times[i] = factor[i] * sample.times[i, sample.time[_place(sample, replicate, i, 0)]]
        # so is the order of the latencies
        if sample.latency.shape[1] > 1:
            place = _place(sample, replicate, i, 0xFFFFFFFE)
            first_times[i] += sample.latency[i, sample.late[place]]
        else:
            first_times[i] += sample.latency[i, 0]


@phase
def _play_round(
    sample: _Sample,
    race: Ints,
    budget: int,
    replicate: int,
    first_times: Floats,
    factor: Floats,
    until: float,
    heap: Heap,
    started: Ints,
) -> tuple[float, float]:
    """Play a round; return round time and worker time, or infinities if it ends after ``until``.

    Workers whose first task ends later than ``until`` are busy until the end, whatever they do.

    Args:
        sample: The task times.
        race: (n,) tasks for each worker.
        budget: Results that end the round.
        replicate: Which round it is.
        first_times: (n,) when each worker's first task ends.
        factor: (n,) by which each worker's times are multiplied.
        until: The latest end.
        heap: Work space; overwritten.
        started: (n,) work space; overwritten.
    """
    times = sample.times
    size = 0
    late = 0
    for i in range(len(race)):
        if race[i] > 0:
            if first_times[i] <= until:
                heap.key[size] = first_times[i]
                heap.worker[size] = i
                started[i] = 1
                size += 1
            else:
                late += 1
    build_heap(heap, size)
    # the heap holds when each running task ends; its top is the next result. Of a worker that has
    # done all its tasks, ``idle`` adds up the time for which it was busy
    idle = 0.0
    for _ in range(budget - 1):
        if size == 0:
            break
        i = heap.worker[0]
        time = heap.key[0]
        if started[i] < race[i]:
            place = _place(sample, replicate, i, started[i])
            heap.key[0] = time + factor[i] * times[i, sample.time[place]]
            started[i] += 1
        else:
            idle += time
            size = take_off_top(heap, size)
        sift_down(heap, size, 0)
    # the B-th result is at the top; all whose task is running, or late, are busy until then
    if size == 0 or heap.key[0] > until:
        return math.inf, math.inf
    return heap.key[0], idle + (size + late) * heap.key[0]


@kernel("(n,s),(n,f),(n,l),(c,n),(),()->(c),(c)")
def _play(
    times: Floats,
    factors: Floats,
    latency: Floats,
    races: Ints,
    budget: Ints,
    replicates: Ints,
    round_time: Floats,
    worker_time: Floats,
) -> None:
    """Play the rounds with each race; see ``race_costs``."""
    n, slices = times.shape
    rounds = replicates[0]
    mask = np.uint64(1)
    while mask < np.uint64(rounds):  # doubled each time; there are at most 2**28 rounds
        mask = np.uint64(mask << np.uint64(1))
    # place r of R rounds takes the slice at the level (r + 1/2) / R, in whole numbers
    middle = 2 * np.arange(rounds) + 1
    time = middle * slices // (2 * rounds)
    factor = middle * factors.shape[1] // (2 * rounds)
    late = middle * latency.shape[1] // (2 * rounds)
    sample = _Sample(times, factors, time, factor, latency, late, np.uint64(mask - np.uint64(1)))
    heap = Heap(np.empty(n), np.empty(n, np.int64))
    worker_factors = factors[:, 0].copy()
    started = np.zeros(n, np.int64)
    first_times = np.empty(n)
    longest = np.full(len(races), math.inf)
    round_time[:] = worker_time[:] = 0.0
    for r in range(rounds):
        _fill_first(sample, r, worker_factors, first_times)
        for c in range(len(races)):
            # with a limit fewer tasks go into the heap; the rare round beyond it is played again
            until = _LIMIT_FACTOR * longest[c]
            duration, busy = _play_round(
                sample,
                races[c],
                budget[0],
                r,
                first_times,
                worker_factors,
                until,
                heap,
                started,
            )
            if duration == math.inf:
                duration, busy = _play_round(
                    sample,
                    races[c],
                    budget[0],
                    r,
                    first_times,
                    worker_factors,
                    math.inf,
                    heap,
                    started,
                )
            if r > 0:
                longest[c] = max(duration, longest[c])
            else:
                longest[c] = duration
            round_time[c] += duration
            worker_time[c] += busy
    round_time /= rounds
    worker_time /= rounds
