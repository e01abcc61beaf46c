"""Losses on the clocks of policies.

The loss after each round is given, and is the same for all policies, which differ in their clocks.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.report.headline import listed
from ata_gym.typing import Ints
from ata_gym.utils.files.atomic import check_source
from ata_gym.utils.files.json_files import fields, items, number
from ata_gym.utils.files.tables import reading

SHOWN = 1000
"""Pictures begin at the longest time divided by this number; before, little happens."""
CLOCKS = ("runtime", "total_worker_time")
"""The columns of records that are sums of times, which run on from round to round."""
_MOST_CURVE_POINTS = 300  # points of a given curve that are kept beside the recorded rounds

SAME = (
    "The loss as a function of the round is the one given, and the same for all policies: an"
    " allocation changes when gradients are there, never what they are. What is simulated in the"
    " pictures of the loss are the times."
)

Curve = Mapping[str, Sequence[float]]
"""The columns of a ``loss_curve``."""
CurveLike = str | os.PathLike[str] | Mapping[str, Any] | pl.DataFrame
"""A loss curve as users give it: a CSV file, or columns; see ``loss_curve``."""


def loss_curve(curve: CurveLike, rounds: Ints) -> pl.DataFrame:
    """Return the loss in each of ``rounds`` and in some more, as columns round and loss.

    Between the rounds of the given curve the loss is interpolated linearly.

    Args:
        curve: A CSV file, or columns. ``round`` has whole numbers that rise from 0 (before the
            first round) or 1 to the last of ``rounds`` or beyond. ``loss`` has finite numbers: the
            loss when so many rounds are over.
        rounds: The recorded rounds, rising.

    Raises:
        ValueError: If the given curve is not like that.
        FileNotFoundError: If there is no such file.

    Example:
        >>> loss_curve({"round": [0, 10], "loss": [5.0, 3.0]}, np.array([5])).rows()
        [(0, 5.0), (5, 4.0)]
    """
    source, table = read_columns(curve, ["round", "loss"])
    curve_rounds_in_file = table["round"].to_numpy()
    loss = table["loss"].to_numpy()
    if (
        not len(curve_rounds_in_file)
        or curve_rounds_in_file[0] not in (0, 1)
        or (curve_rounds_in_file != np.floor(curve_rounds_in_file)).any()
        or (np.diff(curve_rounds_in_file) <= 0).any()
    ):
        raise ValueError(
            f"{source}: the rounds must be whole numbers that rise, the first of them 0 or 1",
        )
    if curve_rounds_in_file[-1] < rounds[-1]:
        last = int(curve_rounds_in_file[-1])
        raise ValueError(
            f"{source} ends at round {last:,}, and {rounds[-1]:,} rounds are played: give the loss"
            f" up to the last round, or play at most {last:,}",
        )
    played_rounds = curve_rounds_in_file[curve_rounds_in_file <= rounds[-1]].astype(np.int64)
    kept_indices = np.linspace(
        0, len(played_rounds) - 1, min(_MOST_CURVE_POINTS, len(played_rounds))
    ).astype(np.int64)
    curve_rounds = np.union1d(rounds, played_rounds[kept_indices])
    return pl.DataFrame(
        {"round": curve_rounds, "loss": np.interp(curve_rounds, curve_rounds_in_file, loss)}
    )


_CURVE = fields(dict.fromkeys(("round", "loss"), items(number)))


def kept_curve(name: str, value: Any) -> None:
    """Check a ``loss_curve`` of a note: lists of as many rounds and losses.

    Args:
        name: The name of the field, for the error.
        value: What the note holds.

    Raises:
        ValueError: If it is something else.
    """
    _CURVE(name, value)
    if not len(value["round"]) == len(value["loss"]) > 0:
        raise ValueError(f"{name} must have as many rounds as losses, and at least one")


def frame_of(curve: Curve) -> pl.DataFrame:
    """Return a loss curve of a note as a frame with the columns round and loss."""
    return pl.DataFrame({name: list(map(float, curve[name])) for name in ("round", "loss")})


def read_columns(
    curve: Any,
    numbers: Sequence[str],
    texts: Sequence[str] = (),
) -> tuple[str, pl.DataFrame]:
    """Read a CSV file, or columns.

    Args:
        curve: A CSV file, or columns.
        numbers: The names of columns of finite numbers.
        texts: The names of columns of text.

    Returns:
        A name for messages, and a frame with these columns, texts first.

    Raises:
        ValueError: If it lacks a column, or a number is not finite.
        FileNotFoundError: If there is no such file.
    """
    if isinstance(curve, str | os.PathLike):
        path = Path(curve)
        source = str(path)
        check_source(path)
        with reading(source):
            table = pl.read_csv(path, infer_schema=False, glob=False)
    else:
        source = "loss_curve"
        with reading(source):
            table = pl.DataFrame(curve)
    column_names = [*texts, *numbers]
    missing_names = [name for name in column_names if name not in table.columns]
    if missing_names:
        present = ", ".join(table.columns) or "none"
        raise ValueError(
            f"{source} has no column {listed(missing_names)}: it must have {listed(column_names)},"
            f" and has {present}",
        )
    # Cells that are no numbers become NaN, and are refused below with their row.
    as_numbers = pl.col(numbers).cast(pl.Float64, strict=False)
    columns = table.select(*texts, as_numbers.fill_null(np.nan))
    for name in numbers:
        wrong_rows = np.flatnonzero(~np.isfinite(columns[name].to_numpy()))
        if len(wrong_rows):
            cell = table[name][int(wrong_rows[0])]
            raise ValueError(
                f"{source}: row {wrong_rows[0] + 1} has the {name} {cell!r}; it must be a finite"
                " number",
            )
    return source, columns


def mean_clocks(records: pl.DataFrame) -> pl.DataFrame:
    """Return the clocks of each policy at the recorded rounds, means over the seeds."""
    return records.group_by("policy", "round", maintain_order=True).agg(pl.col(*CLOCKS).mean())


def on_clocks(figures: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Put figures on the clocks of policies.

    Clocks are means over the seeds. Between two recorded rounds a clock is interpolated linearly.

    Args:
        figures: A column round, and any other columns.
        records: The records of policies.

    Returns:
        The figures once for each policy: columns policy, the columns of the figures, and
        ``CLOCKS``.
    """
    figure_rounds = figures["round"].to_numpy()
    frames = []
    for (policy,), clock in mean_clocks(records).group_by("policy", maintain_order=True):
        # All clocks are 0 before the first round.
        rounds = np.append(0, clock["round"].to_numpy())
        times = {
            name: np.interp(figure_rounds, rounds, np.append(0.0, clock[name].to_numpy()))
            for name in CLOCKS
        }
        frames.append(
            figures.select(pl.lit(policy).alias("policy"), pl.all()).with_columns(**times),
        )
    return pl.concat(frames)


def equal_clocks_note(records: pl.DataFrame) -> str:
    """Return sentences on the policies whose clocks are equal in all rounds.

    Their lines cover each other. The text is empty where there are none.

    Example:
        >>> clocks = {"runtime": 1.0, "total_worker_time": 5.0}
        >>> records = pl.DataFrame({"policy": ["ata", "mine"], "round": 7, **clocks})
        >>> equal_clocks_note(records)
        'The lines of ata and mine are equal up to round 7: their allocations are equal.'
    """
    groups: dict[bytes, list[str]] = {}
    for policy in records["policy"].unique(maintain_order=True):
        clocks = records.filter(policy=policy).select(CLOCKS).to_numpy()
        groups.setdefault(clocks.tobytes(), []).append(policy)
    parts = []
    rounds = int(records["round"].to_numpy().max())
    for group in (policies for policies in groups.values() if len(policies) > 1):
        # The scores of the variants of ATA differ, unless they are 0.
        if all(name.startswith(("ata", "uta")) for name in group):
            reason = "all their scores are still 0, so that they allocate uniformly, as uta does"
        else:
            reason = "their allocations are equal"
        parts.append(f"The lines of {listed(group)} are equal up to round {rounds:,}: {reason}.")
    return " ".join(parts)
