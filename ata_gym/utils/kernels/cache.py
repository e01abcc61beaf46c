"""The machine code of compiled kernels on disk.

Each kernel has one folder, which is put in place in one step.

numba caches a gufunc in files that refer to each other. If two processes write them at once, the
files do not fit together, and calling them is a segmentation fault, in every later process, too. So
numba only sees a private copy: a folder is copied there if its checksums hold, and a new one is
renamed into place as a whole. No process waits for another.

The name of a folder depends on the content of the kernel and of all that it calls, on its types and
on the compiler, but not on the place of the source. So a checkout that was moved, or another one
beside it, finds the kernels in the cache of the user.
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
    "BOUNDSCHECK",
    "CPU_FEATURES",
    "CPU_NAME",
    "DEBUGINFO_DEFAULT",
    "DISABLE_INTEL_SVML",
    "ENABLE_AVX",
    "LOOP_VECTORIZE",
    "OPT",
    "SLP_VECTORIZE",
)
"""The settings of numba that change the machine code."""

SUMS = "sha256sums"
"""The name of the file of checksums in each folder, in the format of ``sha256sum``."""


@contextmanager
def kernel_cache(loop: Loop, *options: object) -> Iterator[tuple[Loop, bool]]:
    """Let numba load a kernel from its folder in the block, or compile and keep it there.

    The block gets the function to compile, and whether numba shall cache it: not if the kernel has
    no identity, or if its closure holds functions, to which numba gives a new name in each process.
    A cache that cannot be read or written is no error.

    Args:
        loop: The function of the kernel.
        *options: All else that decides on the machine code.

    Raises:
        OSError: If the system has no temporary folder, or it is full.
    """
    key = _key(loop, options)
    if key is None or not _NUMBA_ASKS:
        yield loop, False
        return
    source = Path(loop.__code__.co_filename)
    name = _folder_name(loop, key)
    with compiler_lock(), tempfile.TemporaryDirectory(prefix="ata-gym-kernel-") as folder:
        private = Path(folder)
        fetched_sums = (_fetch(place / name, private) for place in _cache_folders(source))
        loaded_sums = next((sums for sums in fetched_sums if sums), "")
        copy = _renamed(loop, key)
        with _FolderLocator.caching(copy, folder), nullcontext() if loaded_sums else compiling():
            yield copy, True
        # Other checksums mean that numba has compiled the kernel, or added to it.
        sums = _sums(private)
        if sums != loaded_sums and (place := kernel_folder(source)):
            _publish(private, sums, place / name)


def is_kept(loop: Loop, *options: object) -> bool:
    """Whether the kernel of ``loop`` has a folder, or can have none.

    Args:
        loop: The function of the kernel.
        *options: As for ``kernel_cache``.
    """
    key = _key(loop, options)
    source = Path(loop.__code__.co_filename)
    if key is None or not _NUMBA_ASKS or kernel_folder(source) is None:
        return True
    return any((place / _folder_name(loop, key)).is_dir() for place in _cache_folders(source))


def _folder_name(loop: Loop, key: str) -> str:
    """The name of a kernel's folder: module, function and key."""
    return f"{loop.__module__.rpartition('.')[2]}.{loop.__name__}-{key}"


def _key(loop: Loop, options: tuple[object, ...]) -> str | None:
    """A checksum of all that the machine code depends on; None if there is none."""
    switches = [getattr(_config, name, None) for name in _SWITCHES]
    try:
        content = (identity(loop), options, _machine(), switches)
    except UnknownError:
        return None
    if any(callable(cell.cell_contents) for cell in loop.__closure__ or ()):
        return None
    return hashlib.sha256(repr(content).encode()).hexdigest()[:20]


def _renamed(loop: Loop, key: str) -> Loop:
    """A copy with the key in its name, so that kernels of one name have different symbols."""
    copy = FunctionType(
        loop.__code__,
        loop.__globals__,
        loop.__name__,
        loop.__defaults__,
        loop.__closure__,
    )
    copy.__module__ = loop.__module__
    copy.__qualname__ = f"{loop.__qualname__}_{key}"
    copy.__doc__ = loop.__doc__
    return copy


class _FolderLocator:
    """A locator of numba that makes it cache one function in one folder.

    The file of the function makes no difference.
    """

    _function_and_folder: ClassVar[tuple[Loop, str] | None] = None

    def __init__(self, source: str, folder: str) -> None:
        # Warnings of numba read this name.
        self._py_file = source
        self._folder = folder

    @classmethod
    @contextmanager
    def caching(cls, function: Loop, folder: str) -> Iterator[None]:
        """Cache ``function`` in ``folder`` inside the block, and others as usual.

        The block must hold numba's lock.
        """
        old_locators = getattr(_config, "CACHE_LOCATOR_CLASSES", "")
        cls._function_and_folder = (function, folder)
        # In newer versions of numba a user may name locators, which come first.
        _config.CACHE_LOCATOR_CLASSES = ""
        try:
            yield
        finally:
            cls._function_and_folder = None
            _config.CACHE_LOCATOR_CLASSES = old_locators

    @classmethod
    def from_function(cls, py_func: Loop, py_file: str) -> "_FolderLocator | None":
        if cls._function_and_folder is None or cls._function_and_folder[0] is not py_func:
            return None
        return cls(py_file, cls._function_and_folder[1])

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder is there, and is writable."""

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        # The name of the folder depends on the source.
        return ""

    def get_disambiguator(self) -> str:
        return ""


_NUMBA_ASKS = add_locator(_FolderLocator)
"""Whether numba asks where to keep machine code; else each process compiles its kernels."""


def kernel_folder(source: Path) -> Path | None:
    """The folder for the machine code of the kernels in a source file, made if needed.

    Args:
        source: The source file.

    Returns:
        The folder, or None if none can be written.
    """
    for folder in _cache_folders(source):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


@cache
def _machine() -> tuple[str, ...]:
    """The processor, and the versions of Python, numba and NumPy."""
    processor = (
        platform.machine(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    )
    return *processor, str(sys.implementation.cache_tag), numba.__version__, np.__version__


def _cache_folders(source: Path) -> Iterator[Path]:
    """The places for folders, in their order.

    They are the place that the user has set, or else the user's cache, then a folder beside the
    source.
    """
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR) / "ata-gym"
        return
    if sys.platform == "win32":
        user_cache = os.environ.get("LOCALAPPDATA")
    else:
        user_cache = os.environ.get("XDG_CACHE_HOME")
    # Path.home() raises RuntimeError where there is no home.
    with suppress(RuntimeError):
        yield Path(user_cache or Path.home() / ".cache") / "ata-gym"
    if source.is_file():
        yield source.parent / "__pycache__" / "ata-gym"


def _fetch(kept: Path, private: Path) -> str:
    """Copy a folder, and return its checksums; leave nothing, and return "", if it is not whole."""
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
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in files
    )


def _publish(private: Path, sums: str, kept: Path) -> None:
    """Put a copy of the private folder in place of ``kept``.

    Another process may do so at the same time.
    """
    # An OSError means that another process was first, or that the disk is full.
    with (
        suppress(OSError),
        tempfile.TemporaryDirectory(
            prefix=f"{kept.name}.part-",
            dir=kept.parent,
            ignore_cleanup_errors=True,
        ) as folder,
    ):
        new_folder = Path(folder, "new")
        shutil.copytree(private, new_folder)
        (new_folder / SUMS).write_text(sums, "utf-8")
        # A folder that is there is damaged, and moves away.
        if kept.exists():
            kept.rename(Path(folder, "old"))
        new_folder.rename(kept)
