"""The kernel of a race.

Workers start their tasks one after the other, and the round ends at the B-th result. Tasks that are
running then are cancelled, and workers may die. ``ata_gym.simulation.rounds.race_round`` has the
definition.
"""

from typing import NamedTuple

import numpy as np

from ata_gym.simulation.disturbances import alive, end_of_task, gives_result
from ata_gym.simulation.heap import Heap, build_heap, put_on_top, sift_down, take_off_top
from ata_gym.simulation.keys import uniform
from ata_gym.simulation.task_times import LAYOUT, TaskTimes, disturbed, time_by_noise, time_of
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import kernel, phase


class _RaceWorkers(NamedTuple):
    """The state of the workers of a race; all fields have shape (n,)."""

    death_time: Floats
    """When the worker dies."""
    task_start: Floats
    """When its latest task began."""
    duration: Floats
    """The time of its latest task."""
    finish: Floats
    """When its latest task ends, or the worker dies."""
    idle: Floats
    """How long it has been idle before tasks that were handed on to it."""
    elapsed: Floats
    """How long its lost or cancelled task had run, or 0."""
    started: Ints
    """The number of tasks that it has started in the episode."""
    quota: Ints
    """The number of tasks that it must do in the round; once it is dead, ``done``."""
    done: Ints
    """The number of results that it has given in the round."""
    latency: Floats
    """The time before its first task begins."""
    paid: Floats
    """How much of it the worker has paid in the round."""


class _Results(NamedTuple):
    """The results of a race; all fields have shape (B,)."""

    worker: Ints
    """The worker of the result."""
    duration: Floats
    """The time of its task."""
    task_start: Floats
    """When the task began; of shape (0,) where it is not needed."""


@phase
def _begin(
    times: TaskTimes,
    workers: _RaceWorkers,
    started_before: Ints,
    allocation: Ints,
    noise: Floats,
    heap: Heap,
) -> tuple[int, int]:
    """Start the first task of each worker that has one.

    ``started_before`` is ``started`` at the round's start. Return the size of the heap, and the
    number of tasks of the workers in it.
    """
    size = 0
    planned = 0
    n = len(allocation)
    # This loop does nothing else, so that it vectorises.
    for i in range(n):
        noise[i] = uniform(times.key, started_before[i], i, times.episode)
    for i in range(n):
        workers.started[i] = started_before[i]
        workers.elapsed[i] = 0.0
        workers.paid[i] = 0.0
        if allocation[i] > 0 and workers.death_time[i] > 0.0:
            u = disturbed(times.noise, i, noise[i])
            workers.duration[i] = time_by_noise(times, i, started_before[i], u)
            workers.task_start[i] = workers.latency[i]
            workers.paid[i] = workers.latency[i]
            workers.finish[i] = end_of_task(
                workers.latency[i], workers.duration[i], workers.death_time[i]
            )
            workers.started[i] += 1
            workers.quota[i] = allocation[i]
            planned += allocation[i]
            heap.key[size] = workers.finish[i]
            heap.worker[size] = i
            size += 1
    build_heap(heap, size)
    return size, planned


@phase
def _stop(workers: _RaceWorkers, i: int, time: float) -> None:
    """Note how long the unfinished task of worker i had run, or which part of its latency."""
    if time < workers.task_start[i]:
        workers.paid[i] -= workers.task_start[i] - time
    else:
        workers.elapsed[i] = time - workers.task_start[i]


@phase
def _longest_idle(workers: _RaceWorkers, time: float) -> int:
    """The living worker that became idle first, of equals the lowest; -1 if none is idle."""
    chosen = -1
    for i in range(len(workers.done)):
        idle = workers.done[i] == workers.quota[i] and alive(workers.death_time[i], time)
        if idle and (chosen < 0 or workers.finish[i] < workers.finish[chosen]):
            chosen = i
    return chosen


