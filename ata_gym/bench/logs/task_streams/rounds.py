"""From the tasks of a stream to rows with rounds.

A scheduler of tasks knows no rounds. Where a program waits for all tasks before it starts the next
ones, the times show them: at its end no task runs.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ata_gym.bench.logs.formats import Options
from ata_gym.bench.logs.tables.rows import Rows
from ata_gym.utils.validation import first_of

_SHARE_IN_ROUNDS = 0.5
"""The share of the tasks that are in rounds at least, where these count as rounds."""
SCHEMA = {"worker": str, "name": str, "seconds": float, "start": float, "end": float}
"""The columns of a stream of tasks: who ran which task, the time of its own work, and from when to
when it did; in seconds."""


def rows_of(name: str, tasks: pl.DataFrame, options: Options, remarks: Sequence[str]) -> Rows:
    """Return the tasks of a stream as rows of a table, each with its round as the step.

    Args:
        name: The name of the file.
        tasks: The tasks, with the columns of ``SCHEMA``.
        options: Which tasks count, by their ``name``.
        remarks: What a reader should know of how they were read.

    Raises:
        ValueError: For tasks of several names without a choice, and for tasks without rounds.
    """
    chosen = options.where.get("name")
    names = tasks["name"].unique().sort().to_list()
    named = first_of(map(repr, names), 6)
    if chosen is not None:
        unknown = [one for one in chosen if one not in names]
        if unknown:
            raise ValueError(f"there are no tasks of the name {unknown[0]!r}, but {named}")
        tasks = tasks.filter(pl.col("name").is_in(chosen))
    elif len(names) > 1:
        most = tasks["name"].mode().sort()[0]
        raise ValueError(
            f"it holds tasks of {len(names)} names, {named}: say which are shares of the"
            f" work, for instance with --where name={most}, several with a comma between",
        )
    # a stream is often a part of the one that was written later
    distinct = tasks.unique(maintain_order=True)
    repeated = tasks.height - distinct.height
    tasks = distinct
    in_rounds = _in_rounds(tasks)
    sentences = [*remarks]
    if repeated:
        sentences.append(f"{repeated} tasks are there more than once, and count once.")
    if in_rounds.height < tasks.height:
        sentences.append(
            f"{tasks.height - in_rounds.height} of {tasks.height} tasks are in no whole round, and"
            " are left out.",
        )
    sentences.append(
        f"The file knows no steps: the {in_rounds['step'].n_unique()} steps begin where all tasks"
        " before had ended.",
    )
    return Rows(name, in_rounds.select("worker", "step", "name", "seconds"), sentences)


def _in_rounds(tasks: pl.DataFrame) -> pl.DataFrame:
    """The tasks of rounds, with the number of the round as ``step``.

    The rounds of a program have as many tasks each; where idle moments of all workers meet by
    chance, the numbers of tasks between them differ.
    """
    tasks = tasks.sort("start", "end")
    ends = np.maximum.accumulate(tasks["end"].to_numpy())[:-1]
    begins = tasks["start"].to_numpy()[1:] >= ends
    steps = np.concatenate([[1], 1 + np.cumsum(begins)])
    tasks = tasks.with_columns(step=pl.Series(steps))
    workers = tasks["worker"].n_unique()
    rounds = tasks.group_by("step").agg(pl.len(), pl.col("worker").n_unique())
    rounds = rounds.filter(pl.col("worker") == workers)
    rounds = rounds.filter(pl.col("len") == pl.col("len").mode().max())
    chosen = tasks.filter(pl.col("step").is_in(rounds["step"].implode()))
    if rounds.height < 2 or chosen.height < _SHARE_IN_ROUNDS * tasks.height:
        raise ValueError(
            f"its tasks run in no rounds of all {workers} workers: there are no moments, with as"
            " many tasks between them, at which all tasks before have ended and no other one has"
            " begun. Then who was waited for is not in it: record a row for each worker and round,"
            " for instance with a TraceRecorder",
        )
    return chosen.with_columns(pl.col("step").rank("dense"))
