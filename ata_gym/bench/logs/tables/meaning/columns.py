"""Which columns of a table hold the worker, the step and the time, by their names."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables.meaning.codes import integers
from ata_gym.bench.logs.tables.roles import (
    EPOCHS,
    HOSTS,
    RANKS,
    SLOTS,
    STEPS,
    is_named,
    is_round,
    is_worker,
    place_in,
)
from ata_gym.bench.logs.tables.times import seconds_of
from ata_gym.bench.logs.tables.words import (
    has_time_word,
    is_compute,
    is_duration,
    is_half_pass,
    is_latency,
    is_loading,
    is_rate,
    is_waiting,
    is_whole,
    listed,
    plain,
    words,
)

_CLOCK_ROWS = 8
"""The number of rows from which on times that never go down are readings of a clock."""
_MOST_COUNTS = 0.5
"""The largest number of different steps, as a part of the rows; several workers have each step."""


class Columns(NamedTuple):
    """The columns of a table, by what they hold."""

    worker: Sequence[str]
    """The columns that name the worker together."""
    identity: Sequence[str]
    """Further columns that could be a part of its name."""
    round: str | None
    """The column of steps; None if rows are numbered."""
    epochs: Sequence[str]
    """The columns of passes in which steps may begin again."""
    duration: Sequence[str]
    """The columns of a worker's own time and of its latency, which are added up."""
    other_times: Sequence[str]
    """The other columns of times."""
    doubt: str
    """Why the own time may be in other columns, with the cure; empty if it is sure."""


def columns_of(frame: pl.DataFrame, options: Options) -> Columns:
    """Return the columns that have the usual names, or those that the caller named.

    Args:
        frame: The rows.
        options: The names of columns.

    Raises:
        ValueError: For columns that are not there, not found, or could be several; one sentence
            names all of them.
    """
    faults = _Faults(frame.columns)
    worker = _worker(frame, options, faults)
    duration, doubt = _duration(frame, options, worker, faults)
    step = _step(frame, options, duration, faults)
    faults.refuse()
    taken = {*duration, *worker, step}
    others = [name for name in frame.columns if name not in taken]
    return Columns(
        worker,
        [name for name in others if is_worker(name) or _is_rank(frame[name])],
        step,
        [name for name in others if is_named(name, EPOCHS)],
        duration,
        [name for name in others if is_duration(name) and _is_time(frame[name])],
        doubt,
    )


class _Faults:
    """What is wrong with the columns of a table, collected for one sentence."""

    def __init__(self, present: Sequence[str]) -> None:
        self.present = present
        self.missing: list[str] = []
        self.others: list[str] = []

    def refuse(self) -> None:
        """Raise ValueError if anything is wrong."""
        clauses = list(self.others)
        if self.missing:
            columns = " and ".join(f"the column of the {role}" for role in self.missing)
            verb = "is" if len(self.missing) == 1 else "are"
            options = " and ".join(f"--{role}-column" for role in self.missing)
            pronoun = "it" if len(self.missing) == 1 else "them"
            clauses.insert(
                0,
                f"{columns} {verb} not found among {[*self.present]}: name {pronoun} with"
                f" {options}",
            )
        if clauses:
            raise ValueError("; ".join(clauses))

    def several(self, role: str, candidates: Sequence[str], cure: str = "") -> None:
        """Note that a column could be one of several."""
        self.others.append(
            f"the column of the {role} could be {listed(candidates, 'or', most=12)}: name it with"
            f" --{role}-column{cure}",
        )

    def rates(self, names: Sequence[str]) -> None:
        """Note columns that are rates, which are high where a worker is fast."""
        rates = [name for name in names if is_rate(name)]
        if rates:
            self.others.append(
                f"{listed(rates)} {'is a rate and no time' if len(rates) == 1 else 'are rates'}:"
                " record the time of each step",
            )

    def named(self, role: str, text: str) -> list[str]:
        """The columns that the caller named; a fault if one of them is not there."""
        if text in self.present:
            return [text]
        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in self.present:
                self.others.append(
                    f"there is no column {name!r} for the {role}; the columns are"
                    f" {[*self.present]}",
                )
        return list(dict.fromkeys(names))


