"""Files that are written completely or not at all, their names, and the checks of places before they are used."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from urllib.parse import quote

_PART = ".part-"
_LONGEST = 200  # bytes of a name; most file systems take 255, of which endings and ``_PART`` take some


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file beside ``path``, then move it there in one step; every OSError names a file.

    OSError also if ``path`` is a folder, a pipe, a socket or a device, which the step would replace by a file.
    ValueError as of ``check_name``.
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
        if error.filename is None:  # for example, if the disk is full
            raise OSError(f"{path} cannot be written: {error}") from error
        raise
    finally:
        part.unlink(missing_ok=True)


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for a path with bytes that are no UTF-8, which no table, page or other library takes."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"{os.fsencode(path)!r} holds bytes that are no UTF-8: rename it") from None


def file_name(text: str) -> str:
    """A text, percent-encoded and of a length that file systems take: the name of a file or folder, before its ending.

    >>> file_name("my_package:Mine"), file_name(".."), len(file_name(1000 * "x"))
    ('my_package%3AMine', '%2E%2E', 200)
    """
    name = quote(text, safe="", errors="surrogatepass")
    return cut(name if name.strip(".") else name.replace(".", "%2E"))


def cut(name: str) -> str:
    """A name as it is, or its beginning and a checksum where it is longer than that of a file should be."""
    whole = os.fsencode(name)
    if len(whole) <= _LONGEST:
        return name
    digest = hashlib.sha256(whole).hexdigest()[:16]
    return f"{whole[: _LONGEST - len(digest) - 1].decode(errors='ignore')}-{digest}"


def is_part(name: str) -> bool:
    """Whether a file of this name was being filled by ``write_whole`` when its process was killed, or is being filled.

    >>> is_part(".part-17-table.md"), is_part(".part-of-my-thesis")
    (True, False)
    """
    return name.startswith(_PART) and name.removeprefix(_PART).partition("-")[0].isdecimal()


def check_place(path: Path) -> None:
    """Make the folder of a file, without the file; OSError unless the file can be written there.

    ValueError as of ``check_name``.
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
    """The content of a file, which may be foreign; errors are those of ``check_source``."""
    check_source(path)
    return path.read_bytes()


def check_source(path: Path) -> None:
    """Raise FileNotFoundError if there is no file, and ValueError for a folder, a pipe, a socket or a device.

    Reading a pipe might wait without an end. ValueError as of ``check_name``, too.
    """
    check_name(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.is_file():
        raise ValueError(f"{path} is {kind_of(path)}: name a file")


def _refuse_other_than_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise OSError(f"{path} cannot be written: it is {kind_of(path)}; name a file")
    if Path(os.path.realpath(path)).parent == Path("/dev"):
        raise OSError(f"{path} cannot be written: /dev is for devices; name a file elsewhere")


def kind_of(path: Path) -> str:
    """What stands in the place of a file."""
    kinds = {"a folder": path.is_dir, "a pipe": path.is_fifo, "a socket": path.is_socket}
    return next((kind for kind, holds in kinds.items() if holds()), "a device")
