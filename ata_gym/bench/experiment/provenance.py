"""Where a result comes from: the code that made it, the versions of what it uses, and the machine."""

from __future__ import annotations

import hashlib
import importlib
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ata_gym
import ata_policies
from ata_policies.registry import load, parse

Provenance = dict[str, str]

_DEPENDENCIES = ("ata-gym", "gymnasium", "numpy", "scipy", "numba")


@cache
def provenance(policy: str) -> Provenance:
    """The provenance of a result that a policy gets now.

    Parameters
    ----------
    policy
        Its name, with hyperparameters; one that names a file stands for the file's content, and one
        that names a folder of ``ata-gym learn`` for its agent.

    Returns
    -------
    ``engine``, a hash of the source of ``ata_gym`` and ``ata_policies``; ``user``, one of the source of a policy from
    elsewhere, and of its files; the commit of a checkout of ata-gym; versions; the machine.

    Examples
    --------
    >>> sorted(provenance("ata"))
    ['ata-gym', 'commit', 'engine', 'gymnasium', 'machine', 'numba', 'numpy', 'python', 'scipy', 'user']
    """
    made: Any = load(policy)
    return provenance_of(getattr(made, "build", made).__module__, _files(parse(policy)[1]))


def provenance_of(module: str, files: Iterable[Path] = ()) -> Provenance:
    """The provenance of a result of what a module of this name makes from some files."""
    return {
        "engine": _engine(),
        "user": _digest([*_sources(module), *files]),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in _DEPENDENCIES},
        "machine": f"{platform.system()} {platform.machine()}, {platform.node()}",
    }


def changed(before: Mapping[str, str], now: Provenance, name: str) -> str | None:
    """Which code has changed between two provenances of ``name``, in words; None if it is the same.

    >>> now = provenance("ata")
    >>> changed({**now, "engine": "another"}, now, "ata")
    'the code of ata-gym'
    """
    what = {"engine": "the code of ata-gym", "user": f"the file or package of {name}"}
    return " and ".join(words for key, words in what.items() if before.get(key) != now[key]) or None


def _sources(module: str) -> list[Path]:
    """The source of the package around a module, or of the module where there is none; nothing if it is ours."""
    top = module.partition(".")[0]
    if top in {"ata_gym", "ata_policies"}:
        return []
    found: Any = importlib.import_module(top)
    rooms = getattr(found, "__path__", None)
    if rooms is None:
        return [Path(found.__file__)] if getattr(found, "__file__", None) else []
    each_once = dict.fromkeys(Path(room) for room in rooms)  # Ray's workers have folders on their path twice
    return [path for room in each_once for path in sorted(room.rglob("*.py"))]


def _files(hyperparameters: dict[str, Any]) -> list[Path]:
    named = [Path(value) for value in hyperparameters.values() if isinstance(value, str)]
    return [file for path in named for file in (path, path / "agent.zip") if file.is_file()]


@cache
def _engine() -> str:
    rooms = [Path(str(package.__file__)).parent for package in (ata_gym, ata_policies)]
    return _digest(path for room in rooms for path in sorted(room.rglob("*.py")) if path.parent.name != "cli")


def _digest(files: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for path in files:
        whole.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


@cache
def _commit() -> str:
    """The commit of the checkout that ata-gym is imported from, with "-dirty" where files differ; else "none"."""
    checkout = Path(str(ata_gym.__file__)).parents[1]
    if not (checkout / ".git").exists():
        return "none"
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "none"
    return done.stdout.strip()
