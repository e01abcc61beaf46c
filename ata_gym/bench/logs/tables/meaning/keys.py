"""Which worker and which step a row is of."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.meaning.codes import (
    codes_of,
    distinct,
    integers,
    texts_of,
    varies,
)
from ata_gym.bench.logs.tables.meaning.columns import Columns
from ata_gym.bench.logs.tables.roles import RANKS, SLOTS, is_named
from ata_gym.bench.logs.tables.times import whole_numbers
from ata_gym.pools.traces import ranks
from ata_gym.typing import Ints, Mask


class Keys(NamedTuple):
    """The worker and the step of each row, by their numbers."""

    worker: Ints
    """(rows,)."""
    step: Ints
    """(rows,)."""
    workers: Sequence[str]
    """The names of the workers."""
    steps: Sequence[str]
    """The names of the steps, in their order."""

    @property
    def cell(self) -> Ints:
        """(rows,): one number for the worker and the step."""
        return self.step * len(self.workers) + self.worker

    def part(self, kept: Mask) -> "Keys":
        """Return the keys of some rows."""
        return self._replace(worker=self.worker[kept], step=self.step[kept])


def worker_of(frame: pl.DataFrame, columns: Columns) -> tuple[Ints, list[str], list[str]]:
    """Return the number of the worker of each row, (rows,), the names, and the columns of these.

    Columns that tell rows of the same worker and step apart as a host and a place in it do are a
    part of its name: "gpu0:1".

    Args:
        frame: The rows.
        columns: What the columns hold.
    """
    code, names = _together(frame, list(columns.worker))
    if columns.round:
        step, _ = _numbered(frame[columns.round])
    else:
        step = np.zeros(frame.height, np.int64)
    parts = list(columns.worker)
    for name in columns.identity:
        texts = texts_of(frame[name])
        if texts is None or (texts == "").any():
            continue
        # the place of an operation, such as cpu or cuda, is none of a worker
        if is_named(name, SLOTS) and not texts.str.contains(r"\d").all():
            continue
        entry = texts.rank("dense").to_numpy().astype(np.int64)
        if _part_of_name(code * (step.max() + 1) + step, entry):
            parts.append(name)
            code, names = _together(frame, parts)
    if len(parts) > 1:
        # the machine first, then the place in it
        parts.sort(key=lambda name: is_named(name, (*RANKS, *SLOTS)))
        code, names = _together(frame, parts)
    return code, names, parts


def step_of(frame: pl.DataFrame, columns: Columns, worker: Ints) -> tuple[Ints, list[str]]:
    """Return the number of the step of each row, (rows,), and the names of the steps in order.

    Where steps begin again in each epoch, the epoch is a part of the step: "2:15". Without a column
    of steps, the k-th row of each worker is of step k, in each epoch.

    Args:
        frame: The rows.
        columns: What the columns hold.
        worker: (rows,): the number of the worker.
    """
    epochs = epochs_of(frame, columns)
    if columns.round:
        number, rounds = _numbered(frame[columns.round])
        for texts in epochs.values():
            epoch, entries = _ordered(texts)
            cell = worker * (number.max() + 1) + number
            if varies(cell, epoch):
                joint = epoch * len(rounds) + number
                present, number = np.unique(joint, return_inverse=True)
                names = []
                for code in present.tolist():
                    epoch_place, round_place = divmod(code, len(rounds))
                    names.append(f"{entries[epoch_place]}:{rounds[round_place]}")
                rounds = names
        return number, rounds
    if not epochs:
        number = places(worker)
        return number, [str(one) for one in range(1, number.max() + 2)]
    epoch, entries = _ordered(next(iter(epochs.values())))
    place = places(worker * len(entries) + epoch)
    if not place.any():
        return epoch, entries
    joint = epoch * (place.max() + 1) + place
    present, number = np.unique(joint, return_inverse=True)
    names = []
    for code in present.tolist():
        epoch_place, step = divmod(code, int(place.max()) + 1)
        names.append(f"{entries[epoch_place]}:{step + 1}")
    return number, names


def epochs_of(frame: pl.DataFrame, columns: Columns) -> dict[str, pl.Series]:
    """Return the columns of passes whose entries have numbers, such as 3 or "epoch 3", as text."""
    texts = {name: texts_of(frame[name]) for name in columns.epochs}
    return {
        name: entries
        for name, entries in texts.items()
        if entries is not None and entries.str.contains(r"\d").all()
    }


def places(code: Ints) -> Ints:
    """Return, for each row, how many rows with the same code come before it, (rows,)."""
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    first = np.searchsorted(ordered, ordered, side="left")
    place = np.empty_like(code)
    place[order] = np.arange(len(code)) - first
    return place


def _together(frame: pl.DataFrame, names: Sequence[str]) -> tuple[Ints, list[str]]:
    """The number of the entries of some columns together, and these entries with colons between."""
    code, entries = ranks(frame[names[0]].alias("worker"), text=True)
    texts = [str(entry) for entry in entries]
    for name in names[1:]:
        further, entries = ranks(frame[name].alias("worker"), text=True)
        joint = code * len(entries) + further
        present, code = np.unique(joint, return_inverse=True)
        texts = [
            f"{texts[one // len(entries)]}:{entries[one % len(entries)]}"
            for one in present.tolist()
        ]
    return code, texts


def _part_of_name(cell: Ints, entry: Ints) -> bool:
    """Whether at least half of the cells have rows with different entries."""
    if not varies(cell, entry):
        return False
    pairs = distinct(cell * (entry.max() + 1) + entry)
    counts = np.bincount(pairs // (entry.max() + 1))
    return bool((counts[counts > 0] > 1).mean() >= 0.5)


def _ordered(texts: pl.Series) -> tuple[Ints, list[str]]:
    """The place of each row among the distinct entries with a number, and these in its order."""
    entries = texts.unique()
    numbers = entries.str.extract(r"(\d+\.?\d*)").cast(pl.Float64, strict=False)
    table = pl.DataFrame({"entry": entries, "number": numbers}).sort("number", "entry")
    return codes_of(texts, table["entry"]), table["entry"].to_list()


def _numbered(column: pl.Series) -> tuple[Ints, list[str]]:
    """The place of each row among the distinct whole numbers of a column, and these as text."""
    numbers = integers(column)
    if numbers is None:
        texts = texts_of(column)
        if texts is None:
            raise ValueError(
                f"each round must be an integer, and column {column.name!r} is of {column.dtype}",
            )
        # so that the first entry that is none is named below
        numbers = whole_numbers(texts)
    code, entries = ranks(numbers.alias("round"), text=False)
    return code, [str(entry) for entry in entries]
