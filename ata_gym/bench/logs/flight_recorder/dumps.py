"""Dumps of the Flight Recorder: which files they are, and what each rank recorded."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from ata_gym.bench.logs import peek
from ata_gym.utils.validation import first_of

_HEAD_BYTES = 4096
"""The part of a file by which a dump is recognised."""
_MOST_FILES = 10_000
"""Files of a folder that are looked at."""
_RANK = re.compile(r"rank[_\-. =]?([0-9]+)", re.IGNORECASE)
_LATEST = 4 * 10**18
"""The largest time in a dump, in nanoseconds since 1970: the year 2096."""
_PICKLE_START = b"\x80"
_TRACE_MARKS = (b'"traceEvents"', b'"distributedInfo"', b'"schemaVersion"')
"""What stands at the beginning of a trace of PyTorch's profiler."""
_TO_JSON = (
    "write JSON where the job runs, with torch._C._distributed_c10d._dump_nccl_trace_json() (gloo:"
    " _dump_fr_trace_json()), or turn dumps of your own job into it, for each: python -c 'import"
    ' json, pickle, sys; json.dump(pickle.load(open(sys.argv[1], "rb")), open(sys.argv[1] +'
    ' ".json", "w"))\' FILE'
)

_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=_LATEST)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Entry(msgspec.Struct, frozen=True):
    """An operation that a rank put in the queue of a group."""

    record_id: _Number
    """Counts the operations of the rank."""
    process_group: tuple[str, str]
    """The name and the description of the group."""
    collective_seq_id: _Number
    """Counts the collectives of the group, alike on all of its ranks."""
    profiling_name: str
    """Such as nccl:all_reduce."""
    time_created_ns: _Nanoseconds
    """When the rank's own thread put it in the queue."""
    time_discovered_completed_ns: _Nanoseconds | None = None
    """When a thread beside noticed its end; 0 or None if it did not."""
    duration_ms: Annotated[float, msgspec.Meta(ge=0.0, le=1e12)] | None = None
    """How long it was on the device, waiting included; recorded on demand only."""
    input_sizes: list[list[int]] = []
    """The shapes of its inputs."""
    is_p2p: bool = False
    """Whether it is a send or a receive, between two ranks."""


class _Group(msgspec.Struct):
    ranks: str | list[_Number] = ""


class _Document(msgspec.Struct):
    """What is read of a dump."""

    pg_config: dict[str, _Group] = {}
    entries: list[Entry] = []


class Dump(NamedTuple):
    """The dump of a rank."""

    file: str
    """The name of the file."""
    rank: int
    """The rank; it stands in the file's name only."""
    world: tuple[int, ...]
    """All ranks of the job; empty if the dump does not say."""
    entries: Sequence[Entry]
    """What it recorded, in that order."""


def recognises(path: Path) -> bool:
    """Whether a file, or a file in a folder without traces, begins as a dump does.

    Traces of a profiler say more than dumps that lie beside them.
    """
    files = _files(path)
    heads = [_head(file) for file in files]
    traces = any(mark in head for head in heads for mark in _TRACE_MARKS)
    return not traces and any(_is_json(head) or _is_pickle(head) for head in heads)


def read_dumps(path: Path) -> tuple[list[Dump], list[str]]:
    """Return the dumps of a folder by rank, and what a reader should know of them.

    Args:
        path: The folder, with a file of each rank.

    Raises:
        ValueError: For pickles, damaged files, files that do not say their rank, one rank alone and
            dumps of several jobs.
    """
    heads = {file: _head(file) for file in _files(path)}
    pickles = [file.name for file, head in heads.items() if _is_pickle(head)]
    files = [file for file, head in heads.items() if _is_json(head)]
    if pickles and not files:
        raise ValueError(
            f"{pickles[0]} is a dump of the Flight Recorder in Python's pickle, which is never"
            f" opened, since it can run any program: {_TO_JSON}",
        )
    names = [_name(file, path) for file in files]
    dumps = sorted(
        (_dump(*one) for one in zip(files, names, _ranks(names), strict=True)),
        key=lambda dump: dump.rank,
    )
    if len(dumps) < 2:
        raise ValueError(
            f"{dumps[0].file} is the Flight Recorder of one rank, and whom others waited for is"
            " seen in the dumps of all ranks: put them in a folder, and name the folder",
        )
    remarks = []
    others = [_name(file, path) for file in heads if file not in files]
    if others:
        remarks.append(f"No dumps of the Flight Recorder, and left out: {first_of(others)}.")
    return dumps, remarks + _world_remarks(dumps)


