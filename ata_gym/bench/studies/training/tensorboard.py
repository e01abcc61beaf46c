"""The records of a training for TensorBoard."""

import os
from pathlib import Path
from typing import Any

import polars as pl

from ata_gym.bench.report.losses import CLOCKS
from ata_gym.utils.extras import require
from ata_gym.utils.files.atomic import file_name

_TAGS = {"loss": "loss", **{clock: clock.removeprefix("total_") for clock in CLOCKS}}
"""The name of the scalars of each column of the records."""

_EVENTS = "events.out.tfevents.*"
"""The files in which TensorBoard's writer keeps scalars."""


def check_tensorboard(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that is none, or say what to install where TensorBoard is missing.

    Raises:
        ValueError: If the folder has no name, or is a file.
        MissingExtraError: If TensorBoard is not installed.
    """
    if not os.fspath(folder):
        raise ValueError("TensorBoard needs a folder, and its name is empty")
    if Path(folder).is_file():
        raise ValueError(f"{folder} is a file: name a folder for TensorBoard")
    require("tensorboard", extra="train", purpose="tensorboard=...")


def write_events(records: pl.DataFrame, folder: Path) -> None:
    """Write the loss, the runtime and the worker time of each round, with a run for each policy.

    Values are means over the seeds. In place of the wall clock a scalar has the runtime, so that
    TensorBoard's axis "relative" is the runtime. Earlier files of the same policies are replaced.

    Args:
        records: The records of a training: columns policy, round, loss and ``CLOCKS``.
        folder: The folder that ``tensorboard --logdir`` gets.
    """
    torch_writer: Any = require(
        "torch.utils.tensorboard", extra="train", purpose="tensorboard=..."
    ).SummaryWriter
    means = records.group_by("policy", "round", maintain_order=True).agg(pl.col([*_TAGS]).mean())
    for (policy,), rows in means.group_by("policy", maintain_order=True):
        run = folder / file_name(str(policy))
        for earlier in run.glob(_EVENTS):
            earlier.unlink()
        with torch_writer(str(run)) as writer:
            for row in rows.to_dicts():
                for column, tag in _TAGS.items():
                    if row[column] is not None:
                        writer.add_scalar(tag, row[column], row["round"], walltime=row["runtime"])
