"""The forms of tensors that are summed over ranks, and copies into and out of them."""

import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Self

import torch
from torch import Tensor


class Form(NamedTuple):
    """The form of a tensor that is summed again and again, the same on every rank."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def from_tensor(cls, tensor: Tensor, dtype: torch.dtype | None = None) -> Self:
        """The form of a gradient of a tensor, in another dtype if ``dtype`` is given.

        Example:
            >>> tensors = torch.ones(2, 3).T, torch.ones(3, 4)[:, :2]
            >>> [Form.from_tensor(tensor).strides for tensor in tensors]
            [(1, 3), (2, 1)]
        """
        shape = tuple(tensor.shape)
        return cls(shape, _strides(shape, tensor.stride()), dtype or tensor.dtype, tensor.device)


class GradientLayout(NamedTuple):
    """What is summed of the gradients of a model."""

    places: tuple[int, ...]
    """The places of the parameters that are trained, among all parameters."""
    forms: tuple[Form, ...]
    """The forms of their gradients."""
    sparse: tuple[int, ...]
    """The places, among those that are trained, whose gradients may be sparse."""

    def checksum(self) -> int:
        """A checksum, of 24 bits, that is the same where ranks can sum these gradients.

        Their devices may be other ones, as long as as many tensors are together on one.

        Example:
            >>> form = Form.from_tensor(torch.ones(2, 3))
            >>> layouts = [GradientLayout((place,), (form,), ()) for place in (0, 0, 1)]
            >>> first, second, other = [layout.checksum() for layout in layouts]
            >>> first == second, first == other
            (True, False)
        """
        devices = list(dict.fromkeys(form.device for form in self.forms))
        forms = [(*form[:2], form.dtype, devices.index(form.device)) for form in self.forms]
        return zlib.crc32(repr((self.places, forms, self.sparse)).encode()) & 0xFFFFFF


class AgreedLayout(NamedTuple):
    """The layout that all ranks have, with whose gradients the gradients of this one are summed."""

    gradients: GradientLayout
    """The layout, with the devices of this rank."""
    checksum: int
    """Its checksum, which is the same on all of them."""


@cache
def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of the gradient of a tensor.

    They are the tensor's own strides if it is dense and no elements overlap, and contiguous strides
    otherwise. Torch itself gives these to gradients, and fused optimisers read both in the order of
    their memory.
    """
    # ``empty_like`` keeps the strides of dense tensors alone.
    tensor = torch.empty_strided(shape, strides, device="meta")
    if torch.empty_like(tensor).stride() == strides:
        return strides
    return torch.empty(shape, device="meta").stride()


def _copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


copy_all: Callable[[Sequence[Tensor], Sequence[Tensor]], object] = getattr(
    torch,
    "_foreach_copy_",
    _copy_each,
)
"""Copies tensors into others, with one launch for a device where torch has it, not publicly."""
