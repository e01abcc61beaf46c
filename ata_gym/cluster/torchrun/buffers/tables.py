"""What ranks tell each other of their buffers, and what follows from it, the same on each rank."""

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ata_gym.cluster.torchrun.buffers.kinds import (
    Kind,
    bits_of,
    has_unit_vectors,
    kind_of,
    opacity,
)
from ata_gym.cluster.torchrun.buffers.layout import BufferValue
from ata_gym.cluster.torchrun.buffers.snapshot import BufferSnapshot, path_of, shown
from ata_gym.cluster.torchrun.dtensors import local_part
from ata_gym.cluster.torchrun.ranks.ranks import disagreement
from ata_gym.cluster.torchrun.weights import TOLERANCE, fingerprint
from ata_gym.utils.validation import first_of


class Entry(NamedTuple):
    """What a rank tells of a buffer."""

    shape: list[int] | None
    """Its shape; None where the module has None in its place, or no longer has it."""
    dtype: str
    opaque: str
    """Why it cannot be sent."""
    persistent: bool
    changed: bool
    """Whether the tasks of this rank changed it."""
    unit: bool
    """Whether it consists of vectors of length 1."""
    shape_before: list[int] | None
    """Its shape as the round began; None where it is not compared, or was not there."""
    mark: float
    """A fingerprint of its value then."""

    @property
    def kind(self) -> Kind | None:
        """Its kind, if it can be sent."""
        if self.shape is None or self.opaque:
            return None
        return Kind(tuple(self.shape), getattr(torch, self.dtype))


class Table(NamedTuple):
    """What a rank tells of all its buffers."""

    tasks: int
    """The number of its tasks."""
    entries: dict[str, Entry]

    @classmethod
    def from_snapshot(
        cls,
        tasks: int,
        snapshot: BufferSnapshot,
        current: Mapping[str, Tensor | None],
        changed: Collection[str],
        checked: Collection[str],
    ) -> Self:
        """The table of this rank.

        Args:
            tasks: The number of its tasks.
            snapshot: Its buffers as the round began.
            current: Its buffers by now, by name.
            changed: The names of those that its tasks have changed.
            checked: The names of the modules whose buffers are compared.
        """
        entries: dict[str, Entry] = {}
        for name in current.keys() | changed:
            tensor = current.get(name)
            before = snapshot.before.get(name)
            shape_before = None
            mark = 0.0
            if before is not None and before.copy is not None and path_of(name) in checked:
                shape_before = list(before.copy.shape)
                mark = _mark(before.copy)
            kind = kind_of(tensor)
            if tensor is None:
                shape = None
                dtype = ""
                opaque = ""
            else:
                shape = list(local_part(tensor).shape)
                dtype = str(tensor.dtype).removeprefix("torch.")
                opaque = opacity(tensor)
            entries[name] = Entry(
                shape=shape,
                dtype=dtype,
                opaque=opaque,
                persistent=snapshot.is_persistent(name),
                changed=name in changed,
                unit=(
                    tensor is not None
                    and kind is not None
                    and kind.has_mean
                    and has_unit_vectors(tensor)
                ),
                shape_before=shape_before,
                mark=mark,
            )
        return cls(tasks, entries)

    def text(self) -> bytes:
        """The table as bytes."""
        return json.dumps([self.tasks, self.entries]).encode()

    @classmethod
    def from_text(cls, text: bytes) -> Self:
        """The table of which ``text`` made these bytes."""
        tasks, entries = json.loads(text)
        return cls(tasks, {name: Entry(*entry) for name, entry in entries.items()})


def _mark(tensor: Tensor) -> float:
    """A number that another value of a buffer changes by more than ``TOLERANCE``."""
    if opacity(tensor):
        return 0.0
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return fingerprint([tensor])
    bits = bits_of(tensor).cpu().contiguous()
    return float(zlib.crc32(bits.numpy().tobytes()))


def _by_name(tables: Sequence[Table]) -> dict[str, list[Entry | None]]:
    names = sorted({name for table in tables for name in table.entries})
    return {name: [table.entries.get(name) for table in tables] for name in names}


def check_alike(
    number: int, workers: Sequence[str], tables: Sequence[Table], new: Collection[str]
) -> None:
    """Raise the same error on every rank if their buffers differed as the round began.

    Args:
        number: The number of the round.
        workers: The names of the ranks.
        tables: Their tables.
        new: The names of modules whose buffers may differ if tasks have changed them.

    Raises:
        RuntimeError: If so.
    """
    different = {}
    for name, entries in _by_name(tables).items():
        unlike = _unlike_ranks(entries)
        # A new module may have run in rounds that did not look after it.
        is_excused = path_of(name) in new and any(entry and entry.changed for entry in entries)
        if unlike and not is_excused:
            different[name] = unlike
    if different:
        raise disagreement(
            number,
            f"the models have different buffers, such as {first_of(map(shown, different), 3)}",
            [workers[rank] for rank in next(iter(different.values()))],
            workers[0],
            "Seed torch alike on every rank before the model is made, load the same checkpoint,"
            " and change buffers alike on every rank between rounds",
        )


def _unlike_ranks(entries: Sequence[Entry | None]) -> list[int]:
    """The ranks whose buffer differed from the buffer of the first rank."""
    shapes = [entry.shape_before if entry else None for entry in entries]
    marks = [entry.mark if entry else 0.0 for entry in entries]
    if not any(shape is not None for shape in shapes):
        return []
    same_shapes = all(shape == shapes[0] for shape in shapes)
    if not same_shapes and not any(entry and entry.persistent for entry in entries):
        # A cache that has not been used on all ranks alike.
        return []
    return [
        rank
        for rank in range(len(entries))
        if shapes[rank] != shapes[0] or abs(marks[rank] - marks[0]) > TOLERANCE
    ]


class Decision(NamedTuple):
    """What becomes of a buffer that tasks have changed."""

    value: BufferValue
    rank: int
    """The first rank with tasks that has changed it, whose value counts if it has no mean."""


def decide(number: int, tables: Sequence[Table]) -> dict[str, Decision]:
    """What becomes of the buffers that tasks have changed, by name.

    Args:
        number: The number of the round.
        tables: The tables of all ranks.

    Raises:
        ValueError: On every rank, for a buffer that has no common value.
    """
    decisions: dict[str, Decision] = {}
    for name, entries in _by_name(tables).items():
        # Ranks without tasks get the value, and have no part in it.
        with_tasks = [
            (rank, entry)
            for rank, (table, entry) in enumerate(zip(tables, entries, strict=True))
            if table.tasks
        ]
        changed = [(rank, entry) for rank, entry in with_tasks if entry and entry.changed]
        if not changed:
            continue
        rank, first = changed[0]
        kind = first.kind
        if kind is not None and all(entry and entry.kind == kind for _, entry in with_tasks):
            units = all(entry.unit for _, entry in changed)
            value = BufferValue(kind, kind.has_mean and not units, first.persistent)
            decisions[name] = Decision(value, rank)
        elif first.persistent:
            if first.opaque:
                reason = (
                    f"which is {first.opaque} and cannot be sent: let it be a dense tensor of"
                    " numbers, or change it outside the round, alike on every rank"
                )
            else:
                reason = (
                    "which has different shapes or dtypes on the ranks, and so no mean: let it have"
                    " one shape, or register it with persistent=False if each rank may have its own"
                )
            raise ValueError(
                f"round {number}: the tasks changed the buffer {shown(name)}, {reason}. The step is"
                " not taken",
            )
    return decisions
