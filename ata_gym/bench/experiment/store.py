"""A results folder: the configuration, a file for each finished policy, and checkpoints of the others.

Every file appears whole or not at all, so a run may be killed at any moment. The manifest has the checksum of each, and
checkpoints carry their own. What other code has made is refused, or removed and made anew.
"""

import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.experiment.claim import Claim, claim, is_ours, refuse_links_out
from ata_gym.bench.experiment.experiment import Config
from ata_gym.bench.experiment.provenance import PROVENANCE, Provenance, changed
from ata_gym.utils import manifest, sealed
from ata_gym.utils.atomic import file_name
from ata_gym.utils.json_files import Rule, parse_object
from ata_gym.utils.manifest import home_of, read_listed, remove_listed, write_listed
from ata_gym.utils.sealed import DamagedError
from ata_gym.utils.tables import reading
from ata_gym.utils.trees import leaves, rebuild

_WORK = {".parquet", ".npz", ".pt", ".previous"}  # endings of results and checkpoints


@dataclass(frozen=True)
class Folder:
    """The results of one experiment; make one with :func:`open_folder`."""

    path: Path
    claim: Claim | None = field(default=None, compare=False, repr=False)  # the lock that keeps other processes out

    def _file(self, room: str, ending: str, policy: str) -> Path:
        return self.path / room / f"{file_name(policy)}.{ending}"

    result = partialmethod(_file, "results", "parquet")  # the records of a finished policy
    allocations = partialmethod(_file, "allocations", "parquet")  # the tasks of the workers of a finished policy
    checkpoint = partialmethod(_file, "checkpoints", "npz")  # where an unfinished policy goes on from
    source = partialmethod(_file, "sources", "py")  # of a policy that was given as a class or an object
    failure = partialmethod(_file, "failures", "txt")  # the traceback of a policy that failed

    def finished(self, policy: str) -> bool:
        """Whether the policy has been played to the last round."""
        return finished(self.result(policy))

    def results(self, policies: list[str]) -> pl.DataFrame:
        """The records of finished policies in one frame, whose columns are those of the run, such as ``run.SCHEMA``."""
        return pl.concat([read_frame(self.result(policy)) for policy in policies])

    def note_timing(self, policy: str, seconds: float, rounds: int) -> None:
        """Keep how long a policy took, apart from the results: these are the same each time, the clock is not."""
        path = self.path / "timings.json"
        try:
            timings = read_json(path) if path.exists() else {}
        except DamagedError as error:
            warnings.warn(f"{error}; a new one is begun", stacklevel=2)
            timings = {}
        timings[policy] = {"seconds": round(seconds, 3), "rounds_per_second": round(rounds / seconds, 1)}
        write_json(path, timings)


def open_folder(path: str | os.PathLike[str], config: Config) -> Folder:
    """Make a results folder, or open one of the same configuration; it is held as long as the returned object lives.

    ValueError as of ``claim``, and if the folder holds the results of another configuration, with what differs.
    """
    if not os.fspath(path):
        raise ValueError("the results need a folder, and its name is empty")
    path, config = Path(path), json.loads(json.dumps(config))  # as it is read back: with lists for tuples
    folder, known = Folder(path, claim(path)), path / "config.json"
    if known.exists() and (other := differences(read_json(known), config)):
        raise ValueError(
            f"{path} holds the results of another configuration: {other}; choose another folder, or delete it"
        )
    for room in (path, path / "results", path / "checkpoints"):
        room.mkdir(exist_ok=True)
    if not known.exists():
        write_json(known, config)
    return folder


@contextmanager
def withdrawn_on_failure(folder: Folder, *quickly_made: Path) -> Iterator[None]:
    """Where the block fails, as ``withdraw_if_empty``, so that a corrected command may follow."""
    try:
        yield
    except Exception:
        withdraw_if_empty(folder, *quickly_made)
        raise


def withdraw_if_empty(folder: Folder, *quickly_made: Path) -> None:
    """Remove the configuration of a folder that holds no work; what is ``quickly_made`` counts as none, and goes."""
    rooms = ("*", "results/*", "checkpoints/*", "rates/**/*")
    work = {file for room in rooms for file in folder.path.glob(room) if file.suffix in _WORK}
    if work <= set(quickly_made):
        for file in quickly_made:
            discard(file)
        remove_listed(folder.path / "config.json")


def differences(there: Config, here: Config) -> str:
    """What differs between two configurations, in words; empty if nothing does."""

    def shown(value: object) -> str:
        return f"{value[:12]}..." if isinstance(value, str) and len(value) == 64 else json.dumps(value)

    keys = [key for key in here | there if there.get(key) != here.get(key)]
    return ", ".join(f"{key} is {shown(there.get(key))} there and {shown(here.get(key))} here" for key in keys)


