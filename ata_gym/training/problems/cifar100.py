"""The problem ``cifar100``: the images as published, and the network of the ATA paper.

Reading the images runs no code. Their formats: https://www.cs.toronto.edu/~kriz/cifar.html
"""

import gzip
import io
import pickle
import tarfile
import zipfile
from functools import partial
from operator import index
from pathlib import Path
from types import FunctionType
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ata_gym.training.problems.classification import Classification
from ata_gym.utils.files.atomic import check_source

Parts = dict[str, NDArray[Any]]

LARGEST_CONTENT = 2**28
"""The largest number of bytes that are unpacked.

All images, with their labels and names, have 190 MB."""
_CLASSES = 100
_PARTS = ("train_x", "train_y", "test_x", "test_y")
_PIXELS = 3 * 32 * 32
_FINE_LABEL = 1
"""The byte of the fine label in a record of the binary version, after the coarse label."""
_FIRST_PIXEL = 2
"""The byte of the first pixel in such a record."""
_RECORD = _FIRST_PIXEL + _PIXELS
"""The bytes of a record, which is an image."""

# What numpy itself calls when it unpickles an array, an array of protocol 5, and a number.
_REBUILDING: tuple[Any, ...] = (
    np.empty(1).__reduce__()[0],
    np.empty(1).__reduce_ex__(5)[0],
    np.float64(0.0).__reduce__()[0],
)


def _latin(text: str, _encoding: str) -> bytes:
    """Bytes, as old protocols of pickle write them."""
    return text.encode("latin-1")


_PLAIN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin,
}

# The module of these functions is "core" before numpy 2, and "_core" since.
_ALLOWED = _PLAIN | {
    (f"numpy.{core}.{function.__module__.rpartition('.')[2]}", function.__name__): function
    for core in ("core", "_core")
    for function in _REBUILDING
}
"""The objects that the pickles of plain arrays and numbers name, in all protocols."""


def cifar100(data: str | Path) -> Classification:
    """CIFAR-100 and the paper's CNN with 167,684 parameters.

    Three 3 x 3 convolutions to 16, 32 and 64 channels, each with ReLU and max-pooling by 2, then
    fully connected layers 1024-128-100; Adam at 8e-5, pixels normalised to [-1, 1], no augmentation
    (Maranjyan et al., ATA, ICML 2025). The images: A. Krizhevsky, "Learning multiple layers of
    features from tiny images", 2009.

    Args:
        data: The python or the binary version as published: ``cifar-100-python.tar.gz``,
            ``cifar-100-binary.tar.gz``, or the folder that one of them holds. Or an npz file with
            train_x (N, 32, 32, 3) and test_x, both uint8, and their classes train_y (N,) and
            test_y. No code in them is run.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If it cannot be read, lacks a part, or a part has the wrong shape, dtype or
            classes.
    """
    path = Path(data)
    if not path.is_dir():
        check_source(path)
    parts = read_images(path)
    train, test = (_checked(parts, split, path) for split in ("train", "test"))
    rates = {"adam": 8e-5, "sgd": 1e-2}
    return Classification(
        _cnn,
        train,
        test,
        transform=_normalise,
        name="cifar100",
        learning_rates=rates,
    )


def read_images(path: Path) -> Parts:
    """Read the images and their fine labels.

    Returns:
        Images of shape (N, 32, 32, 3) as ``train_x`` and ``test_x``, and their fine labels, shape
        (N,), as ``train_y`` and ``test_y``.

    Raises:
        ValueError: If the file or folder is damaged or of another kind, or unpacks to more than
            ``LARGEST_CONTENT`` bytes.
    """
    try:
        zipped = not path.is_dir() and _starts(path, b"PK")
        files = _read(path, zipped)
    except Exception as error:
        # A damaged or encrypted archive, or links in a loop, may raise anything.
        reason = "it holds Python objects" if "pickle" in str(error) else error
        raise ValueError(
            f"{path} cannot be read as an archive of CIFAR-100 or an npz file of plain arrays:"
            f" {reason}",
        ) from error
    if zipped:
        if len(files) < len(_PARTS):
            raise ValueError(
                f"{path} must hold {', '.join(_PARTS)}, but has only:"
                f" {', '.join(files) or 'none of them'}",
            )
        return files
    parts: Parts = {}
    for split in ("train", "test"):
        readers = {split: _from_pickle, f"{split}.bin": _from_records}
        name = next((name for name in readers if name in files), None)
        if name is None:
            raise ValueError(
                f"{path} must hold a file {split} (the python version) or {split}.bin (the binary"
                " one)",
            )
        try:
            pixels, labels = readers[name](files[name])
        except ValueError as error:
            raise ValueError(f"{path}: {split} {error}") from error
        # The files have all red pixels of an image first, then all green and all blue ones.
        parts[f"{split}_x"] = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        parts[f"{split}_y"] = labels
    return parts


