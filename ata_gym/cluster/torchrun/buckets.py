"""Sums of many tensors over the ranks of a process group, in few collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

_SIZE = 25 * 2**20  # bytes of a bucket; while one bucket travels, the next is filled


class Form(NamedTuple):
    """The form of a tensor that is summed again and again, the same on every rank."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> Form:
        """The form of a gradient of a tensor, in another dtype if one is given.

        >>> Form.of(torch.ones(2, 3).T).strides, Form.of(torch.ones(3, 4)[:, :2]).strides
        ((1, 3), (2, 1))
        """
        shape = tuple(tensor.shape)
        return cls(shape, _strides(shape, tensor.stride()), dtype or tensor.dtype, tensor.device)


@cache
def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a gradient: those of a dense tensor where no elements overlap, and contiguous ones otherwise.

    Torch itself gives these to gradients, and fused optimisers read both in the order of their memory.
    """
    tensor = torch.empty_strided(shape, strides, device="meta")
    return strides if torch.empty_like(tensor).stride() == strides else torch.empty(shape, device="meta").stride()


class Buckets:
    """Sums tensors of fixed forms over the ranks, again and again.

    The tensors are copied into flat ones, one for each dtype and device, or several where they are large. The sums are
    views of these, and are valid until the next call.
    """

    def __init__(self, forms: Sequence[Form], group: dist.ProcessGroup | None) -> None:
        self._group, self.forms = group, list(forms)
        places: dict[tuple[torch.dtype, torch.device, int], list[int]] = defaultdict(list)
        filled: dict[tuple[torch.dtype, torch.device], int] = defaultdict(int)
        lengths = [torch.Size(form.shape).numel() for form in forms]
        for place, (form, length) in enumerate(zip(forms, lengths, strict=True)):
            kind = form.dtype, form.device
            places[*kind, filled[kind] // _SIZE].append(place)
            filled[kind] += length * form.dtype.itemsize
        self._flat: list[tuple[Tensor, list[int]]] = []
        """Each flat tensor, and which tensors it holds."""
        sums: dict[int, Tensor] = {}
        for (dtype, device, _), own in places.items():
            flat = torch.empty(sum(lengths[place] for place in own), dtype=dtype, device=device)
            for place, part in zip(own, torch.split(flat, [lengths[place] for place in own]), strict=True):
                sums[place] = part.as_strided(forms[place].shape, forms[place].strides)
            self._flat.append((flat, own))
        self._sums = [sums[place] for place in range(len(forms))]

    def sum(self, tensors: Sequence[Tensor | None]) -> list[Tensor]:
        """The sums over the ranks of tensors of these forms; None counts as zeros."""
        running = []
        for flat, places in self._flat:
            here = [(self._sums[place], one) for place in places if (one := tensors[place]) is not None]
            if len(here) < len(places):
                flat.zero_()
            if here:
                torch._foreach_copy_([into for into, _ in here], [one for _, one in here])
            running.append(dist.all_reduce(flat, group=self._group, async_op=True))
        for work in running:
            if work is not None:
                work.wait()
        return self._sums