def _world_remarks(dumps: Sequence[Dump]) -> list[str]:
    """How many ranks of the job are here; ValueError if they are of several jobs."""
    worlds = dict[tuple[int, ...], Dump]()
    for dump in dumps:
        if dump.world:
            worlds.setdefault(dump.world, dump)
    if len(worlds) > 1:
        first, second = list(worlds.values())[:2]
        raise ValueError(
            f"{first.file} is of a job of {len(first.world)} ranks, and {second.file} of one of"
            f" {len(second.world)}: put the dumps of one job in a folder",
        )
    here = [dump.rank for dump in dumps]
    for world in worlds:
        strangers = sorted({*here} - {*world})
        if strangers:
            raise ValueError(
                f"{dumps[here.index(strangers[0])].file} would be of rank {strangers[0]}, and the"
                f" job has the ranks {first_of(world)}: name each file by its rank, such as"
                " rank_0.json",
            )
        if len(here) < len(world):
            return [
                f"{len(here)} of {len(world)} ranks are here: {first_of(here)}. The time in which"
                " they wait for the others counts as their own work, or as transfers.",
            ]
    if not worlds:
        return ["The dumps do not say how many ranks the job has."]
    return []


def _files(path: Path) -> list[Path]:
    """A file, or the files in a folder and its folders; none where they cannot be listed."""
    try:
        if not path.is_dir():
            return [path]
        files = [*islice((file for file in path.rglob("*") if file.is_file()), _MOST_FILES)]
    except OSError:
        return []
    return sorted(file for file in files if not _is_hidden(file, path))


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _name(file: Path, path: Path) -> str:
    """The name of a file, with the folders between it and the folder that is read."""
    if file == path:
        return file.name
    return file.relative_to(path).as_posix()


def _head(path: Path) -> bytes:
    return peek.beginning(path, _HEAD_BYTES)


def _is_json(head: bytes) -> bool:
    if not head.lstrip().startswith(b"{") or any(mark in head for mark in _TRACE_MARKS):
        return False
    # PyTorch writes the keys in the order of the alphabet; json.dump in the recorder's order
    return b'"pg_config"' in head or (b'"entries"' in head and b'"collective_seq_id"' in head)


def _is_pickle(head: bytes) -> bool:
    return head.startswith(_PICKLE_START) and b"pg_config" in head


def _ranks(names: Sequence[str]) -> list[int]:
    """The ranks of files: the number after "rank", else the last one before the endings.

    Args:
        names: Their names, which may begin with names of folders.
    """
    ranks = dict[int, str]()
    for name in names:
        stem = re.sub(r"(\.[A-Za-z]+)+$", "", name.rpartition("/")[2])
        numbers = _RANK.findall(stem) or _RANK.findall(name) or re.findall(r"[0-9]+", stem)
        fault = ""
        if not numbers or len(numbers[-1]) > 9:
            fault = f"{name} names no rank"
        elif int(numbers[-1]) in ranks:
            fault = f"{ranks[int(numbers[-1])]} and {name} are both of rank {int(numbers[-1])}"
        if fault:
            raise ValueError(
                f"{fault}, and a dump does not hold its rank: put the dumps of one run in a folder,"
                " and name each file by its rank, such as rank_0.json",
            )
        ranks[int(numbers[-1])] = name
    return list(ranks)


def _dump(path: Path, name: str, rank: int) -> Dump:
    fault = f"{name} cannot be read as a dump of the Flight Recorder"
    try:
        document = msgspec.json.decode(peek.content_of(path), type=_Document)
        world = _world(document.pg_config)
    except RecursionError:
        raise ValueError(f"{fault}: its lists and objects are nested too deeply") from None
    except (OSError, msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"{fault}: {error}: write it again") from error
    if not document.entries:
        raise ValueError(
            f"{name} holds no collectives: run the job with TORCH_FR_BUFFER_SIZE=20000"
            " (older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE=20000), and write all of them, not only"
            " those under way",
        )
    return Dump(name, rank, world, document.entries)


def _world(groups: dict[str, _Group]) -> tuple[int, ...]:
    """The ranks of the largest group, which is the group of the job."""
    return max((_members(group) for group in groups.values()), key=len, default=())


def _members(group: _Group) -> tuple[int, ...]:
    ranks = group.ranks
    if isinstance(ranks, str):
        ranks = [int(number) for number in re.findall(r"[0-9]{1,9}", ranks)]
    return tuple(sorted({*ranks}))
