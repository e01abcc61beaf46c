"""One round of allocation or race for a batch of rows: pure functions of arrays."""

from typing import NamedTuple

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import Disturbances, checked, undisturbed
from ata_gym.simulation.keys import NoiseKeys, uniform
from ata_gym.simulation.race import run_race
from ata_gym.simulation.task_times import LAYOUT, TaskTimes, disturbed, kernel_arguments, time_by_noise
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import copy, kernel


class RoundResult(NamedTuple):
    """What a round of E rows gave, with n workers and budget B."""

    worker: Ints  # (E, B) the worker of each result, ordered by worker, then by start
    duration: Floats  # (E, B) the task time of each result
    elapsed: Floats  # (E, n) how long each worker's cancelled task had run, or 0
    started: Ints  # (E, n) tasks that each worker has started in the episode so far
    round_time: Floats  # (E,) when the B-th result was in
    worker_time: Floats  # (E,) time that all workers were busy
    lost: Ints  # (E,) tasks that were running when their worker died


@kernel(f"{LAYOUT}(),(),(),(n),(n),(b),(b)->(n),(),()", (13, 14))
def _run_allocation(
    family: Ints, shift: Floats, scale: Floats, shape: Floats, table: Floats, first: Ints, length: Ints, noise: Floats,
    key: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints,
    worker: Ints, time: Floats, started_after: Ints, round_time: Floats, worker_time: Floats,
) -> None:  # fmt: skip
    """Every worker runs its tasks one after the other, and nobody dies; the round ends when the last task is done."""
    times = TaskTimes(family, shift, scale, shape, table, first, length, noise, key[0], episode[0], round_index[0])
    budget = len(worker)
    padded = (budget + 8) // 8 * 8  # whole vectors, with a spare place at the end
    scratch = np.empty((2, padded), np.int64)
    workers, tasks = scratch[0], scratch[1]
    uniforms = tasks.view(np.float64)  # in place of the tasks
    workers[budget:] = tasks[budget:] = 0
    b = 0
    for i in range(len(allocation)):
        workers[b], tasks[b] = i, started[i]
        b += allocation[i] > 0  # no branch for the first task: nothing predicts it
        for j in range(1, allocation[i]):
            workers[b], tasks[b] = i, started[i] + j
            b += 1
        started_after[i] = started[i] + allocation[i]
    for b in range(padded):  # a loop of its own, so that it vectorises
        uniforms[b] = uniform(key[0], tasks[b], workers[b], episode[0])
    if noise[0, 0] > 0.0 or noise[0, 3] < 1.0:
        for b in range(budget):
            uniforms[b] = disturbed(noise, workers[b], uniforms[b])
    copy(workers[:budget], worker)
    longest = busy = total = 0.0
    before, task = -1, 0
    for b in range(budget):
        i = worker[b]
        same = i == before
        total += 0.0 if same else busy
        busy = busy if same else 0.0
        task = task + 1 if same else started[i]
        before = i
        time[b] = time_by_noise(times, i, task, uniforms[b])
        busy += time[b]
        longest = max(longest, busy)
    round_time[0] = longest
    worker_time[0] = total + busy


def allocation_round(
    distributions: Distributions, noise_keys: NoiseKeys, allocation: Ints, budget: int,
    disturbances: Disturbances | None = None,
) -> RoundResult:  # fmt: skip
    """Run one round in which every task of ``allocation``, shape (E, n), is run to its end; each row sums to B.

    The distributions are alike in all rows, or have a row axis. If a worker dies, the round is that of ``race_round``.
    """
    noise, dies, _ = disturbances or undisturbed(allocation.shape[1])
    if disturbances is not None and np.isfinite(dies).any():
        return race_round(distributions, noise_keys, allocation, budget, disturbances)
    of_tasks = kernel_arguments(distributions, noise)
    rows, n = allocation.shape
    worker, duration = np.empty((rows, budget), np.int64), np.empty((rows, budget))
    after, round_time, worker_time = _run_allocation(*of_tasks, *noise_keys, allocation, worker, duration)
    none = np.zeros((rows, n)), np.zeros(rows, np.int64)  # nothing is cancelled and nothing lost
    return RoundResult(worker, duration, none[0], after, round_time, worker_time, none[1])


def race_round(
    distributions: Distributions, noise_keys: NoiseKeys, allocation: Ints, budget: int,
    disturbances: Disturbances | None = None, begun: Floats | None = None,
) -> RoundResult:  # fmt: skip
    """Run one round in which only the first B results of ``allocation`` count and the rest is cancelled.

    Each worker starts its tasks one after the other. Of results at the same moment the lowest worker's comes first. The
    parameters are those of :func:`allocation_round`, but each row sums to B or more; with B, both give the same bits.
    ``begun``, shape (E, B), takes when the task of each result was started, counted from the round's start.

    A worker that dies ends and starts no task after that moment. The task that it runs then is lost: it gives no
    result, its time so far counts as worker time and is the worker's ``elapsed``, as if it were cancelled. If the
    living workers have too few tasks left for B results, the missing ones are handed on from the deadline on, each as
    soon as a living worker is idle: to the one that became idle first (of equals the lowest), as its next task. So a
    round gives exactly B results. Events of the same moment happen in the order of the workers. If all workers of a row
    die, ValueError is raised.
    """
    noise, dies, deadline = checked(disturbances, allocation.shape[1])
    of_tasks = kernel_arguments(distributions, noise)
    rows = len(allocation)
    worker, duration = np.empty((rows, budget), np.int64), np.empty((rows, budget))
    begun = np.empty((rows, 0)) if begun is None else begun
    rest = run_race(*of_tasks, *noise_keys, allocation, dies, deadline, worker, duration, begun)
    return RoundResult(worker, duration, *rest)
