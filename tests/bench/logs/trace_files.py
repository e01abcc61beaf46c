"""Traces in the shape that ``torch.profiler`` writes, by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

MAIN = (7, 7)
"""The process and thread of the training loop."""
GLOO = (7, 8)
"""A thread of gloo."""
STREAM = (0, 7)
"""The device and stream that compute."""
COLLECTIVES = (0, 20)
"""The device and stream of the collectives."""


def event(
    name: str, cat: str, start: float, length: float, where=MAIN, **args: Any
) -> dict[str, Any]:
    """An event; times are in milliseconds."""
    pid, tid = where
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": 1e3 * start,
        "dur": 1e3 * length,
        "args": args,
    }


def step(number: int, start: float, length: float) -> dict[str, Any]:
    return event(f"ProfilerStep#{number}", "user_annotation", start, length)


def operation(name: str, start: float, length: float, where=MAIN) -> dict[str, Any]:
    return event(name, "cpu_op", start, length, where)


def gloo(start: float, length: float, name: str = "all_reduce") -> list[dict[str, Any]]:
    """A collective: its call on the main thread, and its run on another."""
    return [
        operation("c10d::allreduce_", start, 0.01),
        event(f"gloo:{name}", "user_annotation", start + 0.01, length - 0.01, GLOO),
    ]


def kernel(name: str, start: float, length: float, launch: float | None = None, where=None) -> list:
    """A kernel, and where it is known, the call that launched it."""
    place = where or (COLLECTIVES if name.startswith("nccl") else STREAM)
    if launch is None:
        return [event(name, "kernel", start, length, place)]
    number = round(1e6 * start) + 1
    return [
        event("cudaLaunchKernel", "cuda_runtime", launch, 0.002, correlation=number),
        event(name, "kernel", start, length, place, correlation=number),
    ]


def nccl(start: float, length: float, launch: float | None = None) -> list[dict[str, Any]]:
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, length, launch)


def write(
    path: Path,
    events: list[Any],
    rank: int | None = None,
    world: int = 2,
    backend: str = "gloo",
    **more: Any,
) -> Path:
    """A trace; events may be lists of events."""
    flat = [one for part in events for one in (part if isinstance(part, list) else [part])]
    data: dict[str, Any] = {"schemaVersion": 1, **more}
    if rank is not None:
        data["distributedInfo"] = {"backend": backend, "rank": rank, "world_size": world}
    data["traceEvents"] = flat
    text = json.dumps(data).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.name.endswith("gz") else text)
    return path


def write_ranks(
    folder: Path, ranks: list[Any], steps: int = 3, period: float = 200.0, **more: Any
) -> Path:
    """A trace of each rank, given what it does in a step that starts at a time."""
    for rank, events_of in enumerate(ranks):
        events = [one for k in range(steps) for one in events_of(k, k * period)]
        write(folder / f"rank{rank}.json", events, rank, len(ranks), **more)
    return folder