def _is_of_split(name: str) -> bool:
    return name.removesuffix(".bin") in {"train", "test"}


def _read(path: Path, zipped: bool) -> dict[str, Any]:
    """The arrays of an npz file, or the bytes of the files of a folder or an archive, by name."""
    if zipped:
        return _arrays(path)
    if path.is_dir():
        return _extracted(path)
    return _unpacked(path)


def _extracted(folder: Path) -> dict[str, bytes]:
    files = {}
    for path in folder.iterdir():
        if _is_of_split(path.name) and path.is_file():
            with path.open("rb") as file:
                files[path.name] = _content(file)
    return files


def _starts(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _arrays(path: Path) -> Parts:
    with zipfile.ZipFile(path) as members:
        size = sum(member.file_size for member in members.infolist())
    if size > LARGEST_CONTENT:
        raise ValueError(f"it unpacks to {size:,} bytes, and at most {LARGEST_CONTENT:,} are read")
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in _PARTS if name in archive}


def _unpacked(path: Path) -> dict[str, bytes]:
    with gzip.open(path) if _starts(path, b"\x1f\x8b") else path.open("rb") as unpacked:
        # The limit holds for the whole archive here, so that no header in it can ask for more.
        archive = io.BytesIO(_content(unpacked))
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        members = {member.name.rpartition("/")[2]: member for member in tar}
        files = {
            name: tar.extractfile(member) for name, member in members.items() if _is_of_split(name)
        }
        return {name: _content(file) for name, file in files.items() if file is not None}


def _content(file: IO[bytes] | gzip.GzipFile) -> bytes:
    """Read a file to its end; ``ValueError`` if it has more than ``LARGEST_CONTENT`` bytes."""
    content = file.read(LARGEST_CONTENT + 1)
    if len(content) > LARGEST_CONTENT:
        raise ValueError(
            f"it unpacks to more than {LARGEST_CONTENT:,} bytes, which CIFAR-100 has not"
        )
    return content


def _from_records(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    if len(content) == 0 or len(content) % _RECORD:
        raise ValueError(f"must be records of {_RECORD} bytes, but has {len(content)} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD)
    return records[:, _FIRST_PIXEL:], records[:, _FINE_LABEL]


class _Unpickler(pickle.Unpickler):
    """Reads pickles of plain values and arrays, and refuses those that name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, which a plain array does not need",
            )
        allowed = _ALLOWED[module, name]
        # A pickle may set attributes of what it gets: it gets a new object around the function.
        if isinstance(allowed, FunctionType):
            return partial(allowed)
        return allowed


def _from_pickle(content: bytes) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        tree = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        entries = {}
        for name, entry in tree.items():
            if isinstance(name, str):
                entries[name] = entry
            else:
                # Python 2 wrote the names as bytes.
                entries[name.decode()] = entry
        pixels = entries["data"]
        labels = entries["fine_labels"]
        if not isinstance(labels, np.ndarray):
            labels = np.array([index(label) for label in labels])
    except KeyError as error:
        raise ValueError(f"has no {error}") from error
    except Exception as error:
        # A damaged pickle may raise anything.
        raise ValueError(f"is no pickle of plain arrays: {error}") from error
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (_PIXELS,)
    ):
        raise ValueError(f"must hold an array with {_PIXELS} bytes for each image")
    return pixels, labels


def _checked(parts: dict[str, np.ndarray], split: str, path: Path) -> tuple[Tensor, Tensor]:
    images = parts[f"{split}_x"]
    labels = parts[f"{split}_y"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise ValueError(
            f"{path}: {split}_x must be uint8 of shape (N, 32, 32, 3), not {images.dtype}"
            f" {images.shape}",
        )
    if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"{path}: {split}_y must be whole numbers of shape ({len(images)},), not {labels.dtype}"
            f" {labels.shape}",
        )
    if not ((labels >= 0) & (labels < _CLASSES)).all():
        raise ValueError(f"{path}: the classes in {split}_y must lie in 0..{_CLASSES - 1}")
    # torch's convolutions take the channels before rows and columns.
    inputs = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    return inputs, torch.from_numpy(labels.astype(np.int64))


def _normalise(images: Tensor) -> Tensor:
    return images.float().mul_(2 / 255).sub_(1)


def _cnn() -> nn.Module:
    convolutions = [
        layer
        for inputs, outputs in ((3, 16), (16, 32), (32, 64))
        for layer in (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(
        *convolutions,
        nn.Flatten(),
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Linear(128, _CLASSES),
    )
