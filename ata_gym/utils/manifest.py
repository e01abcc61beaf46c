"""The manifest of a results folder: the checksums of its files, as lines of ``sha256sum``.

A process may be killed at any moment. So every change of a file has three steps: the manifest gets
the new checksum beside the old one, the file changes, and the old checksum is removed. A file
belongs to the nearest folder above it that has a manifest; other files are written without one.

Checkpoints are not listed, since they are replaced every few seconds, and each holds its own
checksum (see ``sealed``). Files that differ from run to run are not listed either: measured times,
pages that show them, logs and locks.
"""

import hashlib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from ata_gym.utils.atomic import write_whole
from ata_gym.utils.sealed import DamagedError, read_kept, read_sealed, write_sealed

NAME = "ata-gym.sha256"
"""The name of the manifest in a results folder."""

LEFT_OUT = ("timings.json", "report.html", "tensorboard/*")
"""Files of a results folder that are not listed, nor are files whose names begin with a dot."""

SEALED = ("checkpoints/*.npz", "checkpoints/*.pt", "checkpoints/*.previous")
"""Files of a results folder that hold their own checksum."""

LOCK = ".ata-gym.sums.lock"
"""The manifest changes under this lock."""
_ABSENT = "-"  # stands in place of a checksum while the file may be missing

Manifest = dict[str, list[str]]
"""The checksums of each file by its path in the folder: one, or two while it changes."""


def begin(folder: Path) -> None:
    """Give a folder a manifest, or repair the manifest that a killed process left.

    No other process may be writing there.

    Args:
        folder: The results folder.
    """
    if not (folder / NAME).exists():
        _write(folder, {})
        return
    manifest = read(folder)
    settled = {
        name: settled_sums
        for name, sums in manifest.items()
        if (settled_sums := _settled(folder / name, sums))
    }
    if settled != manifest:
        _write(folder, settled)


def write_listed(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file as ``write_whole`` does, and list it in the manifest of its folder, if any.

    Args:
        path: The path of the file.
        write: Called with the path of the file to fill.
    """
    if (home := _home_of_listed(path)) is None:
        write_whole(path, write)
        return
    new_sums: list[str] = []

    def fill(part: Path) -> None:
        """Fill the file, and list its checksum beside the old one before it gets its place."""
        write(part)
        new_sums.append(_sum(part))
        _change(home, path, lambda sums: [*(sums or [_ABSENT]), *new_sums])

    write_whole(path, fill)
    _change(home, path, lambda _: new_sums)


def remove_listed(path: Path) -> None:
    """Remove a file, if it exists, from its folder and from the manifest."""
    home = home_of(path)
    if home is None or path.relative_to(home).as_posix() not in read(home):
        path.unlink(missing_ok=True)
        return
    _change(home, path, lambda sums: [*sums, _ABSENT])
    path.unlink(missing_ok=True)
    _change(home, path, lambda _: [])


def read_listed(path: Path) -> bytes:
    """Return the content of a file, checked by the manifest of its folder, if there is one.

    Args:
        path: The path of the file.

    Raises:
        DamagedError: If the file does not have a checksum of the manifest.
    """
    if (home := _home_of_listed(path)) is None:
        return read_kept(path)
    name = path.relative_to(home).as_posix()
    previous = None
    # A file that changes between the two readings is read again: the manifest has changed then.
    while True:
        sums = read(home).get(name, [])
        content = read_kept(path)
        if hashlib.sha256(content).hexdigest() in sums:
            return content
        if sums == previous:
            raise DamagedError(
                f"{path} is damaged: it does not have the checksum that was written with it; delete"
                " it, and the same command makes it anew",
            )
        previous = sums


def may_be_missing(sums: list[str]) -> bool:
    """Whether a file with these checksums may be missing.

    It may be missing if it was about to change when its process was killed.

    Args:
        sums: The checksums of the file in the manifest.
    """
    return _ABSENT in sums


def home_of(path: Path) -> Path | None:
    """The nearest folder above a file that has a manifest; None if there is none in its path."""
    return next((folder for folder in path.parents if (folder / NAME).exists()), None)


def _home_of_listed(path: Path) -> Path | None:
    """The folder whose manifest lists a file, or would list it; None if there is none."""
    home = home_of(path)
    name = path.relative_to(home or path.parent)
    hidden = any(part.startswith(".") for part in name.parts)
    if hidden or name.name == NAME or _matches(name, LEFT_OUT + SEALED):
        return None
    return home


def is_sealed(name: Path) -> bool:
    """Whether a file of this path in a results folder holds its own checksum."""
    return _matches(name, SEALED)


def read(folder: Path) -> Manifest:
    """Return the manifest of a folder.

    Args:
        folder: The results folder.

    Raises:
        DamagedError: If the manifest does not have its own checksum.
    """
    path = folder / NAME
    try:
        text = read_sealed(path).decode()
    except (DamagedError, UnicodeDecodeError) as error:
        raise DamagedError(
            f"{path} is damaged, so that nothing says whether the other files are whole ({error}):"
            " bring back a copy of it, or choose another folder",
        ) from error
    manifest: Manifest = {}
    for line in text.splitlines():
        digest, _, name = line.partition("  ")
        manifest.setdefault(name, []).append(digest)
    return manifest


def _write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder."""
    lines = [f"{digest}  {name}\n" for name in sorted(manifest) for digest in manifest[name]]
    write_sealed(folder / NAME, "".join(lines).encode())


def _change(home: Path, path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Change the checksums of a file in a manifest; a file without any is not listed."""
    from filelock import FileLock  # noqa: PLC0415 - the extra bench has it, and makes all manifests

    name = path.relative_to(home).as_posix()
    with FileLock(home / LOCK):
        manifest = read(home)
        manifest[name] = list(dict.fromkeys(change(manifest.get(name, []))))
        _write(home, {name: sums for name, sums in manifest.items() if sums})


def _settled(path: Path, sums: list[str]) -> list[str]:
    """The checksum that a file has, of these; all of them if it has none of them."""
    if not path.exists():
        return []
    if len(sums) == 1 or not path.is_file():
        return sums
    checksum = _sum(path)
    if checksum in sums:
        return [checksum]
    return sums


def _matches(name: Path, patterns: tuple[str, ...]) -> bool:
    """Whether a path fits one of some patterns."""
    return any(fnmatch(name.as_posix(), pattern) for pattern in patterns)


def _sum(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
