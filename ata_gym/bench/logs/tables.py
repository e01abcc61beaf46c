"""Tables: a row for each worker and step, or for each task."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ata_gym.bench.logs.formats import Format, Options
from ata_gym.bench.logs.log import Log, checked
from ata_gym.pools.traces import durations, ranks, read_columns, scan

_COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "worker": ("worker", "worker_id", "rank", "global_rank", "node", "host", "machine", "device"),
    "round": ("round", "step", "global_step", "iteration", "iter", "batch", "time"),
    "duration": (
        "duration",
        "seconds",
        "step_time",
        "compute_time",
        "batch_time",
        "batch_time_norm",
        "elapsed",
        "ms",
        "time_ms",
    ),
}
"""Usual names of the columns, by their roles."""


def _read(path: Path, options: Options) -> Log:
    named = {"worker": options.worker, "duration": options.duration, "round": options.round}
    columns = {role: name for role, name in named.items() if name}
    present = scan(path).collect_schema().names()
    for role, usual_names in _COLUMN_NAMES.items():
        candidates = [
            name for name in present if name.lower() in usual_names and name not in columns.values()
        ]
        if role not in columns and len(candidates) == 1:
            columns[role] = candidates[0]
        elif role not in columns and (candidates or role != "round"):
            if candidates:
                fault = f"could be {' or '.join(candidates)}"
            else:
                fault = f"is not found among {present}"
            raise ValueError(f"the column of the {role} {fault}: name it with --{role}-column")
    frame = read_columns(path, columns)
    seconds = durations(frame)
    code, workers = ranks(frame["worker"], text=True)
    if "round" in columns:
        number, rounds = ranks(frame["round"], text=False)
    else:
        # the k-th row of a worker has the number k: rows sorted by worker, in their order
        order = np.argsort(code, kind="stable")
        number = np.empty_like(code)
        counts = np.bincount(code)
        number[order] = np.concatenate([np.arange(count) for count in counts])
        rounds = list(range(counts.max()))
    # rows of the same worker and step are its tasks there: their times are added up
    shape = len(rounds), len(workers)
    sums = np.zeros(shape)
    tasks = np.zeros(shape)
    np.add.at(sums, (number, code), seconds)
    np.add.at(tasks, (number, code), 1.0)
    log = Log(path.name, [str(worker) for worker in workers], sums, tasks)
    return checked(log, options.warmup)


FORMAT = Format(
    "table",
    "The times of the column of durations; rows of the same worker and step are added up.",
    lambda _path: True,
    _read,
)
"""Tables in CSV, Parquet and JSON lines."""
