"""A results folder belongs to one process at a time, which holds a lock of filelock in it.

The lock works on network file systems that support locks. It ends with the process, also where
the process is killed.
"""

import json
import os
import platform
import sys
import weakref
from pathlib import Path

from filelock import FileLock, Timeout

from ata_gym.utils.files import manifest
from ata_gym.utils.files.atomic import check_name, is_part, write_whole
from ata_gym.utils.files.json_files import read_object

LOCK = ".ata-gym.lock"
"""The name of the lock: a folder with this file is a results folder of ata-gym."""
LOCKS = (LOCK, manifest.LOCK)
HOLDER = ".ata-gym.holder.json"
"""The name of the file that says who holds the lock."""


class Claim:
    """An object that holds a folder as long as it lives; a copy in another process holds none."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        weakref.finalize(self, _release, path, lock, os.getpid())

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # A copy in another process must not release the lock: it is unpickled as None.
        return type(None), ()


_claims: weakref.WeakValueDictionary[Path, Claim] = weakref.WeakValueDictionary()


def claim(path: Path) -> Claim:
    """Make a results folder, or take one that ata-gym made, and hold its lock.

    One process may claim a folder several times, and gets the same claim each time.

    Raises:
        ValueError: If ``path`` is a file, holds files that are not of ata-gym or a link that leads
            out, or is in use by another process. Nothing is changed then.
        OSError: If the folder cannot be written.
        DamagedError: If the manifest of the folder is not what was written.
    """
    check_name(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; the results need a folder")
    real_path = Path(os.path.realpath(path))
    folder_claim = _claims.get(real_path)
    if folder_claim is not None:
        return folder_claim
    # First the files, then whether the folder is claimed: another process may claim it at this
    # moment, and the files that it writes must not be taken for foreign ones.
    foreign = path.exists() and any(not is_ours(file) for file in path.iterdir())
    if foreign and not is_ours(path):
        raise ValueError(
            f"{path} holds files that are not of ata-gym: choose a new folder, or an empty one",
        )
    refuse_links_out(path)
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(real_path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"{path} is in use by {_holder(path)}: wait until it ends, or choose another folder",
        ) from None
    folder_claim = _claims[real_path] = Claim(real_path, lock)
    _remove_parts(real_path)
    manifest.begin(real_path)
    holder = {"process": os.getpid(), "host": platform.node(), "command": " ".join(sys.argv)}
    write_whole(
        real_path / HOLDER, lambda part: part.write_text(json.dumps(holder) + "\n", "utf-8")
    )
    return folder_claim


def is_ours(path: Path) -> bool:
    """Return whether a folder was claimed before."""
    return any((path / name).exists() for name in (LOCK, manifest.NAME, "config.json"))


def refuse_links_out(path: Path) -> None:
    """Refuse a results folder in which a folder or a lock is a link that leads out.

    Raises:
        ValueError: If there is such a link, with its name.
    """
    home = os.path.realpath(path)
    # os.walk follows no link, but lists each.
    for folder, subfolders, files in os.walk(path):
        for name in (*subfolders, *(file for file in files if file in LOCKS)):
            entry = Path(folder, name)
            if entry.is_symlink() and not Path(os.path.realpath(entry)).is_relative_to(home):
                raise ValueError(
                    f"{entry} is a link that leads out of {path}: put what it leads to in its"
                    " place",
                )


def _remove_parts(path: Path) -> None:
    """Remove the files that a killed process was filling.

    Results folders inside, which have a lock of their own, keep their files.
    """
    for folder, subfolders, files in os.walk(path):
        # os.walk goes on with the folders that are left in this list.
        subfolders[:] = [name for name in subfolders if not is_ours(Path(folder, name))]
        for name in filter(is_part, files):
            Path(folder, name).unlink(missing_ok=True)


def _release(path: Path, lock: FileLock, process_id: int) -> None:
    # A fork inherits the finalizer of the claim, but holds nothing.
    if os.getpid() == process_id:
        try:
            (path / HOLDER).unlink(missing_ok=True)
        finally:
            lock.release()


def _holder(path: Path) -> str:
    """Name the process that holds a folder, as far as its file says."""
    try:
        holder = read_object(path / HOLDER)
        return f"process {holder['process']} on {holder['host']} ({holder['command']})"
    except (OSError, ValueError, KeyError):
        return "another process"
