"""CIFAR-100 as it is published: the python and the binary version, packed or extracted. Reading runs no code.

The formats: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import islice
from operator import index
from pathlib import Path
from types import FunctionType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Parts = dict[str, NDArray[Any]]

_PIXELS = 3 * 32 * 32
_RECORD = 2 + _PIXELS  # coarse label, fine label, pixels
MOST = 2**28  # bytes that are unpacked at most; all images, with their labels and names, are 190 MB
_MEMBERS = 1000  # members of an archive that are looked at; those published have six at most
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
"""How files with these first bytes are unpacked."""

_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): lambda text, _encoding: text.encode("latin-1"),  # bytes, as old protocols write them
    **{
        (f"numpy.{core}.{module}", name): getattr(import_module(f"numpy._core.{module}"), name)
        for core in ("core", "_core")
        for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
    },
}
"""The objects that the pickles of plain arrays and numbers name, in all protocols."""


def read_archive(path: Path) -> Parts:
    """Read ``train_x`` and ``test_x`` (N, 32, 32, 3) uint8, and the fine labels ``train_y`` and ``test_y`` (N,).

    The path is that of ``cifar-100-python.tar.gz``, ``cifar-100-binary.tar.gz``, or of the folder that one of them
    holds. If it is damaged, is not such an archive, unpacks to more than ``MOST`` bytes, or its pickles name more than
    arrays need, it raises ``ValueError``.
    """
    try:
        files = _extracted(path) if path.is_dir() else _packed(path)
    except Exception as error:  # a damaged archive, or links that lead nowhere or in a loop, may raise anything
        raise ValueError(
            f"{path} cannot be read as an archive of CIFAR-100 or an npz file of plain arrays: {error}"
        ) from error
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
    files = {}
    for found in folder.iterdir():
        if _wanted(found.name) and found.is_file():
            with found.open("rb") as file:
                files[found.name] = _content(file)
    return files


def _packed(path: Path) -> dict[str, bytes]:
    with path.open("rb") as file:
        start = file.read(8)
    opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), open)
    with opener(path, "rb") as unpacked:
        whole = io.BytesIO(_content(unpacked))  # so that no header can ask for more
    with tarfile.open(fileobj=whole, mode="r:") as archive:
        members = {member.name.rpartition("/")[2]: member for member in islice(archive, _MEMBERS)}
        files = {name: archive.extractfile(member) for name, member in members.items() if _wanted(name)}
        return {name: _content(file) for name, file in files.items() if file is not None}


def _content(file: IO[bytes]) -> bytes:
    """Read a file to its end; ValueError if that is too much."""
    content = file.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"it unpacks to more than {MOST:,} bytes, which CIFAR-100 has not")
    return content


def _from_records(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(content) == 0 or len(content) % _RECORD:
        raise ValueError(f"must be records of {_RECORD} bytes, but has {len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, 2:], records[:, 1]


class _Unpickler(pickle.Unpickler):
    """Reads pickles of plain values and arrays, and refuses those that name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """The object of a name that arrays need."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which a plain array does not need")
        found = _ALLOWED[module, name]
        if isinstance(found, FunctionType):  # a copy, since a pickle may set its attributes
            return partial(found)
        return found


def _from_pickle(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        tree = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        named = {name if isinstance(name, str) else name.decode(): part for name, part in tree.items()}
        pixels, labels = named["data"], named["fine_labels"]
        if not isinstance(labels, np.ndarray):
            labels = np.array([index(label) for label in labels])
    except KeyError as error:
        raise ValueError(f"has no {error}") from error
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"is no pickle of plain arrays: {error}") from error
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise ValueError(f"must hold an array with {_PIXELS} bytes for each image")
    return pixels, labels
