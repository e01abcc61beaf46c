"""Who was waited for in a job, when, and how much that cost, before anything is played."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.logs import Log
from ata_gym.bench.store.note import Note
from ata_gym.bench.studies.what_if.ways import task_times
from ata_gym.typing import Floats

SHOWN_WORKERS = 12
"""The largest number of workers in the terminal and in the picture."""

_MOST_COLUMNS = 400
"""The largest number of columns of the heat map; each has neighbouring steps."""

_MOST_RANGES = 4
"""The largest number of ranges of steps that are named for a worker."""

_LEAST_SHARE = 0.05
"""The part of all that was lost, to a worker of which it is said when."""

_LEAST_PART = 1 / 2
"""The part of what was lost to a worker that named ranges hold at least."""

_DENSITY = 1.25
"""By how much more is lost in a step of a named range than in a step of the log, at least."""

_LEAST_SCORE = 0.25
"""The score of a further range that counts, as a part of the largest one."""

_CONCENTRATED = 4.0
"""By how much more is lost in the steps of named ranges, from which on they need no proof."""

_LEAST_FILLED = 1 / 4
"""The part of the steps of a range in which more is lost than on average, at least."""

_SHUFFLES = 39
"""How often the steps are put in another order; ranges that are clearer than in all of these orders
are there by chance in one log of forty."""

_SHORTEST_TIME = 1e-200
"""The time as which the time of a task counts that took none."""

_ROUNDING = 1e-9
"""The relative difference of two times that are equal."""


def about_log(log: Log, budget: int) -> Note:
    """Return what the page says of a log itself.

    Args:
        log: The times of the job.
        budget: The number B of tasks into which a step is cut.
    """
    steps, n = log.seconds.shape
    runtime = float(log.step_times.sum())
    worker_time = float(log.seconds.sum())
    computed = log.seconds.max(axis=1)
    # what ends last together was last together
    is_last = log.seconds >= computed[:, None] * (1.0 - _ROUNDING)
    last = (is_last / is_last.sum(axis=1, keepdims=True)).mean(axis=0)
    lost = _lost(log.seconds)
    perfect_time = runtime - float(computed.sum()) + float(_perfect(log, budget).sum())
    if log.rest is None:
        rest = None
    else:
        rest = float(log.rest.sum())
    return {
        "log": log.name,
        "steps": steps,
        "workers": n,
        "budget": budget,
        "runtime": runtime,
        "worker_time": worker_time,
        "rest": rest,
        "unit": log.unit,
        "idle": (n * float(computed.sum()) - worker_time) / (n * runtime),
        "perfect": 1.0 - perfect_time / runtime,
        "doubt": log.doubt or _without_time(log),
        "remarks": list(log.remarks),
        "waited_for": [
            {
                "worker": worker,
                "last": float(last[k]),
                "lost": float(lost[:, k].sum()) / runtime,
                "mean": float(log.seconds[log.present[:, k], k].mean()),
                "when": _when_much(lost, k, log.step_names),
            }
            for k, worker in enumerate(log.workers)
        ],
    }


def _perfect(log: Log, budget: int) -> Floats:
    """The time of a perfect split of each step, (steps,), in which all who work end together.

    It is B tasks at the sum of the speeds of the workers whose latency is over by then.
    """
    times = task_times(log, budget)
    if log.latency is None:
        with np.errstate(divide="ignore"):
            return np.asarray(budget / (1.0 / times).sum(axis=1))
    order = np.argsort(log.latency, axis=1)
    late = np.take_along_axis(log.latency, order, 1)
    speeds = 1.0 / np.maximum(np.take_along_axis(times, order, 1), _SHORTEST_TIME)
    # when the k workers of the shortest latencies end if they alone work: the earliest of these
    # ends is the end of the perfect split
    ends = (budget + (speeds * late).cumsum(axis=1)) / speeds.cumsum(axis=1)
    return np.asarray(ends.min(axis=1))


def _lost(seconds: Floats) -> Floats:
    """The time of each step in which all but one worker had finished, (steps, workers)."""
    lost = np.zeros_like(seconds)
    rows = np.arange(len(seconds))
    ends = np.partition(seconds, -2, axis=1)
    lost[rows, seconds.argmax(axis=1)] = ends[:, -1] - ends[:, -2]
    return lost


def _without_time(log: Log) -> str:
    """Why a log in which a worker mostly took no time does not answer; empty for other logs."""
    idle = (log.present & (log.seconds == 0)).sum(axis=0) / log.present.sum(axis=0)
    if idle.max() < 0.5:
        return ""
    worker = log.workers[int(idle.argmax())]
    return f"worker {worker} took no time in {100 * idle.max():.0f} % of steps."


def _when_much(lost: Floats, place: int, names: Sequence[str]) -> str:
    """When most was lost to a worker; empty for one to which little of all was lost."""
    if lost[:, place].sum() < _LEAST_SHARE * lost.sum():
        return ""
    return when(lost[:, place], names)


def when(lost: Floats, names: Sequence[str]) -> str:
    """Return the steps in which most was lost to a worker, in words.

    They are ranges of steps in which more is lost than on average. Where a few of them do not hold
    half of what was lost, or steps in another order have ranges that are as clear, it was lost all
    along.

    Args:
        lost: The time that was lost to the worker in each step, (steps,).
        names: The names of the steps.

    Example:
        >>> names = [str(step) for step in range(100, 200)]
        >>> spells = np.where(np.arange(100) // 20 % 2 == 1, 0.5, 0.0)
        >>> when(spells, names), when(np.full(100, 0.5), names), when(np.zeros(100), names)
        ('120-139, 160-179', 'all along', '')
    """
    if not lost.any():
        return ""
    scores = lost / lost.mean() - _DENSITY
    ranges: list[tuple[int, int]] = []
    for one in _ranges(scores):
        ranges += _without_gaps(one, lost)
    chosen = sorted(ranges[:_MOST_RANGES])
    lost_inside = sum(float(lost[start:end].sum()) for start, end in chosen)
    steps_inside = sum(end - start for start, end in chosen)
    # the parts of what was lost, and of the steps
    held = lost_inside / float(lost.sum())
    part = steps_inside / len(lost)
    if held < _LEAST_PART or (held < _CONCENTRATED * part and _are_by_chance(chosen, scores)):
        return "all along"
    text = ", ".join(_range_text(names[start], names[end - 1]) for start, end in chosen)
    if len(ranges) > len(chosen):
        return f"{text} and others"
    return text


def _ranges(scores: Floats) -> list[tuple[int, int]]:
    """The ranges, from a step up to before another, whose scores add up to most, the best first.

    After each range its steps are out (Ruzzo and Tompa, ISMB 1999). The list ends with one more
    than are named, or before one that scores little.
    """
    scores = scores.copy()
    ranges: list[tuple[int, int]] = []
    least = 0.0
    while len(ranges) <= _MOST_RANGES:
        sums = np.append(0.0, scores.cumsum())
        # of ranges that are equal to rounding the first is the best
        rises = (sums - np.minimum.accumulate(sums)).round(9)
        end = int(rises.argmax())
        if rises[end] <= least:
            break
        start = end - 1 - int(sums[:end][::-1].argmin())
        ranges.append((start, end))
        least = max(least, _LEAST_SCORE * float(rises[end]))
        # no sum over these steps is above 0 again
        scores[start:end] = -np.abs(scores).sum()
    return ranges


def _without_gaps(steps: tuple[int, int], lost: Floats) -> list[tuple[int, int]]:
    """A range, or its single steps in which more is lost than on average, if these are few.

    Two hangs are no range, though so much is lost to them that one would reach from the first to
    the second.
    """
    start, end = steps
    high = start + np.flatnonzero(lost[start:end] > lost.mean())
    if len(high) >= _LEAST_FILLED * (end - start):
        return [steps]
    longest_first = high[np.argsort(-lost[high], kind="stable")]
    return [(step, step + 1) for step in longest_first.tolist()]


def _are_by_chance(ranges: Sequence[tuple[int, int]], scores: Floats) -> bool:
    """Whether steps in other orders have ranges whose scores add up to as much."""
    rng = np.random.default_rng(0)
    clearness = _total(ranges, scores)
    for _ in range(_SHUFFLES):
        shuffled = rng.permutation(scores)
        if _total(_ranges(shuffled)[:_MOST_RANGES], shuffled) >= clearness:
            return True
    return False


def _total(ranges: Sequence[tuple[int, int]], scores: Floats) -> float:
    return sum(float(scores[start:end].sum()) for start, end in ranges)


def _range_text(first: str, last: str) -> str:
    if first == last:
        return first
    if first.isdecimal() and last.isdecimal():
        return f"{first}-{last}"
    return f"{first} to {last}"


def worst_first(note: Note) -> list[dict[str, Any]]:
    """Return the workers of a note, the one that was waited for longest first."""
    return sorted(note["waited_for"], key=lambda worker: (-worker["lost"], -worker["last"]))


def _shares_and_medians(log: Log) -> tuple[Floats, Floats]:
    """The times of shares, (steps, workers), and their median in each step, (steps,).

    A worker without a task counts as the median of the others.
    """
    if log.present.all():
        return log.seconds, np.median(log.seconds, axis=1)
    medians = np.nanmedian(np.where(log.present, log.seconds, np.nan), axis=1)
    return np.where(log.present, log.seconds, medians[:, None]), medians


def heat_frame(log: Log, note: Note) -> pl.DataFrame:
    """Return the time of each share relative to the median of its step, for a picture.

    The rows are the workers that were waited for longest, and the mean of the others; long logs
    have neighbouring steps in a column. Columns: worker, first and last (the names of the steps),
    relative.

    Args:
        log: The times of the job.
        note: What ``about_log`` returns.
    """
    places = {worker: place for place, worker in enumerate(log.workers)}
    order = [places[worker["worker"]] for worker in worst_first(note)]
    shown = order[:SHOWN_WORKERS]
    others = order[SHOWN_WORKERS:]
    seconds, medians = _shares_and_medians(log)
    times = [seconds[:, place] for place in shown]
    labels = [log.workers[place] for place in shown]
    if others:
        times.append(seconds[:, others].mean(axis=1))
        labels.append(f"the other {len(others):,}")
    names = log.step_names
    steps = len(names)
    columns = np.array_split(np.arange(steps), min(steps, _MOST_COLUMNS))
    rows: list[tuple[str, str, str, float]] = []
    for label, row in zip(labels, times, strict=True):
        for column in columns:
            median = float(medians[column].sum())
            # where half of the workers took no time, others have no ratio, and are shown as alike
            relative = float(row[column].sum()) / median if median > 0 else 1.0
            rows.append((label, names[column[0]], names[column[-1]], relative))
    return pl.DataFrame(rows, ["worker", "first", "last", "relative"], orient="row")
