"""The events of a trace: a file of JSON becomes a few arrays."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ata_gym.bench.logs.traces.kinds import STEP_NAME, Kind, kind_of
from ata_gym.bench.logs.traces.spans import Spans
from ata_gym.typing import Floats
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.files.json_files import is_unicode, parse_data
from ata_gym.utils.validation import in_range

ENDINGS = (".json", ".json.gz")
_LATEST_TIME = 1e18
"""The largest time in a trace, in microseconds; it is far later than now, counted from 1970."""
_HEAD_BYTES = 65_536
"""Where a trace begins, it is recognised in this many bytes."""


class _Arguments(msgspec.Struct, gc=False):
    correlation: int | str | None = None


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    cat: str = ""
    # some versions of the profiler write texts
    ts: float | str | msgspec.UnsetType = msgspec.UNSET
    dur: float | str | msgspec.UnsetType = msgspec.UNSET
    pid: float | str | None = None
    tid: float | str | None = None
    args: _Arguments | None = None


class Distributed(msgspec.Struct):
    """What the profiler wrote of the job."""

    backend: str = ""
    rank: int | None = None
    world_size: int | None = None


class _Header(msgspec.Struct):
    distributed: Distributed | None = msgspec.field(default=None, name="distributedInfo")
    rank: int | str | None = None
    host_name: str = ""
    base: int = msgspec.field(default=0, name="baseTimeNanoseconds")


class _Document(_Header):
    events: list[_Event] | msgspec.UnsetType = msgspec.field(
        default=msgspec.UNSET, name="traceEvents"
    )


class Trace(NamedTuple):
    """A file, as arrays; times are in microseconds, from ``origin`` on."""

    file: str
    """The path inside the folder."""
    distributed: Distributed
    """What the file knows of the job."""
    rank: int | None
    """The rank by the file itself."""
    host: str
    """The name of the host; empty where the file does not say."""
    origin: float
    """The microseconds, counted from 1970, of time 0; on some hosts from when they started."""
    process: float | str | None
    """The process of the steps, as the system numbers it; None where the file does not say."""
    steps: np.ndarray[Any, Any]
    """(S,): the numbers of the steps, in the order of time."""
    step_spans: Spans
    """(S,)"""
    kind: np.ndarray[Any, Any]
    """(E,): the ``Kind`` of each event."""
    spans: Spans
    """(E,)"""
    thread: np.ndarray[Any, Any]
    """(E,): a number for each thread of the host and stream of a device."""
    label: np.ndarray[Any, Any]
    """(E,): a number for each name."""
    names: Sequence[str]
    """The names, by that number."""
    correlation: Floats
    """(E,): what a call and the work that it put on a device have in common, or NaN."""

    def of(self, *kinds: Kind) -> Any:
        """Return which events, (E,), are of some kinds."""
        return np.isin(self.kind, kinds)

    def spans_of(self, mask: Any) -> Spans:
        """Return the spans of some events."""
        return Spans(self.spans.starts[mask], self.spans.ends[mask])


def is_trace(path: Path) -> bool:
    """Return whether a file begins like a trace; it raises nothing."""
    if not path.name.lower().endswith(ENDINGS) or not path.is_file():
        return False
    try:
        with _opened(path) as file:
            head = file.read(_HEAD_BYTES)
            if head.lstrip()[:1] not in (b"{", b"["):
                return False
            rest = file.read(1)
            if head.lstrip()[:1] == b"{" and b'"traceEvents"' in head and rest:
                return True
            content = head + rest + file.read()
    except (OSError, EOFError, zlib.error):
        return False
    if content.lstrip()[:1] == b"[":
        return b'"ph"' in head and b"ProfilerStep" in content
    if b'"traceEvents"' not in content:
        return False
    try:
        return msgspec.json.decode(content, type=_Document).events is not msgspec.UNSET
    except (ValueError, RecursionError):
        return True


def read_trace(path: Path, name: str) -> Trace | None:
    """Return the trace in a file, or None for JSON of another kind.

    Args:
        path: The file.
        name: The path of the file inside its folder, for errors.

    Raises:
        ValueError: If it is a trace that cannot be read; the error names the file and the field.
    """
    check_source(path)
    try:
        with _opened(path) as file:
            content = file.read()
        document = _document(content)
        del content
        if document is None:
            return None
        return _trace(name, document)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} cannot be read as a trace of the profiler: {error}",
        ) from error


def _opened(path: Path) -> Any:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path)
    return path.open("rb")


def _document(content: bytes) -> _Document | None:
    """A file of one of the two forms: an object with the events, or a list of them."""
    is_list = content.lstrip()[:1] == b"["
    if is_list and b"ProfilerStep" not in content:
        parse_data(content)
        return None
    try:
        if is_list:
            return _Document(events=msgspec.json.decode(content, type=list[_Event]))
        document = msgspec.json.decode(content, type=_Document)
    except (ValueError, RecursionError):
        return _slowly(parse_data(content))
    if document.events is not msgspec.UNSET:
        return document
    if document.distributed is not None:
        raise ValueError("traceEvents is missing")
    return None


def _slowly(data: Any) -> _Document | None:
    """The same of what the plain parser made, which takes NaN; an error names the field."""
    if isinstance(data, list):
        events = data
        header = _Header()
        place = ""
    elif isinstance(data, dict) and "traceEvents" in data:
        events = data["traceEvents"]
        header = _converted(data, _Header, "")
        place = "traceEvents"
    else:
        return None
    if not isinstance(events, list):
        raise ValueError(f"{place} must be a list, not {type(events).__name__}")  # noqa: TRY004
    converted = [
        _converted(event, _Event, f"{place}[{index}]") for index, event in enumerate(events)
    ]
    return _Document(header.distributed, header.rank, header.host_name, header.base, converted)


def _converted(data: Any, form: Any, place: str) -> Any:
    try:
        return msgspec.convert(data, form)
    except UnicodeEncodeError:
        field = next(_half_characters(place, data), place).removeprefix(".")
        raise ValueError(f"{field} holds half of a character") from None
    except ValueError as error:
        reason, _, inner = str(error).partition(" - at `$")
        field = f"{place}{inner.rstrip('`')}".removeprefix(".") or "it"
        raise ValueError(f"{field}: {reason[:1].lower()}{reason[1:]}") from None


def _half_characters(name: str, data: Any) -> Iterator[str]:
    """The names of the texts that hold half of a character, which JSON may."""
    if isinstance(data, str) and not is_unicode(data):
        yield name
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _half_characters(f"{name}.{key}", value)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _half_characters(f"{name}[{index}]", value)


def _trace(name: str, document: _Document) -> Trace:
    events: Any = document.events
    index = [
        place
        for place, event in enumerate(events)
        if event.ph == "X" and event.ts is not msgspec.UNSET and event.dur is not msgspec.UNSET
    ]
    events = [events[place] for place in index]
    starts = _times([event.ts for event in events], index, "ts")
    durations = _times([event.dur for event in events], index, "dur")
    # Equal categories and names have one number, so that each is looked at once.
    labels = dict[tuple[str, str], int]()
    label = np.array(
        [labels.setdefault((event.cat, event.name), len(labels)) for event in events], dtype=int
    )
    kinds = np.array([kind_of(*both) for both in labels], dtype=np.int8)
    kind = kinds[label]
    threads = dict[tuple[Any, Any], int]()
    thread = np.array(
        [threads.setdefault((event.pid, event.tid), len(threads)) for event in events], dtype=int
    )
    correlation = np.array([_correlation(event.args) for event in events], dtype=float)
    names = [both[1] for both in labels]
    start = float(starts.min()) if len(starts) else 0.0
    spans = Spans(starts - start, starts - start + np.maximum(durations, 0.0))
    number = np.array([_number(name) for name in names], dtype=np.int64)[label]
    steps = _steps(name, kind, number, spans)
    distributed = document.distributed or Distributed()
    rank = distributed.rank
    if rank is None:
        rank = _rank(document.rank)
    return Trace(
        file=name,
        distributed=distributed,
        rank=rank,
        host=document.host_name,
        origin=start + document.base / 1000,
        process=events[steps[0]].pid,
        steps=number[steps],
        step_spans=Spans(spans.starts[steps], spans.ends[steps]),
        kind=kind,
        spans=spans,
        thread=thread,
        label=label,
        names=names,
        correlation=correlation,
    )


def _rank(value: int | str | None) -> int | None:
    """The rank that a user wrote into the file with ``add_metadata``."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() else None
    return value


