"""TensorBoard's event files, a run for each rank."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.tables.meaning import log_of
from ata_gym.bench.logs.tables.rows import Rows
from ata_gym.bench.logs.tables.words import is_rate
from ata_gym.utils.extras import require
from ata_gym.utils.validation import short

_FILES = "*tfevents*"
_TRACES = ("*.pt.trace.json", "*.pt.trace.json.gz")
"""What ``torch.profiler`` writes into a folder for TensorBoard; it says more than scalars."""
_MACHINE = re.compile(
    r"node|host|machine|server|pod|gpu|device|^ip\b|(\d+\.){3}\d+",
    re.IGNORECASE,
)
"""The part of a path that names a machine."""
_RANK = re.compile(
    r"(?:^|(?<=[/_.\- ]))(?:global_rank|rank|gpu|worker|device|node)"
    r"[_/.\- ]?(\d{1,9})(?![^/_.\- ])",
    re.IGNORECASE,
)
"""The part of a name that numbers a worker."""
_TIME_WORDS = ("time", "duration", "latency", "elapsed", "seconds", "secs", "sec", "ms", "us")
_OTHER_WORDS = (
    *("per", "eta", "remaining", "total", "cumulative", "runtime", "uptime", "wall", "timestamp"),
    *("epoch", "eval", "val", "validation", "test", "checkpoint"),
)
"""Words that say that a time is a rate, a sum or a date, or of something else than a step."""
_DATES = (1e9, 4e9)
"""Seconds since 1970, as numbers that no step takes."""
_CURE = (
    "write a run for each rank, as SummaryWriter(f'runs/rank{rank}') does, with the time of each"
    " step before the rank waits for others"
)


class _Entry(NamedTuple):
    """The value of a scalar in a step."""

    worker: str
    step: int
    value: float


class _Series(NamedTuple):
    """The entries of a tag in a file."""

    run: str
    tag: str
    """Without the part that numbers a worker."""
    rank: str
    """The number in that part; empty where there is none."""
    events: Sequence[Any]
    """With wall_time, step and value, in the order of the file."""


def _recognises(path: Path) -> bool:
    if not path.is_dir():
        return path.is_file() and path.match(_FILES)
    if any(True for pattern in _TRACES for _ in path.glob(pattern)):
        return False
    return any(file.is_file() for file in path.rglob(_FILES))


def _read(path: Path, options: Options) -> Log:
    if path.is_dir():
        folder = path
        files = sorted(file for file in path.rglob(_FILES) if file.is_file())
    else:
        folder = path.parent
        files = [path]
    series = [one for file in files for one in _series_of(file, folder)]
    tags = sorted({one.tag for one in series})
    tag = options.duration or _time_tag(tags)
    if tag not in tags:
        raise ValueError(
            f"no scalar has the tag {tag!r}: name one of {short(tags)} with --duration-column",
        )
    chosen = sorted(
        (one for one in series if one.tag == tag),
        key=lambda one: float(one.events[0].wall_time),
    )
    _refuse_concurrent_files(chosen)
    workers = _workers(chosen)
    other_runs = sorted({_run(file, folder) for file in files} - {one.run for one in chosen})
    if len(set(workers)) < 2:
        lacking = ""
        if other_runs:
            lacking = f", and the runs {short(other_runs)} lack the tag {tag!r}"
        raise ValueError(
            f"the times of one worker are in it, in the run {chosen[0].run!r}{lacking}: {_CURE}",
        )
    entries = [
        _Entry(worker, event.step, float(event.value))
        for worker, one in zip(workers, chosen, strict=True)
        for event in one.events
    ]
    _refuse_dates(tag, entries)
    remarks = [f"The times are the values of the tag {tag!r}."]
    if other_runs:
        remarks.append(f"Runs without the tag {tag!r} are left out: {short(other_runs)}.")
    frame = pl.DataFrame(
        {
            "rank": [entry.worker for entry in entries],
            "step": [entry.step for entry in entries],
            tag: [entry.value for entry in entries],
        },
    )
    return log_of(Rows(path.name, frame, remarks), options._replace(duration=tag))


def _series_of(file: Path, folder: Path) -> Iterator[_Series]:
    """The scalars of an event file, all of them and as they were written."""
    events = require(
        "tensorboard.backend.event_processing.event_accumulator",
        extra="logs",
        purpose="Reading the files of TensorBoard",
    )
    tensors = require("tensorboard.util.tensor_util", extra="logs")
    decoding = require("google.protobuf.message", extra="logs")
    # 0 is all; the default keeps a sample of 10,000 scalars and of 10 tensors
    size_guidance = {"scalars": 0, "tensors": 0, "images": 1, "audio": 1, "histograms": 1}
    accumulator = events.EventAccumulator(
        str(file),
        size_guidance=size_guidance,
        purge_orphaned_data=False,
    )
    try:
        accumulator.Reload()
    except (decoding.DecodeError, OSError, ValueError) as error:
        raise ValueError(f"{file.name} cannot be read as TensorBoard's: {error}") from error
    run = _run(file, folder)
    for name in accumulator.Tags()["scalars"]:
        yield _series(run, name, accumulator.Scalars(name))
    # TensorFlow and new_style=True write scalars as tensors
    for name in accumulator.Tags()["tensors"]:
        if accumulator.SummaryMetadata(name).plugin_data.plugin_name == "scalars":
            values = [
                events.ScalarEvent(
                    event.wall_time,
                    event.step,
                    tensors.make_ndarray(event.tensor_proto).item(),
                )
                for event in accumulator.Tensors(name)
            ]
            yield _series(run, name, values)


def _run(file: Path, folder: Path) -> str:
    return file.parent.relative_to(folder).as_posix()


def _series(run: str, name: str, events: Sequence[Any]) -> _Series:
    number = _RANK.search(name)
    if number is None:
        return _Series(run, name, "", events)
    # "step_time/rank0" and "rank0/step_time" are the step_time of a rank
    rest = re.sub(r"[/_.\- ]{2,}", "/", _RANK.sub("", name, count=1)).strip("/_.- ")
    return _Series(run, rest or name, number[1], events)


def _time_tag(tags: Sequence[str]) -> str:
    """The tag that is a time of steps by its name.

    Raises:
        ValueError: If there is none, or several.
    """
    candidates = []
    for tag in tags:
        words = re.findall("[a-z]+", tag.lower())
        is_time = any(word.endswith("time") or word in _TIME_WORDS for word in words)
        is_other = any(word in _OTHER_WORDS for word in words) or is_rate(tag)
        if is_time and not is_other:
            candidates.append(tag)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise ValueError(
            f"the tag of the times could be {' or '.join(candidates)}: name it with"
            " --duration-column",
        )
    if not tags:
        raise ValueError(f"it holds no scalars: {_CURE}")
    raise ValueError(
        f"no tag among {short(tags)} is the time of a step by its name: name it with"
        f" --duration-column, or {_CURE}",
    )


def _workers(series: Sequence[_Series]) -> list[str]:
    """The name of the worker of each series: its number in the tag, or the run."""
    if any(one.rank for one in series):
        runs = {one.run for one in series}
        if len(runs) == 1:
            return [one.rank for one in series]
        return [f"{one.run}/{one.rank}".rstrip("/") for one in series]
    numbers: Mapping[str, list[str]] = {one.run: _RANK.findall(one.run) for one in series}
    _refuse_two_jobs(numbers)
    # runs that differ in one number are named by it, so that 10 comes after 9
    if all(len(of_run) == 1 for of_run in numbers.values()):
        by_run = {run: of_run[0] for run, of_run in numbers.items()}
        if len(set(by_run.values())) == len(by_run):
            return [by_run[one.run] for one in series]
    return [one.run for one in series]


def _refuse_two_jobs(numbers: Mapping[str, Sequence[str]]) -> None:
    """Raise ValueError if runs are of the same rank, and differ in a name that is of no machine.

    Args:
        numbers: The ranks in the name of each run, such as "version_0/rank1".
    """
    seen = dict[tuple[str, ...], str]()
    for run, of_run in numbers.items():
        first = seen.setdefault(tuple(of_run), run)
        if not of_run or first == run:
            continue
        different: list[str] = []
        for pair in zip_longest(first.split("/"), run.split("/"), fillvalue=""):
            if pair[0] != pair[1]:
                different += pair
        if not all(_MACHINE.search(part) for part in different):
            raise ValueError(
                f"the runs {first!r} and {run!r} are both of rank {of_run[-1]}, as runs of two"
                " jobs are, or of one that was started again: name the folder of one of them; if"
                " they are of two machines, call their folders node0 and node1",
            )


def _refuse_concurrent_files(series: Sequence[_Series]) -> None:
    """Raise ValueError if several processes wrote the same scalars of a run at a time.

    Files of a run that follow each other in time are of a job that was started again.

    Args:
        series: In the order in which they began.
    """
    last_time: dict[tuple[str, str], float] = {}
    for one in series:
        key = one.run, one.rank
        if one.events[0].wall_time < last_time.get(key, -np.inf):
            raise ValueError(
                f"several processes wrote the run {one.run!r} at the same time, and no file says of"
                f" which rank it is: {_CURE}",
            )
        last_time[key] = max(event.wall_time for event in one.events)


def _refuse_dates(tag: str, entries: Sequence[_Entry]) -> None:
    middle = float(np.median([entry.value for entry in entries]))
    in_tiny_units = any(word in re.findall("[a-z]+", tag.lower()) for word in ("us", "ns"))
    if _DATES[0] <= middle <= _DATES[1] and not in_tiny_units:
        raise ValueError(
            f"the tag {tag!r} holds dates in seconds since 1970, of which TensorBoard keeps one in"
            f" 128 s: write the durations of steps",
        )


FORMAT = Format(
    "TensorBoard",
    "The scalar whose tag is a time of steps by its name, from a run for each rank.",
    _recognises,
    _read,
    "What a rank did before it waited, unless its script measures that; scalars are kept in single"
    " precision, so that times since 1970 cannot be read.",
)
"""Folders of event files."""
