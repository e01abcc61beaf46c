"""Files that are written completely or not at all, their names, and checks of places."""

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import quote

_PART = ".part-"  # the start of the name of a file that is being filled
_LONGEST_NAME = 200
"""Bytes of a name: most file systems take 255, of which endings and ``_PART`` take some."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let a function fill a file beside ``path``, then move it there in one step.

    Args:
        path: The path of the file.
        write: Called with the path of the file to fill.

    Raises:
        OSError: If the file cannot be written, or ``path`` is a folder, a pipe, a socket or a
            device, which the step would replace by a file. It always names a file.
        ValueError: As for ``check_name``.
    """
    check_name(path)
    _refuse_other_than_file(path)
    part = path.with_name(f"{_PART}{os.getpid()}-{path.name}")
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        # The error of a full disk, for example, names no file.
        if error.filename is None:
            raise OSError(f"{path} cannot be written: {error}") from error
        raise
    finally:
        part.unlink(missing_ok=True)


def check_name(path: str | os.PathLike[str]) -> None:
    """Check that a path is UTF-8, as tables, pages and other libraries need it.

    Args:
        path: The path.

    Raises:
        ValueError: If it holds bytes that are no UTF-8.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{os.fsencode(path)!r} holds bytes that are no UTF-8: rename it",
        ) from None


def file_name(text: str) -> str:
    """The name of a file or folder for a text, before its ending.

    The text is percent-encoded and cut to a length that file systems take.

    Args:
        text: Any text.

    Example:
        >>> file_name("my_package:Mine"), file_name(".."), len(file_name(1000 * "x"))
        ('my_package%3AMine', '%2E%2E', 200)
    """
    name = quote(text, safe="", errors="surrogatepass")
    # Names of dots alone mean folders.
    if not name.strip("."):
        name = name.replace(".", "%2E")
    return cut(name)


def cut(name: str) -> str:
    """The name as it is, or its beginning and a checksum if it has more than 200 bytes."""
    encoded = os.fsencode(name)
    if len(encoded) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:16]
    return f"{encoded[: _LONGEST_NAME - len(digest) - 1].decode(errors='ignore')}-{digest}"


def is_part(name: str) -> bool:
    """Whether a file of this name is, or was, being filled by ``write_whole``.

    Such a file stays if its process is killed.

    Args:
        name: The name of the file.

    Example:
        >>> is_part(".part-17-table.md"), is_part(".part-of-my-thesis")
        (True, False)
    """
    return name.startswith(_PART) and name.removeprefix(_PART).partition("-")[0].isdecimal()


def check_place(path: Path) -> None:
    """Make the folder of a file, without the file.

    Args:
        path: The path of the file.

    Raises:
        OSError: If the file cannot be written there.
        ValueError: As for ``check_name``.
    """
    check_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    _refuse_other_than_file(path)


def read_source(path: Path) -> bytes:
    """Return the content of a file, which may be foreign, with the errors of ``check_source``."""
    check_source(path)
    return path.read_bytes()


def check_source(path: Path) -> None:
    """Check that a file can be read; reading a pipe might wait without an end.

    Args:
        path: The path of the file.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: For a folder, a pipe, a socket or a device, and as for ``check_name``.
    """
    check_name(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if is_other_than_file(path):
        raise ValueError(f"{path} is {kind_of(path)}: name a file")


def _refuse_other_than_file(path: Path) -> None:
    """Raise OSError where anything else than a file has the path."""
    if is_other_than_file(path):
        raise OSError(f"{path} cannot be written: it is {kind_of(path)}; name a file")
    if Path(os.path.realpath(path)).parent == Path("/dev"):
        raise OSError(f"{path} cannot be written: /dev is for devices; name a file elsewhere")


def is_other_than_file(path: Path) -> bool:
    """Whether a folder, a pipe, a socket or a device has the path.

    It is one look: between two, another process may put a file in the place of the one before.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        # nothing is there, or what opens it says why it cannot be reached
        return False
    return not stat.S_ISREG(mode)


def kind_of(path: Path) -> str:
    """The kind of an object in the place of a file, as words."""
    kinds = {"a folder": path.is_dir, "a pipe": path.is_fifo, "a socket": path.is_socket}
    return next((kind for kind, is_kind in kinds.items() if is_kind()), "a device")
