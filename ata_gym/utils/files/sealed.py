"""Files that end with a checksum of their content, and checkpoints with the previous one.

Readers of ZIP archives, as in NumPy and torch, ignore bytes behind an archive.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ata_gym.utils.files.atomic import is_other_than_file, kind_of, write_whole

T = TypeVar("T")

_MARK = b"\nata-gym sha256 "
_SEAL_LENGTH = len(_MARK) + 64
_FORMS = {"b": "<i8", "i": "<i8", "f": "<f8"}
"""The type as which numbers of a kind enter a checksum."""


class DamagedError(ValueError):
    """A file does not have the content that was written."""


def checksum(content: bytes) -> str:
    """The SHA-256 of the content of a file, as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file with its checksum at the end, whole or not at all."""
    seal = _MARK + checksum(content).encode()
    write_whole(path, lambda part: part.write_bytes(content + seal))


def read_sealed(path: Path) -> bytes:
    """Return the content of a file without the checksum.

    Args:
        path: The path of the file.

    Raises:
        DamagedError: If the checksum is missing, or belongs to other content.
    """
    sealed_content = read_file(path)
    content = sealed_content[:-_SEAL_LENGTH]
    seal = sealed_content[-_SEAL_LENGTH:]
    if not seal.startswith(_MARK):
        raise DamagedError(
            "it does not end with a checksum of ata-gym: it was cut off, or is foreign",
        )
    if seal.removeprefix(_MARK) != checksum(content).encode():
        raise DamagedError(
            "it is damaged: its content does not have the checksum that was written with it",
        )
    return content


def read_file(path: Path) -> bytes:
    """Return the content of a file, with DamagedError if a folder, for example, has its place."""
    if is_other_than_file(path):
        raise DamagedError(
            f"{path} is {kind_of(path)} in the place of a file: remove it, and run the command"
            " again",
        )
    return path.read_bytes()


def array_checksum(values: Mapping[str, Any]) -> str:
    """The SHA-256 of the names, shapes and values of arrays.

    Args:
        values: Arrays, lists, tensors or texts, by name.
    """
    digest = hashlib.sha256()
    for name in sorted(values):
        array = np.asarray(values[name])
        # NaN has many forms of bits, and text keeps only one.
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.nan, array)
        if array.dtype.kind == "U":
            content = str(array).encode()
        else:
            content = array.astype(_FORMS[array.dtype.kind]).tobytes()
        digest.update(f"{name} {array.shape} ".encode() + content)
    return digest.hexdigest()


def save_checkpoint(path: Path, content: bytes) -> None:
    """Write a checkpoint; the last one is kept beside it."""
    if path.exists():
        path.replace(_previous(path))
    write_sealed(path, content)


def load_checkpoint(path: Path, read: Callable[[bytes], T]) -> T | None:
    """Read the newest whole checkpoint that was saved at ``path``; None if there is none.

    A damaged checkpoint is renamed to ``NAME.damaged``, with a warning.

    Args:
        path: The path of the checkpoint.
        read: Called with the content; its result is returned.
    """
    for candidate in (path, _previous(path)):
        if candidate.exists():
            try:
                return read(read_sealed(candidate))
            except DamagedError as error:
                damaged_path = candidate.with_name(f"{candidate.name}.damaged")
                candidate.replace(damaged_path)
                warnings.warn(
                    f"{candidate}: {error}; now {damaged_path.name}; the run goes on from before"
                    " it",
                    stacklevel=2,
                )
    return None


def has_checkpoint(path: Path) -> bool:
    """Whether there is a checkpoint, or the one that was kept beside it."""
    return path.exists() or _previous(path).exists()


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint and the one that was kept beside it, if they exist."""
    path.unlink(missing_ok=True)
    _previous(path).unlink(missing_ok=True)


def _previous(path: Path) -> Path:
    """The path of the checkpoint before the last."""
    return path.with_name(f"{path.name}.previous")
