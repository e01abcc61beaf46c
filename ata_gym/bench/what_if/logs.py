"""The times of a job's workers in its steps, from a table, or from traces of the PyTorch profiler."""

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ata_gym.pools.traces import durations, ranks, read_columns, scan
from ata_gym.typing import Floats
from ata_gym.utils.atomic import check_source
from ata_gym.utils.json_files import fields, items, parse_object
from ata_gym.utils.validation import in_range

_NAMES: Mapping[str, tuple[str, ...]] = {
    "worker": ("worker", "worker_id", "rank", "global_rank", "node", "host", "machine", "device"),
    "round": ("round", "step", "global_step", "iteration", "iter", "batch", "time"),
    "duration": (
        "duration", "seconds", "step_time", "compute_time", "batch_time", "batch_time_norm", "elapsed", "ms", "time_ms",
    ),
}  # fmt: skip
"""Usual names of the columns, by their roles."""

_TRACES = (".json", ".json.gz")
_LATEST = 1e18  # microseconds, far more than since 1970
_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})")
_WAITS = ("nccl", "gloo", "c10d", "all_reduce", "allreduce", "all_gather", "reduce_scatter")
"""Parts of the names of events in which a rank waits for others."""


class Log(NamedTuple):
    """The times of a job, and what was done to them."""

    name: str
    workers: Sequence[str]
    seconds: Floats  # (steps, workers): the time that a worker's share of a step took, in the unit of the file
    tasks: Floats  # (steps, workers): the tasks of that share; 1 where the file does not say
    remarks: Sequence[str] = ()


