"""From the rows of a table to a log: which columns they are, and which rows count."""

from collections.abc import Mapping

import numpy as np

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.log import Log, checked
from ata_gym.bench.logs.tables.rows import Rows
from ata_gym.bench.logs.tables.times import seconds_of
from ata_gym.pools.traces import ranks

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


def log_of(rows: Rows, options: Options) -> Log:
    """Return the log that rows of a table hold.

    Args:
        rows: The rows, from a file or from a reader of another format.
        options: The names of columns, and which rows and steps count.

    Raises:
        ValueError: For columns that are not found or could be several, bad entries, and a log that
            ``checked`` refuses.
    """
    named = {"worker": options.worker, "duration": options.duration, "round": options.round}
    columns = {role: name for role, name in named.items() if name}
    present = rows.frame.columns
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
    for role, name in columns.items():
        if name not in present:
            raise ValueError(
                f"there is no column {name!r} for the {role}; the columns are {present}",
            )
    if not rows.frame.height:
        raise ValueError("the file holds no rows")
    seconds, unit = seconds_of(rows.frame[columns["duration"]])
    code, workers = ranks(rows.frame[columns["worker"]].alias("worker"), text=True)
    if "round" in columns:
        number, rounds = ranks(rows.frame[columns["round"]].alias("round"), text=False)
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
    log = Log(
        rows.name,
        [str(worker) for worker in workers],
        sums,
        tasks,
        rows.remarks,
        steps=[str(one) for one in rounds],
        unit=unit,
    )
    return checked(log, options.warmup)
