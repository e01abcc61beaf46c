"""The machine code of compiled kernels on disk: one folder for each kernel, put in place in one step.

numba caches a gufunc in files that refer to each other. Where two processes write them at once they do not fit
together, and calling them is a segmentation fault, in every later process too. So numba only ever sees a private copy:
a folder is copied there if its checksums hold, and a new one is renamed into place as a whole. No process waits for
another.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba.core.compiler_lock import global_compiler_lock

_config: Any = numba.config

SUMS = "sha256sums"
"""The file of checksums in each folder; it is in the format of the command of that name."""


@contextmanager
def kernel_cache(loop: Callable[..., None], *options: object) -> Iterator[None]:
    """Let numba load the kernel of ``loop`` from its folder, or leave it there when it has compiled it.

    Parameters
    ----------
    loop
        The function that is compiled inside the block, with ``cache=True``.
    options
        What else decides on the machine code.

    Raises
    ------
    OSError
        If the system has no temporary folder; a cache that cannot be read or written is no error.
    """
    kept = _folder(loop, options)
    with global_compiler_lock, tempfile.TemporaryDirectory(prefix="ata-gym-kernel-") as name:
        private, before = Path(name), _config.CACHE_DIR
        loaded = "" if kept is None else _fetch(kept, private)
        _config.CACHE_DIR = name
        try:
            yield
        finally:
            _config.CACHE_DIR = before
        sums = "" if kept is None else _sums(private)
        if kept is not None and sums != loaded:
            _publish(private, sums, kept)


def _folder(loop: Callable[..., None], options: tuple[object, ...]) -> Path | None:
    """Where a kernel is kept, under a name that stands for all that its machine code depends on; None: nowhere."""
    source = Path(loop.__code__.co_filename)
    try:
        text = source.read_bytes()
    except OSError:  # typed in at a prompt
        return None
    key = hashlib.sha256(repr((str(source), text, loop.__qualname__, options, _machine())).encode())
    room = kept_in(source)
    return None if room is None else room / f"{source.stem}.{loop.__name__}-{key.hexdigest()[:20]}"


def kept_in(source: Path) -> Path | None:
    """The folder that keeps the machine code of the kernels in a source file; None if no place for it can be written.

    It is made if it is not there.
    """
    for room in _rooms(source):
        try:
            room.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(room, os.W_OK):
            return room
    return None


@cache
def _machine() -> tuple[str, ...]:
    """The processor, and the versions of what compiles."""
    processor = platform.machine(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    return *processor, str(sys.implementation.cache_tag), numba.__version__


def _rooms(source: Path) -> Iterator[Path]:
    """Where folders may lie: where the user says, beside the source, or in the user's cache."""
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR) / "ata-gym"
        return
    yield source.parent / "__pycache__" / "ata-gym"
    user = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    yield Path(user or Path.home() / ".cache") / "ata-gym"


def _fetch(kept: Path, private: Path) -> str:
    """Copy a folder whose files are what was written; its checksums, or nothing if there is none."""
    try:
        shutil.copytree(kept, private, dirs_exist_ok=True)
        sums = (private / SUMS).read_text("utf-8")
        (private / SUMS).unlink()
    except (OSError, ValueError):
        sums = ""
    if sums and sums == _sums(private):
        return sums
    for part in private.iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    return ""


def _sums(folder: Path) -> str:
    """A line with the checksum and the name of each file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n" for path in files
    )


def _publish(private: Path, sums: str, kept: Path) -> None:
    """Put a copy of the private folder in the place of ``kept``, which another process may do at the same time."""
    try:
        beside = Path(tempfile.mkdtemp(prefix=f"{kept.name}.part-", dir=kept.parent))
    except OSError:
        return
    try:
        shutil.copytree(private, beside / "new")
        (beside / "new" / SUMS).write_text(sums, "utf-8")
        if kept.exists():  # damaged, or of other source
            kept.rename(beside / "old")
        (beside / "new").rename(kept)
    except OSError:  # another process was first, or the disk is full
        pass
    finally:
        shutil.rmtree(beside, ignore_errors=True)
