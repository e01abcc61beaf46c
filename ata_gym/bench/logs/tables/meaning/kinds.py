"""Which rows of a table are shares of work: chosen entries, kinds of rows, runs, evaluation."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.meaning.codes import codes_of, distinct, texts_of, varies
from ata_gym.bench.logs.tables.words import (
    has_time_word,
    is_evaluation,
    is_strictly_evaluation,
    is_training,
    is_waiting,
    is_whole,
    listed,
    plain,
    words,
)
from ata_gym.typing import Ints, Mask
from ata_gym.utils.validation import short

_KIND_WORDS = frozenset(
    (
        *("optype", "op", "operation", "operator", "phase", "kind", "stage", "event", "category"),
        *("cat", "type", "mode", "split"),
    )
)
"""Words of names of columns of kinds, whose entries may be whole numbers, too."""
_FLAGS = frozenset(("0", "1", "0.0", "1.0", ""))
_DATE = r"^\d{4}-\d{2}-\d{2}|^\d{1,2}:\d{2}"
"""The beginning of a point in time."""
_RUNS = (
    *("run", "run_id", "run_name", "runid", "job", "job_id", "jobid", "job_name", "attempt"),
    *("attempt_id", "experiment", "experiment_id", "exp", "exp_id", "exp_name", "trial"),
    *("trial_id", "slurm_job_id", "restart", "restarts", "session", "session_id"),
)
"""Usual names of columns that tell jobs, or starts of a job, apart."""
_MOST_KINDS = 0.5
"""The largest number of different entries of a column of kinds, as a part of its rows.

