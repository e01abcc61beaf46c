"""Checks of what works on this machine: packages, kernels, devices and process groups.

The packages of the base suffice for them.
"""

import json
import math
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
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
from ata_gym.utils.kernels.cache import kernel_folder
from ata_gym.utils.process.machine import installed_memory, processors

_LONGEST_TRIAL = 180.0
"""The seconds that a trial may take.

Importing large packages from a disk on the network takes a while."""
_INSTALL = 'pip install "ata-gym[cluster]"'
_SKIPPED_EXTRAS = ("all", "dev")
"""The extras that consist of others, or serve the work on ata-gym itself."""
_TORCH_CURE = (
    "install a torch that is built for the driver of this machine:"
    " https://pytorch.org/get-started/locally"
)
_CURES = {
    "gloo": (
        "let the name of this machine resolve, or set GLOO_SOCKET_IFNAME to a network interface"
        " such as lo"
    ),
    "nccl": "run with NCCL_DEBUG=INFO, which says what it lacks",
}

State = Literal["ok", "missing", "broken"]
"""Whether a part works, is not installed, or does not work."""


@dataclass(frozen=True)
class Finding:
    """One thing, its state, and what to do about it.

    A subject is missing if it is not installed or not on this machine, and broken if it is there
    and does not work.

    Example:
        >>> cure = 'pip install "ata-gym[train]"'
        >>> print(Finding("extra train", "missing", "not installed: torch", cure))
        missing  extra train: not installed: torch
                 -> pip install "ata-gym[train]"
    """

    subject: str
    """The package, extra, device or backend that was looked at."""
    state: State
    detail: str
    """The observation, in one sentence or less."""
    cure: str = ""
    """The command or the change that mends it; empty if nothing is to be done."""

    def __str__(self) -> str:
        text = fill(
            f"{self.state:7}  {self.subject}: {self.detail}",
            80,
            subsequent_indent=" " * 9,
            break_long_words=False,
            break_on_hyphens=False,
        )
        if self.cure:
            return f"{text}\n{'':9}-> {self.cure}"
        return text


def examine() -> list[Finding]:
    """Look at packages, kernels, devices, process groups and Ray; it takes some seconds.

    Whatever may crash or hang runs in processes of its own, bounded in time, which have ended when
    this returns.
    """
    checks = machine(), packages(), compiled_kernels(), torch_findings(), ray_findings()
    return [finding for check in checks for finding in check]


def machine() -> Iterator[Finding]:
    """The folder of ata_gym, Python, the operating system, processors and memory."""
    yield Finding("ata-gym", "ok", f"{ata_gym.__version__} from {Path(ata_gym.__file__).parent}")
    yield Finding(
        "python",
        "ok",
        f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}",
    )
    yield Finding("system", "ok", platform.platform())
    yield Finding(
        "processors",
        "ok",
        f"{processors()} of {os.cpu_count()} for this process; ata_gym.threads uses several",
    )
    # The file has the limit of the container in bytes, or the text "max".
    limit_file = Path("/sys/fs/cgroup/memory.max")
    if limit_file.is_file():
        text = limit_file.read_text("utf-8").strip()
    else:
        text = ""
    limit = float(text) if text.isdigit() else math.inf
    size = min(installed_memory(), limit)
    if size < math.inf:
        yield Finding("memory", "ok", f"{size / 2**30:.1f} GiB for this process")


