"""The machine code of compiled kernels on disk: one folder for each kernel, put in place in one step.

numba caches a gufunc in files that refer to each other. If two processes write them at once, the files do not fit
together, and calling them is a segmentation fault, in every later process, too. So numba only sees a private copy: a
folder is copied there if its checksums hold, and a new one is renamed into place as a whole. No process waits for
another.

The name of a folder stands for the content of the kernel and of all that it calls, for its types and for the compiler,
but not for the place of the source. So a checkout that was moved, or another one beside it, finds the kernels in the
cache of the user.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

import numba
import numpy as np
from llvmlite import binding

from ata_gym.utils.kernels.identity import UnknownError, identity
from ata_gym.utils.kernels.internals import add_locator, compiler_lock
from ata_gym.utils.kernels.notice import compiling

Loop = Callable[..., Any]

_config: Any = numba.config

_SWITCHES = (
    *("BOUNDSCHECK", "CPU_FEATURES", "CPU_NAME", "DEBUGINFO_DEFAULT", "DISABLE_INTEL_SVML", "ENABLE_AVX"),
    *("LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE"),
)
"""The settings of numba that change the machine code."""

SUMS = "sha256sums"  # the file of checksums in each folder; it is in the format of the command of that name


@contextmanager
def kernel_cache(loop: Loop, *options: object) -> Iterator[tuple[Loop, bool]]:
    """Let numba load the kernel of ``loop`` from its folder, or leave it there when it has compiled it in the block.

    The block gets the function to compile, and whether numba shall cache it: not if the kernel has no identity, or if
    its closure holds functions, to which numba gives a new name in each process. ``options`` is anything else that
    decides on the machine code. A cache that cannot be read or written is no error. Raises OSError if the system has no
    temporary folder, or it is full.
    """
    key = _key(loop, options)
    if key is None or not _NUMBA_ASKS:
        yield loop, False
        return
    source, name = Path(loop.__code__.co_filename), _folder_name(loop, key)
    with compiler_lock(), tempfile.TemporaryDirectory(prefix="ata-gym-kernel-") as folder:
        private = Path(folder)
        loaded = next((sums for room in _rooms(source) if (sums := _fetch(room / name, private))), "")
        with _Private.holding(copy := _renamed(loop, key), folder), nullcontext() if loaded else compiling():
            yield copy, True
        sums = _sums(private)
        if sums != loaded and (room := kept_in(source)):
            _publish(private, sums, room / name)


def is_kept(loop: Loop, *options: object) -> bool:
    """Whether the kernel of ``loop`` has a folder, or can have none; ``options`` as of ``kernel_cache``."""
    key = _key(loop, options)
    source = Path(loop.__code__.co_filename)
    if key is None or not _NUMBA_ASKS or kept_in(source) is None:
        return True
    return any((room / _folder_name(loop, key)).is_dir() for room in _rooms(source))


def _folder_name(loop: Loop, key: str) -> str:
    return f"{loop.__module__.rpartition('.')[2]}.{loop.__name__}-{key}"


def _key(loop: Loop, options: tuple[object, ...]) -> str | None:
    """A checksum of all that the machine code depends on; None if there is none."""
    try:
        whole = identity(loop), options, _machine(), [getattr(_config, name, None) for name in _SWITCHES]
    except UnknownError:
        return None
    if any(callable(cell.cell_contents) for cell in loop.__closure__ or ()):
        return None
    return hashlib.sha256(repr(whole).encode()).hexdigest()[:20]


def _renamed(loop: Loop, key: str) -> Loop:
    """A copy with the key in its name, so that kernels of one name have different symbols."""
    copy = FunctionType(loop.__code__, loop.__globals__, loop.__name__, loop.__defaults__, loop.__closure__)
    copy.__module__, copy.__qualname__, copy.__doc__ = loop.__module__, f"{loop.__qualname__}_{key}", loop.__doc__
    return copy


class _Private:
    """Tells numba to cache one function in one folder, whatever file it comes from; of the form of its locators."""

    _held: ClassVar[tuple[Loop, str] | None] = None

    def __init__(self, source: str, folder: str) -> None:
        self._py_file, self._folder = source, folder  # warnings of numba read the first name

    @classmethod
    @contextmanager
    def holding(cls, function: Loop, folder: str) -> Iterator[None]:
        """Cache ``function`` in ``folder`` inside the block, which holds numba's lock; others are cached as usual."""
        others, cls._held = getattr(_config, "CACHE_LOCATOR_CLASSES", ""), (function, folder)
        _config.CACHE_LOCATOR_CLASSES = ""  # a user may name some in newer ones of numba, and they come first
        try:
            yield
        finally:
            cls._held, _config.CACHE_LOCATOR_CLASSES = None, others

    @classmethod
    def from_function(cls, py_func: Loop, py_file: str) -> "_Private | None":
        if cls._held is None or cls._held[0] is not py_func:
            return None
        return cls(py_file, cls._held[1])

    def ensure_cache_path(self) -> None:
        """Nothing: the folder is there, and is writable."""

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return ""  # the name of the folder stands for the source

    def get_disambiguator(self) -> str:
        return ""


_NUMBA_ASKS = add_locator(_Private)
"""Whether numba asks where to keep machine code; otherwise each process compiles its kernels."""


def kept_in(source: Path) -> Path | None:
    """The folder for the machine code of the kernels in a source file, made if needed; None if none can be written."""
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
    processor = platform.machine(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    return *processor, str(sys.implementation.cache_tag), numba.__version__, np.__version__


def _rooms(source: Path) -> Iterator[Path]:
    """Places for folders: the one that the user has set, or else the user's cache, then a folder beside the source."""
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR) / "ata-gym"
        return
    user = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    with suppress(RuntimeError):  # there is no home
        yield Path(user or Path.home() / ".cache") / "ata-gym"
    if source.is_file():
        yield source.parent / "__pycache__" / "ata-gym"


def _fetch(kept: Path, private: Path) -> str:
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


def _sums(folder: Path) -> str:  # a line with the checksum and the name of each file below a folder
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n" for path in files
    )


def _publish(private: Path, sums: str, kept: Path) -> None:
    """Put a copy of the private folder in place of ``kept``; another process may do so at the same time."""
    with (
        suppress(OSError),  # another process was first, or the disk is full
        tempfile.TemporaryDirectory(prefix=f"{kept.name}.part-", dir=kept.parent, ignore_cleanup_errors=True) as beside,
    ):
        new = Path(beside, "new")
        shutil.copytree(private, new)
        (new / SUMS).write_text(sums, "utf-8")
        if kept.exists():  # it is damaged
            kept.rename(Path(beside, "old"))
        new.rename(kept)