def _correlation(arguments: _Arguments | None) -> float:
    if arguments is None or arguments.correlation is None:
        return np.nan
    try:
        return float(arguments.correlation)
    except ValueError:
        return np.nan


def _times(values: list[Any], index: Sequence[int], field: str) -> Floats:
    """The times of events, of which some may be texts."""
    try:
        times = np.array(values, dtype=float)
    except ValueError:
        times = np.array([np.nan])
    if not (np.abs(times) <= _LATEST_TIME).all():
        for place, value in zip(index, values, strict=True):
            _check_time(f"traceEvents[{place}].{field}", value)
    return times


def _check_time(name: str, value: object) -> None:
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = value
    in_range(name, number, "finite number", -_LATEST_TIME, _LATEST_TIME)


def _steps(name: str, kind: Any, number: Any, spans: Spans) -> Any:
    """The places of the steps among the events, in the order of time, each number once."""
    places = np.flatnonzero(kind == Kind.STEP)
    if len(places) == 0:
        places = np.flatnonzero(kind == Kind.DEVICE_STEP)
    if len(places) == 0:
        raise ValueError(
            f"{name} has no steps: call prof.step() after each, and give the profiler a schedule",
        )
    _, first = np.unique(number[places], return_index=True)
    places = places[first]
    return places[np.argsort(spans.starts[places], kind="stable")]


def _number(name: str) -> int:
    """The number of a step, or -1."""
    step = STEP_NAME.fullmatch(name)
    return int(step[1]) if step else -1
