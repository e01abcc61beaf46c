"""Pools that replay recorded task times: from a CSV or Parquet file, or from a recording in the package."""

from __future__ import annotations

from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools.constructors import trace
from ata_gym.pools.pool import Pool
from ata_gym.typing import Ints
from ata_gym.utils.atomic import check_source
from ata_gym.utils.extras import require
from ata_gym.utils.tables import reading

if TYPE_CHECKING:
    import polars


def read_trace(
    path: str | PathLike[str], *, worker: str, duration: str, round: str | None = None, end: str = "wrap"
) -> Pool:
    r"""Make a trace pool from a file with one row per recorded task.

    Workers are ordered by their entry in the worker column: by number where all are integers, else as text.

    - ``path``: a file ending in .csv, .csv.gz or .parquet. CSV files begin with a line of column names.
    - ``worker``, ``duration``, ``round``: names of columns of integers or text, of task times (any unit, not negative),
      and of integers. Without ``round`` each task takes the worker's next row, in the order of the file. With it, tasks
      in round k take the row of the k-th smallest round number; each round must hold each worker exactly once. Only the
      last round may lack workers, where the recording was cut: it is left out.
    - ``end``: as for ``trace``.

    Raises FileNotFoundError, ImportError without polars (extra ``bench``), and ValueError for a file that cannot be
    read, unknown columns, and bad entries or rounds.

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
    columns = {"worker": worker, "duration": duration} | ({} if round is None else {"round": round})
    if not path.is_dir():
        check_source(path)
    try:
        frame = _read(path, columns)
        times = np.asarray(_numbers(frame["duration"], "Float64").to_numpy())
        _refuse_row(frame["duration"], ~(np.isfinite(times) & (times >= 0)), "a finite number, not negative")
        code, workers = _ranks(_keys(frame["worker"], text=True))
        if round is None:
            order = np.argsort(code, kind="stable")
            return trace(np.split(times[order], np.cumsum(np.bincount(code))[:-1]), replay="task", end=end)
        number, rounds = _ranks(_keys(frame["round"], text=False))
        return trace(list(times[_grid(code, workers, number, rounds)]), replay="round", end=end)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def measured(end: str = "wrap") -> Pool:
    """Replay task by task, in seconds, what ``ata-gym measure`` recorded on a processor; ``end`` as for ``trace``.

    The tasks are gradients of the problem ``digits``, computed once per task by worker 0, twice by worker 1, ..., eight
    times by worker 7; 150 tasks each. How they were recorded: ``ata_gym/pools/data/README.md``.

    >>> pool = measured()
    >>> pool.n, len(pool.record(0)), bool((np.diff(pool.mean()) > 0).all())
    (8, 150, True)
    """
    with (resources.files("ata_gym.pools") / "data" / "measured-cpu.csv").open(encoding="utf-8") as file:
        worker, _, duration = np.loadtxt(file, delimiter=",", skiprows=1, unpack=True)
    return trace([duration[worker == i] for i in np.unique(worker)], replay="task", end=end)


def _read(path: Path, columns: dict[str, str]) -> polars.DataFrame:
    """Read the named columns and call them by their roles; from CSV, all columns are text."""
    pl = require("polars", extra="bench", purpose="Reading a trace")
    parquet = path.name.lower().endswith(".parquet")
    if path.is_dir() or not (parquet or path.name.lower().endswith((".csv", ".csv.gz"))):
        raise ValueError("a trace is a file whose name ends in .csv, .csv.gz or .parquet")
    if len(set(columns.values())) < len(columns):
        raise ValueError(f"worker, duration and round must be different columns, got {columns}")
    with reading("the file cannot be read"):
        lazy = (
            pl.scan_parquet(path, glob=False) if parquet else pl.read_csv(path, infer_schema=False, glob=False).lazy()
        )
        present = lazy.collect_schema().names()
        for role, column in columns.items():
            if column not in present:
                raise ValueError(f"there is no column {column!r} for the {role}; the columns are {present}")
            if f"{column}_duplicated_0" in present:
                raise ValueError(f"two columns are called {column!r}")
        # a blank line of a CSV file is a row of nulls
        rows = lazy if parquet else lazy.filter(~pl.all_horizontal(pl.all().is_null()))
        frame: polars.DataFrame = rows.select(pl.col(column).alias(role) for role, column in columns.items()).collect()
    if not frame.height:
        raise ValueError("the file holds no rows")
    return frame


def _keys(column: polars.Series, *, text: bool) -> polars.Series:
    """Give what names a worker or a round: integers, or text where allowed and not all are integers."""
    pl = require("polars", extra="bench")
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    numbers = column if column.dtype.is_integer() else _numbers(column, "Int64")
    keys = column if text and numbers.has_nulls() else numbers
    _refuse_row(column, keys.is_null().to_numpy(), "an integer or text" if text else "an integer")
    return keys


def _numbers(column: polars.Series, dtype: str) -> polars.Series:
    """Read a column as Float64 or Int64, null where an entry is no such number."""
    pl = require("polars", extra="bench")
    if column.dtype == pl.String:
        column = column.str.strip_chars()
    elif not column.dtype.is_numeric() or dtype == "Int64":
        raise ValueError(f"the {column.name} column cannot be of type {column.dtype}")
    return column.cast(getattr(pl, dtype), strict=False)


def _refuse_row(column: polars.Series, bad: NDArray[np.bool_], wanted: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"each {column.name} must be {wanted}; data row {row + 1} has {column[row]!r}")


def _ranks(keys: polars.Series) -> tuple[Ints, list[int | str]]:
    """Give each row the place of its key among the distinct ones, shape (rows,), and these in order."""
    return keys.rank("dense").to_numpy().astype(np.int64) - 1, keys.unique().sort().to_list()


def _grid(code: Ints, workers: list[int | str], number: Ints, rounds: list[int | str]) -> Ints:
    """Find the row of each worker in each round, shape (workers, complete rounds)."""
    cell = code * len(rounds) + number
    order = np.argsort(cell, kind="stable")
    twice = np.flatnonzero(np.diff(cell[order]) == 0)
    if twice.size:
        row = order[twice[0]]
        raise ValueError(f"round {rounds[number[row]]} holds worker {workers[code[row]]!r} more than once")
    last = len(rounds) - 1
    lacking = np.flatnonzero(np.bincount(number) < len(workers))
    if last > 0 and lacking.tolist() == [last]:
        order = order[number[order] < last]
    elif lacking.size:
        present = np.isin(np.arange(len(workers)), code[number == lacking[0]])
        missing = workers[int(np.argmin(present))]
        raise ValueError(f"round {rounds[lacking[0]]} lacks worker {missing!r}; only the last may lack workers")
    return order.reshape(len(workers), -1)
