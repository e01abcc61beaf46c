"""The machine, as this process may use it, and whether kernels compile on it."""

from __future__ import annotations

import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba

import ata_gym
from ata_gym.cluster.doctor.finding import Finding
from ata_gym.simulation import task_times
from ata_gym.utils.compiled import helper
from ata_gym.utils.kernels.cache import kept_in
from ata_gym.utils.memory import installed_memory

_config: Any = numba.config
_REINSTALL = "pip install --force-reinstall numba llvmlite"


def machine() -> Iterator[Finding]:
    """Python, the operating system, processors and memory."""
    yield Finding("python", "ok", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}")
    yield Finding("system", "ok", platform.platform())
    there, allowed = os.cpu_count() or 1, processors()
    yield Finding("processors", "ok", f"{allowed:g} for this process" + f" of {there}" * (allowed != there))
    if (size := memory()) < math.inf:
        yield Finding("memory", "ok", f"{size / 2**30:.1f} GiB for this process")


def processors(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """How many processors this process may use at a time, by its affinity and the limits of its control group.

    ``groups`` is where control groups lie, and ``own`` names that of this process.

    >>> 0 < processors() <= os.cpu_count()
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    for quota, _, period in (text.partition(" ") for text in _limits("cpu.max", groups, own)):
        if quota.isdigit() and period.isdigit():
            allowed = min(allowed, int(quota) / int(period))
    for folder in (groups / "cpu", groups / "cpu,cpuacct"):  # the first version of control groups
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            allowed = min(allowed, int(quota) / int(period))
    return allowed


def memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Bytes of memory that this process may use, by the machine and its control group; infinite if nothing says it."""
    limits = (*_limits("memory.max", groups, own), _text(groups / "memory" / "memory.limit_in_bytes"))
    return min(installed_memory(), *(int(limit) if limit.isdigit() else math.inf for limit in limits))


def _limits(name: str, groups: Path, own: Path) -> Iterator[str]:
    """What a file says in the control group of this process and in those around it."""
    inner = next((line[3:] for line in _text(own).splitlines() if line.startswith("0::")), "/").strip("/")
    group = groups / inner
    while True:
        yield _text(group / name)
        if group == groups:
            return
        group = group.parent


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def compiled_kernels() -> Iterator[Finding]:
    """Whether numba compiles here, and where the machine code of our kernels is kept."""
    try:
        right = helper()(_double)(21.0) == 42.0
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        yield Finding("kernels", "broken", f"numba does not compile: {type(error).__name__}: {reason}", _REINSTALL)
        return
    if not right:
        yield Finding("kernels", "broken", "a compiled function gives a wrong number", _REINSTALL)
        return
    room = _cache_folder()
    if room is None:
        cure = "set NUMBA_CACHE_DIR to a folder that can be written"
        yield Finding("kernels", "missing", "they compile, and no cache can be written: each start takes longer", cure)
        return
    limit = f"up to {_config.NUMBA_NUM_THREADS} threads (ata_gym.threads)"
    yield Finding("kernels", "ok", f"they compile, and are kept in {room}; {limit}")


def _cache_folder() -> Path | None:
    """Where the kernels of the simulation are kept, if a file can be written there."""
    room = kept_in(Path(task_times.__file__))
    try:
        if room is not None:
            with tempfile.TemporaryFile(dir=room):  # a file system may refuse what its permissions allow
                pass
    except OSError:
        return None
    return room


def _double(x: float) -> float:
    return 2.0 * x


def package() -> Finding:
    """Where ata_gym is imported from."""
    return Finding("ata-gym", "ok", f"{ata_gym.__version__} from {Path(ata_gym.__file__).parent}")
