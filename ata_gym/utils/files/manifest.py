"""The checksums of the files of a results folder, each in one of two places.

Most files are listed in the manifest of the folder, as lines of ``sha256sum``. Other programs read
these files, so nothing may follow their content, and a list alone can tell that a file is missing.
A file belongs to the nearest folder above it that has a manifest; other files are written without
one. A process may be killed at any moment, so every change of a listed file has three steps: the
manifest gets the new checksum beside the old one, the file changes, and the old checksum is
removed.

Checkpoints, and the manifest itself, end with their checksum (see ``sealed``). A checkpoint is
replaced every few seconds, each time with the one before it, and with a list each time would be two
more changes of a manifest that all processes of a run share. A checkpoint is also written where
there is no manifest, and copied without one.

Files that differ from run to run have no checksum: measured times, pages that show them, logs and
locks.
"""

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from ata_gym.utils.files.atomic import write_whole
from ata_gym.utils.files.sealed import (
    DamagedError,
    checksum,
    read_file,
    read_sealed,
    write_sealed,
)

NAME = "ata-gym.sha256"
"""The name of the manifest in a results folder."""

UNLISTED = ("timings.json", "timings.md", "report.html", "tensorboard/*")
"""Files of a results folder without a checksum, as are files whose names begin with a dot."""

SEALED = ("checkpoints/*.npz", "checkpoints/*.pt", "checkpoints/*.previous")
"""Files of a results folder that end with their checksum."""

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
    folder = results_folder_of(path)
    if folder is None or not _is_listed(path.relative_to(folder)):
        write_whole(path, write)
        return
    new_sums: list[str] = []

    def fill(part: Path) -> None:
        """Fill the file, and list its checksum beside the old one before it gets its place."""
        write(part)
        new_sums.append(checksum(part.read_bytes()))
        _change(folder, path, lambda sums: [*(sums or [_ABSENT]), *new_sums])

    write_whole(path, fill)
    _change(folder, path, lambda _: new_sums)


def remove_listed(path: Path) -> None:
    """Remove a file, if it exists, from its folder and from the manifest."""
    folder = results_folder_of(path)
    if folder is None or path.relative_to(folder).as_posix() not in read(folder):
        path.unlink(missing_ok=True)
        return
    _change(folder, path, lambda sums: [*sums, _ABSENT])
    path.unlink(missing_ok=True)
    _change(folder, path, lambda _: [])


def read_checked(path: Path) -> bytes:
    """Return the content of a file, checked by its checksum, which is not a part of it.

    A file without a checksum, as in a folder without a manifest, is returned as it is.

    Args:
        path: The path of the file.

    Raises:
        DamagedError: If the file does not have its checksum.
    """
    folder = results_folder_of(path)
    if folder is None:
        return read_file(path)
    name = path.relative_to(folder)
    if _matches(name, SEALED):
        return read_sealed(path)
    if not _is_listed(name):
        return read_file(path)
    previous = None
    # A file that changes between the two readings is read again: the manifest has changed then.
    while True:
        sums = read(folder).get(name.as_posix(), [])
        content = read_file(path)
        if checksum(content) in sums:
            return content
        if sums == previous:
            raise DamagedError(
                f"{path} is damaged: it does not have the checksum that was written with it; delete"
                " it, and the same command makes it anew",
            )
        previous = sums


def checked_files(folder: Path) -> dict[Path, bool]:
    """The files of a folder that have a checksum, and of each whether it may be missing.

    A listed file may be missing if it was about to change when its process was killed.

    Args:
        folder: The results folder.

    Raises:
        DamagedError: If the manifest does not have its own checksum.
    """
    listed = {folder / name: _ABSENT in sums for name, sums in read(folder).items()}
    sealed = sorted(file for pattern in SEALED for file in folder.glob(pattern))
    return listed | dict.fromkeys(sealed, True)


def results_folder_of(path: Path) -> Path | None:
    """The nearest folder above a file that has a manifest; None if there is none in its path."""
    return next((folder for folder in path.parents if (folder / NAME).exists()), None)


def _is_listed(name: Path) -> bool:
    """Whether the manifest lists a file of this path in its folder, or would list it."""
    is_hidden = any(part.startswith(".") for part in name.parts)
    return not (is_hidden or name.name == NAME or _matches(name, UNLISTED + SEALED))


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
    lines: list[str] = []
    for name in sorted(manifest):
        lines += [f"{digest}  {name}\n" for digest in manifest[name]]
    write_sealed(folder / NAME, "".join(lines).encode())


def _change(folder: Path, path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Change the checksums of a file in a manifest; a file without any is not listed."""
    from filelock import FileLock  # noqa: PLC0415 - the extra bench has it, and makes all manifests

    name = path.relative_to(folder).as_posix()
    with FileLock(folder / LOCK):
        manifest = read(folder)
        manifest[name] = list(dict.fromkeys(change(manifest.get(name, []))))
        _write(folder, {name: sums for name, sums in manifest.items() if sums})


def _settled(path: Path, sums: list[str]) -> list[str]:
    """The checksum that a file has, of these; all of them if it has none of them."""
    if not path.exists():
        return []
    if len(sums) == 1 or not path.is_file():
        return sums
    actual = checksum(path.read_bytes())
    if actual in sums:
        return [actual]
    return sums


def _matches(name: Path, patterns: tuple[str, ...]) -> bool:
    """Whether a path fits one of some patterns."""
    return any(fnmatch(name.as_posix(), pattern) for pattern in patterns)
