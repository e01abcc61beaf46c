"""Traces of the PyTorch profiler, one of each rank."""

import gzip
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log, checked
from ata_gym.typing import Floats
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.files.json_files import fields, items, parse_object
from ata_gym.utils.validation import in_range

_TRACE_ENDINGS = (".json", ".json.gz")
_LATEST_TIME = 1e18
"""The largest time in a trace, in microseconds; it is far later than now, counted from 1970."""
_STEP_NAME = re.compile(r"ProfilerStep#([0-9]{1,18})")
_WAIT_NAMES = ("nccl", "gloo", "c10d", "all_reduce", "allreduce", "all_gather", "reduce_scatter")
"""Parts of the names of events in which a rank waits for others."""


def _recognises(path: Path) -> bool:
    return path.is_dir() or path.name.lower().endswith(_TRACE_ENDINGS)


def _read(path: Path, options: Options) -> Log:
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
    log = Log(
        path.name,
        list(busy),
        seconds.reshape(tasks.shape),
        tasks,
        [remark],
        steps=[str(number) for number in numbers],
        unit="s",
    )
    return checked(log, options.warmup)


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


FORMAT = Format(
    "PyTorch profiler traces",
    "The length of each step without the collectives, as far as no computation ran beside them.",
    _recognises,
    _read,
)
"""Folders of Chrome traces, as ``torch.profiler`` writes them."""
