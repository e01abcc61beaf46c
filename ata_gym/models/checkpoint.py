"""Checkpoints of training: tensors and plain values in one file, whose reading runs no code."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ata_gym.utils.files.sealed import DamagedError, read_sealed, write_sealed
from ata_gym.utils.trees import leaves, rebuild


def save(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of tensors, arrays and plain values, completely or not at all.

    Raises:
        ValueError: If the tree holds anything else.
    """
    write_sealed(path, pack(tree))


def load(path: Path, *parts: str) -> dict[str, Any]:
    """Read what ``save`` wrote, onto the CPU; arrays come back as tensors.

    Args:
        path: The file.
        parts: The keys that the tree must have at its top.

    Raises:
        ValueError: If the file holds anything else.
    """
    try:
        tree = unpack(read_sealed(path))
    except DamagedError as error:
        raise ValueError(
            f"{path} cannot be read as a checkpoint: {error}; delete it, and start anew",
        ) from error
    if not isinstance(tree, dict) or not tree.keys() >= set(parts):
        raise ValueError(f"{path} is no checkpoint of this kind: it must hold {', '.join(parts)}")
    return tree


def pack(tree: Mapping[str, Any]) -> bytes:
    """The bytes of a tree, the same for the same tree; ``unpack`` is the inverse."""
    # torch would write the name of a file into its content, and a stream has none.
    content = io.BytesIO()
    torch.save(rebuild(tree, [_plain(name, leaf) for name, leaf in leaves(tree)]), content)
    return content.getvalue()


def unpack(content: bytes) -> Any:
    """The tree that ``pack`` was given, on the CPU.

    Raises:
        DamagedError: If these are other bytes.
    """
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        # Other bytes may raise anything.
        reason = str(error).strip().partition("\n")[0]
        raise DamagedError(f"it holds no tree of tensors ({reason})") from error


def _plain(name: str, leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach()
    if isinstance(leaf, np.ndarray):
        return torch.from_numpy(leaf)
    if type(leaf) in {bool, int, float, str}:
        return leaf
    raise ValueError(f"a checkpoint holds tensors and plain values, but {name} is {leaf!r}")
