"""From recorded data of any form to a clean trace."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from ata_gym.pools import Pool, read_trace
from ata_gym.utils.atomic import check_place, check_source
from ata_gym.utils.tables import reading


def make_trace(
    source: str | PathLike[str], target: str | PathLike[str], *, worker: str, duration: str, round: str | None = None
) -> Pool:
    """Write a trace with columns worker, duration and, if asked, round, and return the pool that it makes.

    The order of the rows is kept. ``source`` is a CSV file, maybe compressed, or a Parquet file; the name of ``target``
    ends in .parquet or .csv. ``worker`` and ``round`` name columns, and ``duration`` is a SQL expression over the
    columns, such as ``"items / items_per_second"``. FileNotFoundError if there is no such file; ValueError for one that
    cannot be read, a bad expression, an unknown column, and durations that make no trace.
    """
    source, target = Path(source), Path(target)
    check_source(source)
    check_trace_name(target)
    if target.exists() and target.samefile(source):
        raise ValueError(f"{target} is the file to read: choose another name")
    check_place(target)
    columns = {role: name for role, name in (("worker", worker), ("round", round)) if name is not None}
    rows = _read(source)
    for role, column in columns.items():
        if column not in rows.columns:
            raise ValueError(f"{source}: there is no column {column!r} for the {role}; the columns are {rows.columns}")
    clean = rows.select(pl.col(column).alias(role) for role, column in columns.items())
    clean = clean.with_columns(_durations(rows, duration))
    with TemporaryDirectory(dir=target.parent, prefix=".trace-") as folder:
        part = Path(folder, target.name)
        (clean.write_csv if target.suffix == ".csv" else clean.write_parquet)(part)
        try:
            pool = read_trace(part, worker="worker", duration="duration", round=None if round is None else "round")
        except ValueError as error:
            raise ValueError(str(error).replace(str(part), str(source))) from None
        part.replace(target)
    return pool


def check_trace_name(target: Path) -> None:
    """Refuse a name that no trace can have."""
    if target.suffix not in (".parquet", ".csv"):
        raise ValueError(f"the trace's name must end in .parquet or .csv, not {target.name!r}")


def _read(source: Path) -> pl.DataFrame:
    with reading(f"{source}: the file cannot be read"):
        if source.suffix == ".parquet":
            return pl.read_parquet(source, glob=False)
        rows = pl.read_csv(source, infer_schema_length=None, glob=False)
    texts = [pl.Series(rows.columns), *rows.select(pl.col(pl.String))]
    if any(text.str.contains("\0", literal=True).any() for text in texts):
        raise ValueError(f"{source}: the file holds NUL bytes, so it is no CSV file")
    return rows


def _durations(rows: pl.DataFrame, expression: str) -> pl.Series:
    with reading(f"the duration {expression!r} cannot be computed", f"; the columns are {rows.columns}"):
        times = rows.select(pl.sql_expr(expression).cast(pl.Float64).alias("duration"))["duration"]
    if len(times) != rows.height:
        raise ValueError(f"the duration {expression!r} gives {len(times)} numbers for {rows.height} rows")
    return times
