"""Losses on the clocks of policies: the loss of each round is given, and it is the same for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import ArrayLike

from ata_gym.bench.report import style
from ata_gym.bench.report.headline import listed
from ata_gym.typing import Floats, Ints
from ata_gym.utils.atomic import check_source
from ata_gym.utils.tables import reading

SHOWN = 1000  # the pictures begin at the longest time divided by this number; before, little happens
CLOCKS = ("runtime", "total_worker_time")
_TITLES = ("how long training takes (left is faster)", "how much work it costs (left is cheaper)")
_POINTS = 300  # of a given curve that are kept beside those of the recorded rounds

SAME = (
    "The loss as a function of the round is the one given, and the same for all policies: an allocation changes when "
    "gradients are there, never what they are. The pictures of the loss simulate the rest, which is the clocks."
)

GivenCurve = str | os.PathLike[str] | Mapping[str, ArrayLike] | pl.DataFrame
"""A loss curve as users give it: a CSV file, or columns; see ``loss_curve``."""


def loss_curve(given: GivenCurve, rounds: Ints) -> pl.DataFrame:
    """The loss in each of ``rounds``, which rise, and in some more: columns round and loss.

    What is given is a CSV file, or columns: ``round``, whole numbers that rise from 0 (before the first round) or 1 at
    least to the last of ``rounds``, and ``loss``, finite numbers: the loss when so many rounds are over. Between its
    rounds it is taken to be straight. ValueError if it is not so, FileNotFoundError if there is no such file.

    >>> loss_curve({"round": [0, 10], "loss": [5.0, 3.0]}, np.array([5])).rows()
    [(0, 5.0), (5, 4.0)]
    """
    if isinstance(given, str | os.PathLike):
        what, columns = str(given), read_columns(Path(given), ("round", "loss"))
    else:
        what, columns = "loss_curve", pl.DataFrame(dict(given) if isinstance(given, Mapping) else given)
        _check_names(what, columns, ("round", "loss"))
    at, loss = (number_column(what, columns[name]) for name in ("round", "loss"))
    if not len(at) or at[0] not in (0, 1) or (at != np.floor(at)).any() or (np.diff(at) <= 0).any():
        raise ValueError(f"{what}: the rounds must be whole numbers that rise, the first of them 0 or 1")
    if at[-1] < rounds[-1]:
        raise ValueError(
            f"{what} ends at round {int(at[-1]):,}, and {rounds[-1]:,} rounds are played: give the loss of all of "
            f"them, or play at most {int(at[-1]):,}"
        )
    own = at[at <= rounds[-1]].astype(np.int64)
    shown = np.union1d(rounds, own[np.linspace(0, len(own) - 1, min(_POINTS, len(own))).astype(np.int64)])
    return pl.DataFrame({"round": shown, "loss": np.interp(shown, at, loss)}).filter(pl.col("round") >= own[0])


def read_columns(path: Path, names: Sequence[str]) -> pl.DataFrame:
    """Columns of a CSV file, as text; ValueError if it lacks one, FileNotFoundError if there is no file."""
    check_source(path)
    with reading(str(path)):
        columns = pl.read_csv(path, infer_schema=False)
    _check_names(str(path), columns, names)
    return columns.select(names)


def _check_names(what: str, columns: pl.DataFrame, names: Sequence[str]) -> None:
    missing = [name for name in names if name not in columns.columns]
    if missing:
        there = ", ".join(columns.columns)
        raise ValueError(f"{what} has no column {listed(missing)}: it must have {listed(names)}, and has {there}")


def number_column(what: str, column: pl.Series) -> Floats:
    """The numbers of a column; ValueError if one is missing or not finite."""
    numbers = column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(f"{what}: row {row + 1} has {column.name} {column[row]!r}; it must be a finite number")
    return np.asarray(numbers, np.float64)


def mean_clocks(records: pl.DataFrame) -> pl.DataFrame:
    """The clocks of each policy at the recorded rounds, means over the seeds."""
    return records.group_by("policy", "round", maintain_order=True).agg(pl.col(*CLOCKS).mean())


def on_clocks(figures: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Figures with a column round on the clocks of records: columns policy, those of the figures, and ``CLOCKS``.

    Clocks are means over the seeds; between two recorded rounds a clock is taken to run evenly.
    """
    at, frames = figures["round"].to_numpy(), []
    for (policy,), clock in mean_clocks(records).group_by("policy", maintain_order=True):
        rounds = np.append(0, clock["round"].to_numpy())
        times = {name: np.interp(at, rounds, np.append(0.0, clock[name].to_numpy())) for name in CLOCKS}
        frames.append(figures.select(pl.lit(policy).alias("policy"), pl.all()).with_columns(**times))
    return pl.concat(frames)


