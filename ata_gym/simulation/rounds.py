"""One round of allocation or race for a batch of rows: pure functions of arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.simulation import kernels
from ata_gym.simulation.disturbances import Disturbances, checked, undisturbed
from ata_gym.typing import Floats, Ints, Keys


class RoundResult(NamedTuple):
    """What a round of E rows gave, with n workers and budget B."""

    worker: Ints
    """(E, B) the worker of each result, ordered by worker, then by start."""
    duration: Floats
    """(E, B) the task time of each result."""
    elapsed: Floats
    """(E, n) how long each worker's cancelled task had run, or 0."""
    started: Ints
    """(E, n) tasks that each worker has started in the episode so far."""
    round_time: Floats
    """(E,) when the B-th result was in."""
    worker_time: Floats
    """(E,) time that all workers were busy."""
    lost: Ints
    """(E,) tasks that were running when their worker died."""


def task_times(
    distributions: Distributions,
    keys: Keys,
    episode: Ints | int,
    round_index: Ints | int,
    worker: Ints | int,
    task: Ints | int,
    disturbances: Disturbances | None = None,
) -> Floats:
    """Times of single tasks, for methods that know no rounds: the very times that a round would have.

    The arguments broadcast together and are those of :func:`allocation_round`; ``worker`` starts a task after ``task``
    others in the episode. Deaths do not matter here.

    >>> from ata_gym.pools import exponential
    >>> from ata_gym.simulation.keys import stream_keys
    >>> distributions, keys, zero = exponential([1.0, 2.0]).distributions, stream_keys(0), np.zeros(1, np.int64)
    >>> round = allocation_round(distributions, keys, zero, zero, np.zeros((1, 2), np.int64), np.array([[1, 1]]), 2)
    >>> bool((task_times(distributions, keys, 0, 0, np.array([0, 1]), 0) == round.duration[0]).all())
    True
    """
    noise = (disturbances or undisturbed(distributions.family.shape[-1])).noise
    indices = [np.asarray(index, np.int64) for index in (episode, round_index, worker, task)]
    times: Floats = kernels.one_time(*kernels.distribution_arguments(distributions, noise), keys, *indices)
    return times


def longest_times(distributions: Distributions) -> Floats:
    """The longest time, shape (n,), that a task of each worker can take, with noise of 52 bits; inf if it overflows.

    >>> from ata_gym.pools import exponential, trace
    >>> longest_times((exponential([1.0]) + trace([[2.0, 5.0]])).distributions).round(1).tolist()
    [36.7, 5.0]
    """
    noise = undisturbed(len(distributions.family)).noise
    with np.errstate(over="ignore"):
        times: Floats = kernels.longest_times(*kernels.distribution_arguments(distributions, noise))
    return times


def allocation_round(
    distributions: Distributions,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    budget: int,
    disturbances: Disturbances | None = None,
) -> RoundResult:
    """Run one round in which every task of ``allocation`` is run to its end.

    Parameters
    ----------
    distributions
        The distribution of each worker's task times, alike in all rows or with a row axis.
    keys, episode, round_index
        (E,) each row's key, its episode and its round, both counted from 0.
    started, allocation
        (E, n) tasks that each worker has started in the episode before this round, and its tasks in it, already
        checked: each row sums to B.
    budget
        Results B that the round needs.
    disturbances
        Noise, outliers and deaths of the round, if any. If a worker dies, the round is that of ``race_round``.
    """
    noise, dies, _ = disturbances or undisturbed(allocation.shape[1])
    if disturbances is not None and np.isfinite(dies).any():
        return race_round(distributions, keys, episode, round_index, started, allocation, budget, disturbances)
    of_tasks = kernels.distribution_arguments(distributions, noise)
    rows, n = allocation.shape
    worker, duration = np.empty((rows, budget), np.int64), np.empty((rows, budget))
    after, round_time, worker_time = kernels.run_allocation(
        *of_tasks, keys, episode, round_index, started, allocation, worker, duration
    )
    none = np.zeros((rows, n)), np.zeros(rows, np.int64)  # nothing is cancelled and nothing lost
    return RoundResult(worker, duration, none[0], after, round_time, worker_time, none[1])


