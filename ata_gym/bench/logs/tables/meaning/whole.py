"""What other columns of times say of the own time: the rest of the step, or that it is none."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from ata_gym.bench.logs.checks import agreement, typical_spread
from ata_gym.bench.logs.tables.words import (
    is_compute,
    is_loading,
    is_waiting,
    is_whole,
    listed,
)
from ata_gym.typing import Floats

_SAME_WHOLE = 0.05
"""The spread of the workers below which a column may be the time of a whole step."""
_SAME_SUM = 0.01
"""The spread of a sum below which it is the same on all workers."""
_LESS = 0.2
"""The largest spread of a sum that is the same on all, over the spread of its columns."""
_MOST_WAITS = 4
"""The largest number of columns of waiting of which all sums are looked at."""


def rest_of(
    duration: Sequence[str],
    seconds: Floats,
    others: Mapping[str, Floats],
    named: bool,
) -> Floats | None:
    """Return the rest of each step after the longest work, (steps,), or None if it is unknown.

    The whole of a step is a column that is called so and has about the same time on all workers, or
    the sum of work and waiting where that is the same.

    Args:
        duration: The columns of the own time.
        seconds: (steps, workers): the own time.
        others: (steps, workers) of the other columns of times.
        named: Whether the caller named the columns of the own time.

    Raises:
        ValueError: If the own time includes the wait, since it is the same on all workers, or is
            so together with another column.
    """
    own_name = " + ".join(duration)
    agreed = agreement(seconds)
    # near equal work is no wait by itself, but where other times are beside it and differ
    several = len(duration) > 1 or bool(_differing(others)) or any(map(is_waiting, others))
    if agreed.holds_wait or (agreed.near and several and not all(map(is_compute, duration))):
        _refuse_whole(duration, agreed.finding, others)
    spread = typical_spread(seconds)
    wholes = [
        times
        for name, times in others.items()
        if is_whole(name) and typical_spread(times) < min(_SAME_WHOLE, spread)
    ]
    waits = [name for name in others if is_waiting(name)]
    for size in range(min(len(waits), _MOST_WAITS), 0, -1):
        for chosen in combinations(waits, size):
            times = seconds + sum(others[name] for name in chosen)
            if typical_spread(times) < _LESS * spread:
                wholes.append(times)
    for name, times in others.items():
        if name not in waits and _is_cut_in_two(seconds, times):
            if not _is_work(duration, name, named):
                _refuse_cut(own_name, name)
            wholes.append(seconds + times)
    for times in wholes:
        rest: Floats = np.median(times, axis=1) - seconds.max(axis=1)
        # a whole that is shorter than its part is none
        if np.median(rest) >= 0:
            return np.maximum(rest, 0.0)
    return None


def _is_cut_in_two(seconds: Floats, times: Floats) -> bool:
    """Whether two columns add up to what is the same on all workers, while each differs."""
    spread = typical_spread(seconds + times)
    # relative to the sum, so that a small column does not count as one that differs
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.ptp(seconds, axis=1) / (seconds + times).max(axis=1)
    return spread < min(_SAME_SUM, _LESS * float(np.median(np.nan_to_num(difference))))


def _is_work(duration: Sequence[str], other: str, named: bool) -> bool:
    """Whether the first of two columns that add up to a whole step is work, by its names."""
    if all(is_compute(name) for name in duration):
        # loading holds no wait for other workers, so that the computation does
        return not is_loading(other)
    return named and all(is_loading(name) for name in duration) and not is_loading(other)


def _refuse_cut(own_name: str, other: str) -> None:
    """Raise ValueError: the own time has the wait, since it and another add up to a step."""
    if is_loading(other):
        cure = f"; --duration-column {other} tells who is slow in loading"
    else:
        cure = f"; if {other} does not include it, name it with --duration-column {other}"
    raise ValueError(
        f"{own_name} + {other} is the same on all workers in each step, so that {own_name} includes"
        " the wait for the slowest; record the time of each worker until its gradient is there,"
        f" before the all-reduce{cure}",
    )


def _differing(others: Mapping[str, Floats]) -> list[str]:
    """The columns of times that are no waiting and differ between workers."""
    return [
        name
        for name, times in others.items()
        if not is_waiting(name) and not agreement(times).finding
    ]


def _refuse_whole(
    duration: Sequence[str],
    finding: str,
    others: Mapping[str, Floats],
) -> None:
    """Raise ValueError: the own time is the same on all workers."""
    own_name = " + ".join(duration)
    others_that_differ = _differing(others)
    waits = [name for name in others if is_waiting(name)]
    if others_that_differ:
        cure = (
            f"name a column that does not include it with --duration-column, such as"
            f" {listed(others_that_differ, 'or')}"
        )
    elif len(duration) > 1:
        cure = "name fewer of these columns, without those that hold it, with --duration-column"
    elif waits:
        cure = (
            f"add a column of {own_name} less {listed(waits)}, and name it with --duration-column"
        )
    else:
        cure = "record the time of each worker until its gradient is there, before the all-reduce"
    raise ValueError(
        f"{finding}, so that {own_name} includes the wait for the slowest, and"
        f" this log cannot say who it is: {cure}",
    )
