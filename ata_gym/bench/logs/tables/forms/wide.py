"""Tables with a column for each rank, as W&B exports them: a row for each rank and step of it."""

import re

import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables.roles import is_round, is_worker
from ata_gym.bench.logs.tables.words import is_clock, is_moment, is_summary, is_time, name_and_unit
from ata_gym.bench.logs.tables.workers import (
    names_worker,
    without_worker,
    worker_key,
    worker_names,
)

_RUN = re.compile(r"(?P<run>.+) - (?P<metric>.+?)(?P<end>__MIN|__MAX)?")
"""A column of an export of W&B: the name of a run, and what was logged."""

_SHORT_WORKER = re.compile(r"([rwpgn])[ _-]?(\d+)", re.IGNORECASE)

_COUNTED = re.compile(r"(?P<metric>.*[^\W\d_])[ _./-]?(?P<number>\d{1,18})")

Cells = dict[str, tuple[int | str, str]]
"""The worker and the metric of columns, by their names."""


def melted(frame: pl.DataFrame, options: Options) -> tuple[pl.DataFrame, list[str]]:
    """Return a table with a row for each worker and step, and remarks.

    A table that has no column for each rank is returned as it is.

    Args:
        frame: The table.
        options: The names of columns.

    Example:
        >>> wide = pl.DataFrame({"step": [1, 2], "rank0_ms": [5, 6], "rank1_ms": [7, 8]})
        >>> melted(wide, Options())[0].rows(named=True)[1:3]
        [{'rank': 0, 'step': 2, 'ms': 6}, {'rank': 1, 'step': 1, 'ms': 7}]
    """
    names = frame.columns
    named = {*(options.worker or "").split(","), *(options.duration or "").split(",")}
    if named & {*names}:
        return frame, []
    if steps := _columns_of_steps(frame):
        return _rows_of_steps(frame, steps), _remarks_on_steps(steps)
    runs = _runs(names)
    if runs:
        return _rows_of(frame, runs, count_rows=False), _remarks_on_runs(frame, runs)
    cells = _columns_of_ranks(names)
    # the mean and the maximum of the ranks are of no worker
    others = [name for name in names if name not in cells and not _is_of_all(name)]
    if len(cells) < 2 or any(is_worker(name) or is_time(name) for name in others):
        return frame, []
    return _rows_of(frame, cells, count_rows=True), _remarks_on_ranks(cells)


def _columns_of_steps(frame: pl.DataFrame) -> dict[str, int]:
    """The numbers of the steps, by the columns; empty for a table without a column for each step.

    All other columns name the worker, which has one row. Where rows repeat a host, say, the columns
    may be the ranks of it.
    """
    names = frame.columns
    numbers = {}
    for name in names:
        counted = _COUNTED.fullmatch(name)
        if name.isdecimal():
            numbers[name] = int(name)
        elif counted and is_round(counted["metric"]):
            numbers[name] = int(counted["number"])
    others = [name for name in names if name not in numbers]
    if len(numbers) < 2 or not others or not all(map(is_worker, others)):
        return {}
    if frame.select(others).is_duplicated().any():
        return {}
    return numbers


def _rows_of_steps(frame: pl.DataFrame, steps: dict[str, int]) -> pl.DataFrame:
    """The rows of each worker and step of a table with a column for each step."""
    workers = [name for name in frame.columns if name not in steps]
    rows = frame.unpivot([*steps], index=workers, variable_name="step", value_name="duration")
    return rows.with_columns(pl.col("step").replace_strict(steps)).drop_nulls("duration")


def _remarks_on_steps(steps: dict[str, int]) -> list[str]:
    first, last = next(iter(steps)), next(reversed(steps))
    return [f"The columns from {first!r} to {last!r} were taken for the times of a step each."]


def _runs(names: list[str]) -> Cells:
    """The columns of an export of W&B; empty for another table."""
    matches = {name: match for name in names if (match := _RUN.fullmatch(name))}
    # all but the axis are of runs, or W&B's own columns of extremes are there
    extremes = any(match["end"] for match in matches.values())
    if not matches or (len(matches) < len(names) - 1 and not extremes):
        return {}
    return {
        name: (match["run"], match["metric"])
        for name, match in matches.items()
        if not match["end"] and match["metric"] != "_step"
    }


