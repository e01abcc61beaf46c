"""Pools that replay recorded task times, from a file with a table or from the package."""

from __future__ import annotations

from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools.constructors import trace
from ata_gym.pools.pool import Pool
from ata_gym.typing import Floats, Ints
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.files.tables import reading
from ata_gym.utils.validation import short

if TYPE_CHECKING:
    import polars

JSON_LINES = (".jsonl", ".ndjson")
"""The endings of files with one JSON object per line."""


def read_trace(
    path: str | PathLike[str],
    *,
    worker: str,
    duration: str,
    round: str | None = None,
    end: str = "wrap",
) -> Pool:
    r"""Make a trace pool from a file with one row per recorded task.

    Workers are ordered by their entry in the worker column: by number where all are integers, else
    as text.

    Args:
        path: A file ending in .csv, .csv.gz, .parquet, .jsonl or .ndjson. CSV files begin with a
            line of names.
        worker: The name of the column of workers, integers or text.
        duration: The name of the column of task times, in any unit, not negative.
        round: The name of the column of rounds, integers. Without it each task takes the worker's
            next row, in the order of the file. With it, tasks in round k take the row of the k-th
            smallest round number, and each round must hold each worker exactly once. Only the last
            round may lack workers, where the recording was cut: it is left out.
        end: What happens at the end of a record, see ``trace``.

    Raises:
        FileNotFoundError: If there is no such file.
        ImportError: Without polars (extra ``bench``).
        ValueError: For a file that cannot be read, unknown columns, and bad entries or rounds.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "times.csv")
        >>> _ = path.write_text("machine,step,seconds\na,1,2.5\nb,1,4\na,2,3.5\nb,2,6\n")
        >>> pool = read_trace(path, worker="machine", duration="seconds", round="step")
        >>> pool.mean(), pool.record(1)
        (array([3., 5.]), array([4., 6.]))
        >>> folder.cleanup()
    """
    path = Path(path)
    columns = {"worker": worker, "duration": duration}
    if round is not None:
        columns["round"] = round
    if not path.is_dir():
        check_source(path)
    try:
        frame = read_columns(path, columns)
        times = durations(frame)
        code, workers = ranks(frame["worker"], text=True)
        if round is None:
            order = np.argsort(code, kind="stable")
            return trace(
                np.split(times[order], np.cumsum(np.bincount(code))[:-1]),
                replay="task",
                end=end,
            )
        number, rounds = ranks(frame["round"], text=False)
        return trace(list(times[_grid(code, workers, number, rounds)]), replay="round", end=end)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def measured(end: str = "wrap") -> Pool:
    """Replay task by task the times, in seconds, that were recorded on a processor.

    The tasks are gradients of the problem ``digits``, computed once per task by worker 0, twice by
    worker 1, ..., eight times by worker 7; 150 tasks each. ``ata_gym/pools/data/README.md`` says
    how they were recorded.

    Args:
        end: What happens at the end of a record, see ``trace``.

    Example:
        >>> pool = measured()
        >>> pool.n, len(pool.record(0)), bool((np.diff(pool.mean()) > 0).all())
        (8, 150, True)
    """
    recording = resources.files("ata_gym.pools") / "data" / "measured-cpu.csv"
    with recording.open(encoding="utf-8") as file:
        worker, _, duration = np.loadtxt(file, delimiter=",", skiprows=1, unpack=True)
    return trace([duration[worker == i] for i in np.unique(worker)], replay="task", end=end)


def scan(path: Path) -> polars.LazyFrame:
    """The table in a file; from CSV, all columns are text.

    Raises:
        ValueError: For a path with another ending, and a file that cannot be read.
    """
    pl = require("polars", extra="bench", purpose="Reading a trace")
    name = path.name.lower()
    kinds = (".csv", ".csv.gz", ".parquet", *JSON_LINES)
    kind = next((suffix for suffix in kinds if name.endswith(suffix)), None)
    if path.is_dir() or kind is None:
        raise ValueError(
            "a trace is a file whose name ends in .csv, .csv.gz, .parquet, .jsonl or .ndjson",
        )
    with reading("the file cannot be read"):
        if kind == ".parquet":
            table: polars.LazyFrame = pl.scan_parquet(path, glob=False)
        elif kind in JSON_LINES:
            table = pl.read_ndjson(path, infer_schema_length=None).lazy()
        else:
            rows = pl.read_csv(path, infer_schema=False, glob=False).lazy()
            # A blank line is a row of nulls.
            table = rows.filter(~pl.all_horizontal(pl.all().is_null()))
        table.collect_schema()
    return table


