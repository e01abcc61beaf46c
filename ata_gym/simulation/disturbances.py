"""The disturbances of a round: shared noise, outliers and deaths."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import inlined


class Disturbances(NamedTuple):
    """What a round has besides the distributions of the task times, as the kernels read it."""

    noise: Floats
    """Five numbers for each worker, shape (E, n, 5), or (n, 5) if alike in all rows.

    They are the share of outliers, the shortest and the longest outlier, the factor of a task's
    normal noise, and the number that is added to it.
    """
    dies: Floats
    """When each worker dies, counted from the round's start, shape (E, n).

    It is 0 for a worker that is away, and inf for one that lives.
    """
    deadline: Floats | float
    """The time from which tasks of dead workers are handed on, (E,) or alike in all rows."""


@cache
def undisturbed(n: int) -> Disturbances:
    """No disturbances: n workers live, and their tasks share no noise.

    The arrays are read-only.
    """
    noise = np.tile([0.0, 0.0, 0.0, 1.0, 0.0], (n, 1))
    dies = np.full(n, np.inf)
    noise.flags.writeable = False
    dies.flags.writeable = False
    return Disturbances(noise, dies, 0.0)


def checked(disturbances: Disturbances | None, n: int) -> Disturbances:
    """The disturbances, or no disturbances of n workers in the place of None.

    Raises:
        ValueError: If all workers of a row die.
    """
    if disturbances is None:
        return undisturbed(n)
    if not np.isinf(disturbances.dies).any(axis=-1).all():
        raise ValueError("a row's workers all die: dies must be inf for one of them at least")
    return disturbances


@inlined
def alive(dies: float, now: float) -> bool:
    """Whether a worker that dies at ``dies`` is alive at a time.

    A worker that never dies is alive even at a time that overflowed to inf.
    """
    return dies > now or dies == math.inf


@inlined
def end_of_task(begun: float, duration: float, dies: float) -> float:
    """When a task ends, or its worker dies.

    The time is never NaN, so that events stay in order and a round ends.
    """
    if begun + duration < dies:
        return begun + duration
    return dies


@inlined
def gives_result(begun: float, duration: float, dies: float, now: float) -> bool:
    """Whether a task whose end is ``now`` gives a result.

    It is lost if its worker dies before. A duration of NaN counts as a result.
    """
    return now < dies or not begun + duration > now
