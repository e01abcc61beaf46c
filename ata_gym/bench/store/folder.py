"""A results folder: the configuration, a file for each finished policy, and checkpoints.

Every file appears whole or not at all, so a run may be killed at any moment. The manifest has the
checksum of each, and checkpoints carry their own. What other code has made is refused, or removed
and made anew.
"""

import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.experiment import Config
from ata_gym.bench.store.claim import Claim, claim, is_ours, refuse_links_out
from ata_gym.bench.store.provenance import PROVENANCE, Provenance, changed
from ata_gym.utils.files import manifest, sealed
from ata_gym.utils.files.atomic import file_name
from ata_gym.utils.files.json_files import Rule, parse_object
from ata_gym.utils.files.manifest import (
    read_checked,
    remove_listed,
    results_folder_of,
    write_listed,
)
from ata_gym.utils.files.sealed import DamagedError
from ata_gym.utils.files.tables import reading
from ata_gym.utils.trees import leaves, rebuild

_WORK_ENDINGS = {".parquet", ".npz", ".pt", ".previous"}  # endings of results and checkpoints


@dataclass(frozen=True)
class Folder:
    """The results of one experiment; make one with :func:`open_folder`."""

    path: Path
    claim: Claim | None = field(default=None, compare=False, repr=False)
    """The lock that keeps other processes out; None where results are only read."""

    def _file(self, subfolder: str, ending: str, policy: str) -> Path:
        return self.path / subfolder / f"{file_name(policy)}.{ending}"

    result = partialmethod(_file, "results", "parquet")
    """The path of the records of a finished policy."""
    allocations = partialmethod(_file, "allocations", "parquet")
    """The path of the tasks of the workers of a finished policy."""
    checkpoint = partialmethod(_file, "checkpoints", "npz")
    """The path of the checkpoint from which an unfinished policy goes on."""
    source = partialmethod(_file, "sources", "py")
    """The path of the source of a policy that was given as a class or an object."""
    failure = partialmethod(_file, "failures", "txt")
    """The path of the traceback of a policy that failed."""

    def finished(self, policy: str) -> bool:
        """Return whether the policy has been played to the last round."""
        return finished(self.result(policy))

    def results(self, policies: list[str]) -> pl.DataFrame:
        """Read the records of finished policies into one frame.

        Its columns are the schema of what played them, such as ``run.SCHEMA``.

        Raises:
            DamagedError: If a file is not what was written.
        """
        return pl.concat([read_frame(self.result(policy)) for policy in policies])

    def note_timing(self, policy: str, seconds: float, rounds: int) -> None:
        """Keep how long a policy took, in a file of its own.

        It is not among the results, which are the same each time, while the clock is not.

        Args:
            policy: The policy's name.
            seconds: The seconds spent playing.
            rounds: The rounds played in all seeds together.
        """
        path = self.path / "timings.json"
        try:
            if path.exists():
                timings = read_json(path)
            else:
                timings = {}
        except DamagedError as error:
            warnings.warn(f"{error}; a new one is begun", stacklevel=2)
            timings = {}
        timings[policy] = {
            "seconds": round(seconds, 3),
            "rounds_per_second": round(rounds / seconds, 1),
        }
        write_json(path, timings)


def open_folder(path: str | os.PathLike[str], config: Config) -> Folder:
    """Make a results folder, or open one of the same configuration.

    No other process can have it as long as the returned object lives.

    Raises:
        ValueError: If ``claim`` refuses the folder, or it holds the results of another
            configuration, with what differs.
        OSError: If the folder cannot be written.
        DamagedError: If a file of the folder is not what was written.
    """
    if not os.fspath(path):
        raise ValueError("the results need a folder, and its name is empty")
    path = Path(path)
    # In the form in which it is read back, with lists in place of tuples.
    config = json.loads(json.dumps(config))
    folder = Folder(path, claim(path))
    config_path = path / "config.json"
    if config_path.exists() and (difference := differences(read_json(config_path), config)):
        raise ValueError(
            f"{path} holds the results of another configuration: {difference}; choose another"
            " folder, or delete it",
        )
    for subfolder in (path, path / "results", path / "checkpoints"):
        subfolder.mkdir(exist_ok=True)
    if not config_path.exists():
        write_json(config_path, config)
    return folder


@contextmanager
def withdrawn_on_failure(folder: Folder, *quickly_made: Path) -> Iterator[None]:
    """Do as ``withdraw_if_empty`` where the block fails, so that a corrected command may follow."""
    try:
        yield
    except Exception:
        withdraw_if_empty(folder, *quickly_made)
        raise


