"""The kernel of a race: workers start their tasks one after the other, and the round ends at the B-th result.

Tasks that are running then are cancelled, and workers may die; ``ata_gym.simulation.rounds.race_round`` defines it.
"""

from typing import NamedTuple

import numpy as np

from ata_gym.simulation.disturbances import alive, end_of_task, gives_result
from ata_gym.simulation.heap import Heap, build_heap, put_on_top, sift_down, take_off_top
from ata_gym.simulation.keys import uniform
from ata_gym.simulation.task_times import LAYOUT, TaskTimes, disturbed, time_by_noise, time_of
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import kernel, phase


class _Workers(NamedTuple):
    """What the workers of a race do: all of shape (n,)."""

    dies: Floats
    begun: Floats  # when its latest task began
    duration: Floats
    finish: Floats  # when that task ends, or the worker dies
    idle: Floats  # how long it has been idle before tasks that were handed on to it
    elapsed: Floats  # how long its lost or cancelled task had run, or 0
    started: Ints  # tasks that it has started in the episode
    quota: Ints  # tasks that it is to do in the round; once it is dead, those that it has done
    done: Ints  # results that it has given in the round


class _Results(NamedTuple):
    """The results, of shape (B,)."""

    worker: Ints
    duration: Floats
    begun: Floats  # when the task began; of shape (0,) where nobody asks


@phase
def _begin(
    times: TaskTimes, workers: _Workers, before: Ints, allocation: Ints, noise: Floats, heap: Heap
) -> tuple[int, int]:  # start the first task of each worker that has one; return how many workers are in the heap
    size, planned, n = 0, 0, len(allocation)
    for i in range(n):  # a loop of its own, so that it vectorises
        noise[i] = uniform(times.key, before[i], i, times.episode)
    for i in range(n):
        workers.started[i] = before[i]
        workers.elapsed[i] = 0.0
        if allocation[i] > 0 and workers.dies[i] > 0.0:
            u = disturbed(times.noise, i, noise[i])
            workers.duration[i] = time_by_noise(times, i, before[i], u)
            workers.finish[i] = end_of_task(0.0, workers.duration[i], workers.dies[i])
            workers.started[i] += 1
            workers.quota[i] = allocation[i]
            planned += allocation[i]
            heap.key[size], heap.worker[size] = workers.finish[i], i
            size += 1
    build_heap(heap, size)
    return size, planned


@phase
def _longest_idle(workers: _Workers, now: float) -> int:
    chosen = -1
    for i in range(len(workers.done)):
        idle = workers.done[i] == workers.quota[i] and alive(workers.dies[i], now)
        if idle and (chosen < 0 or workers.finish[i] < workers.finish[chosen]):
            chosen = i
    return chosen


@phase
def _run(
    times: TaskTimes, workers: _Workers, results: _Results, heap: Heap, size: int, spare: int, deadline: float
) -> tuple[float, int]:  # go from event to event to the B-th result; return its time, and how many tasks were lost
    budget, now, found, lost = len(results.worker), 0.0, 0, 0
    # it ends: each pass takes an event off the heap (a result, or a death, once for a worker), starts a task that was
    # handed on, of which there are as many as tasks lost, or waits for the deadline, once; and somebody lives
    while found < budget:
        i = -1  # the worker that starts a task now
        if spare < 0 and now >= deadline:
            i = _longest_idle(workers, now)
        if i >= 0:  # one of the missing tasks is handed on to it
            workers.quota[i] += 1
            spare += 1
            workers.idle[i] += now - workers.finish[i]
            put_on_top(heap, size, i)  # as nothing finishes before now
            size += 1
        elif spare < 0 and now < deadline and (size == 0 or heap.key[0] > deadline):
            now = deadline
            continue
        else:
            i, now = heap.worker[0], heap.key[0]
            if gives_result(workers.begun[i], workers.duration[i], workers.dies[i], now):
                results.worker[found], results.duration[found] = i, workers.duration[i]
                if len(results.begun) > 0:
                    results.begun[found] = workers.begun[i]
                workers.done[i] += 1
                found += 1
            else:
                workers.elapsed[i] = now - workers.begun[i]
                lost += 1
            if not alive(workers.dies[i], now):
                spare -= workers.quota[i] - workers.done[i]
                workers.quota[i] = workers.done[i]
        if workers.done[i] < workers.quota[i] and found < budget:
            workers.duration[i] = time_of(times, i, workers.started[i])
            workers.begun[i], workers.finish[i] = now, end_of_task(now, workers.duration[i], workers.dies[i])
            workers.started[i] += 1
            heap.key[0] = workers.finish[i]
        else:
            size = take_off_top(heap, size)
        sift_down(heap, size, 0)
    return now, lost


@phase
def _end(workers: _Workers, before: Ints, now: float) -> float:
    """Cancel the tasks that are running now; return the worker time. ``before`` is ``started`` of the round's start."""
    total = 0.0
    for i in range(len(before)):
        running = workers.started[i] - before[i] > workers.done[i] and workers.elapsed[i] == 0.0  # its task is not lost
        if running:
            workers.elapsed[i] = now - workers.begun[i]
        total += (now if running else workers.finish[i]) - workers.idle[i]
    return total


@phase
def _by_worker(arrived: _Results, done: Ints, place: Ints, results: _Results) -> None:
    total = 0
    for i in range(len(done)):
        place[i] = total
        total += done[i]
    for b in range(total):
        i = arrived.worker[b]
        at = place[i]
        results.worker[at], results.duration[at] = i, arrived.duration[b]
        if len(results.begun) > 0:
            results.begun[at] = arrived.begun[b]
        place[i] += 1


@kernel(f"{LAYOUT}(),(),(),(n),(n),(n),(),(b),(b),(s)->(n),(n),(),(),()", (15, 16, 17))
def run_race(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, dies: Floats, deadline: Floats,
    worker: Ints, time: Floats, begun: Floats, elapsed: Floats, started_after: Ints, round_time: Floats,
    worker_time: Floats, lost: Ints,
) -> None:  # fmt: skip
    """Run a race; ``begun``, of length B or 0, takes when the task of each result was started."""
    times = TaskTimes(family, shift, scale, shape, table, first, length, noise, key[0], episode[0], round_index[0])
    n, budget = len(allocation), len(worker)
    floats, counts = np.zeros((6, n)), np.zeros((3, n), np.int64)
    workers = _Workers(dies, floats[0], floats[1], floats[2], floats[3], elapsed, started_after, counts[0], counts[1])
    arrived = _Results(np.empty(budget, np.int64), np.empty(budget), np.empty(len(begun)))
    heap = Heap(floats[5], counts[2])
    size, tasks = _begin(times, workers, started, allocation, floats[4], heap)
    now, missed = _run(times, workers, arrived, heap, size, tasks - budget, deadline[0])
    round_time[0], worker_time[0], lost[0] = now, _end(workers, started, now), missed
    _by_worker(arrived, workers.done, heap.worker, _Results(worker, time, begun))