def read_log(
    path: str | PathLike[str], *, worker: str | None = None, duration: str | None = None, round: str | None = None
) -> Log:
    r"""Read a job's times from a file, or from a folder with a profiler trace of each rank.

    - ``path``: a table (.csv, .csv.gz, .parquet, .jsonl, .ndjson) with a row for each worker and step, or for each
      task, as a ``TraceRecorder`` writes; or a Chrome trace (.json, .json.gz) of each rank in a folder, with the steps
      of ``torch.profiler.profile``. In traces, the time in collectives is taken out, since it is waiting.
    - ``worker``, ``duration``, ``round``: names of columns; by default the usual ones. Without a column of rounds, the
      k-th row of each worker is of step k.

    Steps that lack a worker are left out. Raises FileNotFoundError, and ValueError for what cannot be read, for columns
    that are not found or could be several, and for fewer than two workers or two whole steps.

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
        if path.is_dir() or path.name.lower().endswith(_TRACES):
            return _of_traces(path)
        columns = {role: name for role, name in (("worker", worker), ("duration", duration), ("round", round)) if name}
        return _of_table(path, columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _of_table(path: Path, columns: dict[str, str]) -> Log:
    present = scan(path).collect_schema().names()
    for role, usual in _NAMES.items():
        found = [name for name in present if name.lower() in usual and name not in columns.values()]
        if role not in columns and len(found) == 1:
            columns[role] = found[0]
        elif role not in columns and (found or role != "round"):
            which = f"could be {' or '.join(found)}" if found else f"is not found among {present}"
            raise ValueError(f"the column of the {role} {which}: name it with --{role}-column")
    frame = read_columns(path, columns)
    seconds = durations(frame)
    code, workers = ranks(frame["worker"], text=True)
    if "round" in columns:
        number, rounds = ranks(frame["round"], text=False)
    else:
        order = np.argsort(code, kind="stable")
        number, counts = np.empty_like(code), np.bincount(code)
        number[order] = np.concatenate([np.arange(count) for count in counts])
        rounds = list(range(counts.max()))
    shape = len(rounds), len(workers)
    sums, tasks = np.zeros(shape), np.zeros(shape)
    np.add.at(sums, (number, code), seconds)
    np.add.at(tasks, (number, code), 1.0)
    return _checked(path.name, [str(one) for one in workers], sums, tasks, [])


def _of_traces(path: Path) -> Log:
    shown = [one for one in path.iterdir() if not one.name.startswith(".")] if path.is_dir() else [path]
    files = sorted(one for one in shown if one.name.lower().endswith(_TRACES))
    busy = {one.name.partition(".")[0]: _busy(one) for one in files}
    numbers = sorted(set().union(*busy.values()))
    seconds = np.array([[own.get(number, 0.0) for own in busy.values()] for number in numbers])
    tasks = np.array([[float(number in own) for own in busy.values()] for number in numbers])
    said = "Collectives were taken out of the times of the traces, as far as no computation ran beside them."
    return _checked(path.name, list(busy), seconds.reshape(tasks.shape), tasks, [said])


def _busy(path: Path) -> dict[int, float]:
    timed = _timed_events(path)
    kernels = any(one.get("cat") == "kernel" for one, _ in timed)
    waits, works, steps = [], [], dict[int, tuple[float, float]]()
    for one, span in timed:
        name = str(one.get("name", ""))
        if step := _STEP.fullmatch(name):
            steps.setdefault(int(step[1]), span)
        elif any(part in name.lower() for part in _WAITS):
            waits.append(span)
        elif kernels and one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            works.append(span)
    if not steps:
        raise ValueError(f"{path.name} has no steps: call prof.step() after each, and give the profiler a schedule")
    return {number: 1e-6 * (end - start - _length(waits, works, start, end)) for number, (start, end) in steps.items()}


def _timed_events(path: Path) -> list[tuple[dict[str, Any], tuple[float, float]]]:
    """The events of a trace that took time, each with when it began and ended; ValueError that names file and field."""
    check_source(path)
    try:
        with (gzip.open if path.name.lower().endswith(".gz") else open)(path) as file:
            trace = parse_object(file.read())
        fields({"traceEvents": items(fields({}))})("", trace)
        events = enumerate(trace["traceEvents"])
        return [(one, _span(f"traceEvents[{place}]", one)) for place, one in events if _is_timed(one)]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"{path.name} cannot be read as a trace of the profiler: {error}") from error


def _is_timed(event: Mapping[str, Any]) -> bool:
    return event.get("ph") == "X" and "dur" in event and "ts" in event


def _span(name: str, event: Mapping[str, Any]) -> tuple[float, float]:
    begun, lasted = (_time(f"{name}.{key}", event[key]) for key in ("ts", "dur"))
    return begun, begun + lasted


def _time(name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, str) else value  # some versions of the profiler write texts
    except ValueError:
        number = value
    return in_range(name, number, "finite number", -_LATEST, _LATEST)


def _length(
    waits: Iterable[tuple[float, float]], works: Sequence[tuple[float, float]], start: float, end: float
) -> float:
    edges = sorted({start, end, *(min(max(edge, start), end) for span in (*waits, *works) for edge in span)})
    middles = (np.array(edges[1:]) + np.array(edges[:-1])) / 2
    return float(np.diff(edges) @ (_covered(waits, middles) & ~_covered(works, middles)))


def _covered(spans: Iterable[tuple[float, float]], points: Floats) -> Any:
    ends = np.array([*spans]).reshape(-1, 2)
    begun = np.searchsorted(np.sort(ends[:, 0]), points, side="right")
    return begun > np.searchsorted(np.sort(ends[:, 1]), points, side="right")


def _checked(name: str, workers: list[str], seconds: Floats, tasks: Floats, remarks: list[str]) -> Log:
    whole: Any = (tasks > 0).all(axis=1)
    if len(workers) < 2:
        raise ValueError(f"there is one worker, {workers[0]!r}, and nobody to share its work with")
    if whole.sum() < 2:
        raise ValueError(f"{whole.sum()} steps have times of all {len(workers)} workers, and at least 2 are needed")
    if not whole.all():
        remarks = [*remarks, f"{(~whole).sum()} of {len(whole)} steps lack a worker, and are left out."]
    return Log(name, workers, seconds[whole], tasks[whole], remarks)
