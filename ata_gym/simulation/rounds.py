"""One round of allocation or race for a batch of rows: pure functions of arrays."""

from typing import NamedTuple

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import (
    NOISE,
    Disturbances,
    checked_disturbances,
    undisturbed,
)
from ata_gym.simulation.keys import NoiseKeys, uniform
from ata_gym.simulation.race import run_race
from ata_gym.simulation.task_times import (
    LAYOUT,
    TaskTimes,
    disturbed,
    kernel_arguments,
    time_by_noise,
)
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import copy, kernel


class RoundResult(NamedTuple):
    """The results of a round of E rows, with n workers and budget B."""

    worker: Ints
    """The worker of each result, ordered by worker, then by start, shape (E, B)."""
    duration: Floats
    """The task time of each result, shape (E, B)."""
    elapsed: Floats
    """How long each worker's cancelled task had run, or 0, shape (E, n)."""
    started: Ints
    """The tasks that each worker has started in the episode so far, shape (E, n)."""
    round_time: Floats
    """When the B-th result was in, shape (E,)."""
    worker_time: Floats
    """The time that all workers were busy, shape (E,)."""
    lost: Ints
    """The number of tasks that were running when their worker died, shape (E,)."""
    latency: Floats
    """The time that each worker spent in the round before its first task began, shape (E, n).

    It is 0 for a worker without tasks. A worker that pays a latency and has neither a result nor an
    ``elapsed`` was cancelled, or died, before its first task began.
    """


@kernel(f"{LAYOUT}(),(),(),(n),(n),(n),(b),(b)->(n),(),()", (14, 15))
def _run_allocation(
    family: Ints,
    shift: Floats,
    scale: Floats,
    shape: Floats,
    table: Floats,
    record_start: Ints,
    length: Ints,
    noise: Floats,
    key: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    latency: Floats,
    worker: Ints,
    time: Floats,
    started_after: Ints,
    round_time: Floats,
    worker_time: Floats,
) -> None:
    """Run a round in which no worker dies and no task is cancelled.

    Every worker runs its tasks one after the other, after its latency. The round ends when the last
    task is done.
    """
    times = TaskTimes(
        family,
        shift,
        scale,
        shape,
        table,
        record_start,
        length,
        noise,
        key[0],
        episode[0],
        round_index[0],
    )
    budget = len(worker)
    # Whole vectors of eight, with at least one spare place at the end.
    padded = (budget + 8) // 8 * 8
    scratch = np.empty((2, padded), np.int64)
    workers = scratch[0]
    tasks = scratch[1]
    # Each uniform number overwrites the task that it is made from.
    uniforms = tasks.view(np.float64)
    workers[budget:] = 0
    tasks[budget:] = 0
    b = 0
    for i in range(len(allocation)):
        # The first task is written without a branch, which no processor could predict. The next
        # worker overwrites it if there is none; the spare place takes it after the last task.
        workers[b] = i
        tasks[b] = started[i]
        b += allocation[i] > 0
        for j in range(1, allocation[i]):
            workers[b] = i
            tasks[b] = started[i] + j
            b += 1
        started_after[i] = started[i] + allocation[i]
    # This loop does nothing else, so that it vectorises.
    for b in range(padded):
        uniforms[b] = uniform(key[0], tasks[b], workers[b], episode[0])
    # The columns that decide are alike for all workers of a row.
    if noise[0, NOISE.outlier_share] > 0.0 or noise[0, NOISE.task_weight] < 1.0:
        for b in range(budget):
            uniforms[b] = disturbed(noise, workers[b], uniforms[b])
    copy(workers[:budget], worker)
    longest = 0.0
    busy = 0.0
    total = 0.0
    last_worker = -1
    task = 0
    for b in range(budget):
        i = worker[b]
        if i == last_worker:
            task += 1
        else:
            # The first task of the next worker: the sum of the last worker is complete.
            task = started[i]
            total += busy
            busy = latency[i]
        last_worker = i
        time[b] = time_by_noise(times, i, task, uniforms[b])
        busy += time[b]
        longest = max(longest, busy)
    round_time[0] = longest
    worker_time[0] = total + busy


def allocation_round(
    distributions: Distributions,
    noise_keys: NoiseKeys,
    allocation: Ints,
    budget: int,
    disturbances: Disturbances | None = None,
) -> RoundResult:
    """Run one round in which every task is run to its end.

    If a worker dies, ``race_round`` gives the round.

    Args:
        distributions: The distributions, alike in all rows or with a row axis.
        noise_keys: The keys and counters of the noise.
        allocation: The tasks of each worker, shape (E, n); each row sums to B.
        budget: The number of results, B.
        disturbances: The disturbances of the round; by default there are none.
    """
    noise, death_time, _, latency = disturbances or undisturbed(allocation.shape[1])
    if disturbances is not None and np.isfinite(death_time).any():
        return race_round(distributions, noise_keys, allocation, budget, disturbances)
    task_arguments = kernel_arguments(distributions, noise)
    rows, n = allocation.shape
    worker = np.empty((rows, budget), np.int64)
    duration = np.empty((rows, budget))
    started, round_time, worker_time = _run_allocation(
        *task_arguments,
        *noise_keys,
        allocation,
        latency,
        worker,
        duration,
    )
    # No task is cancelled, and none is lost.
    elapsed = np.zeros((rows, n))
    lost = np.zeros(rows, np.int64)
    if latency.any():
        paid = np.where(allocation > 0, latency, 0.0)
    else:
        paid = np.zeros((rows, n))
    return RoundResult(worker, duration, elapsed, started, round_time, worker_time, lost, paid)


def race_round(
    distributions: Distributions,
    noise_keys: NoiseKeys,
    allocation: Ints,
    budget: int,
    disturbances: Disturbances | None = None,
    task_start: Floats | None = None,
) -> RoundResult:
    """Run one round in which the first B results count, and the rest is cancelled.

    Each worker starts its tasks one after the other, the first one after its latency. Of results at
    the same moment the lowest worker's comes first. Where a row of the allocation sums to B,
    :func:`allocation_round` gives the same bits.

    A worker that dies ends and starts no task after that moment. The task that it runs then is
    lost: it gives no result, its time so far counts as worker time and is the worker's ``elapsed``,
    as if it were cancelled. If the living workers have too few tasks left for B results, the
    missing ones are handed on from the deadline on, each as soon as a living worker is idle. It
    goes to the worker that became idle first (of equals the lowest), as its next task; if it is the
    worker's first one in the round, its latency comes before it. So a round gives exactly B
    results. Events of the same moment happen in the order of the workers.

    Args:
        distributions: The distributions, alike in all rows or with a row axis.
        noise_keys: The keys and counters of the noise.
        allocation: The tasks of each worker, shape (E, n); each row sums to B or more.
        budget: The number of results, B.
        disturbances: The disturbances of the round; by default there are none.
        task_start: An array of shape (E, B) that gets the time when the task of each result was
            started, counted from the round's start.

    Raises:
        ValueError: If all workers of a row die.
    """
    noise, death_time, deadline, latency = checked_disturbances(disturbances, allocation.shape[1])
    task_arguments = kernel_arguments(distributions, noise)
    rows = len(allocation)
    worker = np.empty((rows, budget), np.int64)
    duration = np.empty((rows, budget))
    if task_start is None:
        task_start = np.empty((rows, 0))
    race_outputs = run_race(
        *task_arguments,
        *noise_keys,
        allocation,
        death_time,
        deadline,
        latency,
        worker,
        duration,
        task_start,
    )
    return RoundResult(worker, duration, *race_outputs)
