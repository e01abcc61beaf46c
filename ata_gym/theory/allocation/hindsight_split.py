"""The fixed split of the tasks that a log would have needed, found when it is over."""

import math

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, kernel, phase

_SEARCHED_TIMES = 1_000_000
"""The number of times of a log that count in the search, about."""

_LEAST_GAIN = 1e-12
"""A gain of this share of the time, or less, is rounding."""


def best_split(times: Floats, budget: int, latency: Floats | None = None) -> Ints:
    """Return a fixed split of the tasks that no move of one task makes faster.

    Args:
        times: The time of a task of each worker in each step, shape (steps, n). Of long logs of
            many workers every k-th step counts.
        budget: The number B of tasks.
        latency: The latency of each worker in each step, which a worker with tasks pays, shape
            (steps, n); a constant one per worker has one step, (1, n). By default there is none.

    Returns:
        The tasks of each worker, shape (n,).

    Example:
        >>> best_split(np.array([[1.0, 1.0, 3.0], [1.0, 2.0, 3.0]]), budget=6)
        array([3, 2, 1])
    """
    # every k-th step, where k is the number of times over _SEARCHED_TIMES, rounded up
    stride = -(-times.size // _SEARCHED_TIMES)
    times = times[::stride]
    if latency is None:
        late = np.zeros((1, times.shape[1]))
        start = allocate(times.mean(axis=0), budget)
    else:
        late = latency[::stride]
        start = allocate(times.mean(axis=0), budget, latency=late.mean(axis=0))
    split: Ints = _improved(times, late, start)
    return split


@phase
def _two_last(
    times: Floats, late: Floats, split: Ints, last: Ints, longest: Floats, second: Floats
) -> None:
    """Fill in which worker is last in each step, its time, and the longest time of the others."""
    for s in range(len(times)):
        longest[s] = second[s] = -math.inf
        step_late = late[s if len(late) > 1 else 0]
        for i in range(len(split)):
            time = split[i] * times[s, i]
            if split[i] > 0:
                time += step_late[i]
            if time > longest[s]:
                second[s] = longest[s]
                longest[s] = time
                last[s] = i
            elif time > second[s]:
                second[s] = time


@phase
def _add_differences(
    step_times: Floats,
    step_late: Floats,
    split: Ints,
    longest: float,
    remaining: float,
    totals: Floats,
) -> None:
    """Add what a step takes with one task more of each worker if the last has one task fewer.

    It is compared with the same step where the last worker keeps its task, ``longest``;
    ``remaining`` is the time of the step without any task more, and without that task.
    """
    for k in range(len(split)):
        time = split[k] * step_times[k] + step_times[k] + step_late[k]
        totals[k] += max(remaining, time) - max(longest, time)


@kernel("(s,n),(c,n),(n)->(n)")
def _improved(times: Floats, late: Floats, start: Ints, split: Ints) -> None:
    """Move one task at a time, the one that gains most, while any move gains.

    Only a worker that is last in a step can make the log faster by a task fewer. So a pass over the
    steps tells the gain of each pair: for each taker the time of all steps if nobody gives, and for
    each giver the differences in the steps in which it is last.
    """
    steps, n = times.shape
    last = np.zeros(steps, np.int64)
    longest = np.empty(steps)
    second = np.empty(steps)
    taken = np.empty(n)
    totals = np.empty(n)
    copy(start, split)
    while True:  # each pass makes the log faster, of finitely many splits
        _two_last(times, late, split, last, longest, second)
        taken[:] = 0.0
        for s in range(steps):
            step_late = late[s if len(late) > 1 else 0]
            for k in range(n):
                taken[k] += max(longest[s], split[k] * times[s, k] + times[s, k] + step_late[k])
        best = longest.sum() * (1.0 - _LEAST_GAIN)
        giver = -1
        taker = -1
        order = np.argsort(last, kind="mergesort")
        p = 0
        while p < steps:
            worker = last[order[p]]
            copy(taken, totals)
            while p < steps and last[order[p]] == worker:
                s = order[p]
                step_late = late[s if len(late) > 1 else 0]
                fewer = split[worker] * times[s, worker] - times[s, worker]
                if split[worker] > 1:
                    fewer += step_late[worker]
                remaining = max(second[s], fewer)
                _add_differences(times[s], step_late, split, longest[s], remaining, totals)
                p += 1
            for k in range(n):
                if k != worker and totals[k] < best:
                    best = totals[k] * (1.0 - _LEAST_GAIN)
                    giver = worker
                    taker = k
        if giver < 0:
            break
        split[giver] -= 1
        split[taker] += 1
