"""The pictures of an experiment: runtime, worker time and proxy regret against the round."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.report import style
from ata_gym.bench.report.statistics import estimate, values
from ata_gym.typing import Floats, Ints


def draw(records: pl.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """Draw all pictures, as PNG and SVG: means over seeds, with 95 % confidence bands.

    ``runtime`` and ``worker_time`` show the sum over rounds, as published, and beside it the mean per round, in
    which one sees a policy learn; ``regret`` shows the sum of the proxy regret.
    """
    made = []
    for name, quantity, title, one in (
        ("runtime", "runtime", "runtime", "round time"),
        ("worker_time", "total_worker_time", "total worker time", "worker time of a round"),
    ):
        with style.figure(9.5, 3.6) as picture:
            total, mean = picture.subplots(1, 2)
            _curves(total, records, quantity)
            total.set(xlabel="round", title=title)
            _curves(mean, records, quantity, per_round=True)
            height = "log" if (records[quantity] > 0).any() else "linear"  # recorded times may be 0
            mean.set(xlabel="round", title=f"{one}, mean so far", xscale="log", yscale=height)
            made += _finish(picture, total, experiment, folder / name)
    if not records["regret"].is_null().all():
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            _curves(axes, records, "regret")
            axes.set(xlabel="round", title="cumulative proxy regret", xscale="log")
            made += _finish(picture, axes, experiment, folder / "regret")
    return made


def _curves(axes: Axes, records: pl.DataFrame, quantity: str, *, per_round: bool = False) -> None:
    """A line and a band for each policy that has the quantity."""
    policies = records["policy"].unique(maintain_order=True).to_list()
    rounds = records["round"].unique().sort().to_numpy()
    for policy, line in style.lines(policies).items():
        sample = values(records, policy, quantity)
        if np.isnan(sample).all():
            continue
        curve(axes, rounds, sample / rounds if per_round else sample, line, label=policy)
    axes.margins(x=0.01)


def curve(axes: Axes, rounds: Ints, sample: Floats, line: Mapping[str, Any], label: str | None = None) -> None:
    """Draw the mean over seeds of a sample, shape (seeds, rounds), and its confidence band."""
    mean, half = estimate(sample)
    axes.plot(rounds, mean, label=label, **line)
    if not np.isnan(half).all():
        axes.fill_between(rounds, mean - half, mean + half, color=line["color"], alpha=0.2, linewidth=0)


def _finish(picture: Figure, axes: Axes, experiment: Experiment, stem: Path) -> list[Path]:
    """Add a title, and a legend in the order in which the lines end; save."""
    style.plain_numbers(*picture.axes)
    by_end = sorted(axes.get_lines(), key=lambda line: -np.asarray(line.get_ydata())[-1])
    picture.legend(handles=by_end, loc="outside right upper", handlelength=2.6)
    return style.save(picture, stem, f"{experiment.about}, {plural(experiment.seeds, 'seed')}")
