"""Sums of many tensors over the ranks of a process group, in few collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_SIZE = 25 * 2**20
"""Bytes that are reduced at once: while one bucket travels, the next is filled."""


class Buckets:
    """Tensors of fixed shapes, which are summed over the ranks again and again.

    They are copied into flat tensors, one for each dtype and device, or several where they are large; the sums are
    views of these, and hold until the next call.
    """

    def __init__(self, like: Sequence[Tensor], group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._sums: list[Tensor] = list(like)
        self._flat: list[tuple[Tensor, list[int]]] = []
        """Each flat tensor, and which tensors it holds."""
        alike: dict[Any, list[list[int]]] = defaultdict(lambda: [[]])
        sizes: dict[Any, int] = defaultdict(int)
        for place, tensor in enumerate(like):
            kind = tensor.dtype, tensor.device
            if sizes[kind] >= _SIZE:
                alike[kind].append([])
                sizes[kind] = 0
            alike[kind][-1].append(place)
            sizes[kind] += tensor.numel() * tensor.element_size()
        for (dtype, device), buckets in alike.items():
            for places in buckets:
                lengths = [like[place].numel() for place in places]
                flat = torch.empty(sum(lengths), dtype=dtype, device=device)
                for place, part in zip(places, torch.split(flat, lengths), strict=True):
                    self._sums[place] = part.view(like[place].shape)
                self._flat.append((flat, places))

    def fit(self, tensors: Sequence[Tensor]) -> bool:
        """Whether these have the right shapes, dtypes and devices."""
        return len(tensors) == len(self._sums) and all(
            (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
            for one, other in zip(tensors, self._sums, strict=True)
        )

    def sum(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums of tensors of these shapes, dtypes and devices."""
        running = []
        for flat, places in self._flat:
            torch.cat([tensors[place].reshape(-1) for place in places], out=flat)
            running.append(dist.all_reduce(flat, group=self._group, async_op=True))
        for work in running:
            if work is not None:
                work.wait()
        return self._sums
