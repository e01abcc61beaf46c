"""The log that the rows of a table hold."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.log import Log, checked
from ata_gym.bench.logs.tables.meaning.codes import texts_of
from ata_gym.bench.logs.tables.meaning.columns import Columns, columns_of
from ata_gym.bench.logs.tables.meaning.keys import Keys, epochs_of, step_of, worker_of
from ata_gym.bench.logs.tables.meaning.kinds import (
    chosen_kinds,
    chosen_rows,
    kinds_of,
    refuse_runs,
    without_evaluation,
)
from ata_gym.bench.logs.tables.meaning.repeats import tasks_of, without_repeats
from ata_gym.bench.logs.tables.meaning.sizes import remarks_on_hosts, sizes_of
from ata_gym.bench.logs.tables.meaning.whole import rest_of
from ata_gym.bench.logs.tables.propensities import with_propensities, without_propensities
from ata_gym.bench.logs.tables.roles import HOSTS, is_named
from ata_gym.bench.logs.tables.rows import Rows
from ata_gym.bench.logs.tables.times import seconds_of
from ata_gym.bench.logs.tables.words import (
    SUMMARY_WORDS,
    is_half_pass,
    is_latency,
    is_loading,
    listed,
    plain,
)
from ata_gym.typing import Floats, Ints

_RECORDER_COLUMNS = {"worker", "round", "duration"}
"""The columns of a ``TraceRecorder``, each of whose rows is a task."""
_CLOCK_STEPS = 8
"""The number of steps from which on times that always grow are readings of a clock."""


def log_of(rows: Rows, options: Options) -> Log:
    """Return the log that rows of a table hold.

    Args:
        rows: The rows, from a file or from a reader of another format.
        options: The names of columns, and which rows and steps count.

    Raises:
        ValueError: For columns that are not found or could be several, bad entries, rows that are
            no shares of work, times that hold the wait, and a log that ``checked`` refuses.
    """
    if not rows.frame.height:
        raise ValueError("the file holds no rows")
    frame, propensities = without_propensities(chosen_rows(rows.frame, options.where))
    columns = columns_of(frame, options)
    frame, about_rows = _rows_of_work(frame, columns)
    if not options.duration:
        about_rows += _parts_alone(columns.duration)
    frame, keys, several, sizes, remarks = _shares(frame, columns, options)
    seconds, unit = _seconds(frame, columns.duration)
    shape = len(keys.steps), len(keys.workers)
    cell = keys.cell
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(float)
    flat_sums: Floats = np.bincount(cell, seconds, shape[0] * shape[1]).astype(np.float64)
    sums = flat_sums.reshape(shape)
    recorded = _is_recorded(frame) and not several
    if sizes is not None:
        tasks = sizes
    elif several:
        tasks = (counts > 0).astype(float)
    else:
        tasks = counts
    rest = None
    latency = _latency(frame, columns.duration, keys)
    if latency is not None:
        remarks.append(_about_latency(columns.duration, latency, sums))
    complete = (counts > 0).all(axis=1)
    if counts.max() == 1 and complete.sum() >= 2 and shape[1] > 1:
        _refuse_clock(columns.duration, sums[complete])
        others = _others(frame, columns, cell, shape, seconds)
        chosen = {name: times[complete] for name, times in others.items()}
        work_names = [name for name in columns.duration if latency is None or not is_latency(name)]
        complete_rest = rest_of(work_names, sums[complete], chosen, bool(options.duration))
        if complete_rest is not None:
            rest = np.zeros(shape[0])
            rest[complete] = complete_rest
    if columns.doubt:
        raise ValueError(columns.doubt)
    log = Log(
        rows.name,
        keys.workers,
        sums,
        tasks,
        [*rows.remarks, *about_rows, *remarks],
        rest=rest,
        steps=keys.steps,
        unit=unit,
        latency=latency,
    )
    if propensities is not None:
        log = with_propensities(log, propensities)
    return checked(log, options.warmup, chosen=recorded)


def _rows_of_work(frame: pl.DataFrame, columns: Columns) -> tuple[pl.DataFrame, list[str]]:
    """The rows that have a time and are of a worker, and remarks on the others."""
    remarks = []
    has_none = pl.all_horizontal(pl.col(columns.duration).is_null())
    without = frame.select(has_none).to_series()
    if without.any() and not without.all():
        names = listed(columns.duration)
        remarks.append(f"{without.sum()} rows have no entry of {names}, and are left out.")
        frame = frame.filter(~without)
    for name in columns.worker:
        texts = texts_of(frame[name])
        if texts is None:
            continue
        entries = texts.unique().to_list()
        summaries = sorted(entry for entry in entries if plain(entry) in SUMMARY_WORDS)
        if summaries and len(summaries) < len(entries):
            rows = texts.is_in(summaries)
            remarks.append(
                f"{rows.sum()} rows with {listed(map(repr, summaries), 'or')} in column {name!r}"
                " are left out, since they are of no worker.",
            )
            frame = frame.filter(~rows)
    return frame, remarks


def _parts_alone(names: Sequence[str]) -> list[str]:
    """A remark on a time that is known to be a part of the work, by its name."""
    if len(names) > 1 or not (is_loading(names[0]) or is_half_pass(names[0])):
        return []
    return [f"{names[0]} is a part of a worker's time in a step; the others are not in this log."]


def _shares(
    frame: pl.DataFrame,
    columns: Columns,
    options: Options,
) -> tuple[pl.DataFrame, Keys, bool, Floats | None, list[str]]:
    """The rows that are shares of work.

    Returns:
        The rows, their workers and steps, whether the rows of a worker in a step are of several
        kinds that the caller chose, the sizes of shares if a column tells them, and remarks.
    """
    worker, workers, named_by = worker_of(frame, columns)
    hosts = [name for name in columns.identity if is_named(name, HOSTS)]
    epochs = epochs_of(frame, columns)
    roles: set[str | None] = {*named_by, *hosts, *epochs}
    roles |= {*columns.duration, *columns.other_times, columns.round}
    kinds = kinds_of(frame, [name for name in frame.columns if name not in roles])
    refuse_runs(kinds, worker, options.where)
    kept, remarks = without_evaluation(kinds, worker, options.where)
    if not kept.all():
        frame = frame.filter(kept)
        kinds = kinds.part(kept)
        worker, workers, _ = worker_of(frame, columns)
    step, steps = step_of(frame, columns, worker)
    keys = Keys(worker, step, workers, steps)
    if columns.round or epochs:
        cell = keys.cell
    else:
        # rows that are only counted tell nothing of which are of one step
        cell = worker
    kind = chosen_kinds(kinds, cell, options.where)
    keys, counted, more = without_repeats(keys, kind, frame)
    frame = frame.filter(counted)
    several = bool(kind.any())
    sizes, about_shares = sizes_of(frame, keys, kind[counted])
    if not several:
        # numbers of rows that make no sense are refused, whatever the sizes are
        about_rows = tasks_of(keys, _is_recorded(frame))
        if sizes is None:
            about_shares = about_rows
    remarks += [*more, *about_shares, *remarks_on_hosts(frame, columns, keys)]
    return frame, keys, several, sizes, remarks


def _is_recorded(frame: pl.DataFrame) -> bool:
    """Whether rows have the columns of a ``TraceRecorder``, and no other."""
    return {plain(name) for name in frame.columns} == _RECORDER_COLUMNS


def _seconds(frame: pl.DataFrame, names: Sequence[str]) -> tuple[Floats, str]:
    """The sum of some columns of times, (rows,), and its unit."""
    columns = [seconds_of(frame[name]) for name in names]
    units = {unit for _, unit in columns}
    if len(units) > 1:
        unknown = [name for name, (_, unit) in zip(names, columns, strict=True) if not unit]
        raise ValueError(
            f"{listed(names)} cannot be added up, since the unit of {listed(unknown)} is not known:"
            " end its name with the unit, such as _ms",
        )
    total: Floats = sum((times for times, _ in columns), np.zeros(frame.height))
    return total, units.pop()


def _latency(frame: pl.DataFrame, names: Sequence[str], keys: Keys) -> Floats | None:
    """The part of the own time before the first task, (steps, workers); None if it is unknown.

    Where a worker has several rows in a step, each has a latency of its own, and a share has none.
    """
    latencies = [name for name in names if is_latency(name)]
    if not latencies or len(latencies) == len(names):
        return None
    shape = len(keys.steps), len(keys.workers)
    if len(np.unique(keys.cell)) < len(keys.cell):
        return None
    table = np.zeros(shape[0] * shape[1])
    table[keys.cell] = _seconds(frame, latencies)[0]
    return table.reshape(shape)


def _about_latency(names: Sequence[str], latency: Floats, seconds: Floats) -> str:
    """The remark on a latency: what it is, and which part of the shares."""
    latencies = listed(name for name in names if is_latency(name))
    part = 100.0 * latency.sum() / max(float(seconds.sum()), np.finfo(float).tiny)
    return (
        f"{latencies} counts as the latency of a worker's share, which it pays once in a step in"
        f" which it has tasks, however many: {part:.2g} % of the time of all shares."
    )


def _others(
    frame: pl.DataFrame,
    columns: Columns,
    cell: Ints,
    shape: tuple[int, int],
    seconds: Floats,
) -> dict[str, Floats]:
    """The other columns of times, (steps, workers), of a table with a row for each cell."""
    own_numbers = _numbers(frame, columns.duration)
    own_unit = seconds_of(frame[columns.duration[0]])[1]
    others = {}
    for name in columns.other_times:
        try:
            times, unit = seconds_of(frame[name])
        except ValueError:
            # a column that is not used may have anything
            continue
        if unit != own_unit:
            # only one says its unit: the numbers of a table are of one, as far as is known
            with np.errstate(invalid="ignore", divide="ignore"):
                times = _numbers(frame, [name]) * (seconds.sum() / own_numbers.sum())
        if np.isfinite(times).all():
            table = np.full(shape[0] * shape[1], np.nan)
            table[cell] = times
            others[name] = table.reshape(shape)
    return others


def _numbers(frame: pl.DataFrame, names: Sequence[str]) -> Floats:
    """The sum of some columns as they are in the file, (rows,); NaN where one is no number."""
    total = np.zeros(frame.height)
    for name in names:
        column = frame[name]
        if column.dtype == pl.String or column.dtype.is_numeric():
            total = total + column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        else:
            total = np.full(frame.height, np.nan)
    return total


def _refuse_clock(names: Sequence[str], seconds: Floats) -> None:
    """Raise ValueError if the times of all workers grow from step to step, as a clock does."""
    if len(seconds) >= _CLOCK_STEPS and (np.diff(seconds, axis=0) > 0).all():
        raise ValueError(
            f"{' + '.join(names)} grows from step to step on every worker, as a clock does: record"
            " the time that each step took",
        )
