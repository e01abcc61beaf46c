"""Limits of the tasks that a worker has in a round, and the nearest allocation within them.

A worker's memory, for example, may limit its tasks.
"""

import heapq
from collections.abc import Collection, Mapping

import numpy as np

from ata_gym.typing import Floats, Ints, Mask, Worker
from ata_gym.utils.validation import short

Limits = Mapping[Worker, tuple[int, int]]
"""By worker: the least and the most tasks of a round; 0 and B for workers not named."""


def checked_limits(limits: Limits | None, workers: Collection[Worker], budget: int) -> Limits:
    """Return the limits as a dict after a check.

    Args:
        limits: The limits by worker; None for no limits.
        workers: The names that limits may have.
        budget: Results B that a round needs.

    Raises:
        ValueError: If a worker is not there, or its limits are no pair of whole numbers with 0 <=
            least <= most <= B.

    Example:
        >>> try:
        ...     checked_limits({"a": (3, 2)}, ["a"], budget=4)
        ... except ValueError as error:
        ...     print(str(error).rpartition(" with ")[2])
        0 <= least <= most <= 4, not (3, 2)
    """
    for worker, pair in (limits or {}).items():
        if worker not in workers:
            raise ValueError(f"limits name worker {worker!r}, and there are {short(list(workers))}")
        is_pair = (
            isinstance(pair, tuple | list)
            and len(pair) == 2
            and all(type(bound) is int for bound in pair)
        )
        if not is_pair or not 0 <= pair[0] <= pair[1] <= budget:
            raise ValueError(
                f"limits of worker {worker!r} must be (least, most), whole numbers with 0 <= least"
                f" <= most <= {budget}, not {short(pair)}",
            )
    return dict(limits or {})


def bounds(
    limits: Limits,
    names: Collection[Worker],
    present: Mask,
    budget: int,
    *,
    allow_more: bool = False,
) -> tuple[Ints, Ints]:
    """Return the least and the most tasks of each worker, (n,) each; 0 if it is not there.

    Args:
        limits: The limits by worker.
        names: The n names.
        present: (n,) which workers are present.
        budget: Results B that a round needs.
        allow_more: Whether an allocation may have more than B tasks, as in a race.

    Raises:
        ValueError: If no allocation of B tasks, or with ``allow_more`` of at least B, is within
            them.
    """
    if not limits:
        return np.zeros_like(present, np.int64), budget * present
    pairs = np.array([limits.get(name, (0, budget)) for name in names]) * present[:, None]
    least = pairs[:, 0]
    most = pairs[:, 1]
    if most.sum() < budget or (least.sum() > budget and not allow_more):
        raise ValueError(
            f"limits give the workers that are there at least {least.sum()} and at most"
            f" {most.sum()} tasks, and a round has {budget}: change limits, or the budget",
        )
    return least, most


def within(
    shares: Ints,
    least: Ints,
    most: Ints,
    mean: Floats,
    budget: int,
    *,
    allow_more: bool = False,
) -> Ints:
    """Return the allocation within limits, (n,), that differs least from ``shares``.

    Shares are raised to their least and lowered to their most. A task that is missing then goes to
    the worker that would be the first to finish one task more. A task that is too many is taken
    from the worker that would be the last to finish.

    Args:
        shares: (n,) tasks of each worker.
        least: (n,) the least tasks of each worker.
        most: (n,) the most tasks of each worker.
        mean: (n,) the mean task times; workers whose mean is not known count as average ones.
        budget: Tasks B to which the allocation sums.
        allow_more: Whether the sum may be above B, as in a race.

    Example:
        >>> shares = np.array([2, 2, 2])
        >>> most = np.array([6, 6, 1])
        >>> mean = np.array([3.0, 1.0, 1.0])
        >>> within(shares, np.zeros(3, int), most, mean, budget=6).tolist()
        [2, 3, 1]
    """
    allocation = np.clip(shares, least, most)
    missing = budget - int(allocation.sum())
    if missing > 0 or (missing < 0 and not allow_more):
        measured = (most > 0) & np.isfinite(mean) & (mean >= 0.0)
        if measured.any():
            average = float(mean[measured].mean())
        else:
            average = 1.0
        time = np.where(measured, mean, average).tolist()
        # a task is added after the tasks that a worker has, and taken from the end of these
        if missing > 0:
            sign = 1
            offset = 1
            has_room = allocation < most
            limit = most
        else:
            sign = -1
            offset = 0
            has_room = allocation > least
            limit = least
        # a heap by the time of the last task: the earliest end first to add, the latest to take
        ends = [
            (sign * (allocation[i] + offset) * time[i], i)
            for i in np.flatnonzero(has_room).tolist()
        ]
        heapq.heapify(ends)
        for _ in range(abs(missing)):
            i = ends[0][1]
            allocation[i] += sign
            if allocation[i] == limit[i]:
                heapq.heappop(ends)
            else:
                heapq.heapreplace(ends, (sign * (allocation[i] + offset) * time[i], i))
    return allocation
