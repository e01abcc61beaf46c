"""The disturbances of a round: shared noise, outliers, deaths and latencies."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import inlined


class NoiseColumns(NamedTuple):
    """The columns of ``Disturbances.noise``."""

    outlier_share: int = 0
    """The share of the tasks that are outliers."""
    shortest_outlier: int = 1
    """The time of the shortest outlier."""
    longest_outlier: int = 2
    """The time of the longest outlier."""
    task_weight: int = 3
    """The factor of a task's own noise, made normal; 1 where tasks share none."""
    common: int = 4
    """The number that is added to it, the same for all tasks of the worker in the round."""


NOISE = NoiseColumns()


class Disturbances(NamedTuple):
    """What a round has besides the distributions of the task times, as the kernels read it."""

    noise: Floats
    """Numbers for each worker, shape (E, n, 5), or (n, 5) if alike in all rows.

    The last axis has the columns of ``NoiseColumns``.
    """
    death_time: Floats
    """When each worker dies, counted from the round's start, shape (E, n).

    It is 0 for a worker that is away, and inf for one that lives.
    """
    deadline: Floats | float
    """The time from which tasks of dead workers are handed on, (E,) or alike in all rows."""
    latency: Floats
    """The time before each worker's first task of the round begins, shape (E, n), or (n,)."""


@cache
def undisturbed(n: int) -> Disturbances:
    """No disturbances: n workers live, their tasks share no noise, and they pay no latency.

    The arrays are read-only.
    """
    noise = np.zeros((n, len(NOISE)))
    noise[:, NOISE.task_weight] = 1.0
    death_time = np.full(n, np.inf)
    latency = np.zeros(n)
    for field in (noise, death_time, latency):
        field.flags.writeable = False
    return Disturbances(noise, death_time, 0.0, latency)


def checked_disturbances(disturbances: Disturbances | None, n: int) -> Disturbances:
    """The disturbances, or no disturbances of n workers in the place of None.

    Raises:
        ValueError: If all workers of a row die.
    """
    if disturbances is None:
        return undisturbed(n)
    if not np.isinf(disturbances.death_time).any(axis=-1).all():
        raise ValueError("a row's workers all die: dies must be inf for one of them at least")
    return disturbances


@inlined
def alive(death_time: float, time: float) -> bool:
    """Whether a worker that dies at ``death_time`` is alive at ``time``.

    A worker that never dies is alive even at a time that overflowed to inf.
    """
    return death_time > time or death_time == math.inf


@inlined
def end_of_task(task_start: float, duration: float, death_time: float) -> float:
    """When a task ends, or its worker dies.

    The time is never NaN, so that events stay in order and a round ends.
    """
    if task_start + duration < death_time:
        return task_start + duration
    return death_time


@inlined
def gives_result(task_start: float, duration: float, death_time: float, end: float) -> bool:
    """Whether a task that ends at ``end`` gives a result.

    It is lost if its worker dies before. A duration of NaN counts as a result.
    """
    return end < death_time or not task_start + duration > end
