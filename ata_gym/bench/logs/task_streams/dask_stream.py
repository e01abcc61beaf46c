"""Task streams of Dask: what ``Client.get_task_stream`` returns, saved as JSON or as a table."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from ata_gym.bench.logs import peek
from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.tables.meaning import log_of
from ata_gym.bench.logs.task_streams.rounds import SCHEMA, rows_of

_LATEST = 1e11
"""The largest time in a stream, in seconds since 1970."""
_COLUMN = "startstops"
_WORK = "compute"
"""The action that is work; the others are transfers and the disk."""
_REPORT = b"<title>Dask Performance Report</title>"
_ACTION = re.compile(
    r"'action': '([a-z-]+)', 'start': ([0-9.e+]+), 'stop': ([0-9.e+]+)",
)
"""An action as pandas writes it to CSV."""

_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=_LATEST)]


class _Action(msgspec.Struct):
    action: str
    start: _Seconds
    stop: _Seconds


class _Task(msgspec.Struct):
    worker: str
    startstops: list[_Action] | None = None
    key: str | int | float | list[Any] = ""
    thread: str | int | None = None
    status: str | None = "OK"


def _recognises(path: Path) -> bool:
    if path.suffix.lower() == ".parquet":
        try:
            return _COLUMN in pl.read_parquet_schema(path)
        except (OSError, pl.exceptions.PolarsError):
            return False
    head = peek.beginning(path)
    if _REPORT in head:
        return True
    if head.lstrip().startswith((b"[", b"{")):
        return b'"startstops"' in head
    return b"startstops" in head.partition(b"\n")[0]


def _read(path: Path, options: Options) -> Log:
    tasks = _tasks(path)
    good = [task for task in tasks if task.status in ("OK", None)]
    threads = {(task.worker, task.thread) for task in good}
    several = len(threads) > len({task.worker for task in good})
    rows = [row for task in good for row in _row(task, several)]
    if not rows:
        raise ValueError("this task stream of Dask holds no computation that ended well")
    remarks = [
        "The times are those in which the tasks computed; transfers and the disk are left out.",
    ]
    if several:
        remarks.append("A worker of the log is a thread of a worker of Dask.")
    if len(good) < len(tasks):
        remarks.append(f"{len(tasks) - len(good)} of {len(tasks)} tasks failed, and are left out.")
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return log_of(rows_of(path.name, frame, options, remarks), options)


def _row(task: _Task, several: bool) -> Iterable[tuple[str, str, float, float, float]]:
    """The row of a task, if it computed."""
    work = [one for one in task.startstops or () if one.action == _WORK]
    if not work:
        return
    worker = task.worker
    if several:
        worker = f"{worker} thread {task.thread}"
    start = min(one.start for one in work)
    end = max(one.stop for one in work)
    if end < start:
        raise ValueError(f"task {task.key!r} ends before it starts: write the stream again")
    yield worker, _name(task.key), sum(one.stop - one.start for one in work), start, end


def _name(key: object) -> str:
    """What a key names, without the hash and the number that make it unique."""
    if isinstance(key, list) and key:
        key = key[0]
    text = str(key).lstrip("('\"")
    first, *words = text.split("-")
    name = [first]
    for word in words:
        if not word.isalpha() or re.fullmatch("[0-9a-f]{8}", word):
            break
        name.append(word)
    return "-".join(name).rstrip("'\",)")


def _tasks(path: Path) -> Sequence[_Task]:
    try:
        if path.suffix.lower() == ".parquet":
            columns = [name for name in pl.read_parquet_schema(path) if name in _FIELDS]
            rows = pl.read_parquet(path, columns=columns).to_dicts()
            return msgspec.convert(rows, type=list[_Task])
        content = peek.content_of(path)
        if _REPORT in content:
            raise ValueError(
                "it is a performance report of Dask, which holds pictures: save the task stream"
                " itself, with json.dump(client.get_task_stream(), file, default=str)",
            )
        if content.lstrip().startswith(b"["):
            return msgspec.json.decode(content, type=list[_Task])
        if content.lstrip().startswith(b"{"):
            return msgspec.json.Decoder(_Task).decode_lines(content)
        return _from_csv(content)
    except RecursionError:
        fault = "its lists and objects are nested too deeply"
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, pl.exceptions.PolarsError) as error:
        fault = str(error).partition("\n")[0]
    raise ValueError(f"it cannot be read as a task stream of Dask: {fault}: write it again")


def _from_csv(content: bytes) -> Sequence[_Task]:
    """The tasks of a table of text, in which actions are written as Python writes them."""
    frame = pl.read_csv(content, infer_schema=False)
    columns = [name for name in frame.columns if name in _FIELDS]
    rows = frame.select(columns).to_dicts()
    for number, row in enumerate(rows, start=1):
        text = row[_COLUMN] or ""
        actions = _ACTION.findall(text)
        if len(actions) != text.count("'action'"):
            raise ValueError(
                f"the {_COLUMN} of row {number} are not as Dask and pandas write them: save the"
                " task stream with json.dump(client.get_task_stream(), file, default=str)",
            )
        row[_COLUMN] = [
            {"action": action, "start": start, "stop": stop} for action, start, stop in actions
        ]
    return msgspec.convert(rows, type=list[_Task], strict=False)


_FIELDS = _Task.__struct_fields__

FORMAT = Format(
    "Dask task stream",
    "The time in which the tasks computed, by worker or thread; a step begins where all"
    " tasks before had ended.",
    _recognises,
    _read,
    "Steps, unless a program waits for all tasks before it starts the next ones.",
)
"""The task streams of ``distributed``, in JSON, JSON lines, CSV and Parquet."""