def save_tree(path: Path, tree: Any) -> None:
    """Write a checkpoint, a tree of arrays, to a ``.npz`` file; the one before is kept."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **{name: np.asarray(leaf) for name, leaf in leaves(tree, "tree")})
    sealed.save_checkpoint(path, content.getvalue())


def load_tree(path: Path, like: Any) -> Any:
    """Read the newest whole checkpoint that :func:`save_tree` wrote, of the form of ``like``; None if there is none."""

    def read(content: bytes) -> Any:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return rebuild(like, [file[name] for name, _ in leaves(like, "tree")])

    return sealed.load_checkpoint(path, read)


def write_frame(path: Path, frame: pl.DataFrame, about: Mapping[str, str]) -> None:
    """Write a Parquet file, and beside it, as JSON, what there is to say about it."""
    content = io.BytesIO()
    frame.write_parquet(content)
    write_frame_content(path, content.getvalue(), about)


def write_frame_content(path: Path, content: bytes, about: Mapping[str, str]) -> None:
    """Write the content of a file that :func:`write_frame` wrote elsewhere, and beside it what there is to say."""
    path.parent.mkdir(exist_ok=True)
    write_listed(path, lambda part: part.write_bytes(content))
    write_json(path.with_suffix(".json"), about)


def begin(path: Path, made_by: Provenance) -> None:
    """Write a note beside a checkpoint that will be made: the code that makes it."""
    write_json(path.with_suffix(".json"), made_by)


def discard(path: Path) -> None:
    """Remove a frame or a checkpoint, with the one before it, and the note beside it."""
    remove_listed(path.with_suffix(".json"))
    remove_listed(path)
    sealed.remove_checkpoint(path)


def finished(path: Path) -> bool:
    """Whether a frame was written to the end."""
    return path.exists() and path.with_suffix(".json").exists()


def read_frame(path: Path) -> pl.DataFrame:
    """Read what :func:`write_frame` wrote; DamagedError if it is something else."""
    try:
        read_provenance(path)
        content = read_listed(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error}); delete it, and the same command makes it anew") from error
    try:
        with reading(f"{path} is damaged"):
            return pl.read_parquet(io.BytesIO(content))
    except ValueError as error:
        raise DamagedError(f"{error}; delete it, and the same command makes it anew") from error


def read_json(path: Path, rule: Rule | None = None) -> dict[str, Any]:
    """Read a JSON object; DamagedError if the file holds none, or another one than was written, or than a rule says."""
    try:
        found = parse_object(read_listed(path))
        if rule is not None:
            rule("", found)
    except DamagedError:
        raise
    except ValueError as error:
        raise DamagedError(f"{path} is damaged ({error}): delete it, and the same command goes on") from error
    return found


def read_provenance(path: Path) -> Provenance:
    """Read what is noted beside a frame or a checkpoint: what made it."""
    return read_json(path.with_suffix(".json"), PROVENANCE)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, whole or not at all."""
    text = json.dumps(content, indent=2) + "\n"
    write_listed(path, lambda part: part.write_bytes(text.encode()))


class Made(NamedTuple):
    """What some code makes: its result and, until that is finished, its checkpoint, each with a JSON file beside it."""

    name: str
    files: tuple[Path, ...]
    by: Provenance  # the provenance that it would have now

    def changed(self) -> str | None:
        """A phrase that names the code that has changed since it was made or begun; None if it is the same."""
        begun = [file for file in self.files if sealed.has_checkpoint(file)]
        noted = next((file for file in begun if file.with_suffix(".json").exists()), None)
        return None if noted is None else changed(read_provenance(noted), self.by, self.name)


def check_code(everything: Iterable[Made], rerun_changed: bool) -> None:
    """Refuse what other code has made with a ValueError that names the results and the modules, or remove it."""
    old = [(made, what) for made in everything if (what := made.changed())]
    if old and not rerun_changed:
        names: dict[str, dict[str, None]] = {}
        for made, what in old:
            names.setdefault(what, {})[made.name] = None
        said = "; ".join(
            f"{what} has changed since the results of {', '.join(those)} were made" for what, those in names.items()
        )
        where, others = home_of(old[0][0].files[0]), "which keeps all others, or choose another folder"
        raise ValueError(
            f"in {where}: {said}: make these anew with --rerun-changed (in Python rerun_changed=True), {others}"
        )
    for made, _ in old:
        for file in made.files:
            discard(file)


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
        refuse_links_out(room)
        listed = manifest.read(room)
    except (ValueError, OSError) as error:
        return [Checked(whole, str(error) if whole.exists() else "it is missing: bring back a copy of it")]
    found = [Checked(whole, "")]
    for name, sums in listed.items():
        file = room / name
        if file.exists():
            found.append(_read(file, read_listed))
        elif not manifest.may_be_missing(sums):
            found.append(Checked(file, "it is missing: the same command makes it anew"))
    for file in sorted((room / "checkpoints").glob("*")):
        if file.suffix == ".damaged":
            found.append(Checked(file, "it was set aside, and can be deleted"))
        elif manifest.is_sealed(file.relative_to(room)):
            found.append(_read(file, sealed.read_sealed))
    return found


def _read(file: Path, read: Callable[[Path], bytes]) -> Checked:
    try:
        read(file)
    except (DamagedError, OSError) as error:
        return Checked(file, str(error))
    return Checked(file, "")
