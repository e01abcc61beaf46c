"""What torch can compute on here, and which process groups it can form."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ata_gym.cluster.doctor.child_processes import Outcome, Trial
from ata_gym.cluster.doctor.finding import Finding

_TORCH_SECONDS = 120.0
"""For the import of torch, which takes long from a disk on the network, and all that follows it."""
_INSTALL = 'pip install "ata-gym[cluster]"'
_OTHER_TORCH = "install a torch built for this machine's driver: https://pytorch.org/get-started/locally"


def torch_findings() -> Iterator[Finding]:
    """Devices, backends of ``torch.distributed``, and torchrun."""
    seen = gpus()
    try:
        metadata.version("torch")
    except metadata.PackageNotFoundError:
        detail = f"torch is not installed{_and_gpus(seen)}"
        yield Finding("device cpu", "ok", "compiled kernels run on it; models need torch")
        yield Finding("device cuda", "missing", detail, _INSTALL)
        yield Finding("backends", "missing", "torch is not installed", _INSTALL)
        return
    with Trial([["torch", "0", "devices"], ["torch", "1", ""]], _TORCH_SECONDS) as trial:
        outcome, other = trial.outcomes()
    facts = outcome.reports
    if "torchrun" not in facts and "devices" not in facts:
        fault = outcome.fault or other.fault
        yield Finding("device cpu", "broken", f"torch does not work: {fault}", "pip install --force-reinstall torch")
        return
    yield Finding("device cpu", "ok", f"torch {facts['version']}")
    yield from _devices(facts, seen, outcome.fault)
    yield from _backends(facts, outcome, other)
    yield _torchrun(facts.get("torchrun", "torch is built without torch.distributed"))


def gpus() -> int:
    """How many NVIDIA GPUs the driver shows, whether or not torch is installed."""
    if command := shutil.which("nvidia-smi"):
        try:
            listed = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=10, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            listed = ""
        if count := sum(line.startswith("GPU ") for line in listed.splitlines()):
            return count
    folder = Path("/proc/driver/nvidia/gpus")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _and_gpus(seen: int) -> str:
    return f", and the driver shows {seen} GPU{'s' * (seen > 1)}" if seen else ""


def _devices(facts: Mapping[str, Any], seen: int, fault: str) -> Iterator[Finding]:
    version, built, count = facts["version"], facts["cuda"], facts["devices"]
    if not built:
        detail = f"torch {version} is built without CUDA{_and_gpus(seen)}"
        yield Finding("device cuda", "missing", detail, _OTHER_TORCH if seen else "")
    elif not count:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        reason = f"CUDA_VISIBLE_DEVICES is {hidden!r}" if hidden is not None else facts.get("start") or fault
        broken = bool(seen) and hidden is None
        detail = f"torch {version}, built for CUDA {built}, sees none{_and_gpus(seen)}: {reason}"
        yield Finding("device cuda", "broken" if broken else "missing", detail, _OTHER_TORCH if broken else "")
    for name in (f"cuda:{index}" for index in range(count)):
        device = facts.get(name)
        if device is None:
            yield Finding(f"device {name}", "broken", f"a small computation: {fault}", _OTHER_TORCH)
        elif device["fault"]:
            yield Finding(f"device {name}", "broken", f"{device['name']}: {device['fault']}", _OTHER_TORCH)
        else:
            size = f"{device['memory'] / 2**30:.1f} GiB"
            yield Finding(f"device {name}", "ok", f"{device['name']}, {size}, CUDA {built}; it computes right")


def _backends(facts: Mapping[str, Any], outcome: Outcome, other: Outcome) -> Iterator[Finding]:
    there = facts.get("backends", [])
    for name in dict.fromkeys(("gloo", "nccl", *there)):
        if name not in there:
            yield Finding(f"backend {name}", "missing", f"torch {facts['version']} is built without it")
        elif name == "gloo":
            results = [part.reports.get("gloo", part.fault) for part in (outcome, other)]
            yield _backend(name, results)
        elif name == "mpi":
            yield Finding("backend mpi", "ok", "built in, not tried: it needs a start by mpirun")
        elif name == "nccl" and facts["devices"] < 2:
            detail = f"built in, not tried: it needs two CUDA devices, and torch sees {facts['devices']}"
            yield Finding("backend nccl", "missing", detail)
        else:
            with Trial([["all-reduce", str(rank), name] for rank in range(2)], _TORCH_SECONDS) as trial:
                yield _backend(name, [part.reports.get(name, part.fault) for part in trial.outcomes()])


def _backend(name: str, results: list[str]) -> Finding:
    faults = sorted(filter(None, results), key=lambda fault: "another process" in fault)
    if not faults:
        return Finding(f"backend {name}", "ok", "two processes added their numbers")
    cures = {
        "gloo": "let the name of this machine resolve, or set GLOO_SOCKET_IFNAME to a network interface such as lo",
        "nccl": "run with NCCL_DEBUG=INFO, which says what it lacks",
    }
    return Finding(f"backend {name}", "broken", f"two processes could not add: {faults[0]}", cures.get(name, ""))


def _torchrun(fault: str) -> Finding:
    module = "python -m torch.distributed.run"
    if fault:
        return Finding("torchrun", "broken", f"{module} does not start: {fault}", "pip install --force-reinstall torch")
    found = shutil.which("torchrun")
    if found is None:
        return Finding("torchrun", "ok", f"not on the PATH; {module} runs")
    if Path(found).parent.resolve() == Path(sysconfig.get_path("scripts")).resolve():
        return Finding("torchrun", "ok", found)
    return Finding("torchrun", "ok", f"{found} on the PATH may be of another Python; {module} is of this one")
