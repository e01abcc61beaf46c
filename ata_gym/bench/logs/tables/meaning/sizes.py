"""How large the shares of workers are, and on which hosts the workers are."""

import numpy as np
import polars as pl

from ata_gym.bench.logs.tables.meaning.codes import texts_of
from ata_gym.bench.logs.tables.meaning.columns import Columns
from ata_gym.bench.logs.tables.meaning.keys import Keys
from ata_gym.bench.logs.tables.roles import HOSTS, SIZES, is_named
from ata_gym.typing import Floats, Ints

_MOSTLY = 0.75
"""The least part of the steps in which counts grow that begin again with each epoch."""


def sizes_of(frame: pl.DataFrame, keys: Keys, kind: Ints) -> tuple[Floats | None, list[str]]:
    """Return the work of each share, (steps, workers), and a remark; None where shares are equal.

    A column such as "batch_size" says it, if it differs between workers in a step. A count of all
    samples so far, which grows from step to step and may begin again with an epoch, does not.

    Args:
        frame: The rows, which are shares of work or parts of them.
        keys: Their workers and steps.
        kind: Their kinds; rows of several kinds, such as forward and backward, are of the same
            work.

    Raises:
        ValueError: If several columns differ between workers, in different ways.
    """
    shape = len(keys.steps), len(keys.workers)
    present = np.bincount(keys.cell, minlength=shape[0] * shape[1]).reshape(shape) > 0
    kinds = int(kind.max(initial=0)) + 1
    place = keys.cell * kinds + kind
    differing = dict[str, Floats]()
    for name in frame.columns:
        if not is_named(name, SIZES):
            continue
        numbers = frame[name].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        if not (np.isfinite(numbers) & (numbers > 0)).all():
            continue
        sums_of_kinds = np.bincount(place, numbers, shape[0] * shape[1] * kinds)
        sums = sums_of_kinds.astype(float).reshape(*shape, kinds).max(axis=-1)
        complete = sums[present.all(axis=1)]
        if (np.ptp(complete, axis=1) > 0).any() and not _counts_up(complete):
            differing[name] = sums
    if not differing:
        return None, []
    (name, sizes), *others = differing.items()
    for other, other_sizes in others:
        ratio = other_sizes[present] / sizes[present]
        if np.ptp(ratio) > 1e-9 * ratio.max():
            raise ValueError(
                f"{name} and {other} say different things of how much work a worker has: leave one"
                " of these columns out, or put their product in place of both",
            )
    return sizes, [f"{name} differs between workers, and says how much work each has in a step."]


def _counts_up(sums: Floats) -> bool:
    """Whether numbers, (steps, workers), are counts of all so far, which may begin again.

    All workers grow in most steps; in the others, none has more than the first of a count can be,
    which is the most that a worker grows by.
    """
    growth = np.diff(sums, axis=0)
    if not growth.size:
        return False
    grows = (growth > 0).all(axis=1)
    begins_again = (growth < 0).all(axis=1) & (sums[1:] <= growth.max()).all(axis=1)
    return bool(grows.mean() >= _MOSTLY and (grows | begins_again).all())


def remarks_on_hosts(frame: pl.DataFrame, columns: Columns, keys: Keys) -> list[str]:
    """Return a remark for each column of hosts in which a worker has several, as after a restart.

    Args:
        frame: The rows.
        columns: What the columns hold.
        keys: The workers and steps of the rows.
    """
    remarks = []
    for name in columns.identity:
        texts = texts_of(frame[name])
        if not is_named(name, HOSTS) or texts is None or name in columns.worker:
            continue
        hosts = pl.DataFrame({"worker": keys.worker, "host": texts}).unique(maintain_order=True)
        hosts = hosts.filter(pl.col("host") != "")
        counts = hosts.group_by("worker", maintain_order=True).len()
        moved = counts.filter(pl.col("len") > 1)["worker"].to_list()
        if moved and len(counts) > 1:
            first = hosts.filter(pl.col("worker") == moved[0])["host"].to_list()[:2]
            remarks.append(
                f"{len(moved)} of {len(counts)} workers were on several hosts, such as worker"
                f" {keys.workers[moved[0]]} on {first[0]} and {first[1]}: which host is slow is"
                f" told with --worker-column {name}."
            )
    return remarks
