"""CIFAR-100 as it is published: the python and the binary version, packed or extracted. Reading runs no code.

The formats: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import io
import math
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Parts = dict[str, NDArray[Any]]

_PIXELS = 3 * 32 * 32
_RECORD = 2 + _PIXELS  # coarse label, fine label, pixels

_NUMPY = [f"numpy.{core}.multiarray" for core in ("core", "_core")]
_KNOWN = {*((home, "_reconstruct") for home in _NUMPY), ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
"""The names in the pickle of a plain array."""


def read_archive(path: Path) -> Parts:
    """Read ``train_x`` and ``test_x`` (N, 32, 32, 3) uint8, and the fine labels ``train_y`` and ``test_y`` (N,).

    The path is that of ``cifar-100-python.tar.gz``, ``cifar-100-binary.tar.gz``, or of the folder that one of them
    holds. If it is damaged, is not such an archive, or its pickles hold more than arrays and plain values, it raises
    ``ValueError``.
    """
    try:
        files = _extracted(path) if path.is_dir() else _packed(path)
    except Exception as error:  # a damaged archive, or links that lead nowhere or in a loop, may raise anything
        raise ValueError(f"{path} cannot be read as an archive of CIFAR-100: {error}") from error
    parts: Parts = {}
    for which in ("train", "test"):
        readers = {which: _from_pickle, f"{which}.bin": _from_records}
        name = next((name for name in readers if name in files), None)
        if name is None:
            raise ValueError(f"{path} must hold a file {which} (the python version) or {which}.bin (the binary one)")
        try:
            pixels, labels = readers[name](files[name])
        except ValueError as error:
            raise ValueError(f"{path}: {which} {error}") from error
        parts[f"{which}_x"] = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        parts[f"{which}_y"] = labels
    return parts


def _wanted(name: str) -> bool:
    return name.removesuffix(".bin") in {"train", "test"}


def _extracted(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if _wanted(file.name) and file.is_file()}


def _packed(path: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            name = member.name.rpartition("/")[2]
            if _wanted(name) and (content := archive.extractfile(member)) is not None:
                files[name] = content.read()
    return files


def _from_records(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(content) == 0 or len(content) % _RECORD:
        raise ValueError(f"must be records of {_RECORD} bytes, but has {len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, 2:], records[:, 1]


def _from_pickle(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        tree = _Reader(io.BytesIO(content), encoding="bytes").load()
        named = {name if isinstance(name, bytes) else str(name).encode(): part for name, part in tree.items()}
        return _array(named[b"data"]), np.array(named[b"fine_labels"])
    except KeyError as error:
        raise ValueError(f"has no {error}") from error
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"is no pickle of plain arrays: {error}") from error


class _Inert:
    """In place of a function that a pickle calls: it keeps the arguments, and does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    """Reads pickles of plain values and arrays; it calls no function that they name, and refuses other names."""

    def find_class(self, module: str, name: str) -> type[_Inert]:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which a plain array does not need")
        return type("_Inert", (_Inert,), {})  # a class of its own: a pickle may write into it


def _array(part: Any) -> NDArray[np.uint8]:
    """The array (N, 3072) of an inert one: its state is (version, shape, dtype, by columns, bytes)."""
    _, shape, kind, by_columns, raw = part.state
    if isinstance(raw, _Inert):  # bytes written as text by newer Pythons
        raw = raw.arguments[0].encode("latin-1")
    if kind.arguments[0] not in {"u1", b"u1"} or by_columns or len(shape) != 2 or shape[1] != _PIXELS:
        raise ValueError(f"its images must be bytes, {_PIXELS} for each, by rows, not {kind.arguments[0]!r} {shape}")
    if math.prod(shape) != len(raw):
        raise ValueError(f"its images need {math.prod(shape)} bytes, and there are {len(raw)}")
    return np.frombuffer(raw, np.uint8).reshape(shape)