One with more holds times or messages.
"""
_MOST_NAMED = 12
"""The largest number of entries in an error."""


class Kinds(NamedTuple):
    """The columns whose entries say what a row is, as codes."""

    codes: Mapping[str, Ints]
    """(rows,): the number of the entry of each row, for each column."""
    entries: Mapping[str, Sequence[str]]
    """The entries of each column."""

    def part(self, kept: Mask) -> "Kinds":
        """Return the kinds of some rows."""
        codes = {}
        entries = {}
        for name, all_codes in self.codes.items():
            code = all_codes[kept]
            present = distinct(code).tolist()
            codes[name] = np.searchsorted(present, code)
            entries[name] = [self.entries[name][index] for index in present]
        return Kinds(codes, entries)


def chosen_rows(frame: pl.DataFrame, where: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """Return the rows that have one of the entries of each column.

    Args:
        frame: The rows.
        where: The entries that count, by the name of the column.

    Raises:
        ValueError: For a column or an entry that is not there, and if no row is left.
    """
    for name, entries in where.items():
        if name not in frame.columns:
            raise ValueError(
                f"there is no column {name!r} to choose rows by; the columns are {frame.columns}",
            )
        texts = texts_of(frame[name])
        if texts is None:
            raise ValueError(f"rows cannot be chosen by column {name!r} of {frame[name].dtype}")
        wanted = [entries] if isinstance(entries, str) else [str(entry) for entry in entries]
        present = texts.unique().sort().to_list()
        missing = [entry for entry in wanted if entry.strip() not in present]
        if not wanted:
            raise ValueError(f"name at least one entry of column {name!r} to choose rows by")
        if missing:
            raise ValueError(
                f"column {name!r} has no entry {listed(map(repr, missing), 'or')}; its entries are"
                f" {listed(map(short, present), most=_MOST_NAMED)}",
            )
        frame = frame.filter(texts.is_in([entry.strip() for entry in wanted]))
    if not frame.height:
        raise ValueError(f"no row has all of {listed(where)} as chosen: choose fewer columns")
    return frame


def kinds_of(frame: pl.DataFrame, columns: Sequence[str]) -> Kinds:
    """Return what could say of which kind a row is.

    Args:
        frame: The rows.
        columns: The columns that have no other meaning.
    """
    codes = {}
    entries = {}
    for name in columns:
        texts = texts_of(frame[name])
        if texts is None:
            continue
        names = texts.unique()
        few = 1 < len(names) <= max(2.0, _MOST_KINDS * frame.height)
        if few and _may_be_kinds(name, names):
            names = names.sort()
            codes[name] = codes_of(texts, names)
            entries[name] = names.to_list()
    return Kinds(codes, entries)


def refuse_runs(kinds: Kinds, worker: Ints, where: Mapping[str, Sequence[str]]) -> None:
    """Raise ValueError if the rows are of several jobs.

    A job with a run for each worker is one.

    Args:
        kinds: The kinds of the rows.
        worker: (rows,): the number of the worker.
        where: The entries that the caller chose, by the name of the column.
    """
    for name, code in kinds.codes.items():
        if plain(name) not in _RUNS or name in where:
            continue
        present = kinds.entries[name]
        pairs = len(distinct(worker * len(present) + code))
        if pairs == len(present) == worker.max() + 1:
            continue
        raise ValueError(
            f"the rows are of {len(present)} runs by column {name!r}: choose one with"
            f" {_option(name, present[-1:])}; there are"
            f" {listed(map(short, present), most=_MOST_NAMED)}",
        )


def without_evaluation(
    kinds: Kinds,
    worker: Ints,
    where: Mapping[str, Sequence[str]],
) -> tuple[Mask, list[str]]:
    """Return which rows, (rows,), are not of evaluation beside training, and remarks.

    Args:
        kinds: The kinds of the rows.
        worker: (rows,): the number of the worker.
        where: The entries that the caller chose, by the name of the column.
    """
    kept = np.ones(len(worker), np.bool_)
    remarks = []
    for name, code in kinds.codes.items():
        if name in where:
            continue
        labels = [_label(name, entry) for entry in kinds.entries[name]]
        pauses = [is_evaluation(label) for label in labels]
        if not any(pauses) or not any(map(is_training, labels)):
            mixed = any(map(is_strictly_evaluation, labels)) and not all(pauses)
            # an entry for each worker, such as the name of its machine, says nothing of its rows
            if mixed and varies(worker, code):
                _refuse(name, kinds.entries[name], "that look like evaluation among them")
            continue
        left_out = np.array(pauses)[code] & kept
        kept &= ~left_out
        present = zip(kinds.entries[name], pauses, strict=True)
        evaluations = [short(entry) for entry, pause in present if pause]
        remarks.append(
            f"{left_out.sum()} rows with {listed(evaluations, 'or')} in column {name!r} are left"
            " out, since they are no training steps.",
        )
    return kept, remarks


def chosen_kinds(
    kinds: Kinds,
    cell: Ints,
    where: Mapping[str, Sequence[str]],
) -> Ints:
    """Return the number of the kind of each row, (rows,), among those that the caller chose.

    It is 0 for all where the caller chose none, or the rows of a worker in a step are of one kind.

    Args:
        kinds: The kinds of the rows.
        cell: (rows,): a number for the worker and the step of a row.
        where: The entries that the caller chose, by the name of the column.

    Raises:
        ValueError: If the rows of a worker in a step are of several kinds, and nobody chose.
    """
    several = [name for name in kinds.codes if varies(cell, kinds.codes[name])]
    chosen = [name for name in several if name in where]
    open_columns = []
    for name in several:
        if name in where:
            continue
        # what is summed was chosen: finer kinds of it matter if some of them are waiting
        if not chosen or any(is_waiting(_label(name, entry)) for entry in kinds.entries[name]):
            open_columns.append(name)
    if open_columns:
        usual = [name for name in open_columns if not _KIND_WORDS.isdisjoint(words(name))]
        name = min(usual or open_columns, key=lambda name: len(kinds.entries[name]))
        _refuse(name, kinds.entries[name], "of the same worker and step")
    code = np.zeros(len(cell), np.int64)
    for name in chosen:
        code = code * len(kinds.entries[name]) + kinds.codes[name]
    return code


def _refuse(name: str, entries: Sequence[str], what: str) -> None:
    """Raise ValueError: the rows are of several kinds, with those that look like work."""
    labels = {_label(name, entry): entry for entry in entries}
    work = [labels[label] for label in _without([is_waiting, is_evaluation], [*labels])]
    if any(map(has_time_word, work)):
        # a long table of figures, of which some are times
        work = _without([lambda entry: not has_time_word(entry)], work)
    work = _without([is_whole], work)
    if all(entry.isdigit() for entry in entries):
        work = work[:1]
        about_passes = ", or call the column epoch if it numbers passes over the same steps"
    else:
        about_passes = ""
    waits = [short(entry) for label, entry in labels.items() if is_waiting(label)]
    if waits:
        about_waits = f", of which {listed(waits)} look like waiting for other workers"
    else:
        about_waits = ""
    raise ValueError(
        f"column {name!r} has rows of several kinds, {what}:"
        f" {listed(map(short, entries), most=_MOST_NAMED)}{about_waits}; name those that are a"
        f" worker's own work, such as {_option(name, work)}{about_passes}",
    )


def _without(tests: Sequence[Callable[[str], bool]], entries: Sequence[str]) -> list[str]:
    """The entries that pass no test; all, if there are none."""
    kept = [entry for entry in entries if not any(test(entry) for test in tests)]
    return kept or [*entries]


def _option(name: str, entries: Sequence[str]) -> str:
    text = ",".join(entries[:_MOST_NAMED])
    if len(entries) > _MOST_NAMED:
        text += ",..."
    return f"--where {shlex.quote(f'{name}={text}')}"


def _label(name: str, entry: str) -> str:
    """What an entry says; of a flag, what the name of its column does."""
    if entry.lower() in ("true", "yes", "1", "1.0"):
        return name
    if entry.lower() in ("false", "no", "0", "0.0"):
        if is_evaluation(name):
            return "train"
        if is_training(name):
            return "eval"
    return entry


def _may_be_kinds(name: str, entries: pl.Series) -> bool:
    """Whether entries may be kinds: entries that are no dates, or numbers in a column called so."""
    if entries.str.contains(_DATE).any():
        return False
    numbers = entries.cast(pl.Float64, strict=False)
    if not (numbers.is_not_null() | (entries == "")).all():
        return True
    if is_evaluation(name) or is_training(name):
        return _FLAGS.issuperset(entries.to_list())
    whole = bool((numbers.drop_nulls() % 1.0 == 0.0).all())
    return whole and (plain(name) in _RUNS or not _KIND_WORDS.isdisjoint(words(name)))
