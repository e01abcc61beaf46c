"""Tensors of which each rank has a part: the ``DTensor`` of ``torch.distributed.tensor``."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def imported_class(package: str, name: str) -> Any:
    """A class of a package that takes a second to import; None if nothing has imported it."""
    return getattr(sys.modules.get(package), name, None)


def is_instance(package: str, name: str, value: object) -> bool:
    """Whether a value is of a class of a package that takes a second to import.

    It needs no import: what made such a value has imported the package.
    """
    kind = imported_class(package, name)
    return kind is not None and isinstance(value, kind)


def is_dtensor(tensor: object) -> bool:
    """Whether a tensor is a ``DTensor``."""
    # Nearly all are of these two types, and each round asks often.
    if type(tensor) in (Tensor, nn.Parameter):
        return False
    return is_instance("torch.distributed.tensor", "DTensor", tensor)


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this rank has, in the tensor's own memory."""
    if is_dtensor(tensor):
        # Entering the mode takes longer than all else for a plain tensor.
        with torch.no_grad():
            part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
        return part
    return tensor


@torch.no_grad()
def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its parts; all ranks of a ``DTensor`` call it together."""
    if is_dtensor(tensor):
        full: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
        return full
    return tensor


def ranks_of(tensor: Tensor) -> set[int]:
    """The ranks that have a part of a ``DTensor``."""
    distributed: Any = tensor
    return set(distributed.device_mesh.mesh.flatten().tolist())


def alike(part: Tensor, tensor: Tensor, placements: Sequence[Any] | None = None) -> Tensor:
    """A part as a tensor that is distributed as another one, which is returned as it is if plain.

    Args:
        part: The part of this rank.
        tensor: The other tensor, which gives the shape.
        placements: How the parts are placed, where not as the parts of ``tensor``.
    """
    if not is_dtensor(tensor):
        return part
    # Importing it takes a second, and whatever made the tensor has imported it.
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    distributed: Any = tensor
    if placements is None:
        placements = distributed.placements
    return DTensor.from_local(
        part,
        distributed.device_mesh,
        placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )


def sharded_as(tensor: Tensor, parameter: Tensor, gathered: int) -> Tensor:
    """A gradient distributed as a parameter is between rounds.

    Args:
        tensor: The local part of a gradient, during the round.
        parameter: The parameter as it is between rounds, maybe plain.
        gathered: Over how many dimensions of its mesh, the first ones, ``fully_shard`` had gathered
            the parameter during the round.
    """
    if not is_dtensor(parameter):
        return tensor
    from torch.distributed.tensor import Shard, distribute_tensor  # noqa: PLC0415

    distributed: Any = parameter
    mesh = distributed.device_mesh
    if gathered:
        # With tensor parallelism, ``fully_shard`` cuts what tensor parallelism has cut before.
        placements = [
            Shard(placement.dim) if hasattr(placement, "split_factor") else placement
            for placement in distributed.placements[:gathered]
        ]
        if gathered < mesh.ndim:
            mesh = mesh[mesh.mesh_dim_names[:gathered]]
        tensor = local_part(distribute_tensor(tensor, mesh, placements, src_data_rank=None))
    return alike(tensor, parameter)
