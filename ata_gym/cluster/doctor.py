"""Checks of what works on this machine: packages, kernels, devices and process groups; the base packages suffice."""

import json
import math
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from textwrap import fill
from typing import Literal

import ata_gym
from ata_gym.cluster.trials import outcomes
from ata_gym.simulation import task_times
from ata_gym.utils.compiled import helper
from ata_gym.utils.kernels.cache import kept_in
from ata_gym.utils.machine import installed_memory, processors

_SECONDS = 180.0  # how long a trial may take; importing large packages from a disk on the network takes a while
_INSTALL = 'pip install "ata-gym[cluster]"'
_NOT_LOOKED_AT = ("all", "dev")  # extras that consist of others, or serve the work on ata-gym itself
_OTHER_TORCH = "install a torch that is built for the driver of this machine: https://pytorch.org/get-started/locally"
_CURES = {
    "gloo": "let the name of this machine resolve, or set GLOO_SOCKET_IFNAME to a network interface such as lo",
    "nccl": "run with NCCL_DEBUG=INFO, which says what it lacks",
}


@dataclass(frozen=True)
class Finding:
    """One thing, its state, and what to do about it.

    A subject is missing if it is not installed or not on this machine, and broken if it is there and does not work.

    >>> print(Finding("extra train", "missing", "not installed: torch", 'pip install "ata-gym[train]"'))
    missing  extra train: not installed: torch
             -> pip install "ata-gym[train]"
    """

    subject: str  # the package, extra, device or backend that was looked at
    state: Literal["ok", "missing", "broken"]
    detail: str  # the observation, in one sentence or less
    cure: str = ""  # the command or the change that mends it; empty if nothing is to be done

    def __str__(self) -> str:
        said, cure = f"{self.state:7}  {self.subject}: {self.detail}", f"\n{'':9}-> {self.cure}" if self.cure else ""
        return fill(said, 80, subsequent_indent=" " * 9, break_long_words=False, break_on_hyphens=False) + cure


def examine() -> list[Finding]:
    """Look at packages, kernels, devices, process groups and Ray; it takes some seconds.

    Whatever may crash or hang runs in processes of its own, bounded in time, which have ended when this returns.
    """
    rooms = machine(), packages(), compiled_kernels(), torch_findings(), ray_findings()
    return [finding for room in rooms for finding in room]


