"""A results folder: the configuration, a file for each finished policy, and checkpoints of the others.

Every file appears whole or not at all, so a run may be killed at any moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import Config
from ata_gym.utils.atomic import write_whole
from ata_gym.utils.trees import leaves, rebuild


@dataclass(frozen=True)
class Folder:
    """The results of one experiment; make one with :func:`open_folder`."""

    path: Path

    def result(self, policy: str) -> Path:
        """Where the records of a finished policy are."""
        return self._file("results", policy, "parquet")

    def checkpoint(self, policy: str) -> Path:
        """Where an unfinished policy goes on from."""
        return self._file("checkpoints", policy, "npz")

    def failure(self, policy: str) -> Path:
        """Where the traceback of a policy that failed is."""
        return self._file("failures", policy, "txt")

    def _file(self, room: str, policy: str, ending: str) -> Path:
        return self.path / room / f"{quote(policy, safe='')}.{ending}"

    def finished(self, policy: str) -> bool:
        """Whether the policy has been played to the last round."""
        return self.result(policy).exists()

    def results(self, policies: list[str]) -> pl.DataFrame:
        """Records of finished policies, one below the other; the columns are those of ``run.SCHEMA``."""
        return pl.concat([read_frame(self.result(policy)) for policy in policies])

    def note_timing(self, policy: str, seconds: float, rounds: int) -> None:
        """Keep how long a policy took, apart from the results: these are the same each time, the clock is not."""
        path = self.path / "timings.json"
        timings = _read_json(path) if path.exists() else {}
        timings[policy] = {"seconds": round(seconds, 3), "rounds_per_second": round(rounds / seconds, 1)}
        _write_json(path, timings)


def open_folder(path: str | os.PathLike[str], config: Config) -> Folder:
    """Make a results folder, or open one of the same configuration.

    ValueError if ``path`` is a file, or holds the results of another configuration: the message says what differs.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; the results need a folder")
    folder, known = Folder(path), path / "config.json"
    if known.exists():
        differences = _differences(_read_json(known), config)
        if differences:
            raise ValueError(
                f"{path} holds the results of another configuration: {differences}; choose another folder, or delete it"
            )
    for room in ("results", "checkpoints"):
        (path / room).mkdir(parents=True, exist_ok=True)
    for half_written in path.rglob(".part-*"):  # by a run that was killed
        half_written.unlink(missing_ok=True)
    if not known.exists():
        _write_json(known, config)
    return folder


def _differences(there: Config, here: Config) -> str:
    def shown(value: object) -> str:
        return f"{value[:12]}..." if isinstance(value, str) and len(value) == 64 else json.dumps(value)

    keys = [key for key in here | there if there.get(key) != here.get(key)]
    return ", ".join(f"{key} is {shown(there.get(key))} there and {shown(here.get(key))} here" for key in keys)


def save_tree(path: Path, tree: Any) -> None:
    """Write a tree of arrays to a ``.npz`` file, whole or not at all."""
    arrays = {name: np.asarray(leaf) for name, leaf in leaves(tree, "tree")}

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, write)


def load_tree(path: Path, like: Any) -> Any:
    """Read what :func:`save_tree` wrote, a tree of the form of ``like``."""
    with np.load(path, allow_pickle=False) as file:
        return rebuild(like, [file[name] for name, _ in leaves(like, "tree")])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, indent=2) + "\n"
    write_whole(path, lambda part: part.write_text(text, "utf-8"))


def read_frame(path: Path) -> pl.DataFrame:
    """Read a parquet file of a results folder; ValueError if it is not what was written."""
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read: delete it, and the same command makes it anew ({error})") from error