def read_columns(path: Path, columns: dict[str, str]) -> polars.DataFrame:
    """The named columns of a file, under the names of their roles.

    Args:
        path: The file.
        columns: The name of the column of each role: "worker", "duration", and maybe "round".

    Raises:
        ValueError: For a file that ``scan`` refuses, unknown or equal columns, and no rows.
    """
    pl = require("polars", extra="bench", purpose="Reading a trace")
    if len(set(columns.values())) < len(columns):
        raise ValueError(f"worker, duration and round must be different columns, got {columns}")
    rows = scan(path)
    with reading("the file cannot be read"):
        present = rows.collect_schema().names()
        for role, column in columns.items():
            if column not in present:
                raise ValueError(
                    f"there is no column {column!r} for the {role}; the columns are {present}",
                )
            if f"{column}_duplicated_0" in present:
                raise ValueError(f"two columns are called {column!r}")
        if "propensity" in present:
            # of a ``TraceRecorder``: a worker that was given no task has a row without a time
            empty = pl.col(columns["duration"]).cast(pl.String).fill_null("") == ""
            rows = rows.filter(~empty)
        chosen = rows.select(pl.col(column).alias(role) for role, column in columns.items())
        frame: polars.DataFrame = chosen.collect()
    if not frame.height:
        raise ValueError("the file holds no rows")
    return frame


def durations(frame: polars.DataFrame) -> Floats:
    """The times in the column "duration", shape (rows,).

    Raises:
        ValueError: For a time that is no finite number of at least 0.
    """
    times = np.asarray(_numbers(frame["duration"], "Float64").to_numpy())
    _refuse_row(
        frame["duration"],
        ~(np.isfinite(times) & (times >= 0)),
        "a finite number, not negative",
    )
    return times


def ranks(column: polars.Series, *, text: bool) -> tuple[Ints, list[int | str]]:
    """The place of each row's entry among the distinct entries, and these in order.

    Args:
        column: A column of integers, or of text.
        text: Whether text is allowed where not all entries are integers.

    Returns:
        The places, shape (rows,), and the list of distinct entries.

    Raises:
        ValueError: For other entries.
    """
    keys = _keys(column, text=text)
    return keys.rank("dense").to_numpy().astype(np.int64) - 1, keys.unique().sort().to_list()


def _keys(column: polars.Series, *, text: bool) -> polars.Series:
    """The entries as integers where all are, else as text."""
    pl = require("polars", extra="bench")
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype.is_integer():
        numbers = column
    else:
        numbers = _numbers(column, "Int64")
    if text and numbers.has_nulls():
        keys = column
    else:
        keys = numbers
    if text:
        requirement = "an integer or text"
    else:
        requirement = "an integer"
    _refuse_row(column, keys.is_null().to_numpy(), requirement)
    return keys


def _numbers(column: polars.Series, dtype: str) -> polars.Series:
    """The entries as numbers; null where an entry is none."""
    pl = require("polars", extra="bench")
    if column.dtype == pl.String:
        column = column.str.strip_chars()
    elif not column.dtype.is_numeric() or dtype == "Int64":
        raise ValueError(f"the {column.name} column cannot be of type {column.dtype}")
    return column.cast(getattr(pl, dtype), strict=False)


def _refuse_row(column: polars.Series, invalid: NDArray[np.bool_], requirement: str) -> None:
    if invalid.any():
        row = int(np.argmax(invalid))
        raise ValueError(
            f"each {column.name} must be {requirement}; data row {row + 1} has"
            f" {short(column[row])}",
        )


def _grid(code: Ints, workers: list[int | str], number: Ints, rounds: list[int | str]) -> Ints:
    """Find the row of each worker in each round, shape (workers, complete rounds)."""
    # Sorted by cell, the rows are ordered by worker and then by round.
    cell = code * len(rounds) + number
    order = np.argsort(cell, kind="stable")
    duplicates = np.flatnonzero(np.diff(cell[order]) == 0)
    if duplicates.size:
        row = order[duplicates[0]]
        raise ValueError(
            f"round {rounds[number[row]]} holds worker {workers[code[row]]!r} more than once",
        )
    last = len(rounds) - 1
    lacking = np.flatnonzero(np.bincount(number) < len(workers))
    if last > 0 and lacking.tolist() == [last]:
        order = order[number[order] < last]
    elif lacking.size:
        present = np.isin(np.arange(len(workers)), code[number == lacking[0]])
        missing = workers[int(np.argmin(present))]
        raise ValueError(
            f"round {rounds[lacking[0]]} lacks worker {missing!r}; only the last may lack workers",
        )
    return order.reshape(len(workers), -1)
