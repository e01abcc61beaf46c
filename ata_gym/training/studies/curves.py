"""Loss curves against the runtime and the worker time of each policy."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ata_gym.bench.report import style

_SMOOTHED = 30
"""A smoothed loss is the mean over the number of rounds divided by this."""

_SHOWN = 1000
"""The pictures begin at the longest time divided by this; before, little happens."""


def smooth(losses: pl.Series) -> pl.Series:
    """Mean loss over the last thirtieth of all rounds up to each round, over fewer rounds at the start.

    >>> smooth(pl.Series([3.0] * 30 + [0.0] * 30)).to_list()[28:32]
    [3.0, 3.0, 1.5, 0.0]
    """
    return losses.rolling_mean(max(1, len(losses) // _SMOOTHED), min_samples=1)


def lay(trajectory: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Join a trajectory of ``train_once`` with the records of ``ata_gym.bench``, at the recorded rounds.

    The columns are policy, round, runtime, total_worker_time (means over the seeds) and loss, the smoothed one.
    """
    steps = trajectory.filter(pl.col("round") > 0)
    smoothed = steps.select("round", loss=smooth(steps["loss"]))
    means = pl.col("runtime", "total_worker_time").mean()
    clocks = records.group_by("policy", "round", maintain_order=True).agg(means)
    return clocks.join(smoothed, on="round", maintain_order="left")


class Goal(NamedTuple):
    """A loss, and the first recorded round in which the smoothed loss is that low."""

    loss: float
    round: int


def goal(curves: pl.DataFrame) -> Goal:
    """A loss to compare the policies at: a hundredth of the first one, or the lowest where that is not reached."""
    one = curves.filter(policy=curves["policy"][0])
    losses = one["loss"].to_numpy()
    level = max(losses[0] / 100, losses.min())
    return Goal(float(level), int(one["round"][int(np.argmax(losses <= level))]))


def draw(curves: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw loss against runtime and against worker time, as PNG and SVG."""
    with style.figure(9.5, 3.6) as picture:
        panels = picture.subplots(1, 2, sharey=True)
        for axes, clock in zip(panels, ("runtime", "total_worker_time"), strict=True):
            _panel(axes, curves, clock)
        panels[0].set_title("training loss")
        picture.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", handlelength=2.6)
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return style.save(picture, stem)


def _panel(axes: Axes, curves: pl.DataFrame, clock: str) -> None:
    policies = curves["policy"].unique(maintain_order=True).to_list()
    for policy, line in style.lines(policies).items():
        mine = curves.filter(policy=policy)
        axes.plot(mine[clock].to_numpy(), mine["loss"].to_numpy(), label=policy, **line)
    yscale = "log" if (curves["loss"] > 0).all() else "linear"
    axes.set(xlabel=clock.replace("_", " "), xscale="log", yscale=yscale)
    axes.margins(x=0.01)
    times = curves[clock].to_numpy()
    if times.min() < times.max() / _SHOWN:
        axes.set_xlim(left=times.max() / _SHOWN)
    style.plain_numbers(axes)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
