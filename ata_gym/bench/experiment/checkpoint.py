"""A run that was cut off, as plain arrays in one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.utils.atomic import write_whole

Arrays = dict[str, NDArray[Any]]


def flatten(name: str, tree: object) -> Arrays:
    """Name every array of nested mappings and (named) tuples by its place; None holds no arrays.

    >>> flatten("state", (np.zeros(2), {"key": np.ones(1)}))
    {'state/0': array([0., 0.]), 'state/1/key': array([1.])}
    """
    children = _children(tree)
    if children is None:
        return {name: np.asarray(tree)}
    return {key: leaf for part, child in children for key, leaf in flatten(f"{name}/{part}", child).items()}


def restore(name: str, like: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Build a tree of the form of ``like`` from what :func:`flatten` gave.

    >>> restore("state", (0, {"key": 0}), {"state/0": np.zeros(2), "state/1/key": np.ones(1)})
    (array([0., 0.]), {'key': array([1.])})
    """
    children = _children(like)
    if children is None:
        return arrays[name]
    if like is None:
        return None
    built = {part: restore(f"{name}/{part}", child, arrays) for part, child in children}
    if isinstance(like, Mapping):
        return built
    return type(like)(*built.values()) if hasattr(like, "_fields") else tuple(built.values())


def _children(tree: object) -> Iterator[tuple[str, Any]] | None:
    if isinstance(tree, Mapping):
        return iter(tree.items())
    if isinstance(tree, tuple):
        return ((str(place), child) for place, child in enumerate(tree))
    return iter(()) if tree is None else None


def save(path: Path, arrays: Arrays) -> None:
    """Write arrays to a ``.npz`` file, whole or not at all."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)


def load(path: Path) -> Arrays:
    """Read what :func:`save` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)
