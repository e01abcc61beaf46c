"""Where a result comes from: the code that made it, the versions of what it uses, and the machine."""

import hashlib
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium as gym

import ata_gym
from ata_gym.utils.errors import is_ours
from ata_gym.utils.import_closure import import_closure
from ata_gym.utils.json_files import fields, text
from ata_policies.learned.policy import WEIGHTS, Learned
from ata_policies.presets import Preset
from ata_policies.registry import load, parse, source_given

Provenance = dict[str, Any]
"""``code``, a checksum of each module and file by name; the commit, the machine, and versions."""

PROVENANCE = fields({"code": fields({}, others=text)}, may_lack=["code"], others=text)
"""The rule of what is noted beside a result, where it is read from a file."""

_DEPENDENCIES = ("ata-gym", "gymnasium", "numpy", "scipy", "numba")

APART = (
    *("ata_policies.presets", "ata_gym.scenarios.registry"),  # lists: an entry counts, or is in the configuration
    *("ata_gym.bench.experiment.provenance", "ata_gym.bench.experiment.store", "ata_gym.bench.report"),
    *("ata_gym.bench.experiment.claim", "ata_gym.bench.experiment.failure", "ata_gym.bench.experiment.jobs"),
    *("ata_gym.bench.progress", "ata_gym.envs.rendering", "ata_gym.utils.kernels", "ata_gym.utils.signals"),
    *("ata_gym.utils.atomic", "ata_gym.utils.errors", "ata_gym.utils.extras", "ata_gym.utils.machine"),
    *("ata_gym.utils.json_files", "ata_gym.utils.manifest", "ata_gym.utils.sealed"),
)
"""Modules that compute no number of a result: they find, keep, show and stop what others compute."""

_SHOWN = 3  # modules that a sentence names, at most


def provenance(policy: str, player: str = "ata_gym.bench.experiment.run") -> Provenance:
    """The provenance of a result that a policy gets now.

    A hyperparameter that names a file stands for the file's content, and one that names a folder of ``ata-gym learn``
    for its agent. A policy that was given as an object counts by its source. ``player`` is the module that plays it.

    >>> made_by = provenance("ata")
    >>> "ata_policies.allocation.estimates.ata" in made_by["code"], "ata_policies.race.learner" in made_by["code"]
    (True, False)
    """
    return _provenance(policy, player, source_given(policy))


@cache
def _provenance(policy: str, player: str, source: str | None) -> Provenance:
    made, hyperparameters = load(policy), parse(policy)[1]
    build: Any = made.build if isinstance(made, Preset) else made
    spec = gym.spec(build.env_id)
    envs = [str(point).partition(":")[0] for point in (spec.entry_point, spec.vector_entry_point)]
    found = provenance_of(player, *envs, build.__module__, files=_files(hyperparameters, build))
    if isinstance(made, Preset):
        entry = repr((build.__qualname__, sorted(made.hyperparameters.items())))
        found["code"][f"{Preset.__module__}:{made.name}"] = _checksum(entry.encode())
    if source is not None:
        found["code"][policy] = _checksum(source.encode())
    return found


def provenance_of(*modules: str, files: Iterable[Path] = ()) -> Provenance:
    """The provenance of what modules of these names make, with all that they import, from some files."""
    return {
        "code": import_closure(modules, APART) | {file.name: _checksum(file.read_bytes()) for file in files},
        "commit": _commit(), "python": platform.python_version(), **{name: version(name) for name in _DEPENDENCIES},
        "machine": f"{platform.system()} {platform.machine()}, {platform.node()}",
    }  # fmt: skip


def merged(first: Provenance, *more: Provenance) -> Provenance:
    """The provenance of what several of them have made together."""
    return {**first, "code": {name: each for one in (first, *more) for name, each in one["code"].items()}}


def changed(before: Mapping[str, Any], now: Provenance, name: str) -> str | None:
    """A phrase that names the code that differs between two provenances of ``name``; None if it is the same.

    >>> now = provenance("ata")
    >>> changed({**now, "code": {**now["code"], "ata_gym.pools.pool": "another"}}, now, "ata")
    'the code of ata-gym (ata_gym.pools.pool)'
    """
    old, new = before.get("code"), now["code"]
    if old == new:
        return None
    old = old if isinstance(old, dict) else {}
    differing = sorted(each for each in old.keys() | new.keys() if old.get(each) != new.get(each))
    ours = [each for each in differing if is_ours(each)]
    parts = {"ata-gym": ours, name: [each for each in differing if each not in ours]}
    said = []
    for whose, those in parts.items():
        more = f" and {len(those) - _SHOWN} more" if len(those) > _SHOWN else ""
        said += [f"the code of {whose} ({', '.join(those[:_SHOWN])}{more})"] if those else []
    return " and ".join(said)


def _files(hyperparameters: dict[str, Any], build: Any) -> list[Path]:
    named = [Path(value) for value in hyperparameters.values() if isinstance(value, str)]
    named += [WEIGHTS] if build is Learned else []
    return [file for path in named for file in (path, path / "agent.zip") if file.is_file()]


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


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
