"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, then move it there in one step; an OSError names a file."""
    part = path.with_name(f".part-{os.getpid()}-{path.name}")
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        if error.filename is None:  # as where the disk is full
            raise OSError(f"{path} cannot be written: {error}") from error
        raise
    finally:
        part.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Make the folder of a file to come; OSError unless files can be written there. None is left."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
