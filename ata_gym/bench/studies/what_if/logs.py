"""The times of a job's workers in its steps, from a table or from PyTorch profiler traces."""

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ata_gym.pools.traces import durations, ranks, read_columns, scan
from ata_gym.typing import Floats
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.files.json_files import fields, items, parse_object
from ata_gym.utils.validation import in_range

_COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "worker": ("worker", "worker_id", "rank", "global_rank", "node", "host", "machine", "device"),
    "round": ("round", "step", "global_step", "iteration", "iter", "batch", "time"),
    "duration": (
        "duration",
        "seconds",
        "step_time",
        "compute_time",
        "batch_time",
        "batch_time_norm",
        "elapsed",
        "ms",
        "time_ms",
    ),
}
"""Usual names of the columns, by their roles."""

_TRACE_ENDINGS = (".json", ".json.gz")
_LATEST_TIME = 1e18
"""The largest time in a trace, in microseconds; it is far later than now, counted from 1970."""
_STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")
_WAIT_NAMES = ("nccl", "gloo", "c10d", "all_reduce", "allreduce", "all_gather", "reduce_scatter")
"""Parts of the names of events in which a rank waits for others."""


class Log(NamedTuple):
    """The times of a job, and what was done to them."""

    name: str
    """The name of the file or folder."""
    workers: Sequence[str]
    """The names of the workers."""
    seconds: Floats
    """(steps, workers): the time of a worker's share of a step, in the unit of the file."""
    tasks: Floats
    """(steps, workers): the tasks of that share; 1 where the file does not say."""
    remarks: Sequence[str] = ()
    """What a reader should know of how the times were read."""


def read_log(
    path: str | PathLike[str],
    *,
    worker: str | None = None,
    duration: str | None = None,
    round: str | None = None,
) -> Log:
    r"""Read a job's times from a file, or from a folder with a profiler trace of each rank.

    Steps that lack a worker are left out.

    Args:
        path: A table (.csv, .csv.gz, .parquet, .jsonl, .ndjson) with a row for each worker and
            step, or for each task, as a ``TraceRecorder`` writes; or a Chrome trace (.json,
            .json.gz) of each rank in a folder, with the steps of ``torch.profiler.profile``. In
            traces, the time in collectives is taken out, since it is waiting.
        worker: The name of the column of workers; by default a usual name.
        duration: The name of the column of times; by default a usual name.
        round: The name of the column of steps; by default a usual name. Without such a column, the
            k-th row of each worker is of step k.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: For what cannot be read, for columns that are not found or could be several, and
            for fewer than two workers or two whole steps.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "times.csv")
        >>> _ = path.write_text("rank,step,seconds\n0,1,2\n1,1,4\n0,2,3\n1,2,6\n0,3,1\n")
        >>> log = read_log(path)
        >>> log.workers, log.seconds.tolist(), log.remarks
        (['0', '1'], [[2.0, 4.0], [3.0, 6.0]], ['1 of 3 steps lack a worker, and are left out.'])
        >>> folder.cleanup()
    """
    path = Path(path)
    if not path.is_dir():
        check_source(path)
    try:
        if path.is_dir() or path.name.lower().endswith(_TRACE_ENDINGS):
            return _from_traces(path)
        named = {"worker": worker, "duration": duration, "round": round}
        columns = {role: name for role, name in named.items() if name}
        return _from_table(path, columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _from_table(path: Path, columns: dict[str, str]) -> Log:
    present = scan(path).collect_schema().names()
    for role, usual_names in _COLUMN_NAMES.items():
        candidates = [
            name for name in present if name.lower() in usual_names and name not in columns.values()
        ]
        if role not in columns and len(candidates) == 1:
            columns[role] = candidates[0]
        elif role not in columns and (candidates or role != "round"):
            if candidates:
                fault = f"could be {' or '.join(candidates)}"
            else:
                fault = f"is not found among {present}"
            raise ValueError(f"the column of the {role} {fault}: name it with --{role}-column")
    frame = read_columns(path, columns)
    seconds = durations(frame)
    code, workers = ranks(frame["worker"], text=True)
    if "round" in columns:
        number, rounds = ranks(frame["round"], text=False)
    else:
        # the k-th row of a worker has the number k: rows sorted by worker, in their order
        order = np.argsort(code, kind="stable")
        number = np.empty_like(code)
        counts = np.bincount(code)
        number[order] = np.concatenate([np.arange(count) for count in counts])
        rounds = list(range(counts.max()))
    # rows of the same worker and step are its tasks there: their times are added up
    shape = len(rounds), len(workers)
    sums = np.zeros(shape)
    tasks = np.zeros(shape)
    np.add.at(sums, (number, code), seconds)
    np.add.at(tasks, (number, code), 1.0)
    return _checked(path.name, [str(worker) for worker in workers], sums, tasks, [])


def _from_traces(path: Path) -> Log:
    """A log of one trace for each rank, which has the name of its file."""
    if path.is_dir():
        paths = [file for file in path.iterdir() if not file.name.startswith(".")]
    else:
        paths = [path]
    files = sorted(file for file in paths if file.name.lower().endswith(_TRACE_ENDINGS))
    busy = {file.name.partition(".")[0]: _busy(file) for file in files}
    numbers = sorted(set().union(*busy.values()))
    seconds = np.array(
        [
            [seconds_by_step.get(number, 0.0) for seconds_by_step in busy.values()]
            for number in numbers
        ]
    )
    tasks = np.array(
        [
            [float(number in seconds_by_step) for seconds_by_step in busy.values()]
            for number in numbers
        ]
    )
    remark = (
        "Collectives were taken out of the times of the traces, as far as no computation ran beside"
        " them."
    )
    return _checked(path.name, list(busy), seconds.reshape(tasks.shape), tasks, [remark])


def _busy(path: Path) -> dict[int, float]:
    """The seconds in each step of a trace, by the step's number, without its waits."""
    events = _timed_events(path)
    # a trace of a CPU has no kernels; then nothing is known to run beside a collective
    kernels = any(event.get("cat") == "kernel" for event, _ in events)
    waits = []
    works = []
    steps = dict[int, tuple[float, float]]()
    for event, span in events:
        name = str(event.get("name", ""))
        step = _STEP_NAME.fullmatch(name)
        if step:
            # the same name may appear again, as an annotation on a device: the first counts
            steps.setdefault(int(step[1]), span)
        elif any(part in name.lower() for part in _WAIT_NAMES):
            waits.append(span)
        elif kernels and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            works.append(span)
    if not steps:
        raise ValueError(
            f"{path.name} has no steps: call prof.step() after each, and give the profiler a"
            " schedule",
        )
    return {
        number: 1e-6 * (end - start - _length(waits, works, start, end))
        for number, (start, end) in steps.items()
    }


def _timed_events(path: Path) -> list[tuple[dict[str, Any], tuple[float, float]]]:
    """The events of a trace that took time, each with when it began and ended.

    Raises:
        ValueError: If the file cannot be read; the error names the file and the field.
    """
    check_source(path)
    if path.name.lower().endswith(".gz"):
        open_file: Any = gzip.open
    else:
        open_file = open
    try:
        with open_file(path) as file:
            trace = parse_object(file.read())
        fields({"traceEvents": items(fields({}))})("", trace)
        events = enumerate(trace["traceEvents"])
        return [
            (event, _span(f"traceEvents[{index}]", event))
            for index, event in events
            if _is_timed(event)
        ]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path.name} cannot be read as a trace of the profiler: {error}",
        ) from error


