"""What buffers must have in common to be added, and which ones have no mean."""

from typing import NamedTuple, Self

import torch
from torch import Tensor

from ata_gym.cluster.torchrun.dtensors import local_part

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""An integer dtype of each size in bytes, in which tensors are compared bit by bit."""
_INTEGER_DTYPES = frozenset(
    {
        torch.bool,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    },
)


class Kind(NamedTuple):
    """What tensors must have in common so that they can be added."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Self:
        """The kind of a tensor; for a ``DTensor``, the kind of its part on this rank."""
        return cls(tuple(local_part(tensor).shape), tensor.dtype)

    @property
    def has_mean(self) -> bool:
        """Whether tensors of this kind have a mean."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    @property
    def is_wide(self) -> bool:
        """Whether only float64 holds its numbers."""
        return self.dtype in (torch.float64, torch.complex128)

    @property
    def length(self) -> int:
        """How many numbers ``numbers`` makes of it."""
        count = 1
        if self.dtype.is_complex:
            count = 2
        elif not self.has_mean:
            count = max(self.dtype.itemsize // 2, 1)
        return count * torch.Size(self.shape).numel()

    def numbers(self, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The elements of a tensor of this kind as floating-point numbers, in one dimension.

        They are exact in float32, or in float64 if the kind is wide. Integers of more than two
        bytes are cut in pieces of two bytes.
        """
        elements = local_part(tensor).detach()
        if self.dtype.is_complex:
            elements = torch.view_as_real(elements.resolve_conj())
        flat = elements.reshape(-1)
        if self._is_cut:
            flat = flat.contiguous().view(torch.int16)
        return flat.to(device, dtype)

    def tensor(self, numbers: Tensor) -> Tensor:
        """The tensor of which ``numbers`` made these numbers."""
        if self.dtype.is_complex:
            parts = numbers.to(self.dtype.to_real()).reshape(*self.shape, 2)
            return torch.view_as_complex(parts)
        if self._is_cut:
            return numbers.to(torch.int16).view(self.dtype).reshape(self.shape)
        return numbers.to(self.dtype).reshape(self.shape)

    @property
    def _is_cut(self) -> bool:
        return not self.has_mean and self.dtype.itemsize > 2


def opacity(tensor: Tensor) -> str:
    """Why the elements of a tensor cannot be read and sent; "" if they can be."""
    part = local_part(tensor)
    if part.layout is not torch.strided:
        return str(part.layout)
    if part.is_nested:
        return "nested"
    if part.is_meta:
        return "on the device meta"
    if type(part).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return f"a {type(part).__name__}"
    is_packed = part.dtype == torch.float4_e2m1fn_x2
    has_mean = part.is_floating_point() or part.is_complex()
    if is_packed or not (has_mean or part.dtype in _INTEGER_DTYPES):
        return str(part.dtype)
    return ""


def kind_of(tensor: Tensor | None) -> Kind | None:
    """The kind of a buffer; None if there is none, or if it cannot be sent."""
    if tensor is None or opacity(tensor):
        return None
    return Kind.from_tensor(tensor)


def has_unit_vectors(tensor: Tensor) -> bool:
    """Whether a tensor consists of vectors of length 1 along a dimension, besides zero vectors.

    The length is 1 up to the rounding of the dtype. Vectors of one element do not count.

    Example:
        >>> lengths_3_to_5 = torch.tensor([[3.0, 4.0], [0.0, 5.0]])
        >>> has_unit_vectors(lengths_3_to_5), has_unit_vectors(lengths_3_to_5.T / 5)
        (False, True)
    """
    elements = local_part(tensor).detach()
    tolerance = max(4 * torch.finfo(elements.dtype).eps, 1e-5)
    if elements.is_complex():
        magnitudes = elements.abs().double()
    else:
        magnitudes = elements.double()
    for dimension, size in enumerate(magnitudes.shape):
        if size < 2:
            continue
        lengths = torch.linalg.vector_norm(magnitudes, dim=dimension)
        is_unit = (lengths - 1.0).abs() <= tolerance
        if is_unit.any() and (is_unit | (lengths == 0.0)).all():
            return True
    return False


def bits_of(tensor: Tensor) -> Tensor:
    """The elements of a tensor as integers, which are equal where all bits are."""
    elements = tensor.detach()
    if elements.is_complex():
        elements = torch.view_as_real(elements.resolve_conj())
    return elements.view(_INTEGERS[elements.dtype.itemsize])
