"""Several rows of a worker in a step: tasks, passes, or steps written again after a restart."""

from typing import NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.meaning.codes import distinct, varies
from ata_gym.bench.logs.tables.meaning.keys import Keys
from ata_gym.bench.logs.tables.words import listed
from ata_gym.typing import Ints, Mask

_MOST_DESCENTS = 0.25
"""The largest part of rows after which steps go down in a file in the order of time."""
_USUAL_PART = 0.9
"""The least part of the steps with unequal numbers of rows that have as many rows as is usual.

An allocation has a fixed number of tasks.
"""
_LEAST_WITHOUT_GAPS = 0.5
"""The least part of its span of steps that a pass has."""
_LEAST_KEPT = 0.5
"""The least part of the rows that counts after restarts."""


class Repeats(NamedTuple):
    """What several rows of a worker in a step are."""

    keys: Keys
    """The worker and the step of each row that counts."""
    kept: Mask
    """(rows,): whether a row counts."""
    remarks: list[str]
    """What a reader should know of it."""


def without_repeats(keys: Keys, kind: Ints, frame: pl.DataFrame) -> Repeats:
    """Return the keys in which a step that began again is a step of its own, or counts once.

    In a file in the order of time, the steps of a worker go up. Where the steps of all workers
    begin again at the first one, as in epochs, each pass has its own steps. Where they begin again
    elsewhere, or for some workers only, as after a restart, the rows that were written last count.

    Args:
        keys: The worker and the step of each row, in the order of the file.
        kind: (rows,): the number of the kind of a row; rows of different kinds are different work.
        frame: The rows.

    Raises:
        ValueError: If less than half of the rows would count.
    """
    everything = np.ones(len(keys.worker), np.bool_)
    # rows of one sort have one worker and one kind
    kinds = int(kind.max()) + 1
    sort = keys.worker * kinds + kind
    cell = keys.step * (len(keys.workers) * kinds) + sort
    number = _pass_numbers(sort, keys.step)
    if not varies(cell, number) or not _go_on(sort, keys.step, number):
        return Repeats(keys, everything, [])
    if _begin_again(sort, keys.step, number):
        first = number == 0
        if frame.filter(~first).join(frame.filter(first), on=frame.columns, how="anti").is_empty():
            remark = f"All rows are there {number.max() + 1} times, and count once."
            return Repeats(keys.part(first), first, [remark])
        remark = (
            f"Steps begin again: the rows are taken as {number.max() + 1} passes over the same step"
            " numbers, in the order of the file."
        )
        return Repeats(_in_passes(keys, number), everything, [remark])
    last = np.zeros(cell.max() + 1, np.int64)
    np.maximum.at(last, cell, number)
    kept = number == last[cell]
    if kept.mean() < _LEAST_KEPT:
        raise ValueError(
            f"the steps of worker {keys.workers[int(keys.worker[number.argmax()])]} go down"
            f" {number.max()} times in the file, and begin again at different steps: add a column"
            " of epochs, which numbers the passes",
        )
    written_again = distinct(keys.cell[~kept]) % len(keys.workers)
    counts = np.bincount(written_again, minlength=len(keys.workers))
    named = [
        f"{counts[index]} steps of worker {keys.workers[index]}"
        for index in np.flatnonzero(counts).tolist()
    ]
    remark = f"{listed(named, most=4)} were written twice, after a restart; the later ones count."
    return Repeats(keys.part(kept), kept, [remark])


def _in_passes(keys: Keys, number: Ints) -> Keys:
    """The keys in which each step has the number of its pass before it: "2:15"."""
    steps = len(keys.steps)
    present, step = np.unique(number * steps + keys.step, return_inverse=True)
    names = [f"{one // steps + 1}:{keys.steps[one % steps]}" for one in present.tolist()]
    return keys._replace(step=step, steps=names)


