"""A folder for results belongs to one process at a time, which holds a lock of filelock in it.

The lock works on network file systems as far as these do, and it ends with the process, however that ends.
"""

import json
import os
import platform
import sys
import weakref
from pathlib import Path

from filelock import FileLock, Timeout

from ata_gym.utils import manifest
from ata_gym.utils.atomic import check_name, is_part, write_whole
from ata_gym.utils.json_files import read_object

LOCK = ".ata-gym.lock"  # a folder with this file is one of ata-gym
LOCKS = (LOCK, manifest.LOCK)
HOLDER = ".ata-gym.holder.json"  # this file says who holds the lock


class Claim:
    """An object that holds a folder as long as it lives; a copy in another process holds none."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        weakref.finalize(self, _release, path, lock, os.getpid())

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


_claims: weakref.WeakValueDictionary[Path, Claim] = weakref.WeakValueDictionary()


def claim(path: Path) -> Claim:
    """Make a folder for results, or take one of ata-gym, and hold its lock. One process may claim it several times.

    ValueError if ``path`` is a file, holds files that are not of ata-gym or a link that leads out, or is in use by
    another process, with nothing changed; OSError if it cannot be written; DamagedError if its manifest is not what was
    written.
    """
    check_name(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; the results need a folder")
    place = Path(os.path.realpath(path))
    mine = _claims.get(place)
    if mine is not None:
        return mine
    foreign = path.exists() and any(not is_ours(file) for file in path.iterdir())
    if foreign and not is_ours(path):  # in this order, since another process may claim it at this moment
        raise ValueError(f"{path} holds files that are not of ata-gym: choose a new folder, or an empty one")
    refuse_links_out(path)
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{path} is in use by {_holder(path)}: wait until it ends, or choose another folder") from None
    mine = _claims[place] = Claim(place, lock)
    _remove_parts(place)
    manifest.begin(place)
    holder = {"process": os.getpid(), "host": platform.node(), "command": " ".join(sys.argv)}
    write_whole(place / HOLDER, lambda part: part.write_text(json.dumps(holder) + "\n", "utf-8"))
    return mine


def is_ours(path: Path) -> bool:
    """Whether a folder was claimed before."""
    return any((path / name).exists() for name in (LOCK, manifest.NAME, "config.json"))


def refuse_links_out(path: Path) -> None:
    """ValueError if a folder inside a results folder, or a lock of it, is a link that leads out of it."""
    home = os.path.realpath(path)
    for folder, inner, files in os.walk(path):  # it follows no link
        for name in (*inner, *(file for file in files if file in LOCKS)):
            place = Path(folder, name)
            if place.is_symlink() and not Path(os.path.realpath(place)).is_relative_to(home):
                raise ValueError(f"{place} is a link that leads out of {path}: put what it leads to in its place")


def _remove_parts(path: Path) -> None:
    """Remove the files that a killed process was filling; folders inside that are claimed themselves keep theirs."""
    for folder, inner, files in os.walk(path):
        inner[:] = [name for name in inner if not is_ours(Path(folder, name))]
        for name in filter(is_part, files):
            Path(folder, name).unlink(missing_ok=True)


def _release(path: Path, lock: FileLock, holder: int) -> None:
    if os.getpid() == holder:  # a fork holds nothing
        try:
            (path / HOLDER).unlink(missing_ok=True)
        finally:
            lock.release()


def _holder(path: Path) -> str:
    try:
        holder = read_object(path / HOLDER)
        return f"process {holder['process']} on {holder['host']} ({holder['command']})"
    except (OSError, ValueError, KeyError):
        return "another process"
