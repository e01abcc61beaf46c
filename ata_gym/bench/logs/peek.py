"""A first look at a file, to recognise it: little is read, and nothing is raised."""

import gzip
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from ata_gym.utils.files.json_files import parse_object

_FIRST_BYTES = 1 << 18
_LARGEST_OBJECT = 1 << 22
"""Bytes of a JSON file that is parsed to recognise it; logs of events are larger."""


def beginning(path: Path) -> bytes:
    """The first bytes of a file, unpacked if it is gzip; empty if it cannot be read."""
    if not path.is_file():
        return b""
    with suppress(OSError, EOFError, zlib.error):
        with path.open("rb") as file:
            content = file.read(_FIRST_BYTES)
        if not content.startswith(b"\x1f\x8b"):
            return content
        with gzip.open(path) as unpacked:
            return unpacked.read(_FIRST_BYTES)
    return b""


def lines(path: Path) -> list[str]:
    """The first lines of a text, with a mark in place of what is no UTF-8."""
    return beginning(path).decode("utf-8", errors="replace").splitlines()


def small_object(path: Path) -> dict[str, Any]:
    """The object in a small JSON file; empty for what is none."""
    with suppress(OSError, ValueError):
        if beginning(path).lstrip().startswith(b"{") and path.stat().st_size <= _LARGEST_OBJECT:
            return parse_object(path.read_bytes())
    return {}
