"""Whether the files of results folders are what was written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ata_gym.bench.experiment.claim import is_ours
from ata_gym.utils import manifest
from ata_gym.utils.sealed import DamagedError, read_sealed


class Checked(NamedTuple):
    """A file, and what is wrong with it."""

    file: Path
    fault: str  # a sentence, which is empty if the file is whole


def verify(path: Path) -> list[Checked]:
    """Check every file in and below a folder against the manifest of its results folder, or its own checksum.

    Files that ``manifest.LEFT_OUT`` names, and files that are not of ata-gym, are not checked. FileNotFoundError if
    there is no such folder, ValueError if it holds no results.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    rooms = [room for room in (path, *sorted(path.rglob("*"))) if room.is_dir() and is_ours(room)]
    if not rooms:
        raise ValueError(f"{path} holds no results of ata-gym: name the folder that a command got as --out")
    return [checked for room in rooms for checked in _check(room)]


def _check(room: Path) -> list[Checked]:
    whole = room / manifest.NAME
    try:
        listed = manifest.read(room)
    except (DamagedError, OSError) as error:
        return [Checked(whole, str(error) if whole.exists() else "it is missing: bring back a copy of it")]
    found = [Checked(whole, "")]
    for name, sums in listed.items():
        file = room / name
        if file.exists():
            found.append(_read(file, manifest.read_listed))
        elif not manifest.may_be_missing(sums):
            found.append(Checked(file, "it is missing: the same command makes it anew"))
    for file in sorted((room / "checkpoints").glob("*")):
        if file.suffix == ".damaged":
            found.append(Checked(file, "it was set aside, and can be deleted"))
        elif manifest.is_sealed(file.relative_to(room)):
            found.append(_read(file, read_sealed))
    return found


def _read(file: Path, read: Callable[[Path], bytes]) -> Checked:
    try:
        read(file)
    except (DamagedError, OSError) as error:
        return Checked(file, str(error))
    return Checked(file, "")
