"""``python -m docs.public_recordings FOLDER``: print what ``what-if`` says of public recordings.

The folder holds clones of StragglerAnalysis of ByteDance-Seed (128 and 64 processors, with the time
of each operation) and of HolisticTraceAnalysis of facebookresearch (traces of the profiler). Beside
each answer stands the same figure from a computation of its own, in a few lines.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.logs import Log, read_log
from ata_gym.bench.report.table import LEFT, RIGHT, Table, markdown
from ata_gym.typing import Floats

WORK = ("forward-compute", "backward-compute")
"""The operations that are a share of the work."""

OPERATIONS = {
    "StragglerAnalysis, one rank slowed": "StragglerAnalysis/data/trace-AR.parquet",
    "StragglerAnalysis, long sequences": "StragglerAnalysis/data/trace-SE.parquet",
    "StragglerAnalysis, uneven stages": "StragglerAnalysis/data/trace-ST.parquet",
}
"""The recordings with a row for each operation."""

TRACES = {"HolisticTraceAnalysis, 2 of 128": "HolisticTraceAnalysis/tests/data/trace_filter"}
"""The folders of traces."""


def operations_by_hand(path: Path) -> Floats:
    """The seconds of work of each rank, (steps, ranks), in the order of the ranks."""
    frame = pl.read_parquet(path).with_columns(pl.col("optype").cast(pl.String))
    work = frame.filter(pl.col("optype").is_in(WORK)).with_columns(pl.col("duration").cast(float))
    table = work.pivot("rank", index="step", values="duration", aggregate_function="sum")
    ranks = sorted(map(int, table.columns[1:]))
    return table.sort("step").select(map(str, ranks)).to_numpy()


def traces_by_hand(folder: Path) -> Floats:
    """The seconds of each step without the time in which only collectives run on the device."""
    by_rank = {}
    for path in sorted(folder.glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        by_rank[trace["distributedInfo"]["rank"]] = _own_times(trace["traceEvents"])
    steps = sorted(set.intersection(*map(set, by_rank.values())))
    return np.array([[by_rank[rank][step] for rank in sorted(by_rank)] for step in steps])


def _own_times(events: list[dict[str, Any]]) -> dict[str, float]:
    """The seconds of each step on a grid of microseconds, where a collective alone counts not."""
    spans = [one for one in events if one.get("ph") == "X" and "dur" in one]
    steps = {
        one["name"]: (one["ts"], one["ts"] + one["dur"])
        for one in spans
        if one["name"].startswith("ProfilerStep#") and one.get("cat") != "gpu_user_annotation"
    }
    kernels = [one for one in spans if str(one.get("cat")).lower() == "kernel"]
    times = {}
    for step, (start, end) in steps.items():
        waiting = np.zeros(int(end - start) + 1, dtype=bool)
        working = waiting.copy()
        for one in kernels:
            grid = waiting if one["name"].lower().startswith("nccl") else working
            first = int(max(one["ts"] - start, 0))
            grid[first : int(max(one["ts"] + one["dur"] - start, 0))] = True
        times[step] = 1e-6 * float((~(waiting & ~working)).sum())
    return times


def row(name: str, log: Log, seconds: Floats) -> tuple[str, ...]:
    """A row of the table: what was read, and the same by hand."""
    cells = [name, f"{len(log.workers)} x {len(log.seconds)}"]
    for times in (log.seconds, seconds):
        means = times.mean(axis=0)
        slowest = int(means.argmax())
        last = float((times.argmax(axis=1) == slowest).mean())
        next_mean = float(np.sort(means)[-2])
        cells.append(
            f"{log.workers[slowest]}: last in {100 * last:.0f} %, {means[slowest]:.4g} s,"
            f" the next {next_mean:.4g} s",
        )
    return tuple(cells)


def table(folder: Path) -> Table:
    """The table of the recordings that are in a folder."""
    rows = []
    kinds: list[tuple[dict[str, str], dict[str, Any], Callable[[Path], Floats]]] = [
        (OPERATIONS, {"where": {"optype": list(WORK)}}, operations_by_hand),
        (TRACES, {}, traces_by_hand),
    ]
    for paths, options, by_hand in kinds:
        for name, inner_path in paths.items():
            path = folder / inner_path
            rows.append(row(name, read_log(path, **options), by_hand(path)))
    columns = {"recording": LEFT, "ranks x steps": RIGHT, "what-if": LEFT, "by hand": LEFT}
    return Table("", columns, rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.public_recordings",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("folder", type=Path, help="the folder with the clones")
    print(markdown([table(parser.parse_args().folder)]))


if __name__ == "__main__":
    main()
