"""Limits of the tasks that a worker has in a round, as for its memory, and the nearest allocation within them."""

import heapq
from collections.abc import Collection, Mapping

import numpy as np

from ata_gym.typing import Floats, Ints, Mask, Worker
from ata_gym.utils.validation import short

Limits = Mapping[Worker, tuple[int, int]]
"""By worker: the least and the most tasks of a round; from 0 to B for those that are not named."""


def checked_limits(limits: Limits | None, workers: Collection[Worker], budget: int) -> Limits:
    """The limits; ValueError for a worker that is not there, what is no pair of whole numbers, and an empty range.

    >>> checked_limits({"a": (3, 2)}, ["a"], budget=4)
    Traceback (most recent call last):
    ValueError: limits of worker 'a' must be (least, most), whole numbers with 0 <= least <= most <= 4, not (3, 2)
    """
    for worker, pair in (limits or {}).items():
        if worker not in workers:
            raise ValueError(f"limits name worker {worker!r}, and there are {short(list(workers))}")
        whole = isinstance(pair, tuple | list) and len(pair) == 2 and all(type(one) is int for one in pair)
        if not whole or not 0 <= pair[0] <= pair[1] <= budget:
            raise ValueError(
                f"limits of worker {worker!r} must be (least, most), whole numbers with 0 <= least <= most <= "
                f"{budget}, not {short(pair)}"
            )
    return dict(limits or {})


def bounds(
    limits: Limits, names: Collection[Worker], there: Mask, budget: int, *, more: bool = False
) -> tuple[Ints, Ints]:
    """The least and the most tasks of each worker, (n,), 0 for those that are not there.

    ValueError where no allocation of B tasks, or with ``more`` of at least B, is within them.
    """
    if not limits:
        return np.zeros_like(there, np.int64), budget * there
    pairs = np.array([limits.get(name, (0, budget)) for name in names]) * there[:, None]
    least, most = pairs[:, 0], pairs[:, 1]
    if most.sum() < budget or (least.sum() > budget and not more):
        raise ValueError(
            f"limits give the workers that are there at least {least.sum()} and at most {most.sum()} tasks, and a "
            f"round has {budget}: change limits, or the budget"
        )
    return least, most


def within(shares: Ints, least: Ints, most: Ints, mean: Floats, budget: int, *, more: bool = False) -> Ints:
    """The allocation within limits that is made from ``shares``, (n,), by the fewest changes.

    Shares are raised to their least and lowered to their most. A task that is missing then goes to the worker that
    would be the first to finish one task more, and one that is too many is taken from the one that would be the last to
    finish, by the mean task times, (n,), as far as these are known.

    - ``more``: whether the sum may be above B, as in a race.

    >>> even, none = np.array([2, 2, 2]), np.zeros(3, int)
    >>> within(even, none, np.array([6, 6, 1]), np.array([3.0, 1.0, 1.0]), budget=6).tolist()
    [2, 3, 1]
    """
    found = np.clip(shares, least, most)
    missing = budget - int(found.sum())
    if missing > 0 or (missing < 0 and not more):
        known = (most > 0) & np.isfinite(mean) & (mean >= 0.0)
        time = np.where(known, mean, float(mean[known].mean()) if known.any() else 1.0).tolist()
        sign = 1 if missing > 0 else -1
        room = found < most if missing > 0 else found > least
        ahead = (1 + sign) // 2  # a task is added after those that a worker has, and taken from these
        ends = [(sign * (found[i] + ahead) * time[i], i) for i in np.flatnonzero(room).tolist()]
        heapq.heapify(ends)
        for _ in range(abs(missing)):
            i = ends[0][1]
            found[i] += sign
            if found[i] == (most[i] if sign > 0 else least[i]):
                heapq.heappop(ends)
            else:
                heapq.heapreplace(ends, (sign * (found[i] + ahead) * time[i], i))
    return found
