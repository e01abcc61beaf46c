"""The telemetry of TraceML (package ``traceml-ai``): a SQLite database of a run."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.logs import peek
from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.tables.meaning import log_of
from ata_gym.bench.logs.tables.rows import Rows
from ata_gym.typing import Floats
from ata_gym.utils.files.sqlite_files import columns_by_table, is_sqlite, read_columns
from ata_gym.utils.validation import short, whole_number

_TABLE = "step_time_samples"
_DATABASES = ("aggregator/telemetry", "telemetry")
"""Where the database of a run is, below the folder of the run or beside its summary."""
_EVENTS = {
    "loading": "_traceml_internal:dataloader_next",
    "copying": "_traceml_internal:h2d_time",
    "forward": "_traceml_internal:forward_time",
    "backward": "_traceml_internal:backward_time",
    "optimizer": "_traceml_internal:optimizer_step",
    # from the gradients set to zero to the end of the optimizer; loading comes before it
    "step": "_traceml_internal:step_time",
}
"""The parts of a step, and the names of their events in the file."""
_BEFORE_THE_WAIT = ("loading", "copying", "forward", "optimizer")
_CLOCKS = ("gpu_ms", "cpu_ms", "duration_ms")
_LONGEST = 1e12
"""Milliseconds; over thirty years."""


class _Samples(NamedTuple):
    """Steps of ranks, in the order in which they were written."""

    ranks: Sequence[int]
    steps: Sequence[int]
    times: Mapping[str, Mapping[str, Floats]]
    """By the part of the step and the clock: (samples,) milliseconds, NaN where there is none."""
    has_gpu: bool


class _Times(NamedTuple):
    """The times of samples, in milliseconds."""

    before_wait: Floats
    """(samples,)"""
    whole: Floats | None
    """(samples,) with the wait; None where the file cannot say."""
    remark: str


def _recognises(path: Path) -> bool:
    if path.is_dir():
        return any(is_sqlite(path / name) for name in _DATABASES)
    if is_sqlite(path):
        with suppress(ValueError, OSError):
            return _TABLE in columns_by_table(path)
    summary = peek.small_object(path)
    return "step_time" in summary and "primary_diagnosis" in summary


def _read(path: Path, options: Options) -> Log:
    database = _database(path)
    samples = _samples(database)
    times = _times(samples)
    frame = pl.DataFrame(
        {"rank": samples.ranks, "step": samples.steps, "seconds": times.before_wait * 1e-3},
    )
    remarks = [times.remark, *_missing(database, samples)]
    log = log_of(Rows(path.name, frame, remarks), options)
    if times.whole is None:
        return log
    # what is left of a step after its longest share
    longest: dict[str, float] = {}
    for step, whole in zip(samples.steps, times.whole.tolist(), strict=True):
        longest[str(step)] = max(whole * 1e-3, longest.get(str(step), 0.0))
    step_times = np.array([longest[step] for step in log.steps])
    return replace(log, rest=np.maximum(step_times - log.seconds.max(axis=1), 0.0))


def _database(path: Path) -> Path:
    """The database of a run, from itself, its folder, or the summary in that folder."""
    if is_sqlite(path):
        return path
    if path.is_dir():
        folder = path
    else:
        folder = path.parent
    for name in _DATABASES:
        if is_sqlite(folder / name):
            return folder / name
    raise ValueError(
        "this is a summary of TraceML, with means over steps: name the folder of its run, in which"
        f" {_DATABASES[0]} holds the steps",
    )


def _samples(database: Path) -> _Samples:
    """The steps of a run.

    Raises:
        ValueError: For a table that lacks something, and for bad entries, with their row.
    """
    present = columns_by_table(database).get(_TABLE)
    if present is None:
        raise ValueError(
            f"{database.name} has no table {_TABLE}: record with traceml-ai 0.5 or newer, and copy"
            " the folder of its run",
        )
    needed = ["rank", "step", "events_json"]
    if "global_rank" in present:
        needed[0] = "global_rank"
    absent = [column for column in needed if column not in present]
    if absent:
        raise ValueError(
            f"the table {_TABLE} lacks {', '.join(absent)}: record with traceml-ai 0.5 or newer",
        )
    # what was sampled outside a step has no number
    rows = [
        (number, *row)
        for number, row in enumerate(read_columns(database, _TABLE, needed), 1)
        if row[1] is not None
    ]
    if not rows:
        raise ValueError(f"the table {_TABLE} is empty: let the run end, so that it is written")
    for number, rank, step, _ in rows:
        whole_number(f"row {number} of {_TABLE}: {needed[0]}", rank, least=0)
        whole_number(f"row {number} of {_TABLE}: step", step, least=0)
    _refuse_sharded(database)
    entries = _entries([(number, content) for number, _, _, content in rows])
    sums = {}
    for part in _EVENTS:
        sums[part] = {clock: _sums(entries, part, clock, len(rows)) for clock in _CLOCKS}
    ranks = [rank for _, rank, _, _ in rows]
    steps = [step for _, _, step, _ in rows]
    return _Samples(ranks, steps, sums, bool(entries["is_gpu"].any()))


def _entries(contents: Sequence[tuple[int, Any]]) -> pl.DataFrame:
    """The times of each sample, part of the step, and device, from texts with their rows."""
    rows = []
    for sample, (number, content) in enumerate(contents):
        try:
            by_event = json.loads(content)
            for part, event in _EVENTS.items():
                for stats in by_event.get(event, {}).values():
                    times = [stats.get(clock) for clock in _CLOCKS]
                    rows.append((sample, number, part, stats.get("is_gpu") is True, *times))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"row {number} of {_TABLE}: events_json holds no times by event and device",
            ) from error
    schema = {"sample": pl.Int64, "row": pl.Int64, "part": pl.String, "is_gpu": pl.Boolean}
    columns: dict[str, list[Any]] = {}
    for index, name in enumerate((*schema, *_CLOCKS)):
        columns[name] = [row[index] for row in rows]
    bad = []
    for clock in _CLOCKS:
        entries = zip(columns["row"], columns["part"], columns[clock], strict=True)
        for number, part, value in entries:
            is_time = type(value) in (int, float) and 0.0 <= value <= _LONGEST
            if value is not None and not is_time:
                bad.append((number, f"{part}.{clock}", value))
    if bad:
        row, name, value = min(bad, key=lambda one: one[0])
        raise ValueError(
            f"row {row} of {_TABLE}: {name} must be milliseconds, a finite number from 0, not"
            f" {short(value)}",
        )
    return pl.DataFrame(columns, schema={**schema, **dict.fromkeys(_CLOCKS, pl.Float64)})


def _sums(entries: pl.DataFrame, part: str, clock: str, count: int) -> Floats:
    """(count,) the milliseconds of a part over all devices, NaN where a device has none."""
    of_part = entries.filter(part=part)
    samples = of_part["sample"].to_numpy()
    times = of_part[clock].fill_null(np.nan).to_numpy()
    sums = np.zeros(count)
    np.add.at(sums, samples, times)
    # A sample without such a part has no time, and not the time 0.
    sums[np.bincount(samples, minlength=count) == 0] = np.nan
    return sums


def _refuse_sharded(database: Path) -> None:
    """Raise ValueError for a run whose forward pass waits for others, too."""
    name = "runtime_environment"
    if "training_strategy" not in columns_by_table(database).get(name, []):
        return
    strategies = {strategy for (strategy,) in read_columns(database, name, ["training_strategy"])}
    if "fsdp" in strategies:
        raise ValueError(
            "this run shards the model (FSDP), so that ranks wait for each other within the forward"
            " pass, which TraceML does not tell apart: record a trace of each rank with"
            " torch.profiler instead",
        )


def _times(samples: _Samples) -> _Times:
    """The times of ranks, by one clock for the whole run.

    Raises:
        ValueError: If the backward pass is not apart from the rest of the step.
    """
    # a processor only starts what a GPU does, and waits for it where it needs a result
    if samples.has_gpu:
        clock = "gpu_ms"
    else:
        clock = "cpu_ms"
    backward = samples.times["backward"][clock]
    traced = samples.times["step"][clock]
    if not np.isnan(backward + traced).any():
        # data may be loaded without a GPU
        loading = samples.times["loading"][clock]
        without_gpu = np.nan_to_num(samples.times["loading"]["cpu_ms"])
        whole = traced + np.where(np.isnan(loading), without_gpu, loading)
        share = 100.0 * backward.sum() / max(whole.sum(), 1e-9)
        remark = (
            "A rank's time is its step with the loading of data and without the backward pass,"
            f" {share:.0f} % of the steps: gradients are all-reduced inside it, so that slowness"
            " within the backward pass is not in this log."
        )
        return _Times(np.maximum(whole - backward, 0.0), whole, remark)
    durations = {part: samples.times[part]["duration_ms"] for part in _BEFORE_THE_WAIT}
    if not np.isnan(durations["forward"]).any():
        remark = (
            "A rank's time is the sum of loading data, copying it, the forward pass and the"
            " optimizer: gradients are all-reduced inside the backward pass, so that slowness"
            " within it is not in this log, nor is what runs between the passes."
        )
        parts = np.nan_to_num(np.array([*durations.values()]))
        return _Times(parts.sum(axis=0), None, remark)
    raise ValueError(
        "it has no times of the forward and backward pass, and ranks wait within the latter: start"
        " the run by `traceml run`, with `trace_step` around each step",
    )


def _missing(database: Path, samples: _Samples) -> list[str]:
    """Remarks on ranks and steps that the file lacks."""
    remarks = []
    ranks = set(samples.ranks)
    if "world_size" in columns_by_table(database)[_TABLE]:
        sizes = [size for (size,) in read_columns(database, _TABLE, ["world_size"])]
        world_size = max((size for size in sizes if isinstance(size, int)), default=0)
        if len(ranks) < world_size:
            remarks.append(
                f"{len(ranks)} of {world_size} ranks are in the file: who was waited for may be one"
                " of the others.",
            )
    first = min(samples.steps)
    if first > 1:
        remarks.append(
            f"The file begins with step {first}, since TraceML keeps the end of a run (traceml run"
            " --history-retention).",
        )
    return remarks


FORMAT = Format(
    "TraceML telemetry",
    "The step with the loading of its data, without the backward pass, in which ranks wait.",
    _recognises,
    _read,
    "Slowness within the backward pass, in which gradients are all-reduced; and sharded models.",
)
"""Folders of runs of TraceML, and the databases in them."""
