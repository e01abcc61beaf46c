"""Timelines of Ray, as ``ray.timeline`` and the command ``ray timeline`` write them."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl

from ata_gym.bench.logs import peek
from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.tables.meaning import log_of
from ata_gym.bench.logs.task_streams.rounds import SCHEMA, rows_of

_LATEST = 1e17
"""The largest time in a timeline, in microseconds since 1970."""
_MARKS = re.compile(rb'"tid":\s*"(worker|driver):|"func_or_class_name":')
_TASK = "task::"
"""What the category of a task begins with, before its name."""
_RUN = "task:execute"
"""The category of the part of a task in which its function runs."""
_WAITS = ("ray.get", "ray.wait")
"""The categories of waiting for other tasks; recorded with RAY_PROFILING=1."""

_Microseconds = Annotated[float, msgspec.Meta(ge=0.0, le=_LATEST)]


_Id = str | int | None
"""The id of a node or a process."""


class _Event(msgspec.Struct):
    pid: _Id = None
    tid: _Id = None
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: _Microseconds = 0.0
    dur: _Microseconds = 0.0
    args: dict[str, object] = {}

    @property
    def end(self) -> float:
        return self.ts + self.dur


def _recognises(path: Path) -> bool:
    head = peek.beginning(path)
    return head.lstrip().startswith(b"[") and _MARKS.search(head) is not None


def _read(path: Path, options: Options) -> Log:
    events = _events(path)
    processes = defaultdict[tuple[_Id, _Id], list[_Event]](list)
    for event in events:
        if event.ph == "X":
            processes[event.pid, event.tid].append(event)
    names = _names(processes, events)
    tasks = [
        (names[process], *task)
        for process, its_events in processes.items()
        for task in _tasks(its_events)
    ]
    if not tasks:
        raise ValueError(
            "this timeline of Ray holds no tasks: write it with ray.timeline() in the program that"
            " ran them, before ray.shutdown()",
        )
    remarks = [
        "A worker is a process of Ray. The times are those in which functions ran (task:execute),"
        " without getting their arguments and storing their results.",
    ]
    if any(event.cat in _WAITS for event in events):
        remarks.append("The time in ray.get and ray.wait within a task is waiting, and left out.")
    else:
        remarks.append(
            "What a task waits for within its function, such as ray.get, counts as its work: with"
            " RAY_PROFILING=1 Ray records it.",
        )
    frame = pl.DataFrame(tasks, schema=SCHEMA, orient="row")
    return log_of(rows_of(path.name, frame, options, remarks), options)


def _events(path: Path) -> list[_Event]:
    try:
        return msgspec.json.decode(peek.content_of(path), type=list[_Event])
    except RecursionError:
        fault = "its lists and objects are nested too deeply"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fault = str(error)
    raise ValueError(f"it cannot be read as a timeline of Ray: {fault}: write it again")


def _tasks(events: Sequence[_Event]) -> Iterable[tuple[str, float, float, float]]:
    """The tasks of a process: name, seconds of own work, start, end."""
    runs = sorted((event for event in events if event.cat == _RUN), key=lambda event: event.ts)
    waits = [event for event in events if event.cat in _WAITS]
    starts = [run.ts for run in runs]
    waited = defaultdict[int, float](float)
    for wait in waits:
        waited[bisect_right(starts, wait.ts) - 1] += wait.dur
    for task in events:
        # an actor is built once, which is no share of the work
        if not task.cat.startswith(_TASK) or task.cat.endswith(".__init__"):
            continue
        # the last run that begins within the task is its own
        index = bisect_right(starts, task.end) - 1
        if index >= 0 and starts[index] >= task.ts:
            run = runs[index]
            seconds = max(run.dur - waited[index], 0.0) / 1e6
            yield task.cat.removeprefix(_TASK), seconds, run.ts / 1e6, run.end / 1e6


def _names(
    processes: Iterable[tuple[_Id, _Id]],
    events: Iterable[_Event],
) -> Mapping[tuple[_Id, _Id], str]:
    """The names of processes: node and id, cut to eight letters where these are enough.

    A newer form has numbers in place of both, and events that name them.
    """
    labels: Mapping[tuple[str, _Id, _Id], str] = {
        (event.name, event.pid, event.tid): str(event.args.get("name", ""))
        for event in events
        if event.ph == "M"
    }
    whole = {}
    for node, process in processes:
        node_name = labels.get(("process_name", node, None), str(node)).removeprefix("Node ")
        process_name = labels.get(("thread_name", node, process), str(process))
        whole[node, process] = node_name, process_name.removeprefix("worker:")
    short = {key: f"{node} {process[:8]}" for key, (node, process) in whole.items()}
    if len({*short.values()}) == len(short):
        return short
    return {key: f"{node} {process}" for key, (node, process) in whole.items()}


FORMAT = Format(
    "Ray timeline",
    "The time in which the function of a task ran, by process; a step begins where all tasks before"
    " had ended.",
    _recognises,
    _read,
    "Steps, unless a program waits for all tasks before it starts the next ones; and without "
    "RAY_PROFILING=1, what a task waits for within its function.",
)
"""The JSON of ``ray.timeline``."""