def _duration(
    frame: pl.DataFrame,
    options: Options,
    worker: Sequence[str],
    faults: _Faults,
) -> tuple[list[str], str]:
    """The columns of a worker's own time, and why they may be others."""
    if options.duration:
        named_times = faults.named("duration", options.duration)
        faults.rates(named_times)
        return named_times, ""
    named = {options.worker, options.round}
    times = [
        name
        for name in frame.columns
        if name not in named
        and not is_worker(name)
        and not is_round(name)
        and is_duration(name)
        and (has_time_word(name) or _is_time(frame[name]))
    ]
    work = [name for name in times if not is_waiting(name)]
    # a column that is called only "time" may count the steps, but not beside a part of its time
    clear = [name for name in work if plain(name) != "time"]
    if all(is_loading(name) or is_half_pass(name) for name in clear):
        clear = work
    if len(clear) > 1:
        clear = [name for name in clear if not _grows(frame, name, worker)] or clear
    latencies = [name for name in clear if is_latency(name)]
    # beside a column that is no computation, it is not clear which of them holds the other
    if any(is_compute(name) for name in clear):
        clear = [name for name in clear if name not in latencies]
    else:
        latencies = []
    parts = [name for name in clear if is_compute(name) or is_loading(name)]
    wholes = [name for name in clear if is_whole(name)]
    others = [name for name in clear if name not in parts and name not in wholes]
    compute = [name for name in parts if is_compute(name)]
    summands = [*parts, *latencies]
    sums = f"; {','.join(summands)} adds these up" if len(summands) > 1 else ""
    if len(clear) == 1:
        return [*clear, *latencies], ""
    if not clear:
        values = [name for name in frame.columns if plain(name) == "value"]
        if len(values) == 1:
            return values, ""
        faults.missing.append("duration")
        faults.rates(frame.columns)
    elif len(compute) == 1 == len(parts) and not others and not is_half_pass(compute[0]):
        # a step as a whole beside the computation holds the wait
        return [*compute, *latencies], ""
    elif len(wholes) == 1 and not others and not compute:
        loading = ",".join([*parts, *wholes])
        return wholes, (
            f"it is not clear whether {wholes[0]} holds {listed(parts)}: name the time of a"
            f" worker's own work with --duration-column {wholes[0]}, or {loading} for their sum"
        )
    else:
        faults.several("duration", [*clear, *latencies], sums)
    return [], ""


def _is_rank(column: pl.Series) -> bool:
    """Whether a column numbers ranks of some kind, such as tp_rank beside dp_rank."""
    return "rank" in words(column.name) and integers(column) is not None


def _grows(frame: pl.DataFrame, name: str, worker: Sequence[str]) -> bool:
    """Whether a column only grows from row to row of each worker, as a clock does."""
    if not worker or not set(worker) <= {*frame.columns}:
        return False
    try:
        seconds, _ = seconds_of(frame[name])
    except ValueError:
        return False
    by_worker = frame.select(worker).with_columns(seconds=seconds)
    differences = by_worker.select(pl.col("seconds").diff().over(worker))
    growth = differences.to_series().drop_nulls()
    return len(growth) >= _CLOCK_ROWS and bool((growth >= 0).all()) and bool((growth > 0).any())


def _is_time(column: pl.Series) -> bool:
    """Whether entries of a column may be lengths of time: numbers, or texts that begin with one."""
    if column.dtype == pl.String:
        return bool(column.str.strip_chars().str.contains(r"^[-+]?(?:[\d.]|PT?\d)").any())
    return column.dtype.is_numeric() or column.dtype in (pl.Duration, pl.Null)


def _step(
    frame: pl.DataFrame,
    options: Options,
    duration: Sequence[str],
    faults: _Faults,
) -> str | None:
    """The column of steps."""
    if options.round:
        return faults.named("round", options.round)[0]
    taken = {*duration, *(options.worker or "").split(",")}
    for usual_names in STEPS:
        candidates = [
            name for name in frame.columns if is_named(name, usual_names) and name not in taken
        ]
        if usual_names == STEPS[-1]:
            candidates = [name for name in candidates if _counts(frame[name])]
        if candidates and _same(frame, candidates):
            return candidates[0]
        if candidates:
            faults.several("round", candidates)
            return None
    return None


def _counts(column: pl.Series) -> bool:
    """Whether the entries of a column count something, and are no points in time."""
    numbers = integers(column)
    return numbers is not None and numbers.n_unique() <= _MOST_COUNTS * len(numbers)


def _worker(frame: pl.DataFrame, options: Options, faults: _Faults) -> list[str]:
    """The columns that name the worker."""
    if options.worker:
        return faults.named("worker", options.worker)
    named = {*(options.duration or "").split(","), options.round}
    by_kind = []
    for usual_names in (RANKS, HOSTS, SLOTS):
        candidates = [
            name for name in frame.columns if is_named(name, usual_names) and name not in named
        ]
        candidates.sort(key=lambda name: place_in(name, usual_names))
        by_kind.append(candidates)
    ranks, hosts, slots = by_kind
    for group in [ranks] if ranks else [hosts, slots]:
        if group and not _finest(frame, group):
            faults.several("worker", group, f", or {','.join(group)} for both together")
            return []
    if ranks:
        return [str(_finest(frame, ranks))]
    names = [_finest(frame, group) for group in (hosts, slots) if group]
    if not names:
        faults.missing.insert(0, "worker")
    return [name for name in names if name]


def _finest(frame: pl.DataFrame, candidates: Sequence[str]) -> str | None:
    """The first column whose entries determine all other columns; None if there is none."""
    together = frame.select(candidates).n_unique()
    return next((name for name in candidates if frame[name].n_unique() == together), None)


def _same(frame: pl.DataFrame, candidates: Sequence[str]) -> bool:
    """Whether columns have the same entries."""
    first = frame[candidates[0]]
    return all(frame[name].equals(first) for name in candidates[1:])
