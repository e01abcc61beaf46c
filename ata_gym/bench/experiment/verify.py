"""Whether the files of results folders are what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ata_gym.bench.experiment.claim import is_ours
from ata_gym.bench.experiment.store import check_frame, finished, read_json
from ata_gym.utils.sealed import DamagedError, read_sealed

_PLAIN = ("config.json", "timings.json", "about.json")


class Checked(NamedTuple):
    """A file, and what is wrong with it."""

    file: Path
    fault: str
    """Empty if it is whole."""


def verify(path: Path) -> list[Checked]:
    """Check every file in and below a folder that has a checksum or is read again.

    These are the records of policies, methods and training, with their notes; checkpoints, weights and configurations.
    Tables and pictures are made from these, and are not checked.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.
    ValueError
        If it holds no results.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    rooms = [room for room in (path, *sorted(path.rglob("*"))) if room.is_dir() and is_ours(room)]
    if not rooms:
        raise ValueError(f"{path} holds no results of ata-gym: name the folder that a command got as --out")
    files = dict.fromkeys(file for room in rooms for file in sorted(room.rglob("*")) if file.is_file())
    return [checked for file in files for checked in _check(file)]


def _check(file: Path) -> Iterator[Checked]:
    try:
        if file.suffix == ".parquet" and finished(file):
            check_frame(file)
        elif file.suffix in {".npz", ".pt", ".previous"}:
            read_sealed(file)
        elif file.name in _PLAIN or (file.parent.name == "checkpoints" and file.suffix == ".json"):
            read_json(file)
        elif file.suffix != ".damaged":
            return
    except (DamagedError, OSError) as error:
        yield Checked(file, str(error))
    else:
        yield Checked(file, "it was set aside, and can be deleted" if file.suffix == ".damaged" else "")
