"""Races of the fastest workers, as allocations: how tasks are shared out where the first B results end the round."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.theory.allocation.smallest_multiples import allocate_kernel
from ata_gym.typing import Floats, Ints

EVERYTHING = 2**40  # a number of tasks to share out that stands for B tasks for every worker
_TINY = np.nextafter(0.0, 1.0)  # takes the place of a score of 0, for which RAS has a rule of its own


def race_allocation(scores: ArrayLike, fastest: ArrayLike, tasks: ArrayLike, budget: int) -> Ints:
    """Share out ``tasks`` among the ``fastest`` workers by RAS (see ``allocate``), at most ``budget`` each.

    - ``scores``: (..., n) estimated task times, at least 0, and finite where among the fastest. Of equal ones the
      lowest index is faster.
    - ``fastest``, ``tasks``: (...,) how many workers take part, from 1 to n, and tasks to share out, from B =
      ``budget`` on. With ``EVERYTHING`` each gets B.

    Examples
    --------
    Two tasks to spare, none of them for the slowest; and everything to the two fastest:

    >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=3, tasks=9, budget=7)
    array([6, 2, 1, 0])
    >>> race_allocation([1.0, 2.0, 4.0, 9.0], fastest=2, tasks=EVERYTHING, budget=7)
    array([7, 7, 0, 0])
    """
    times = np.asarray(scores, np.float64)
    rank = np.argsort(np.argsort(times, axis=-1, kind="stable"), axis=-1)
    inside = rank < np.asarray(fastest)[..., None]
    return share_out(np.where(inside, times, np.inf), np.asarray(tasks, np.int64), budget)


def share_out(times: Floats, tasks: Ints, budget: int) -> Ints:
    """Share out tasks, (...,), among all workers with finite times, (..., n), at most ``budget`` each."""
    times = np.maximum(times, _TINY)
    shared = allocate_kernel(times, tasks, np.zeros(times.shape[-1], np.bool_), np.empty(0))
    return np.where(tasks[..., None] >= EVERYTHING, budget * (times < np.inf), np.minimum(shared, budget))
