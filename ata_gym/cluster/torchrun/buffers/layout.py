"""The places of the values of buffers in what ranks send each other."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ata_gym.cluster.torchrun.buffers.kinds import Kind
from ata_gym.cluster.torchrun.forms import Form

_UNIT = 2.0**-16
"""The weight of a task in a sum.

As a power of two it rounds nothing, so that equal integers keep their value; and the sum of the
largest numbers stays finite with up to 65,536 tasks."""


class BufferValue(NamedTuple):
    """How the value is made of a buffer that tasks have changed."""

    kind: Kind
    averaged: bool
    """Whether it is the mean over ranks, weighted by their tasks, or else from one rank."""
    persistent: bool


class Layout:
    """The places of the values of buffers in flat tensors, of which there are up to two.

    The first one has the dtype of the message of the round, the other one is float64.

    Args:
        values: How the values are made, by name.
    """

    def __init__(self, values: Mapping[str, BufferValue]) -> None:
        # Those that are averaged come first in each tensor, to be weighted in one operation.
        self.values = dict(sorted(values.items(), key=_order))
        self._parts = [
            part
            for is_wide in (False, True)
            if (part := {n: v for n, v in self.values.items() if v.kind.is_wide == is_wide})
        ]

    def forms(self, dtype: torch.dtype, device: torch.device) -> list[Form]:
        """The forms of the tensors, with the dtype and the device of the message."""
        forms: list[Form] = []
        for part in self._parts:
            first = next(iter(part.values()))
            if first.kind.is_wide:
                part_dtype = torch.float64
            else:
                part_dtype = dtype
            length = sum(value.kind.length for value in part.values())
            forms.append(Form((length,), (1,), part_dtype, device))
        return forms

    def packed(
        self,
        forms: Sequence[Form],
        tensors: Mapping[str, Tensor | None],
        tasks: int,
        chosen: Collection[str],
    ) -> list[Tensor]:
        """What a rank sends.

        Args:
            forms: The forms of the tensors.
            tensors: The buffers of the rank, by name.
            tasks: The number of its tasks.
            chosen: The names of those buffers, of the ones that are of one rank, that are its own.
        """
        packed: list[Tensor] = []
        for part, form in zip(self._parts, forms, strict=True):
            pieces: list[Tensor] = []
            averaged_length = 0
            for name, value in part.items():
                tensor = tensors.get(name)
                averaged_length += value.kind.length * value.averaged
                if (
                    tensor is not None
                    and (value.averaged or name in chosen)
                    and Kind.from_tensor(tensor) == value.kind
                ):
                    pieces.append(value.kind.numbers(tensor, form.dtype, form.device))
                else:
                    # In a sum, zeros stand for a rank whose value does not count.
                    pieces.append(
                        torch.zeros(value.kind.length, dtype=form.dtype, device=form.device)
                    )
            flat = torch.cat(pieces)
            flat[:averaged_length] *= tasks * _UNIT
            packed.append(flat)
        return packed

    def unpacked(self, sums: Sequence[Tensor], tasks: int) -> dict[str, Tensor]:
        """The values of the buffers.

        Args:
            sums: The sums of what all ranks sent.
            tasks: The number of all tasks.
        """
        values: dict[str, Tensor] = {}
        for part, summed in zip(self._parts, sums, strict=True):
            lengths = [value.kind.length for value in part.values()]
            for (name, value), numbers in zip(
                part.items(), torch.split(summed, lengths), strict=True
            ):
                if value.averaged:
                    values[name] = value.kind.tensor(numbers / (tasks * _UNIT))
                else:
                    values[name] = value.kind.tensor(numbers)
        return values


def _order(item: tuple[str, BufferValue]) -> tuple[bool, str]:
    name, value = item
    return not value.averaged, name
