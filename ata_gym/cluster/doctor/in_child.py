"""The trials themselves: a script that ``child_processes.py`` starts alone, as ``FOLDER NUMBER TRIAL ARGS...``.

It imports nothing of ata_gym, so that it starts at once, and appends a line of JSON for each report.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

SECONDS = 20.0
"""Each all-reduce, and each device, has this long once torch is imported."""

Report = Callable[[str, Any], None]


def imports(report: Report, _folder: Path, *modules: str) -> None:
    """Import one module after the other; the report is the first line of the error, or nothing."""
    for module in modules:
        report(module, _error_of(importlib.import_module, module))


def torch_facts(report: Report, folder: Path, rank: str, devices: str) -> None:
    """What torch was built with, an all-reduce with gloo, and in rank 0 each CUDA device."""
    import torch  # noqa: PLC0415
    from torch import distributed as dist  # noqa: PLC0415

    there = dist.is_available()
    report("version", torch.__version__)
    report("cuda", torch.version.cuda or torch.version.hip)
    names = ("gloo", "nccl", "mpi", "ucc")
    report("backends", [name for name in names if there and dist.is_backend_available(name)])
    report("devices", torch.cuda.device_count())
    if there:
        report("torchrun", _error_of(importlib.import_module, "torch.distributed.run"))
    if there and dist.is_gloo_available():
        report("gloo", _error_of(_sum_of_ranks, folder, int(rank), "gloo"))
    if devices != "devices":
        return
    if torch.version.cuda or torch.version.hip:
        report("start", _error_of(torch.cuda.init))
    for index in range(torch.cuda.device_count()):
        report(f"cuda:{index}", _device(index))


def all_reduce(report: Report, folder: Path, rank: str, backend: str) -> None:
    """Two processes add their numbers."""
    report(backend, _error_of(_sum_of_ranks, folder, int(rank), backend))


def _sum_of_ranks(folder: Path, rank: int, backend: str) -> None:
    import torch  # noqa: PLC0415
    from torch import distributed as dist  # noqa: PLC0415

    faulthandler.dump_traceback_later(SECONDS, exit=True)  # also where no code of Python runs any more
    if on_gpu := backend == "nccl":
        torch.cuda.set_device(rank)
    rendezvous = (folder / f"rendezvous-{backend}").as_uri()
    dist.init_process_group(
        backend, init_method=rendezvous, rank=rank, world_size=2, timeout=timedelta(seconds=SECONDS)
    )
    try:
        number = torch.tensor([rank + 1.0], device=f"cuda:{rank}" if on_gpu else "cpu")
        dist.all_reduce(number)
        if number.item() != 3.0:
            raise ArithmeticError(f"the sum of 1 and 2 over two processes was {number.item():g}")
        dist.barrier()
    finally:
        dist.destroy_process_group()
        faulthandler.cancel_dump_traceback_later()


def _device(index: int) -> dict[str, Any]:
    import torch  # noqa: PLC0415

    faulthandler.dump_traceback_later(SECONDS, exit=True)
    facts: dict[str, Any] = {"name": f"cuda:{index}", "memory": 0}

    def compute() -> None:
        facts.update(
            name=torch.cuda.get_device_name(index), memory=torch.cuda.get_device_properties(index).total_memory
        )
        ones = torch.ones(64, 64, device=f"cuda:{index}")
        total = (ones @ ones).sum().item()
        if total != 64.0**3:
            raise ArithmeticError(f"a sum that is {64**3} was {total:g}")

    facts["fault"] = _error_of(compute)
    faulthandler.cancel_dump_traceback_later()
    return facts


def ray_start(report: Report, folder: Path, environment: str, options: str) -> None:
    """Start a cluster with one processor, run a task, and shut it down; how a cluster is started is told as JSON."""
    os.environ |= json.loads(environment)
    ray: Any = importlib.import_module("ray")

    try:
        ray.init(
            **json.loads(options), num_cpus=1, object_store_memory=80 * 2**20,
            log_to_driver=False, logging_level="ERROR", _temp_dir=str(folder / "r"),
        )  # fmt: skip
        total = ray.get(ray.remote(_add).remote(1, 2))
    except Exception as error:
        report("fault", _first_line(error))
        return
    finally:
        ray.shutdown()
    report("fault", "" if total == 3 else f"the sum of 1 and 2 in a task was {total}")


def ray_nodes(report: Report, _folder: Path, address: str, seconds: str) -> None:
    """Join a running cluster, and run a task on each of its nodes; a node that does not answer in time has a fault."""
    ray: Any = importlib.import_module("ray")  # its types do not know a node as a place
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        nodes = [node for node in ray.nodes() if node["Alive"]]
        asked = []
        for node in nodes:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked.append(ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=here)(_versions).remote())
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=float(seconds))
        for node, task in zip(nodes, asked, strict=True):
            facts = {"resources": node["Resources"], "address": node["NodeManagerAddress"]}
            if task in ready:
                with suppress(Exception):
                    facts |= ray.get(task)
            report(f"{node['NodeManagerHostname']} {node['NodeID'][:8]}", facts)
    except Exception as error:
        report("fault", _first_line(error))
    finally:
        ray.shutdown()


def _add(x: int, y: int) -> int:
    return x + y


def _versions() -> dict[str, str]:
    """In a worker process of Ray: the version of ata_gym there, or the first line of the error."""
    fault = _error_of(importlib.import_module, "ata_gym")
    version = "" if fault else sys.modules["ata_gym"].__version__
    return {"fault": fault, "version": version, "python": platform.python_version()}


def _error_of(function: Callable[..., object], *arguments: Any) -> str:
    """The first line of the error of a call; empty if there is none."""
    try:
        function(*arguments)
    except (Exception, SystemExit) as error:
        return _first_line(error)
    return ""


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


TRIALS: dict[str, Callable[..., None]] = {
    "imports": imports,
    "torch": torch_facts,
    "all-reduce": all_reduce,
    "ray-start": ray_start,
    "ray-nodes": ray_nodes,
}


def main(folder: str, number: str, trial: str, *arguments: str) -> None:
    """Run a trial, and report into a file of the folder."""
    with Path(folder, f"{number}.jsonl").open("a", encoding="utf-8", buffering=1) as file:

        def report(name: str, value: Any) -> None:
            print(json.dumps([name, value]), file=file, flush=True)

        TRIALS[trial](report, Path(folder), *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