def _is_timed(event: Mapping[str, Any]) -> bool:
    return event.get("ph") == "X" and "dur" in event and "ts" in event


def _span(name: str, event: Mapping[str, Any]) -> tuple[float, float]:
    """When an event began and ended, in microseconds."""
    start, duration = (_time(f"{name}.{key}", event[key]) for key in ("ts", "dur"))
    return start, start + duration


def _time(name: str, value: object) -> float:
    # some versions of the profiler write texts; a text that is no number is refused below
    number = value
    if isinstance(value, str):
        with suppress(ValueError):
            number = float(value)
    return in_range(name, number, "finite number", -_LATEST_TIME, _LATEST_TIME)


def _length(
    waits: Iterable[tuple[float, float]],
    works: Sequence[tuple[float, float]],
    start: float,
    end: float,
) -> float:
    """How long, from start to end, there is a wait and no work beside it."""
    inner_edges = (min(max(edge, start), end) for span in (*waits, *works) for edge in span)
    edges = sorted({start, end, *inner_edges})
    # between two edges nothing begins or ends: the middle stands for all of it
    middles = (np.array(edges[1:]) + np.array(edges[:-1])) / 2
    return float(np.diff(edges) @ (_covered(waits, middles) & ~_covered(works, middles)))


def _covered(spans: Iterable[tuple[float, float]], points: Floats) -> Any:
    """Whether each point, (K,), is in a span: more spans have begun before it than have ended."""
    edges = np.array([*spans]).reshape(-1, 2)
    started = np.searchsorted(np.sort(edges[:, 0]), points, side="right")
    return started > np.searchsorted(np.sort(edges[:, 1]), points, side="right")


def _checked(
    name: str,
    workers: list[str],
    seconds: Floats,
    tasks: Floats,
    remarks: list[str],
) -> Log:
    """A log of the steps that all workers have.

    Raises:
        ValueError: If there are fewer than two workers or two such steps.
    """
    complete: Any = (tasks > 0).all(axis=1)
    if len(workers) < 2:
        raise ValueError(f"there is one worker, {workers[0]!r}, and nobody to share its work with")
    if complete.sum() < 2:
        raise ValueError(
            f"{complete.sum()} steps have times of all {len(workers)} workers, and at least 2 are"
            " needed",
        )
    if not complete.all():
        remarks = [
            *remarks,
            f"{(~complete).sum()} of {len(complete)} steps lack a worker, and are left out.",
        ]
    return Log(name, workers, seconds[complete], tasks[complete], remarks)
