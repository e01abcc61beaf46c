"""The telemetry of TraceML (package ``traceml-ai``): a SQLite database of a run."""

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
from ata_gym.utils.files.json_files import parse_object
from ata_gym.utils.files.sqlite_files import columns_by_table, is_sqlite, read_columns
from ata_gym.utils.validation import in_range, whole_number

TABLE = "step_time_samples"
"""The table of the steps of all ranks."""
_DATABASES = ("aggregator/telemetry", "telemetry")
"""Where the database of a run is, below the folder of the run or beside its summary."""
_INPUT = "_traceml_internal:dataloader_next"
_BACKWARD = "_traceml_internal:backward_time"
_STEP = "_traceml_internal:step_time"
"""From the gradients set to zero to the end of the optimizer's step; the input comes before it."""
_BEFORE_THE_WAIT = (
    _INPUT,
    "_traceml_internal:h2d_time",
    "_traceml_internal:forward_time",
    "_traceml_internal:optimizer_step",
)
_CLOCKS = ("gpu_ms", "cpu_ms", "duration_ms")
_LONGEST = 1e12
"""Milliseconds; over thirty years."""

_Events = Mapping[str, Mapping[str, float]]
"""Milliseconds by the name of an event and the clock that measured it."""


class _Sample(NamedTuple):
    """A step of a rank."""

    rank: int
    step: int
    events: _Events
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
            return TABLE in columns_by_table(path)
    summary = peek.small_object(path)
    return "step_time" in summary and "primary_diagnosis" in summary


def _read(path: Path, options: Options) -> Log:
    database = _database(path)
    samples = _samples(database)
    times = _times([sample.events for sample in samples], any(one.has_gpu for one in samples))
    steps = [sample.step for sample in samples]
    frame = pl.DataFrame(
        {
            "rank": [sample.rank for sample in samples],
            "step": steps,
            "seconds": times.before_wait * 1e-3,
        },
    )
    remarks = [times.remark, *_missing(database, samples)]
    log = log_of(Rows(path.name, frame, remarks), options)
    if times.whole is None:
        return log
    # what is left of a step after its longest share
    longest: dict[str, float] = {}
    for step, whole in zip(steps, times.whole.tolist(), strict=True):
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


def _samples(database: Path) -> list[_Sample]:
    """The steps of the ranks, in the order in which they were written."""
    present = columns_by_table(database)[TABLE]
    needed = ["rank", "step", "events_json"]
    if "global_rank" in present:
        needed[0] = "global_rank"
    absent = [column for column in needed if column not in present]
    if absent:
        raise ValueError(
            f"the table {TABLE} lacks {', '.join(absent)}: record with traceml-ai 0.5 or newer",
        )
    samples = []
    for number, (rank, step, events) in enumerate(read_columns(database, TABLE, needed), 1):
        row = f"row {number} of {TABLE}"
        # what was sampled outside a step has no number
        if step is None:
            continue
        whole_number(f"{row}: {needed[0]}", rank, least=0)
        whole_number(f"{row}: step", step, least=0)
        times, has_gpu = _events(row, events)
        samples.append(_Sample(rank, step, times, has_gpu))
    if not samples:
        raise ValueError(f"the table {TABLE} is empty: let the run end, so that it is written")
    _refuse_sharded(database)
    return samples


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


def _events(row: str, content: Any) -> tuple[_Events, bool]:
    """The times of the events of a sample, summed over devices, and whether a GPU was used."""
    if not isinstance(content, str):
        raise ValueError(f"{row}: events_json is no text")  # noqa: TRY004
    times: dict[str, dict[str, float]] = {}
    has_gpu = False
    for event, by_device in parse_object(content).items():
        if not isinstance(by_device, dict) or not by_device:
            continue
        devices = list(by_device.values())
        if not all(isinstance(device, dict) for device in devices):
            raise ValueError(f"{row}: {event} has no times by device")
        has_gpu |= any(device.get("is_gpu") is True for device in devices)
        times[event] = {
            clock: sum(
                in_range(f"{row}: {event}.{clock}", device[clock], "finite number", 0.0, _LONGEST)
                for device in devices
            )
            for clock in _CLOCKS
            if all(device.get(clock) is not None for device in devices)
        }
    return times, has_gpu


def _times(samples: Sequence[_Events], has_gpu: bool) -> _Times:
    """Own times, by one clock for the whole run.

    Raises:
        ValueError: If the backward pass is not apart from the rest of the step.
    """
    # a processor only starts what a GPU does, and waits for it where it needs a result
    if has_gpu:
        clock = "gpu_ms"
    else:
        clock = "cpu_ms"
    if all(clock in sample.get(event, {}) for sample in samples for event in (_STEP, _BACKWARD)):
        backward = np.array([sample[_BACKWARD][clock] for sample in samples])
        traced = np.array([sample[_STEP][clock] for sample in samples])
        # data may be loaded without a GPU
        loading = [sample.get(_INPUT, {}) for sample in samples]
        waits = [times.get(clock, times.get("cpu_ms", 0.0)) for times in loading]
        whole = np.array(waits) + traced
        share = 100.0 * backward.sum() / max(whole.sum(), 1e-9)
        remark = (
            "A rank's time is its step with the loading of data and without the backward pass,"
            f" {share:.0f} % of the steps: gradients are all-reduced inside it, so that slowness"
            " within the backward pass is not in this log."
        )
        return _Times(np.maximum(whole - backward, 0.0), whole, remark)
    clock = "duration_ms"
    if all(clock in sample.get(_BEFORE_THE_WAIT[2], {}) for sample in samples):
        sums = [
            sum(sample.get(event, {}).get(clock, 0.0) for event in _BEFORE_THE_WAIT)
            for sample in samples
        ]
        remark = (
            "A rank's time is the sum of loading data, copying it, the forward pass and the"
            " optimizer: gradients are all-reduced inside the backward pass, so that slowness"
            " within it is not in this log, nor is what runs between the passes."
        )
        return _Times(np.array(sums), None, remark)
    raise ValueError(
        "it has no times of the forward and backward pass, and ranks wait within the latter: start"
        " the run by `traceml run`, with `trace_step` around each step",
    )


def _missing(database: Path, samples: Sequence[_Sample]) -> list[str]:
    """Remarks on ranks and steps that the file lacks."""
    remarks = []
    ranks = {sample.rank for sample in samples}
    if "world_size" in columns_by_table(database)[TABLE]:
        sizes = [size for (size,) in read_columns(database, TABLE, ["world_size"])]
        world_size = max((size for size in sizes if isinstance(size, int)), default=0)
        if len(ranks) < world_size:
            remarks.append(
                f"{len(ranks)} of {world_size} ranks are in the file: who was waited for may be one"
                " of the others.",
            )
    first = min(sample.step for sample in samples)
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