def tasks_of(keys: Keys, recorded: bool) -> list[str]:
    """Return remarks on the rows of a worker in a step, which are its tasks.

    Args:
        keys: The worker and the step of each row that counts.
        recorded: Whether the file has the columns of a ``TraceRecorder``, and no other.

    Raises:
        ValueError: If workers have unequal numbers of rows in a step that are no allocation.
    """
    shape = len(keys.steps), len(keys.workers)
    counts = np.bincount(keys.cell, minlength=shape[0] * shape[1]).reshape(shape)
    present = counts > 0
    highest = counts.max(axis=1)
    lowest = np.where(present, counts, highest[:, None]).min(axis=1)
    unequal = highest > lowest
    if not unequal.any():
        return _tasks_by_step(keys, highest, recorded)
    totals = counts.sum(axis=1)
    usual = (totals[unequal] == np.median(totals)).mean()
    if recorded or usual >= _USUAL_PART:
        return [
            f"Workers have from {counts[present].min()} to {counts.max()} rows in a step: each is"
            " taken as one task of equal size."
        ]
    step = int(unequal.argmax())
    many = int(counts[step].argmax())
    # A worker without a row is not in the step.
    counts_there = np.where(present[step], counts[step], counts.max() + 1)
    few = int(counts_there.argmin())
    raise ValueError(
        f"worker {keys.workers[many]} has {counts[step, many]} rows in step {keys.steps[step]},"
        f" and worker {keys.workers[few]} has {counts[step, few]}; such unequal numbers are in"
        f" {unequal.sum()} of {shape[0]} steps, and no column says what the rows are: leave one row"
        " for each worker and step, or add a column of kinds, and choose with --where"
    )


def _tasks_by_step(keys: Keys, counts: Ints, recorded: bool) -> list[str]:
    """Remarks on steps in which all workers have the same number of rows, (steps,).

    Raises:
        ValueError: If there is one row in most steps, and more in others.
    """
    usual = int(np.median(counts))
    others = counts != usual
    if usual == 1 and others.any() and not recorded:
        step = int(others.argmax())
        raise ValueError(
            f"workers have {counts[step]} rows in step {keys.steps[step]}, and 1 in most; such are"
            f" {others.sum()} of {len(counts)} steps, and no column says what the rows are: leave"
            " one row for each worker and step, or add a column of kinds, and choose with --where",
        )
    if usual == 1 or recorded:
        return []
    if others.any():
        number = f"from {counts.min()} to {counts.max()}"
    else:
        number = f"{usual}"
    return [f"Workers have {number} rows in a step: each is taken as one task of equal size."]


def _pass_numbers(sort: Ints, step: Ints) -> Ints:
    """(rows,): how often the steps of the sort went down before; 0 if the file has no order."""
    order = np.argsort(sort, kind="stable")
    ordered = sort[order]
    by_sort = step[order]
    same = ordered[1:] == ordered[:-1]
    descents = np.concatenate([[False], same & (by_sort[1:] < by_sort[:-1])])
    if descents.mean() > _MOST_DESCENTS and not _alike(ordered, by_sort):
        return np.zeros_like(step)
    total = np.cumsum(descents)
    counts = np.bincount(sort)
    first = np.cumsum(counts) - counts
    number = np.empty_like(step)
    number[order] = total - total[first[ordered]]
    return number


def _go_on(sort: Ints, step: Ints, number: Ints) -> bool:
    """Whether the steps of each later pass follow each other, without gaps for the most part."""
    passes = int(number.max()) + 1
    one_pass = sort * passes + number
    steps = int(step.max()) + 1
    present = distinct(one_pass * steps + step)
    count = np.bincount(present // steps, minlength=(int(sort.max()) + 1) * passes)
    first = np.full(len(count), steps)
    last = np.full(len(count), -1)
    np.minimum.at(first, one_pass, step)
    np.maximum.at(last, one_pass, step)
    later = (count > 0) & (np.arange(len(count)) % passes > 0)
    length = (last - first + 1)[later]
    return bool((count[later] >= _LEAST_WITHOUT_GAPS * length).all())


def _alike(sort: Ints, step: Ints) -> bool:
    """Whether all sorts have the same steps in the same order, in rows in order of sort."""
    counts = np.bincount(sort)
    counts = counts[counts > 0]
    if (counts != counts[0]).any():
        return False
    by_sort = step.reshape(len(counts), -1)
    return bool((by_sort == by_sort[0]).all())


def _begin_again(sort: Ints, step: Ints, number: Ints) -> bool:
    """Whether all sorts of rows pass over the steps several times, from the first step on.

    The last pass may lack some, where the log was cut.
    """
    passes = int(number.max()) + 1
    nowhere = step.max() + 1
    first = np.full((sort.max() + 1, passes), nowhere)
    np.minimum.at(first, (sort, number), step)
    # not every worker has rows of every kind
    first = first[first[:, 0] < nowhere]
    whole_passes = first[:, : max(2, passes - 1)]
    all_pass = bool((whole_passes < nowhere).all())
    begin_at_0 = bool(((first == 0) | (first == nowhere)).all())
    return all_pass and begin_at_0