def race_round(
    distributions: Distributions,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    budget: int,
    disturbances: Disturbances | None = None,
) -> RoundResult:
    """Run one round in which only the first B results of ``allocation`` count and the rest is cancelled.

    Each worker starts its tasks one after the other. Of results at the same moment the lowest worker's comes first. The
    parameters are those of :func:`allocation_round`, but each row sums to B or more; with B, both give the same bits.

    A worker that dies ends and starts no task after that moment. The task that it runs then is lost: it gives no
    result, its time so far counts as worker time and is the worker's ``elapsed``, as if it were cancelled. If the
    living workers have too few tasks left for B results, the missing ones are handed on from the deadline on, each as
    soon as a living worker is idle: to the one that became idle first (of equals the lowest), as its next task. So a
    round gives exactly B results. Events of the same moment happen in the order of the workers. If all workers of a row
    die, ValueError is raised.

    Worker 0 dies at 3 while it runs its second task, and worker 1, idle since 2.5, does both tasks that are left:

    >>> from ata_gym.pools import deterministic
    >>> from ata_gym.simulation.keys import stream_keys
    >>> distributions, keys, zero = deterministic([2.0, 2.5]).distributions, stream_keys(0), np.zeros(1, np.int64)
    >>> disturbances = undisturbed(2)._replace(dies=np.array([[3.0, np.inf]]))
    >>> started, allocation = np.zeros((1, 2), np.int64), np.array([[3, 1]])
    >>> round = race_round(distributions, keys, zero, zero, started, allocation, 4, disturbances)
    >>> round.worker, round.elapsed, round.round_time, round.worker_time, round.lost
    (array([[0, 1, 1, 1]]), array([[1., 0.]]), array([8.]), array([10.5]), array([1]))
    """
    noise, dies, deadline = checked(disturbances, allocation.shape[1])
    of_tasks = kernels.distribution_arguments(distributions, noise)
    rows = len(allocation)
    worker, duration = np.empty((rows, budget), np.int64), np.empty((rows, budget))
    rest = kernels.run_race(
        *of_tasks, keys, episode, round_index, started, allocation, dies, deadline, worker, duration
    )
    return RoundResult(worker, duration, *rest)


def task_starts(
    distributions: Distributions,
    keys: Keys,
    episode: Ints,
    round_index: Ints,
    started: Ints,
    allocation: Ints,
    budget: int,
    disturbances: Disturbances | None = None,
) -> Floats:
    """When the task of each result of a round was started, shape (E, B), counted from the round's start.

    The parameters, and the order of the results, are those of :func:`race_round`, and of :func:`allocation_round`.

    >>> from ata_gym.pools import deterministic
    >>> from ata_gym.simulation.keys import stream_keys
    >>> distributions, keys, zero = deterministic([2.0, 2.5]).distributions, stream_keys(0), np.zeros(1, np.int64)
    >>> disturbances = undisturbed(2)._replace(dies=np.array([[3.0, np.inf]]))
    >>> started, allocation = np.zeros((1, 2), np.int64), np.array([[3, 1]])
    >>> task_starts(distributions, keys, zero, zero, started, allocation, 4, disturbances)  # handed on at 3
    array([[0. , 0. , 3. , 5.5]])
    """
    noise, dies, deadline = checked(disturbances, allocation.shape[1])
    of_tasks = kernels.distribution_arguments(distributions, noise)
    duration, start = np.empty((2, len(allocation), budget))
    worker = np.empty(start.shape, np.int64)
    kernels.run_race_with_starts(
        *of_tasks, keys, episode, round_index, started, allocation, dies, deadline, worker, duration, start
    )
    return start
