"""Tables with columns inside columns: records of JSON and Parquet, made flat."""

from typing import Any

import polars as pl

from ata_gym.bench.logs.tables.roles import is_round, is_worker
from ata_gym.bench.logs.tables.words import is_time

_MOST_LEVELS = 20
"""Levels of structures inside each other at most."""


def flattened(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table without structures and, as far as they hold the times, without lists.

    A field of a structure is a column such as "timing.forward_ms". Lists get a row for each item:
    those that hold the times, and those that are as long. The items of a list without a name for
    it are of worker 0, 1, ... if a row is of a step, else of step 0, 1, ....

    Args:
        frame: The table as its file holds it.

    Raises:
        ValueError: If the lists of a row are not of one length.

    Example:
        >>> flattened(pl.DataFrame([{"rank": 3, "steps": [{"step": 1, "ms": 5}]}])).rows(named=True)
        [{'rank': 3, 'step': 1, 'ms': 5}]
    """
    for _ in range(_MOST_LEVELS):
        frame = _without_structures(frame)
        lists = _lists_of_times(frame)
        if not lists:
            return frame
        frame = _exploded(frame, lists)
    raise ValueError("its lists and objects are nested too deeply")


def _without_structures(frame: pl.DataFrame) -> pl.DataFrame:
    for _ in range(_MOST_LEVELS):
        if not any(isinstance(column.dtype, pl.Struct) for column in frame):
            return frame
        columns = []
        for column in frame:
            if isinstance(column.dtype, pl.Struct):
                columns += [
                    column.struct.field(field.name).alias(f"{column.name}.{field.name}")
                    for field in column.dtype.fields
                ]
            elif isinstance(column.dtype, pl.Array):
                columns.append(column.arr.to_list())
            else:
                columns.append(column)
        frame = pl.DataFrame(columns)
    raise ValueError("its objects are nested too deeply")


def _lists_of_times(frame: pl.DataFrame) -> list[str]:
    """The columns of lists that hold the times, and those beside them that are as long."""
    lists = [column for column in frame if isinstance(column.dtype, pl.List)]
    if any(is_time(column.name) for column in frame if not isinstance(column.dtype, pl.List)):
        return []
    of_times = [column for column in lists if is_time(column.name) or _has_times(column.dtype)]
    of_records = [column for column in lists if column.dtype == pl.List(pl.Struct)]
    if not of_times and len(of_records) == 1:
        of_times = of_records
    if not of_times:
        return []
    lengths = of_times[0].list.len()
    return [column.name for column in lists if column.list.len().equals(lengths)]


def _has_times(dtype: Any) -> bool:
    """Whether structures inside a type have a field of durations."""
    if isinstance(dtype, pl.List):
        return _has_times(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return any(is_time(field.name) or _has_times(field.dtype) for field in dtype.fields)
    return False


def _exploded(frame: pl.DataFrame, lists: list[str]) -> pl.DataFrame:
    """A row for each item of the lists; fields of the items keep their names where they can."""
    names_inside = set(lists)
    for name in lists:
        item = getattr(frame[name].dtype, "inner", None)
        names_inside.update(field.name for field in getattr(item, "fields", ()))
    names_outside = set(frame.columns) - set(lists)
    of_workers = any(map(is_worker, names_outside))
    of_rounds = any(map(is_round, names_outside))
    if any(is_worker(name) or is_round(name) for name in names_inside) or of_workers == of_rounds:
        index = None
    elif of_rounds:
        index = "rank"
    else:
        index = "step"
    length = pl.col(lists[0]).list.len()
    if index is not None:
        frame = frame.with_columns(pl.int_ranges(length).alias(index))
        lists = [*lists, index]
    frame = frame.filter(length > 0).explode(lists)
    columns = []
    taken = set(frame.columns) - set(lists)
    for column in frame:
        if column.name in lists and isinstance(column.dtype, pl.Struct):
            for field in column.dtype.fields:
                name = f"{column.name}.{field.name}" if field.name in taken else field.name
                taken.add(name)
                columns.append(column.struct.field(field.name).alias(name))
        else:
            columns.append(column)
    return pl.DataFrame(columns)
