"""Trials of what may crash or hang, in processes of their own.

Such a process runs this file, ``trials.py NAME ARGUMENTS...``. It does not import ata_gym, unless a
function of ata_gym is the trial, and writes a line of JSON for each result.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from time import monotonic
from typing import Any


def outcomes(trials: Sequence[Sequence[str]], seconds: float) -> list[dict[str, Any]]:
    """Run trials side by side, each in a process of its own.

    Args:
        trials: The name of each trial, and its arguments. A name ``package.module:function`` is a
            function that gets a ``Report`` and these texts.
        seconds: How long all of them may take.

    Returns:
        The reports of each trial by name. If its process crashed, or was killed since it took
        longer than ``seconds``, they have a ``"fault"``, too.

    Example:
        >>> outcomes([["imports", "math", "no_such_module"]], seconds=60)
        [{'math': '', 'no_such_module': "ModuleNotFoundError: No module named 'no_such_module'"}]
    """
    # -P: this file's folder is not put on sys.path, where its files could stand in for packages.
    line = [sys.executable, "-P", "-W", "ignore", __file__]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    quiet: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": environment,
    }
    processes = [
        subprocess.Popen([*line, *trial], stdout=subprocess.PIPE, **quiet) for trial in trials
    ]
    end = monotonic() + seconds
    try:
        return [_outcome(process, end) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _outcome(process: subprocess.Popen[bytes], end: float) -> dict[str, Any]:
    """The reports of a process, which is killed at the time ``end`` of the monotonic clock."""
    fault = ""
    try:
        output, _ = process.communicate(timeout=max(end - monotonic(), 0.0))
        if code := process.returncode:
            if code < 0:
                fault = f"its process was ended by {signal.Signals(-code).name}"
            else:
                fault = f"exit code {code}"
    except subprocess.TimeoutExpired:
        fault = "it took too long"
        process.kill()
        output, _ = process.communicate()
    reports = dict(json.loads(line) for line in output.splitlines())
    if fault:
        return reports | {"fault": fault}
    return reports


Report = Callable[[str, Any], None]
"""A function that reports a result: its name, and its value, which JSON can hold."""


def _imports(report: Report, *modules: str) -> None:
    for module in modules:
        report(module, _error_of(import_module, module))


def _torch(report: Report) -> None:
    import torch  # noqa: PLC0415
    from torch import distributed as dist  # noqa: PLC0415
    from torch.utils import collect_env  # noqa: PLC0415

    report("version", torch.__version__)
    report("CUDA version", torch.version.cuda or torch.version.hip)
    driver = collect_env.get_nvidia_driver_version(collect_env.run)  # type: ignore[no-untyped-call]
    report("driver", driver)
    report("devices", torch.cuda.device_count())
    report("torchrun", _error_of(import_module, "torch.distributed.run"))
    available = dist.is_available()
    report(
        "backends",
        [name for name in ("gloo", "nccl") if available and dist.is_backend_available(name)],
    )
    if torch.version.cuda:
        report("start", _error_of(torch.cuda.init))
    for index in range(torch.cuda.device_count()):
        name = f"cuda:{index}"
        report(name, _error_of(_multiply, name))
        memory = torch.cuda.get_device_properties(index).total_memory
        report(f"{name} model", f"{torch.cuda.get_device_name(index)}, {memory / 2**30:.1f} GiB")


def _multiply(device: str) -> None:
    """Multiply two matrices of ones on a device, and check the result."""
    import torch  # noqa: PLC0415

    ones = torch.ones(64, 64)
    _equal((ones.to(device) @ ones.to(device)).sum(), 64.0**3)


def _all_reduce(report: Report, backend: str, rank: str, rendezvous: str) -> None:
    import torch  # noqa: PLC0415
    from torch import distributed as dist  # noqa: PLC0415

    def add() -> None:
        if backend == "nccl":
            device = torch.device("cuda", int(rank))
        else:
            device = torch.device("cpu")
        if device.type == "cuda":
            torch.cuda.set_device(device)
        options: dict[str, Any] = {
            "rank": int(rank),
            "world_size": 2,
            "timeout": timedelta(seconds=30),
        }
        dist.init_process_group(backend, init_method=rendezvous, **options)
        # The ranks 0 and 1 have the numbers 1 and 2.
        number = torch.tensor([int(rank) + 1.0], device=device)
        dist.all_reduce(number)
        _equal(number.item(), 3.0)
        dist.destroy_process_group()

    report("sum", _error_of(add))


def _equal(value: Any, right: float) -> None:
    if value != right:
        raise ArithmeticError(f"the result was {float(value):g} in place of {right:g}")


def _error_of(function: Callable[..., object], *arguments: Any) -> str:
    """The first line of the error that a function raises; empty if it raises none."""
    try:
        function(*arguments)
    except (Exception, SystemExit) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        if lines:
            return f"{type(error).__name__}: {lines[0]}"
        return type(error).__name__
    return ""


_TRIALS: dict[str, Callable[..., None]] = {
    "imports": _imports,
    "torch": _torch,
    "all-reduce": _all_reduce,
}


def _main(trial: str, *arguments: str) -> None:
    # What packages print to the standard output goes to the standard error stream from here on, so
    # that the lines of reports are not mixed with it.
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def report(name: str, value: Any) -> None:
        print(json.dumps([name, value]), file=reports, flush=True)

    def attempt() -> None:
        module, colon, name = trial.partition(":")
        if colon:
            getattr(import_module(module), name)(report, *arguments)
        else:
            _TRIALS[trial](report, *arguments)

    if fault := _error_of(attempt):
        report("fault", fault)


if __name__ == "__main__":
    _main(*sys.argv[1:])
