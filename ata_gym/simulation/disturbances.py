"""What a round has besides the distributions of the task times: shared noise, outliers and deaths."""

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import inlined


class Disturbances(NamedTuple):
    """What a round has besides the distributions of the task times, as the kernels read it."""

    # (E, n, 5), or (n, 5) if alike in all rows: share of outliers, their shortest and longest time, factor of a task's
    # own normal noise, and what is added to that
    noise: Floats
    dies: Floats  # (E, n) when each worker dies, counted from the round's start; 0: it is away, inf: it lives
    deadline: Floats | float  # (E,) or alike in all rows: the time from which tasks of dead workers are handed on


@cache
def undisturbed(n: int) -> Disturbances:
    """No disturbances: n workers that live and whose tasks have noise of their own only. The arrays are read-only."""
    noise, dies = np.tile([0.0, 0.0, 0.0, 1.0, 0.0], (n, 1)), np.full(n, np.inf)
    noise.flags.writeable = dies.flags.writeable = False
    return Disturbances(noise, dies, 0.0)


def checked(disturbances: Disturbances | None, n: int) -> Disturbances:
    """The disturbances, or none of n workers; ValueError if all workers of a row die."""
    if disturbances is None:
        return undisturbed(n)
    if not np.isinf(disturbances.dies).any(axis=-1).all():
        raise ValueError("a row's workers all die: dies must be inf for one of them at least")
    return disturbances


@inlined
def alive(dies: float, now: float) -> bool:
    """Whether a worker that dies at ``dies`` is alive; one that never dies is so even at a time that overflowed."""
    return dies > now or dies == math.inf


@inlined
def end_of_task(begun: float, duration: float, dies: float) -> float:
    """When a task ends, or its worker dies: never NaN, so that events stay in order and a round ends."""
    return begun + duration if begun + duration < dies else dies


@inlined
def gives_result(begun: float, duration: float, dies: float, now: float) -> bool:
    """Whether a task whose end is ``now`` gives a result; it is lost if its worker dies before. NaN counts as one."""
    return now < dies or not begun + duration > now
