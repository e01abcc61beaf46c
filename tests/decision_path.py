"""Through which folders a reader follows a call: the functions of this project that it enters, in their order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import ata_gym
import ata_policies

ROOTS = [Path(package.__file__).parent for package in (ata_gym, ata_policies)]
GROUND = ROOTS[0] / "utils"
"""What all rooms stand on: arrays that are checked, kernels that are called. No reader follows a decision into it."""


class Entry(NamedTuple):
    """A call from a function in one folder to a function in another one."""

    caller: str
    folder: str
    function: str


def followed(call: Callable[[], Any]) -> tuple[Any, list[Entry]]:
    """What a call returns, and its steps from one folder into another one; those that repeat the one before count once.

    A kernel has no frame, so calling it is part of the line that calls it. Coming back to the caller is no step, since
    its reader has never left it.
    """
    found: list[Entry] = []

    def follow(frame: FrameType, event: str, _: object) -> None:
        folder = _folder(frame.f_code.co_filename)
        if event != "call" or not folder:
            return
        above = frame.f_back
        while above is not None and not _folder(above.f_code.co_filename):
            above = above.f_back
        entry = Entry(_folder(above.f_code.co_filename) if above else "", folder, frame.f_code.co_qualname)
        if entry.caller != folder and (not found or found[-1][:2] != entry[:2]):
            found.append(entry)

    sys.setprofile(follow)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, found


def folders_and_returns(path: list[Entry]) -> tuple[int, int]:
    """How many folders a path enters, and how often it enters one that it has entered before."""
    number = len({entry.folder for entry in path})
    return number, len(path) - number


@cache
def _folder(source: str) -> str:
    """The folder of a source file of this project, from its package on; nothing for all other files."""
    folder = Path(source).parent
    root = next((root for root in ROOTS if folder.is_relative_to(root)), None)
    if root is None or folder.is_relative_to(GROUND):
        return ""
    return folder.relative_to(root.parent).as_posix()
