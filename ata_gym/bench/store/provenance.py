"""Where a result comes from: the code that made it, the versions of packages, the machine."""

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
from ata_gym.bench.store.import_closure import import_closure
from ata_gym.utils.errors import is_our_module
from ata_gym.utils.files.json_files import fields, text
from ata_gym.utils.validation import first_of
from ata_policies.learned.policy import WEIGHTS, Learned
from ata_policies.presets import Preset
from ata_policies.registry import load, parse, registered_source

Provenance = dict[str, Any]
"""What made a result, as plain data.

``code`` holds a checksum of each module and file, by name; the rest are the commit, the machine and
versions.
"""

PROVENANCE = fields({"code": fields({}, other_fields=text)}, may_lack=["code"], other_fields=text)
"""The rule that a provenance must follow where it is read from a file."""

_DEPENDENCIES = ("ata-gym", "gymnasium", "numpy", "scipy", "numba")

APART = (
    # Lists: the entry that is used has a checksum of its own, or is in the configuration.
    "ata_policies.presets",
    "ata_gym.scenarios.registry",
    # What runs experiments, and keeps and shows their results.
    "ata_gym.bench.store.provenance",
    "ata_gym.bench.store.folder",
    "ata_gym.bench.report",
    "ata_gym.bench.store.claim",
    "ata_gym.bench.runner.failure",
    "ata_gym.bench.runner.jobs",
    "ata_gym.bench.runner.progress",
    "ata_gym.envs.rendering",
    "ata_gym.utils.imports",
    "ata_gym.utils.kernels",
    "ata_gym.utils.process.signals",
    "ata_gym.utils.files.atomic",
    "ata_gym.utils.errors",
    "ata_gym.utils.extras",
    "ata_gym.utils.process.machine",
    "ata_gym.utils.files.json_files",
    "ata_gym.utils.files.manifest",
    "ata_gym.utils.files.sealed",
)
"""Modules that compute no number of a result, and so are not a part of its provenance."""

_MOST_MODULES = 3  # modules that a sentence names, at most


def provenance(policy: str, module: str = "ata_gym.bench.runner.policy_run") -> Provenance:
    """Return the provenance of a result that a policy gets now.

    A hyperparameter that names a file counts by the file's content, and one that names a folder of
    ``ata-gym learn`` by the agent in it. A policy that was given as an object counts by its source.

    Args:
        policy: The policy's name, with its hyperparameters.
        module: The name of the module that plays it.

    Example:
        >>> code = provenance("ata")["code"]
        >>> "ata_policies.allocation.estimates.ata" in code, "ata_policies.race.learner" in code
        (True, False)
    """
    # A user may change the source between two calls, so it is a part of the key of the cache.
    return _provenance(policy, module, registered_source(policy))


@cache
def _provenance(policy: str, module: str, source: str | None) -> Provenance:
    definition = load(policy)
    hyperparameters = parse(policy)[1]
    build: Any
    if isinstance(definition, Preset):
        build = definition.build
    else:
        build = definition
    spec = gym.spec(build.env_id)
    envs = [str(point).partition(":")[0] for point in (spec.entry_point, spec.vector_entry_point)]
    result = provenance_of(module, *envs, build.__module__, files=_files(hyperparameters, build))
    # The list of presets is left out of the code, so the entry of this preset is added.
    if isinstance(definition, Preset):
        entry = repr((build.__qualname__, sorted(definition.hyperparameters.items())))
        result["code"][f"{Preset.__module__}:{definition.name}"] = _checksum(entry.encode())
    if source is not None:
        result["code"][policy] = _checksum(source.encode())
    return result


def provenance_of(*modules: str, files: Iterable[Path] = ()) -> Provenance:
    """Return the provenance of what some modules make.

    Args:
        *modules: The names of the modules; the modules that they import count, too.
        files: Files that they read; the content of each counts.
    """
    return {
        "code": (
            import_closure(modules, APART)
            | {file.name: _checksum(file.read_bytes()) for file in files}
        ),
        "commit": _commit(),
        "python": platform.python_version(),
        **{name: version(name) for name in _DEPENDENCIES},
        "machine": f"{platform.system()} {platform.machine()}, {platform.node()}",
    }


def merged(first: Provenance, *more: Provenance) -> Provenance:
    """Return the provenance of a result that several provenances have made together.

    It has the code of all of them, and the commit, the versions and the machine of the first.
    """
    code = dict(first["code"])
    for part in more:
        code |= part["code"]
    return {**first, "code": code}


def changed(before: Mapping[str, Any], now: Provenance, name: str) -> str | None:
    """Name the code that differs between two provenances, in a phrase; None if none differs.

    Args:
        before: What is noted beside a result.
        now: The provenance that the result would have now.
        name: The name of what made it, such as a policy.

    Example:
        >>> now = provenance("ata")
        >>> before = {**now, "code": {**now["code"], "ata_gym.pools.pool": "another"}}
        >>> changed(before, now, "ata")
        'the code of ata-gym (ata_gym.pools.pool)'
    """
    old = before.get("code")
    new = now["code"]
    if old == new:
        return None
    if not isinstance(old, dict):
        old = {}
    differing = sorted(
        module for module in old.keys() | new.keys() if old.get(module) != new.get(module)
    )
    ours = [module for module in differing if is_our_module(module)]
    parts = {"ata-gym": ours, name: [module for module in differing if module not in ours]}
    phrases = []
    for owner, modules in parts.items():
        if modules:
            phrases += [f"the code of {owner} ({first_of(modules, _MOST_MODULES)})"]
    return " and ".join(phrases)


def _files(hyperparameters: dict[str, Any], build: Any) -> list[Path]:
    """List the files that a policy reads: those that hyperparameters name, and its weights."""
    paths = [Path(value) for value in hyperparameters.values() if isinstance(value, str)]
    if build is Learned:
        paths += [WEIGHTS]
    return [file for path in paths for file in (path, path / "agent.zip") if file.is_file()]


def _checksum(content: bytes) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 hash."""
    return hashlib.sha256(content).hexdigest()[:16]


@cache
def _commit() -> str:
    """Return the commit of the checkout that ata-gym is imported from, or "none".

    It ends with "-dirty" where files of the checkout differ from the commit.
    """
    checkout = Path(str(ata_gym.__file__)).parents[1]
    if not (checkout / ".git").exists():
        return "none"
    options = ["--always", "--dirty", "--abbrev=40", "--exclude=*"]
    command = ["git", "-C", str(checkout), "describe", *options]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "none"
    return process.stdout.strip()
