"""The one door to logs: recognise the format, read it."""

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path

from ata_gym.bench.logs import flight_recorder, megatron, tables, tensorboard, traceml, traces
from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.refused import refuse
from ata_gym.bench.logs.task_streams import dask_stream, ray_timeline
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.validation import short

FORMATS = (
    flight_recorder.FORMAT,
    ray_timeline.FORMAT,
    dask_stream.FORMAT,
    traceml.FORMAT,
    tensorboard.FORMAT,
    megatron.FORMAT,
    traces.FORMAT,
    tables.FORMAT,
)
"""All formats; the first that recognises a file or folder reads it. The last takes any."""

_MOST_FILES = 10_000
"""Files of a folder that are looked at."""


def read_log(
    path: str | PathLike[str],
    *,
    worker: str | None = None,
    duration: str | None = None,
    round: str | None = None,
    where: Mapping[str, Sequence[str]] | None = None,
    pattern: str | None = None,
    warmup: int | None = None,
) -> Log:
    r"""Read a job's times from a file, or from a folder with a file of each rank.

    Steps that lack a worker are left out.

    Args:
        path: A table with a row for each worker and step, or for each task, as a ``TraceRecorder``
            writes: text separated by commas, semicolons, tabs, bars or blanks (.csv, .tsv, .txt),
            .json, .jsonl, .ndjson, each also with .gz, or .parquet and .arrow. It may have a column
            for each rank, as W&B exports, units in names or entries ("time_ms", "100 ms"), starts
            and ends in place of durations, and nested records. Times of start-up, set-up, launch,
            queue or transfer beside a column of computation are the latencies of shares; a column
            such as "batch_size" that differs between workers tells how much work each has. Or a
            folder with such a table of each rank; or texts, with ``pattern``; or what a tool wrote:
            traces of ``torch.profiler``, dumps of the Flight Recorder, TensorBoard, TraceML, Ray,
            Dask, Megatron-LM. ``docs/guide/formats.md`` has the table of all of them.
        worker: The name of the column of workers, or names with commas that name a worker together;
            by default a usual name.
        duration: The name of the column of times, or names with commas of those that are added up;
            by default a usual name.
        round: The name of the column of steps; by default a usual name. Without such a column, the
            k-th row of each worker is of step k.
        where: The entries of the rows that count, by the name of the column: a row has one of them.
        pattern: A regular expression for the lines of a text. Its named groups are the columns,
            such as ``(?P<rank>...)``, ``(?P<step>...)`` and ``(?P<ms>...)``; lines without a match
            do not count.
        warmup: The number of first steps that are left out; by default those that the data show.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        PermissionError: For a file or folder that may not be read.
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
    if path.is_dir():
        # a folder that may not be listed, perhaps of one rank, is not taken for an empty one
        for _ in os.walk(path, onerror=_raise):
            pass
    else:
        check_source(path)
    options = Options(worker, duration, round, where or {}, pattern, warmup)
    known_format = _format_of(path)
    try:
        # a pattern finds times in the text of any tool
        if known_format is tables.FORMAT and pattern is None:
            refuse(path)
        return known_format.read(path, options)
    except ValueError as error:
        if path.is_dir() and known_format is tables.FORMAT and pattern is None:
            _name_logs(path, error)
        raise ValueError(f"{path}: {error}") from error


def _name_logs(folder: Path, error: ValueError) -> None:
    """Raise ValueError for a folder without tables that holds logs of tools, each in one file."""
    files = (file for file in islice(folder.rglob("*"), _MOST_FILES) if file.is_file())
    kinds = {file: _format_of(file).name for file in files}
    logs = sorted(file for file, name in kinds.items() if name != tables.FORMAT.name)
    if logs:
        names = short([file.relative_to(folder).as_posix() for file in logs])
        raise ValueError(
            f"{folder}: the folder holds no table that can be read, but {names} of the format"
            f" {kinds[logs[0]]!r}: name the file",
        ) from error


def _format_of(path: Path) -> Format:
    """The first format that recognises a file or folder."""
    return next(one for one in FORMATS if one.recognises(path))


def _raise(error: OSError) -> None:
    raise error