def machine() -> Iterator[Finding]:
    """The folder of ata_gym, Python, the operating system, processors and memory."""
    yield Finding("ata-gym", "ok", f"{ata_gym.__version__} from {Path(ata_gym.__file__).parent}")
    yield Finding("python", "ok", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")
    yield Finding("system", "ok", platform.platform())
    yield Finding(
        "processors", "ok", f"{processors()} of {os.cpu_count()} for this process; ata_gym.threads uses several"
    )
    limit = Path("/sys/fs/cgroup/memory.max")  # of the container
    text = limit.read_text("utf-8").strip() if limit.is_file() else ""
    if (size := min(installed_memory(), float(text) if text.isdigit() else math.inf)) < math.inf:
        yield Finding("memory", "ok", f"{size / 2**30:.1f} GiB for this process")


def packages() -> Iterator[Finding]:
    """Whether the packages of the base and of every extra meet the requirements in the metadata of ata-gym."""
    try:
        from packaging.requirements import Requirement  # noqa: PLC0415 - the base does not install it
        from packaging.utils import canonicalize_name  # noqa: PLC0415
    except ImportError:
        extras = ", ".join(metadata.metadata("ata-gym").get_all("Provides-Extra") or ())
        detail = f"packaging is not installed, so that versions are not compared; there are {extras}"
        yield Finding("extras", "missing", detail, 'pip install "ata-gym[bench]", or another extra in place of bench')
        return
    needed: dict[str, list[Requirement]] = defaultdict(list)
    for line in map(Requirement, metadata.requires("ata-gym") or ()):
        extra = str(line.marker or "").partition('extra == "')[2].rstrip('"')
        if extra not in _NOT_LOOKED_AT:
            needed[extra].append(line)
    versions = {canonicalize_name(found.name): found.version for found in metadata.distributions()}
    owned = [(canonicalize_name(owner), name) for name, owners in metadata.packages_distributions().items()
             for owner in owners if name.isidentifier()]  # fmt: skip
    modules = dict(sorted(owned, key=lambda pair: (canonicalize_name(pair[1]) == pair[0], pair)))  # the namesake wins
    names = {canonicalize_name(line.name) for lines in needed.values() for line in lines}
    faults = _import_faults(sorted({modules[name] for name in names & modules.keys()}))
    for extra, lines in sorted(needed.items()):
        absent, wrong, fine = [], [], []
        for line in lines:
            version = versions.get(name := canonicalize_name(line.name))
            if version is None:
                absent.append(line.name)
            elif not line.specifier.contains(version, prereleases=True):
                wrong.append(f"{line.name} {version} is outside {line.specifier}")
            elif fault := faults.get(modules.get(name, "")):
                wrong.append(f"{line.name} {version} cannot be imported: {fault}")
            else:
                fine.append(f"{line.name} {version}")
        # Nobody asked for an extra of which a package is missing, so a wrong package in it breaks nothing yet.
        state = "missing" if absent and extra else "broken" if absent or wrong else "ok"
        parts = [*wrong, f"not installed: {', '.join(absent)}" if absent else "", ", ".join(fine)]
        cure = f'pip install --force-reinstall "ata-gym{f"[{extra}]" if extra else ""}"' if absent or wrong else ""
        yield Finding(f"extra {extra}" if extra else "base", state, "; ".join(filter(None, parts)), cure)  # type: ignore[arg-type]


def _import_faults(modules: list[str]) -> dict[str, str]:
    faults: dict[str, str] = {}
    while left := [module for module in modules if module not in faults]:
        (found,) = outcomes([["imports", *left]], _SECONDS)
        fault = found.pop("fault", "its process ended")
        faults |= found
        if len(found) < len(left):  # the process ended in the middle of the first module without a report
            faults[left[len(found)]] = fault
    return faults


def compiled_kernels() -> Iterator[Finding]:
    """Whether numba compiles here, and where the machine code of the kernels is kept."""
    try:
        fault = "" if helper()(lambda x: 2.0 * x)(21.0) == 42.0 else "a compiled function gives a wrong number"
    except Exception as error:
        fault = f"numba does not compile: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if fault:
        yield Finding("kernels", "broken", fault, "pip install --force-reinstall numba llvmlite")
        return
    folder = kept_in(Path(task_times.__file__))
    try:
        with TemporaryFile(dir=folder):  # a file system may refuse what its permissions allow
            pass
    except OSError:
        folder = None
    if folder is not None:
        yield Finding("kernels", "ok", f"they compile, and are kept in {folder}")
        return
    cure = "set NUMBA_CACHE_DIR to a folder that can be written"
    yield Finding("kernels", "missing", "they compile, and no cache can be written: each start takes longer", cure)


def torch_findings() -> Iterator[Finding]:
    """Torch and the driver, the devices, the backends of ``torch.distributed``, and torchrun."""
    if not _version("torch"):
        yield Finding("torch", "missing", "not installed; models, devices and process groups need it", _INSTALL)
        return
    (facts,) = outcomes([["torch"]], _SECONDS)
    fault, built, driver = facts.get("fault", ""), facts.get("built for"), facts.get("driver")
    if "torchrun" not in facts:
        yield Finding("torch", "broken", f"it does not work: {fault}", "pip install --force-reinstall torch")
        return
    seen = f"the driver of the machine is {driver}" if driver else "there is no NVIDIA driver"
    built_for = f"for CUDA {built}" if built else "without CUDA"
    yield Finding("torch", "ok", f"{facts['version']}, built {built_for}; {seen}")
    if not facts["devices"]:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        reason = f"CUDA_VISIBLE_DEVICES is {hidden!r}" if hidden is not None else facts.get("start") or fault or seen
        broken, cure = driver and built and hidden is None, _OTHER_TORCH if driver and hidden is None else ""
        yield Finding("device cuda", "broken" if broken else "missing", f"torch sees none: {reason}", cure)
    for name in (f"cuda:{index}" for index in range(facts["devices"])):
        device, wrong = facts.get(f"{name} is", name), facts.get(name, fault)
        state, cure = ("broken", _OTHER_TORCH) if wrong else ("ok", "")
        yield Finding(f"device {name}", state, f"{device}: {wrong}" if wrong else f"{device}; it computes right", cure)  # type: ignore[arg-type]
    for backend in _CURES:
        yield _backend(backend, backend in facts["backends"], facts["devices"])
    wrong, module = facts["torchrun"], "python -m torch.distributed.run"
    if wrong:
        yield Finding("torchrun", "broken", f"{module} does not start: {wrong}", _INSTALL)
    else:
        yield Finding("torchrun", "ok", f"{module} runs")


def _backend(name: str, built: bool, devices: int) -> Finding:  # whether two processes can add their numbers
    if not built:
        return Finding(f"backend {name}", "missing", "torch is built without it")
    if name == "nccl" and devices < 2:
        return Finding(f"backend {name}", "missing", f"not tried: it needs two CUDA devices, and torch sees {devices}")
    with TemporaryDirectory() as folder:
        rendezvous = Path(folder, "rendezvous").as_uri()
        found = outcomes([["all-reduce", name, str(rank), rendezvous] for rank in range(2)], _SECONDS)
    faults = dict.fromkeys(fault for one in found if (fault := one.get("fault") or one["sum"]))
    if faults:
        detail = f"two processes could not add: {' and '.join(faults)}"
        return Finding(f"backend {name}", "broken", detail, _CURES[name])
    return Finding(f"backend {name}", "ok", "two processes added their numbers")


def ray_findings() -> Iterator[Finding]:
    """The version of Ray."""
    version = _version("ray")
    yield Finding("ray", "ok", version) if version else Finding("ray", "missing", "not installed", _INSTALL)


def _version(name: str) -> str:  # the version of an installed package; empty if it is not installed
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def main(as_json: bool = False) -> int:
    """Examine, print lines or one JSON document, and return the exit code: 1 if something installed is broken."""
    findings = examine()
    broken = any(finding.state == "broken" for finding in findings)
    document = {"works": not broken, "findings": [*map(asdict, findings)]}
    print(json.dumps(document, indent=2) if as_json else "\n".join(map(str, findings)))
    return int(broken)