def equal_clocks_note(records: pl.DataFrame) -> str:
    """Sentences on the policies whose clocks are equal in all rounds, since their lines cover each other; or "".

    >>> records = pl.DataFrame({"policy": ["ata", "mine"], "round": 7, "runtime": 1.0, "total_worker_time": 5.0})
    >>> equal_clocks_note(records)
    'ata and mine lie exactly on each other up to round 7: their allocations are equal.'
    """
    groups: dict[bytes, list[str]] = {}
    for policy in records["policy"].unique(maintain_order=True):
        clocks = records.filter(policy=policy).select(CLOCKS).to_numpy()
        groups.setdefault(clocks.tobytes(), []).append(policy)
    parts, rounds = [], int(records["round"].to_numpy().max())
    for group in (each for each in groups.values() if len(each) > 1):
        why = "their allocations are equal"
        if all(name.startswith(("ata", "uta")) for name in group):  # their scores differ, unless they are 0
            why = "all their scores are still 0, so that they allocate uniformly, as uta does"
        parts.append(f"{listed(group)} lie exactly on each other up to round {rounds:,}: {why}.")
    return " ".join(parts)


def draw(
    curves: pl.DataFrame, evaluations: pl.DataFrame, label: str, title: str, stem: Path, note: str = ""
) -> list[Path]:
    """Draw the loss, named ``label``, and each held-out figure against both clocks, as PNG and SVG."""
    rows = [(curves, "loss", label)]
    rows += [(evaluations, name, name.replace("_", " ")) for name in evaluations.columns if name not in curves.columns]
    with style.figure(9.5, 1.0 + 2.6 * len(rows)) as picture:
        grid = picture.subplots(len(rows), 2, sharex="col", sharey="row", squeeze=False)
        for (frame, quantity, name), panels in zip(rows, grid, strict=True):
            draw_row(panels, frame, quantity, name)
        for top, bottom, clock, title_of_clock in zip(grid[0], grid[-1], CLOCKS, _TITLES, strict=True):
            top.set_title(title_of_clock)
            bottom.set_xlabel(clock.replace("_", " "))
        picture.align_ylabels(grid[:, 0])
        picture.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", handlelength=2.6)
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        if note:
            picture.supxlabel(fill(note, 120), x=0.01, ha="left", fontsize=8.5)
        return style.save(picture, stem)


def draw_row(panels: Sequence[Axes], frame: pl.DataFrame, quantity: str, label: str) -> None:
    """Draw a figure, named ``label``, against both clocks, a line for each policy."""
    for axes, clock in zip(panels, CLOCKS, strict=True):
        for policy, line in style.lines(frame["policy"].unique(maintain_order=True).to_list()).items():
            mine = frame.filter(policy=policy)
            axes.plot(mine[clock].to_numpy(), mine[quantity].to_numpy(), label=policy, **line)
        finish(axes, frame[clock], frame[quantity])
    panels[0].set_ylabel(label)


def finish(axes: Axes, times: pl.Series, figures: pl.Series) -> None:
    """Set the axes of a panel: a clock over its last decades, and a positive loss by its logarithm."""
    logarithmic = figures.name.endswith("loss") and bool((figures > 0).all())
    axes.set(xscale="log", yscale="log" if logarithmic else "linear")
    axes.margins(x=0.01)
    clock = times.to_numpy()
    if clock.min() < clock.max() / SHOWN:
        axes.set_xlim(clock.max() / SHOWN, clock.max() * 1.05)
    style.plain_numbers(axes)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
