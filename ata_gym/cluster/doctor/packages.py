"""The packages that ata-gym's own metadata asks for, and the policies that other packages offer."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import metadata

import ata_gym
import ata_policies
from ata_gym.cluster.doctor.child_processes import Trial
from ata_gym.cluster.doctor.finding import Finding
from ata_gym.utils.extras import MissingExtraError
from ata_policies.registry import GROUP

IMPORT_SECONDS = 120.0
"""For all imports together: from a disk on the network, large packages take a while."""

_TOOLS = "dev"
"""The extra whose packages are commands for work on ata-gym itself: what needs no import is not imported."""


@dataclass(frozen=True)
class Requirement:
    """A package and its versions, in the base (no extra) or in an extra."""

    name: str
    bounds: str = ""
    extra: str = ""

    @classmethod
    def read(cls, line: str) -> Requirement:
        """Read a line of the metadata. ``packaging`` reads more forms, and the base does not install it.

        >>> Requirement.read("torch>=2.6; extra == 'train'")
        Requirement(name='torch', bounds='>=2.6', extra='train')
        """
        wanted, _, marker = line.partition(";")
        name = re.match(r"[\w.-]+", wanted)
        if name is None:
            raise ValueError(f"the metadata of ata-gym has a requirement without a name: {line!r}")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        bounds = re.sub(r"\[.*?\]|[\s()]", "", wanted[name.end() :])
        return cls(name[0], bounds, extra[1] if extra else "")

    def holds(self, version: str) -> bool:
        """Whether a version lies within the bounds, by the numbers of its release.

        >>> Requirement("gymnasium", ">=1.1,<2").holds("1.10.0"), Requirement("torch", ">=2.6").holds("2.13.0+cpu")
        (True, True)
        """
        for bound in filter(None, self.bounds.split(",")):
            operator, limit = re.match(r"([<>=!~]*)(.*)", bound).groups()  # type: ignore[union-attr]
            have, need = _release(version, limit)
            right = {">=": have >= need, ">": have > need, "<=": have <= need, "<": have < need, "==": have == need}
            if not right.get(operator, True):
                return False
        return True

    def __str__(self) -> str:
        return f"{self.name}{self.bounds}"


def _release(*versions: str) -> list[tuple[int, ...]]:
    """The numbers of releases, filled with zeros to the same length."""
    found = [[int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])] for version in versions]
    longest = max(map(len, found))
    return [tuple(numbers + [0] * (longest - len(numbers))) for numbers in found]


def packages() -> Iterator[Finding]:
    """The base packages, and every extra of the metadata."""
    try:
        needed = [Requirement.read(line) for line in metadata.requires("ata-gym") or ()]
        said = metadata.version("ata-gym")
    except metadata.PackageNotFoundError:
        detail = "it is imported without being installed, so that what it needs is not known"
        yield Finding("extras", "missing", detail, "pip install -e . in its folder")
        return
    if said != ata_gym.__version__:
        detail = f"its metadata is of {said}, and what is imported is {ata_gym.__version__}"
        yield Finding("metadata", "broken", detail, "pip install -e . in its folder, or pip install -U ata-gym")
    versions = {need.name: found for need in needed if (found := _version(need.name)) is not None}
    faults = import_faults(need.name for need in needed if need.name in versions and need.extra != _TOOLS)
    for need in needed:
        if not need.extra:
            yield _base(need, versions.get(need.name), faults.get(need.name, ""))
    extras = {need.extra: [other for other in needed if other.extra == need.extra] for need in needed if need.extra}
    for extra, members in extras.items():
        yield _extra(extra, members, versions, faults, _parts(extra, extras))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def import_faults(names: Iterable[str]) -> dict[str, str]:
    """Import installed packages in a process of their own; by package, the first line of the error.

    A package without a module of its own, such as one of type hints, has no fault.
    """
    modules = _modules(names)
    faults: dict[str, str] = {}
    left = list(modules)
    while left:
        with Trial([["imports", *(modules[name] for name in left)]], IMPORT_SECONDS) as trial:
            (outcome,) = trial.outcomes()
        done = [name for name in left if modules[name] in outcome.reports]
        faults |= {name: outcome.reports[modules[name]] for name in done}
        left = [name for name in left if name not in done]
        if left and outcome.fault:  # the process ended in the middle of this one
            faults[left.pop(0)] = outcome.fault
    return faults


def _modules(names: Iterable[str]) -> dict[str, str]:
    """The module that each package is imported as: the one that has its name, or the first."""
    found: dict[str, list[str]] = {}
    for module, owners in metadata.packages_distributions().items():
        if module.isidentifier() and not module.startswith("_"):
            for owner in owners:
                found.setdefault(_normal(owner), []).append(module)
    own = {name: found.get(_normal(name), []) for name in names}
    return {name: min(many, key=lambda m: (_normal(m) != _normal(name), m)) for name, many in own.items() if many}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _base(need: Requirement, version: str | None, fault: str) -> Finding:
    cure = f'pip install --force-reinstall "{need}"'
    if version is None:
        return Finding(need.name, "broken", "not installed", f'pip install "{need}"')
    if not need.holds(version):
        return Finding(need.name, "broken", f"{version} is outside {need.bounds}", f'pip install "{need}"')
    if fault:
        return Finding(need.name, "broken", f"{version} cannot be imported: {fault}", cure)
    return Finding(need.name, "ok", f"{version}, within {need.bounds}" if need.bounds else version)


def _extra(
    extra: str,
    members: Sequence[Requirement],
    versions: Mapping[str, str],
    faults: Mapping[str, str],
    parts: Sequence[str],
) -> Finding:
    absent = [need.name for need in members if need.name not in versions]
    outside = [need for need in members if need.name in versions and not need.holds(versions[need.name])]
    failing = [need for need in members if faults.get(need.name)]
    fine = [need.name for need in members if need.name in versions and need not in outside and need not in failing]
    said = [f"{need.name} {versions[need.name]} cannot be imported: {faults[need.name]}" for need in failing]
    said += [f"{need.name} {versions[need.name]} is outside {need.bounds}" for need in outside]
    said += [f"not installed: {', '.join(absent)}"] if absent else []
    have = ", ".join(parts) if parts else ", ".join(f"{name} {versions[name]}" for name in fine)
    said += [have] if have and not said else [f"installed: {', '.join(fine)}"] if fine and not parts else []
    cures = [f"pip install --force-reinstall {' '.join(need.name for need in failing)}"] if failing else []
    cures += [f'pip install "ata-gym[{extra}]"'] if absent or outside else []
    # Nobody asked for an extra of which a package is missing, so an old package in it breaks nothing yet.
    state = "broken" if failing or (outside and not absent) else "missing" if absent else "ok"
    return Finding(f"extra {extra}", state, "; ".join(said), "; ".join(cures))  # type: ignore[arg-type]


def _parts(extra: str, extras: Mapping[str, Sequence[Requirement]]) -> list[str]:
    """The other extras that an extra consists of, if it does."""
    own = {need.name for need in extras[extra]}
    named = {other: {need.name for need in members} for other, members in extras.items()}
    parts = [other for other, names in named.items() if names < own]
    return parts if set().union(*(named[part] for part in parts)) == own else []


def policies() -> Iterator[Finding]:
    """The policies that packages offer through the entry-point group: which of them load."""
    points = metadata.entry_points(group=GROUP)
    loaded = []
    for name in sorted(points.names):
        homes = sorted({point.dist.name for point in points.select(name=name) if point.dist is not None})
        home = " and ".join(homes) or "a package"
        try:
            with redirect_stdout(sys.stderr):  # a module may print
                ata_policies.load(name)
        except MissingExtraError as error:
            yield Finding(f"policy {name}", "missing", f"of {home}: {error}", str(error).rpartition(": ")[2])
        except ValueError as error:
            reason = str(error).strip().partition("\n")[0]
            cure = f"pip install -U {' '.join(homes)}" if len(homes) == 1 else "name it as package.module:Class"
            yield Finding(f"policy {name}", "broken", f"of {home}: {reason}", cure)
        else:
            loaded.append(name)
    count = len(points.names)
    detail = f"{', '.join(loaded)}" if loaded else "none installed" if not count else f"none of {count} loads"
    yield Finding("more policies", "ok", detail)