def packages() -> Iterator[Finding]:
    """Whether the packages of the base and of every extra meet the requirements of ata-gym."""
    try:
        # The base does not install it.
        from packaging.requirements import Requirement  # noqa: PLC0415
        from packaging.utils import canonicalize_name  # noqa: PLC0415
    except ImportError:
        extras = ", ".join(metadata.metadata("ata-gym").get_all("Provides-Extra") or ())
        detail = (
            f"packaging is not installed, so that versions are not compared; there are {extras}"
        )
        yield Finding(
            "extras",
            "missing",
            detail,
            'pip install "ata-gym[bench]", or another extra in place of bench',
        )
        return
    by_extra: dict[str, list[Requirement]] = defaultdict(list)
    for requirement in map(Requirement, metadata.requires("ata-gym") or ()):
        extra = str(requirement.marker or "").partition('extra == "')[2].rstrip('"')
        if extra not in _SKIPPED_EXTRAS:
            by_extra[extra].append(requirement)
    versions = {canonicalize_name(dist.name): dist.version for dist in metadata.distributions()}
    package_modules = [
        (canonicalize_name(owner), name)
        for name, owners in metadata.packages_distributions().items()
        for owner in owners
        if name.isidentifier()
    ]
    # A package with several modules is imported by the one of its own name, which is sorted last.
    package_modules.sort(key=lambda pair: (canonicalize_name(pair[1]) == pair[0], pair))
    modules = dict(package_modules)
    names = {
        canonicalize_name(requirement.name)
        for requirements in by_extra.values()
        for requirement in requirements
    }
    faults = _import_faults(sorted({modules[name] for name in names & modules.keys()}))
    for extra, requirements in sorted(by_extra.items()):
        absent = []
        wrong = []
        fine = []
        for requirement in requirements:
            version = versions.get(name := canonicalize_name(requirement.name))
            if version is None:
                absent.append(requirement.name)
            elif not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{requirement.name} {version} is outside {requirement.specifier}")
            elif fault := faults.get(modules.get(name, "")):
                wrong.append(f"{requirement.name} {version} cannot be imported: {fault}")
            else:
                fine.append(f"{requirement.name} {version}")
        # An extra of which a package is missing is not in use, so a wrong package in it breaks
        # nothing yet.
        state: State
        if absent and extra:
            state = "missing"
        elif absent or wrong:
            state = "broken"
        else:
            state = "ok"
        absent_text = f"not installed: {', '.join(absent)}" if absent else ""
        parts = [*wrong, absent_text, ", ".join(fine)]
        if extra:
            title = f"extra {extra}"
            package = f"ata-gym[{extra}]"
        else:
            title = "base"
            package = "ata-gym"
        if absent or wrong:
            cure = f'pip install --force-reinstall "{package}"'
        else:
            cure = ""
        yield Finding(title, state, "; ".join(filter(None, parts)), cure)


def _import_faults(modules: list[str]) -> dict[str, str]:
    """The error of each module that cannot be imported, and an empty text for the others."""
    faults: dict[str, str] = {}
    while remaining := [module for module in modules if module not in faults]:
        (results,) = outcomes([["imports", *remaining]], _LONGEST_TRIAL)
        fault = results.pop("fault", "its process ended")
        faults |= results
        # The process ended while it imported the first module that it has not reported.
        if len(results) < len(remaining):
            faults[remaining[len(results)]] = fault
    return faults


def compiled_kernels() -> Iterator[Finding]:
    """Whether numba compiles here, and where the machine code of the kernels is kept."""
    try:
        if helper()(lambda x: 2.0 * x)(21.0) == 42.0:
            fault = ""
        else:
            fault = "a compiled function gives a wrong number"
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        fault = f"numba does not compile: {type(error).__name__}: {reason}"
    if fault:
        yield Finding("kernels", "broken", fault, "pip install --force-reinstall numba llvmlite")
        return
    folder = kernel_folder(Path(task_times.__file__))
    try:
        # A file system may refuse what its permissions allow, so that a file is written.
        with TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = None
    if folder is not None:
        yield Finding("kernels", "ok", f"they compile, and are kept in {folder}")
        return
    cure = "set NUMBA_CACHE_DIR to a folder that can be written"
    yield Finding(
        "kernels",
        "missing",
        "they compile, and no cache can be written: each start takes longer",
        cure,
    )


