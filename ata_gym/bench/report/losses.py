"""Losses on the clocks of policies: the loss of each round is given, and it is the same for all of them."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from ata_gym.bench.report import style
from ata_gym.bench.report.headline import listed
from ata_gym.typing import Ints
from ata_gym.utils.atomic import check_source
from ata_gym.utils.json_files import fields, items, number
from ata_gym.utils.tables import reading

SHOWN = 1000  # the pictures begin at the longest time divided by this number; before, little happens
CLOCKS = ("runtime", "total_worker_time")
_TITLES = ("how long training takes (left is faster)", "how much work it costs (left is cheaper)")
_POINTS = 300  # of a given curve that are kept beside those of the recorded rounds

SAME = (
    "The loss as a function of the round is the one given, and the same for all policies: an allocation changes when "
    "gradients are there, never what they are. The pictures of the loss simulate the rest, which is the clocks."
)

Curve = Mapping[str, Sequence[float]]  # the columns of a ``loss_curve``
GivenCurve = str | os.PathLike[str] | Mapping[str, Any] | pl.DataFrame
"""A loss curve as users give it: a CSV file, or columns; see ``loss_curve``."""


def loss_curve(given: GivenCurve, rounds: Ints) -> pl.DataFrame:
    """The loss in each of ``rounds``, which rise, and in some more: columns round and loss.

    What is given is a CSV file, or columns: ``round``, whole numbers that rise from 0 (before the first round) or 1 at
    least to the last of ``rounds``, and ``loss``, finite numbers: the loss when so many rounds are over. Between its
    rounds it is taken to be straight. ValueError if it is not so, FileNotFoundError if there is no such file.

    >>> loss_curve({"round": [0, 10], "loss": [5.0, 3.0]}, np.array([5])).rows()
    [(0, 5.0), (5, 4.0)]
    """
    what, table = read_columns(given, ["round", "loss"])
    at, loss = table["round"].to_numpy(), table["loss"].to_numpy()
    if not len(at) or at[0] not in (0, 1) or (at != np.floor(at)).any() or (np.diff(at) <= 0).any():
        raise ValueError(f"{what}: the rounds must be whole numbers that rise, the first of them 0 or 1")
    if at[-1] < rounds[-1]:
        ends = f"{what} ends at round {int(at[-1]):,}, and {rounds[-1]:,} rounds are played"
        raise ValueError(f"{ends}: give the loss up to the last round, or play at most {int(at[-1]):,}")
    own = at[at <= rounds[-1]].astype(np.int64)
    shown = np.union1d(rounds, own[np.linspace(0, len(own) - 1, min(_POINTS, len(own))).astype(np.int64)])
    return pl.DataFrame({"round": shown, "loss": np.interp(shown, at, loss)})


_CURVE = fields(dict.fromkeys(("round", "loss"), items(number)))


def kept_curve(name: str, value: Any) -> None:
    """The rule of a ``loss_curve`` in a note: lists of as many rounds and losses."""
    _CURVE(name, value)
    if not len(value["round"]) == len(value["loss"]) > 0:
        raise ValueError(f"{name} must have as many rounds as losses, and at least one")


def frame_of(curve: Curve) -> pl.DataFrame:
    """A loss curve from a note as a frame."""
    return pl.DataFrame({name: list(map(float, curve[name])) for name in ("round", "loss")})


def read_columns(given: Any, numbers: Sequence[str], texts: Sequence[str] = ()) -> tuple[str, pl.DataFrame]:
    """What messages call it, and its columns of finite numbers and of text; ValueError if it lacks one."""
    path = Path(given) if isinstance(given, str | os.PathLike) else None
    what = "loss_curve" if path is None else str(path)
    if path is not None:
        check_source(path)
    with reading(what):
        table = pl.DataFrame(given) if path is None else pl.read_csv(path, infer_schema=False, glob=False)
    wanted = [*texts, *numbers]
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        there = ", ".join(table.columns) or "none"
        raise ValueError(f"{what} has no column {listed(missing)}: it must have {listed(wanted)}, and has {there}")
    found = table.select(*texts, pl.col(numbers).cast(pl.Float64, strict=False).fill_null(np.nan))
    for name in numbers:
        wrong = np.flatnonzero(~np.isfinite(found[name].to_numpy()))
        if len(wrong):
            cell = table[name][int(wrong[0])]
            raise ValueError(f"{what}: row {wrong[0] + 1} has the {name} {cell!r}; it must be a finite number")
    return what, found


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
        draw_rows(picture, rows, sharex="col")
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        if note:
            picture.supxlabel(fill(note, 120), x=0.01, ha="left", fontsize=8.5)
        return style.save(picture, stem)


def draw_rows(picture: Figure, rows: Sequence[tuple[pl.DataFrame, str, str]], sharex: Any = "none") -> None:
    """Draw a row of panels for each figure, which has a label, against both clocks, with a line for each policy."""
    grid = picture.subplots(len(rows), 2, sharex=sharex, sharey="row", squeeze=False)
    for (frame, quantity, label), panels in zip(rows, grid, strict=True):
        for axes, clock in zip(panels, CLOCKS, strict=True):
            for policy, line in style.lines(frame["policy"].unique(maintain_order=True).to_list()).items():
                mine = frame.filter(policy=policy)
                axes.plot(mine[clock].to_numpy(), mine[quantity].to_numpy(), label=policy, **line)
            finish(axes, frame[clock], frame[quantity])
        panels[0].set_ylabel(label)
    for top, bottom, clock, title_of_clock in zip(grid[0], grid[-1], CLOCKS, _TITLES, strict=True):
        top.set_title(title_of_clock)
        bottom.set_xlabel(clock.replace("_", " "))
    picture.align_ylabels(grid[:, 0])
    picture.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", handlelength=2.6)


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
