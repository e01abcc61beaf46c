"""How likely each decision was, in the columns that a ``TraceRecorder`` adds to its own."""

from dataclasses import replace

import numpy as np
import polars as pl

from ata_gym.bench.logs.log import Log

_COLUMNS = ("propensity", "allocation_propensity")
_ALL_COLUMNS = {"worker", "round", "duration", *_COLUMNS}


def without_propensities(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Return the rows of tasks, and the rows with their propensities; None where there are none.

    Rows without a duration are of workers that were given no task.
    """
    if set(frame.columns) != _ALL_COLUMNS:
        return frame, None
    empty = pl.col("duration").cast(pl.String).fill_null("") == ""
    return frame.filter(~empty).drop(_COLUMNS), frame.drop("duration")


def with_propensities(log: Log, frame: pl.DataFrame) -> Log:
    """Return a log with the propensities of its steps and workers.

    A worker without a row in a step was not there, and could not have been given a task.

    Args:
        log: The log.
        frame: The rows with propensities, as ``without_propensities`` returns them.

    Raises:
        ValueError: If one is missing or no probability, or differs among rows that it is of.
    """
    numbers = frame.select(
        pl.col("worker", "round").cast(pl.String),
        pl.col(_COLUMNS).cast(pl.Float64, strict=False).fill_null(np.nan),
    )
    propensity = np.zeros(log.tasks.shape)
    workers = {worker: place for place, worker in enumerate(log.workers)}
    steps = {name: step for step, name in enumerate(log.step_names)}
    of_worker = _one_each(numbers, ["worker", "round"], "propensity")
    for worker, step, value in of_worker.rows():
        if worker in workers:
            propensity[steps[step], workers[worker]] = value
    of_step = _one_each(numbers, ["round"], "allocation_propensity")
    allocation = dict(of_step.rows())
    idle = sorted(set(of_worker["worker"]) - set(workers))
    remarks = [
        f"Worker {worker} has no task in the log, and no policy is given it." for worker in idle
    ]
    return replace(
        log,
        propensity=propensity,
        allocation_propensity=np.array([allocation[step] for step in log.step_names]),
        remarks=[*log.remarks, *remarks],
    )


def _one_each(numbers: pl.DataFrame, owner: list[str], name: str) -> pl.DataFrame:
    """A propensity for each owner; ``ValueError`` if an owner has several."""
    pairs = numbers.select(*owner, name).unique(maintain_order=True)
    twice = pairs.filter(pl.struct(owner).is_duplicated())
    if len(twice):
        words = " in round ".join(twice.row(0)[: len(owner)])
        raise ValueError(f"there are several values of {name} of {words}: each has one")
    return pairs