@phase
def _run(
    times: TaskTimes,
    workers: _RaceWorkers,
    started_before: Ints,
    results: _Results,
    heap: Heap,
    size: int,
    spare: int,
    deadline: float,
) -> tuple[float, int]:
    """Go from event to event to the B-th result; return its time and the number of lost tasks.

    ``started_before`` is ``started`` at the round's start. ``spare`` is the number of tasks beyond
    B that living workers have; tasks are missing where it is negative.
    """
    budget = len(results.worker)
    time = 0.0
    count = 0
    lost = 0
    # The loop ends, since a worker lives. Each pass takes an event off the heap (a result, or a
    # death, once for a worker), starts a task that was handed on, of which there are as many as
    # tasks lost, or waits for the deadline, once.
    while count < budget:
        # The worker that starts a task now.
        i = -1
        if spare < 0 and time >= deadline:
            i = _longest_idle(workers, time)
        if i >= 0:
            # One of the missing tasks is handed on to it. No task ends before this time, so the
            # worker can stand at the top until its key is set below.
            workers.quota[i] += 1
            spare += 1
            workers.idle[i] += time - workers.finish[i]
            put_on_top(heap, size, i)
            size += 1
        elif spare < 0 and time < deadline and (size == 0 or heap.key[0] > deadline):
            time = deadline
            continue
        else:
            i = heap.worker[0]
            time = heap.key[0]
            if gives_result(
                workers.task_start[i], workers.duration[i], workers.death_time[i], time
            ):
                results.worker[count] = i
                results.duration[count] = workers.duration[i]
                if len(results.task_start) > 0:
                    results.task_start[count] = workers.task_start[i]
                workers.done[i] += 1
                count += 1
            else:
                _stop(workers, i, time)
                lost += 1
            # The tasks that a dead worker has left are missing.
            if not alive(workers.death_time[i], time):
                spare -= workers.quota[i] - workers.done[i]
                workers.quota[i] = workers.done[i]
        if workers.done[i] < workers.quota[i] and count < budget:
            workers.duration[i] = time_of(times, i, workers.started[i])
            workers.task_start[i] = time
            # A worker without a task so far, to which one was handed on, pays its latency now.
            if workers.started[i] == started_before[i]:
                workers.task_start[i] = time + workers.latency[i]
                workers.paid[i] = workers.latency[i]
            workers.finish[i] = end_of_task(
                workers.task_start[i], workers.duration[i], workers.death_time[i]
            )
            workers.started[i] += 1
            heap.key[0] = workers.finish[i]
        else:
            size = take_off_top(heap, size)
        sift_down(heap, size, 0)
    return time, lost


@phase
def _end(workers: _RaceWorkers, started_before: Ints, end: float) -> float:
    """Cancel the tasks that are running at the round's end, and return the worker time.

    ``started_before`` is ``started`` at the round's start.
    """
    total = 0.0
    for i in range(len(started_before)):
        unfinished = workers.started[i] - started_before[i] > workers.done[i]
        # A worker that died has no task left, see ``_run``: its lost task was stopped then.
        if unfinished and workers.quota[i] > workers.done[i]:
            _stop(workers, i, end)
            busy_until = end
        else:
            busy_until = workers.finish[i]
        total += busy_until - workers.idle[i]
    return total


@phase
def _order_by_worker(arrived: _Results, done: Ints, place: Ints, results: _Results) -> None:
    """Order the results by worker, and keep the order in which each worker gave them.

    ``place`` is scratch space of shape (n,).
    """
    # The place of each worker's next result.
    total = 0
    for i in range(len(done)):
        place[i] = total
        total += done[i]
    for b in range(total):
        i = arrived.worker[b]
        position = place[i]
        results.worker[position] = i
        results.duration[position] = arrived.duration[b]
        if len(results.task_start) > 0:
            results.task_start[position] = arrived.task_start[b]
        place[i] += 1


@kernel(f"{LAYOUT}(),(),(),(n),(n),(n),(),(n),(b),(b),(s)->(n),(n),(),(),(),(n)", (16, 17, 18))
def run_race(
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
    death_time: Floats,
    deadline: Floats,
    latency: Floats,
    worker: Ints,
    time: Floats,
    task_start: Floats,
    elapsed: Floats,
    started_after: Ints,
    round_time: Floats,
    worker_time: Floats,
    lost: Ints,
    paid: Floats,
) -> None:
    """Run a race; ``task_start``, of length B or 0, gets the time when each result's task began."""
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
    n = len(allocation)
    budget = len(worker)
    # All scratch space of floats and of integers is in two arrays, which are allocated once.
    floats = np.zeros((6, n))
    counts = np.zeros((3, n), np.int64)
    workers = _RaceWorkers(
        death_time,
        floats[0],
        floats[1],
        floats[2],
        floats[3],
        elapsed,
        started_after,
        counts[0],
        counts[1],
        latency,
        paid,
    )
    arrived = _Results(np.empty(budget, np.int64), np.empty(budget), np.empty(len(task_start)))
    heap = Heap(floats[5], counts[2])
    size, tasks = _begin(times, workers, started, allocation, floats[4], heap)
    end, lost_tasks = _run(
        times, workers, started, arrived, heap, size, tasks - budget, deadline[0]
    )
    round_time[0] = end
    worker_time[0] = _end(workers, started, end)
    lost[0] = lost_tasks
    _order_by_worker(arrived, workers.done, heap.worker, _Results(worker, time, task_start))