def _remarks_on_runs(frame: pl.DataFrame, runs: Cells) -> list[str]:
    present = set(frame.columns)
    extremes = [
        (frame[f"{name}__MIN"], frame[f"{name}__MAX"])
        for name in runs
        if {f"{name}__MIN", f"{name}__MAX"} <= present
    ]
    if any((least != most).any() for least, most in extremes):
        return [
            "Some points of this export are averages of several, as their minimum and maximum"
            " differ: export all points of all runs for the steps themselves."
        ]
    return []


def _remarks_on_ranks(cells: Cells) -> list[str]:
    if all(metric != "duration" for _, metric in cells.values()):
        return []
    first, last = next(iter(cells)), next(reversed(cells))
    return [f"The columns from {first!r} to {last!r} were taken for the times of a worker each."]


def _columns_of_ranks(names: list[str]) -> Cells:
    """The columns with the times of a worker, by words such as rank, or by numbers alone."""
    others = [name for name in names if not _numbers_rows(name) and not _is_of_all(name)]
    if len(others) > 1 and all(name.isdecimal() for name in others):
        return {name: (int(name), "duration") for name in others}
    short = [match for name in others if (match := _SHORT_WORKER.fullmatch(name))]
    letters = {match[1] for match in short}
    if len(others) > 1 and len(short) == len(others) and len(letters) == 1:
        return {match[0]: (int(match[2]), "duration") for match in short}
    numbers_by_metric: dict[str, dict[str, int]] = {}
    for name in others:
        counted = _COUNTED.fullmatch(name)
        if counted:
            numbers_by_metric.setdefault(counted["metric"], {})[name] = int(counted["number"])
    for metric, numbers in numbers_by_metric.items():
        if len(numbers) > 1 and is_time(metric) and not names_worker(metric):
            return {name: (number, metric) for name, number in numbers.items()}
        if len(numbers) > 1 and is_worker(metric.removesuffix("s")) and metric.endswith("s"):
            return {name: (number, "duration") for name, number in numbers.items()}
    keys = {name: key for name in others if (key := worker_key(name))}
    workers = worker_names(list(keys.values()))
    return {name: (worker, _metric(name)) for name, worker in zip(keys, workers, strict=True)}


def _numbers_rows(name: str) -> bool:
    """Whether a column tells rows apart: steps, points of time, or the numbers of rows."""
    if worker_key(name):
        return False
    return is_round(name) or is_clock(name) or is_moment(name) or name == "index"


def _is_of_all(name: str) -> bool:
    """Whether a column holds a figure over all workers, such as their maximum."""
    return is_summary(name) and not worker_key(name)


def _metric(name: str) -> str:
    """What a column of a worker holds, without the worker."""
    rest = without_worker(name)
    if not rest:
        return "duration"
    if name_and_unit(rest)[0] == "":
        return re.sub(r"[^\w/]", "", rest)
    return rest


def _rows_of(frame: pl.DataFrame, cells: Cells, *, count_rows: bool) -> pl.DataFrame:
    """The rows of each worker, one after the other, without those that have no entry.

    Args:
        frame: A table.
        cells: Its columns of workers.
        count_rows: Whether the number of a row is its step, where no column says it.
    """
    others = [name for name in frame.columns if is_round(name) and name not in cells]
    if count_rows and not others:
        frame = frame.with_row_index("step", offset=1)
        others = ["step"]
    columns: dict[int | str, dict[str, pl.Series]] = {}
    for name, (worker, metric) in cells.items():
        columns.setdefault(worker, {})[metric] = frame[name].alias(metric)
    parts = []
    for worker, series in columns.items():
        part = pl.DataFrame([*(frame[name] for name in others), *series.values()])
        has_entry = pl.any_horizontal(pl.col(metric).is_not_null() for metric in series)
        part = part.filter(has_entry)
        parts.append(part.select(pl.lit(worker).alias("rank"), pl.all()))
    return pl.concat(parts, how="diagonal_relaxed")
