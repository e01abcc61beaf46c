"""CIFAR-100 as it is published: the python and the binary version, packed or extracted. Reading runs no code.

The formats: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import pickle
import struct
import tarfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Parts = dict[str, NDArray[Any]]

_PIXELS = 3 * 32 * 32
_RECORD = 2 + _PIXELS  # coarse label, fine label, pixels
MOST = 2**28
"""Bytes that are unpacked at most; all images, with their labels and names, are 190 MB."""
_MEMBERS = 1000
"""Members of an archive that are looked at; those published have six at most."""
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
"""How files with these first bytes are unpacked."""

_NUMPY = {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
}
_KNOWN = {*_NUMPY, ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
"""The names in the pickles of plain arrays and numbers, of all protocols."""
_KINDS = {f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)}


def read_archive(path: Path) -> Parts:
    """Read ``train_x`` and ``test_x`` (N, 32, 32, 3) uint8, and the fine labels ``train_y`` and ``test_y`` (N,).

    The path is that of ``cifar-100-python.tar.gz``, ``cifar-100-binary.tar.gz``, or of the folder that one of them
    holds. If it is damaged, is not such an archive, unpacks to more than ``MOST`` bytes, or its pickles hold more than
    arrays and plain values, it raises ``ValueError``.
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


def _from_pickle(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        tree = _Reader(io.BytesIO(content), encoding="bytes").load()
        named = {name.encode() if isinstance(name, str) else bytes(_raw(name)): part for name, part in tree.items()}
        return _images(named[b"data"]), _labels(named[b"fine_labels"])
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


class _Reader(pickle._Unpickler):  # the one in C allots as much memory as a pickle says
    """Reads pickles of plain values and arrays; it calls no function that they name, and refuses other names."""

    dispatch = pickle._Unpickler.dispatch.copy()

    def find_class(self, module: str, name: str) -> type[_Inert]:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which a plain array does not need")
        return type(name, (_Inert,), {})  # a class of its own: a pickle may write into it

    def load_bytearray8(self) -> None:
        """Read as many bytes as there are; the library's own function allots as many as the pickle says."""
        reader: Any = self  # whose methods the type checker does not know
        (size,) = struct.unpack("<Q", reader.read(8))
        reader.append(reader.read(min(size, MOST)))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8  # type: ignore[assignment]


def _labels(part: Any) -> NDArray[Any]:
    if isinstance(part, _Inert):
        return _array(part)
    numbers = [_number(label) if isinstance(label, _Inert) else label for label in part]
    if not all(isinstance(label, int | float) for label in numbers):  # no lists of lists, which may be endless
        raise ValueError("its fine_labels must be numbers")
    return np.array(numbers)


def _images(part: Any) -> NDArray[Any]:
    pixels = _array(part)
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != _PIXELS:
        raise ValueError(f"its images must be bytes, {_PIXELS} for each, not {pixels.dtype} {pixels.shape}")
    return pixels


def _array(part: Any) -> NDArray[Any]:
    """The array of an inert one, as protocol 5 writes it, or as those before do."""
    if type(part).__name__ == "_frombuffer":
        raw, kind, shape, order, *_ = part.arguments
    else:
        _, shape, kind, by_columns, raw = part.state
        order = "F" if by_columns else "C"
    if order not in {"C", "F"}:
        raise ValueError(f"its arrays must be stored by rows or by columns, not {order!r}")
    dtype, content = _dtype(kind), _raw(raw)
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(
            f"an array of shape {shape} needs {math.prod(shape) * dtype.itemsize} bytes, not {len(content)}"
        )
    return np.frombuffer(content, dtype).reshape(shape, order=order)


def _number(part: _Inert) -> int:
    kind, raw = part.arguments
    return int(np.frombuffer(_raw(raw), _dtype(kind)).item())


def _dtype(kind: Any) -> np.dtype[Any]:
    """The whole-number dtype of an inert one: its first argument is as u1 or i8, its state has the order of bytes."""
    name = kind.arguments[0].decode() if isinstance(kind.arguments[0], bytes) else kind.arguments[0]
    if name not in _KINDS:
        raise ValueError(f"its arrays must be of whole numbers, not {name!r}")
    order: Any = kind.state[1] if kind.state else "="
    return np.dtype(name).newbyteorder(order.decode() if isinstance(order, bytes) else order)  # type: ignore[arg-type]


def _raw(part: Any) -> Any:
    """Bytes, also those that newer Pythons write as text in old protocols."""
    return part.arguments[0].encode("latin-1") if isinstance(part, _Inert) else part
