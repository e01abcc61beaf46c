"""Training that was cut off, as tensors and plain values in one file: reading it runs no code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ata_gym.files import write_whole


def save(path: Path, tree: Mapping[str, Any]) -> None:
    """Write a tree of tensors, arrays and plain values, whole or not at all; the same tree gives the same bytes.

    Raises
    ------
    ValueError
        If there is anything else in it, such as a function.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Path(folder, "run.pt"), {"round": 3, "weights": [torch.ones(2)]})
    ...     load(Path(folder, "run.pt"))
    {'round': 3, 'weights': [tensor([1., 1.])]}
    """
    content = io.BytesIO()  # torch writes a file's name into it
    torch.save(_plain("", tree), content)
    write_whole(path, lambda part: part.write_bytes(content.getbuffer()))


def load(path: Path, *parts: str) -> dict[str, Any]:
    """Read what :func:`save` wrote, onto the CPU; arrays come back as tensors.

    Raises
    ------
    ValueError
        If the file is damaged, holds more than tensors and plain values, or lacks one of ``parts``.
    """
    try:
        tree: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # a damaged file may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path} cannot be read as a checkpoint ({reason}); delete it, and start anew") from error
    if not isinstance(tree, dict) or not tree.keys() >= set(parts):
        raise ValueError(f"{path} is no checkpoint of this kind: it must hold {', '.join(parts)}")
    return tree


def _plain(place: str, tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _plain(f"{place}/{key}", part) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [_plain(f"{place}/{index}", part) for index, part in enumerate(tree)]
        return parts if isinstance(tree, list) else tuple(parts)
    if isinstance(tree, Tensor):
        return tree.detach()
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree)
    if tree is None or type(tree) in {bool, int, float, str}:
        return tree
    raise ValueError(f"a checkpoint holds tensors and plain values, but {place[1:]} is {tree!r}")