def withdraw_if_empty(folder: Folder, *quickly_made: Path) -> None:
    """Remove the configuration of a folder that holds no results and no checkpoints.

    The files of ``quickly_made`` do not count, and are removed with it.
    """
    patterns = ("*", "results/*", "checkpoints/*", "rates/**/*")
    work_files = {
        file
        for pattern in patterns
        for file in folder.path.glob(pattern)
        if file.suffix in _WORK_ENDINGS
    }
    if work_files <= set(quickly_made):
        for file in quickly_made:
            discard(file)
        remove_listed(folder.path / "config.json")


def differences(kept: Config, current: Config) -> str:
    """Say what differs between two configurations, in words; empty if nothing does."""

    def shown(value: object) -> str:
        # A text of this length is a hash, of which the beginning is enough.
        if isinstance(value, str) and len(value) == 64:
            return f"{value[:12]}..."
        return json.dumps(value)

    keys = [key for key in current | kept if kept.get(key) != current.get(key)]
    return ", ".join(
        f"{key} is {shown(kept.get(key))} there and {shown(current.get(key))} here" for key in keys
    )


def save_tree(path: Path, tree: Any) -> None:
    """Write a checkpoint, a tree of arrays, to a ``.npz`` file; the one before is kept."""
    content = io.BytesIO()
    arrays = {name: np.asarray(leaf) for name, leaf in leaves(tree, "tree")}
    np.savez(content, allow_pickle=False, **arrays)
    sealed.save_checkpoint(path, content.getvalue())


def load_tree(path: Path, like: Any) -> Any:
    """Read the newest whole checkpoint that :func:`save_tree` wrote; None if there is none.

    Args:
        path: The file.
        like: A tree of the form of the one that was written.
    """

    def read(content: bytes) -> Any:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return rebuild(like, [file[name] for name, _ in leaves(like, "tree")])

    return sealed.load_checkpoint(path, read)


def write_frame(path: Path, frame: pl.DataFrame, about: Mapping[str, str]) -> None:
    """Write a frame as a Parquet file, and ``about`` as a JSON file beside it."""
    content = io.BytesIO()
    frame.write_parquet(content)
    write_frame_content(path, content.getvalue(), about)


def write_frame_content(path: Path, content: bytes, about: Mapping[str, str]) -> None:
    """Write the content of a Parquet file that was made elsewhere, and ``about`` beside it."""
    path.parent.mkdir(exist_ok=True)
    write_listed(path, lambda part: part.write_bytes(content))
    # The JSON file comes last, since it says that the frame was written to the end.
    write_json(path.with_suffix(".json"), about)


def begin(path: Path, made_by: Provenance) -> None:
    """Write a note beside a checkpoint that will be made: the code that makes it."""
    write_json(path.with_suffix(".json"), made_by)


def discard(path: Path) -> None:
    """Remove a frame, or a checkpoint and the one before it, with the note beside it."""
    remove_listed(path.with_suffix(".json"))
    remove_listed(path)
    sealed.remove_checkpoint(path)


def finished(path: Path) -> bool:
    """Return whether a frame was written to the end."""
    return path.exists() and path.with_suffix(".json").exists()


def read_frame(path: Path) -> pl.DataFrame:
    """Read the frame that :func:`write_frame` wrote.

    Raises:
        DamagedError: If it cannot be read, or is not what was written.
    """
    try:
        read_provenance(path)
        content = read_checked(path)
    except OSError as error:
        raise DamagedError(
            f"{path} cannot be read ({error}); delete it, and the same command makes it anew",
        ) from error
    try:
        with reading(f"{path} is damaged"):
            return pl.read_parquet(io.BytesIO(content))
    except ValueError as error:
        raise DamagedError(f"{error}; delete it, and the same command makes it anew") from error