def torch_findings() -> Iterator[Finding]:
    """Torch and the driver, the devices, the backends of ``torch.distributed``, and torchrun."""
    if not _version("torch"):
        yield Finding(
            "torch",
            "missing",
            "not installed; models, devices and process groups need it",
            _INSTALL,
        )
        return
    (facts,) = outcomes([["torch"]], _LONGEST_TRIAL)
    fault = facts.get("fault", "")
    cuda_version = facts.get("CUDA version")
    driver = facts.get("driver")
    if "torchrun" not in facts:
        yield Finding(
            "torch",
            "broken",
            f"it does not work: {fault}",
            "pip install --force-reinstall torch",
        )
        return
    if driver:
        driver_text = f"the driver of the machine is {driver}"
    else:
        driver_text = "there is no NVIDIA driver"
    if cuda_version:
        build_text = f"for CUDA {cuda_version}"
    else:
        build_text = "without CUDA"
    yield Finding("torch", "ok", f"{facts['version']}, built {build_text}; {driver_text}")
    if not facts["devices"]:
        visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible_devices is not None:
            reason = f"CUDA_VISIBLE_DEVICES is {visible_devices!r}"
        else:
            reason = facts.get("start") or fault or driver_text
        cuda_state: State
        if driver and cuda_version and visible_devices is None:
            cuda_state = "broken"
        else:
            cuda_state = "missing"
        if driver and visible_devices is None:
            cure = _TORCH_CURE
        else:
            cure = ""
        yield Finding("device cuda", cuda_state, f"torch sees none: {reason}", cure)
    for index in range(facts["devices"]):
        name = f"cuda:{index}"
        device = facts.get(f"{name} model", name)
        error = facts.get(name, fault)
        state: State
        if error:
            state = "broken"
            text = f"{device}: {error}"
            cure = _TORCH_CURE
        else:
            state = "ok"
            text = f"{device}; it computes right"
            cure = ""
        yield Finding(f"device {name}", state, text, cure)
    for backend in _CURES:
        yield _backend(backend, backend in facts["backends"], facts["devices"])
    error = facts["torchrun"]
    module = "python -m torch.distributed.run"
    if error:
        yield Finding("torchrun", "broken", f"{module} does not start: {error}", _INSTALL)
    else:
        yield Finding("torchrun", "ok", f"{module} runs")


def _backend(name: str, built: bool, devices: int) -> Finding:
    """Whether two processes can add their numbers with a backend of ``torch.distributed``."""
    if not built:
        return Finding(f"backend {name}", "missing", "torch is built without it")
    if name == "nccl" and devices < 2:
        return Finding(
            f"backend {name}",
            "missing",
            f"not tried: it needs two CUDA devices, and torch sees {devices}",
        )
    with TemporaryDirectory() as folder:
        rendezvous = Path(folder, "rendezvous").as_uri()
        trials = [["all-reduce", name, str(rank), rendezvous] for rank in range(2)]
        results = outcomes(trials, _LONGEST_TRIAL)
    # Each fault once, in the order of the processes.
    faults = dict.fromkeys(
        fault for result in results if (fault := result.get("fault") or result["sum"])
    )
    if faults:
        detail = f"two processes could not add: {' and '.join(faults)}"
        return Finding(f"backend {name}", "broken", detail, _CURES[name])
    return Finding(f"backend {name}", "ok", "two processes added their numbers")


def ray_findings() -> Iterator[Finding]:
    """The version of Ray."""
    version = _version("ray")
    if version:
        yield Finding("ray", "ok", version)
    else:
        yield Finding("ray", "missing", "not installed", _INSTALL)


def _version(name: str) -> str:
    """The version of an installed package; empty if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def main(as_json: bool = False) -> int:
    """Examine the machine, and print what was found.

    Returns:
        The exit code: 1 if something that is installed is broken, else 0.
    """
    return print_findings(examine(), as_json)


def print_findings(findings: Iterable[Finding], as_json: bool = False) -> int:
    """Print findings, as lines or as one JSON document.

    Returns:
        The exit code: 1 if something is broken, else 0.
    """
    findings = list(findings)
    broken = any(finding.state == "broken" for finding in findings)
    if as_json:
        document = {"works": not broken, "findings": [*map(asdict, findings)]}
        print(json.dumps(document, indent=2))
    else:
        print("\n".join(map(str, findings)))
    return int(broken)
