"""What is in a file, unpacked: its beginning, to recognise it, and the whole, to read it."""

import codecs
import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from ata_gym.utils.files.atomic import read_source
from ata_gym.utils.files.json_files import parse_object

_FIRST_BYTES = 1 << 18
_GZIP = b"\x1f\x8b"
_LARGEST_OBJECT = 1 << 22
"""Bytes of a JSON file that is parsed to recognise it; logs of events are larger."""


def beginning(path: Path, size: int = _FIRST_BYTES) -> bytes:
    """The first bytes of a file, as ``content_of`` returns them; empty if it cannot be read."""
    content = b""
    if path.is_file():
        with suppress(OSError, EOFError, zlib.error):
            with path.open("rb") as file:
                content = file.read(size)
            if content.startswith(_GZIP):
                content = b""
                with gzip.open(path) as unpacked:
                    content = unpacked.read(size)
    return content.removeprefix(codecs.BOM_UTF8)


def content_of(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is gzip, and without a mark of its encoding.

    Args:
        path: The file.

    Raises:
        ValueError: If it cannot be unpacked.
    """
    content = read_source(path)
    if content.startswith(_GZIP):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"it cannot be unpacked: {error}: copy it again") from error
    return content.removeprefix(codecs.BOM_UTF8)


def lines(path: Path) -> list[str]:
    """The first lines of a text, with a mark in place of what is no UTF-8."""
    return beginning(path).decode("utf-8", errors="replace").splitlines()


def small_object(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty for what is none."""
    with suppress(OSError, ValueError):
        if beginning(path).lstrip().startswith(b"{") and path.stat().st_size <= _LARGEST_OBJECT:
            return parse_object(path.read_bytes())
    return {}