def read_json(path: Path, rule: Rule | None = None) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        rule: A rule that the object must follow.

    Raises:
        DamagedError: If the file holds no object, or another one than was written, or one that does
            not follow the rule.
    """
    try:
        content = parse_object(read_checked(path))
        if rule is not None:
            rule("", content)
    except DamagedError:
        raise
    except ValueError as error:
        raise DamagedError(
            f"{path} is damaged ({error}): delete it, and the same command goes on",
        ) from error
    return content


def read_provenance(path: Path) -> Provenance:
    """Read the provenance that is noted beside a frame or a checkpoint.

    Raises:
        DamagedError: If the note is not what was written, or no provenance.
    """
    return read_json(path.with_suffix(".json"), PROVENANCE)


def origin(files: Iterable[Path]) -> list[tuple[str, str]]:
    """Return versions, commit and machine, as noted beside results.

    Where the notes differ, all values are there.
    """
    notes = [read_provenance(file) for file in files]
    keys: dict[str, None] = {}
    for note in notes:
        keys |= dict.fromkeys(note)
    keys.pop("code", None)
    facts = []
    for key in keys:
        values = dict.fromkeys(str(note.get(key, "-")) for note in notes)
        facts.append((key, "; ".join(values)))
    return facts


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    text = json.dumps(content, indent=2) + "\n"
    write_listed(path, lambda part: part.write_bytes(text.encode()))


class Product(NamedTuple):
    """What some code makes: results and checkpoints, each with a JSON file beside it."""

    name: str
    """The name of what makes it, such as a policy."""
    files: tuple[Path, ...]
    """The result and, until that is finished, the checkpoint."""
    by: Provenance
    """The provenance that it would have now."""

    def changed(self) -> str | None:
        """Name the code that has changed since it was made or begun; None if none has."""
        begun_files = [file for file in self.files if sealed.has_checkpoint(file)]
        noted_file = next(
            (file for file in begun_files if file.with_suffix(".json").exists()), None
        )
        if noted_file is None:
            return None
        return changed(read_provenance(noted_file), self.by, self.name)


def check_code(everything: Iterable[Product], rerun_changed: bool) -> None:
    """Refuse what other code has made, or remove it, so that it is made anew.

    Args:
        everything: What is there, or will be made.
        rerun_changed: Whether it is removed.

    Raises:
        ValueError: If other code has made something, unless it is removed. The message names the
            results and the modules.
    """
    old = [(product, code) for product in everything if (code := product.changed())]
    if old and not rerun_changed:
        names_by_code: dict[str, dict[str, None]] = {}
        for product, code in old:
            names_by_code.setdefault(code, {})[product.name] = None
        text = "; ".join(
            f"{code} has changed since the results of {', '.join(names)} were made"
            for code, names in names_by_code.items()
        )
        folder = results_folder_of(old[0][0].files[0])
        advice = "which keeps all others, or choose another folder"
        raise ValueError(
            f"in {folder}: {text}: make these anew with --rerun-changed (in Python"
            f" rerun_changed=True), {advice}",
        )
    for product, _ in old:
        for file in product.files:
            discard(file)


class CheckedFile(NamedTuple):
    """A file, and what is wrong with it."""

    file: Path
    fault: str
    """A sentence, which is empty if the file is whole."""


def verify(path: Path) -> list[CheckedFile]:
    """Check every file in and below a folder against its checksum.

    The checksum of a file is in the manifest of its results folder, or in the file itself. Files
    that ``manifest.UNLISTED`` names, and files that are not of ata-gym, are not checked.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it holds no results.
    """
    if not path.is_dir():
        raise FileNotFoundError(f"there is no folder {path}")
    results_folders = [
        folder for folder in (path, *sorted(path.rglob("*"))) if folder.is_dir() and is_ours(folder)
    ]
    if not results_folders:
        raise ValueError(
            f"{path} holds no results of ata-gym: name the folder that a command got as --out",
        )
    return [checked for folder in results_folders for checked in _check(folder)]


def _check(folder: Path) -> list[CheckedFile]:
    """Check the manifest of one results folder, the files in it, and its checkpoints."""
    manifest_path = folder / manifest.NAME
    try:
        refuse_links_out(folder)
        files = manifest.checked_files(folder)
    except (ValueError, OSError) as error:
        if manifest_path.exists():
            fault = str(error)
        else:
            fault = "it is missing: bring back a copy of it"
        return [CheckedFile(manifest_path, fault)]
    results = [CheckedFile(manifest_path, "")]
    for file, may_be_missing in files.items():
        if file.exists():
            results.append(_read(file))
        elif not may_be_missing:
            results.append(CheckedFile(file, "it is missing: the same command makes it anew"))
    return results + [
        CheckedFile(file, "it was set aside, and can be deleted")
        for file in sorted((folder / "checkpoints").glob("*.damaged"))
    ]


def _read(file: Path) -> CheckedFile:
    """Read a file, which checks it, and say what is wrong with it."""
    try:
        read_checked(file)
    except (DamagedError, OSError) as error:
        return CheckedFile(file, str(error))
    return CheckedFile(file, "")
