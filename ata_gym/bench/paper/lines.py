"""The lines of the published CIFAR-100 figure, f - f* against two clocks, from a file of a user, and ours on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.paper.end_points import PublishedFigure
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import listed
from ata_gym.bench.report.losses import CLOCKS, mean_clocks, number_column, on_clocks, read_columns
from ata_gym.bench.report.report import Report

EVEN = ("gta", "ofta", "uta")
"""Their rounds take the same time on average, so that a share of the whole time is that share of the rounds."""

_KNOWN_FROM = 0.01  # of the rounds: before, the even lines have no point but their first


def read_lines(path: Path, figure: PublishedFigure) -> pl.DataFrame:
    """The lines in a CSV file with the columns axis, policy, time and loss_above_optimum: clock, policy, time, loss.

    ``axis`` is runtime or total_worker_time. ValueError if a line of the figure is not there, or a number is none.
    """
    text = read_columns(path, ("axis", "policy", "time", "loss_above_optimum"))
    numbers = {name: number_column(str(path), text[name]) for name in ("time", "loss_above_optimum")}
    lines = text.select("policy", clock="axis").with_columns(time=numbers["time"], loss=numbers["loss_above_optimum"])
    there = set(lines.select("clock", "policy").unique().rows())
    missing = [
        f"{policy} against {clock}" for clock in CLOCKS for policy in figure.end_points if (clock, policy) not in there
    ]
    if missing:
        raise ValueError(
            f"{path} must have the lines of all policies for the axes runtime and total_worker_time; it lacks "
            f"{listed(missing)}"
        )
    return lines


def common_curve(lines: pl.DataFrame, rounds: int) -> pl.DataFrame:
    """The loss of each round, columns round and loss: all points of the lines of ``EVEN``, which end after ``rounds``.

    >>> points = {"clock": "runtime", "policy": "uta", "time": [0.0, 3.0, 4.0], "loss": [5.0, 2.0, 1.0]}
    >>> common_curve(pl.DataFrame(points), 100).rows()
    [(0, 5.0), (75, 2.0), (100, 1.0)]
    """
    time = pl.col("time")
    at = (rounds * time / time.max().over("clock", "policy")).clip(0).round().cast(pl.Int64)
    even = lines.filter(pl.col("policy").is_in(EVEN)).with_columns(round=at)
    return even.group_by("round").agg(pl.col("loss").mean()).sort("round")


def distances(lines: pl.DataFrame, curve: pl.DataFrame, records: pl.DataFrame, rounds: int) -> pl.DataFrame:
    """How far the points of each line are from the curve in the round that our clock shows then, up to our last round.

    Columns clock, policy, mean, most: of the absolute differences of the loss, from a hundredth of the rounds on.
    """
    clocks, rows = mean_clocks(records), []
    for (clock, policy), line in lines.group_by("clock", "policy", maintain_order=True):
        ours = clocks.filter(policy=policy)
        at = np.interp(line["time"], ours[str(clock)], ours["round"], left=0.0, right=np.inf)
        known = (at >= _KNOWN_FROM * rounds) & np.isfinite(at)
        away = np.abs(line["loss"].to_numpy() - np.interp(at, curve["round"], curve["loss"]))[known]
        rows.append(
            (clock, policy, float(away.mean()), float(away.max())) if len(away) else (clock, policy, None, None)
        )
    return pl.DataFrame(rows, ["clock", "policy", "mean", "most"], orient="row")


def report(lines: pl.DataFrame, curve: pl.DataFrame, records: pl.DataFrame, rounds: int, folder: Path) -> Report:
    """Draw our lines on the published ones, and say how far these are from one curve; ``rounds`` are the published."""
    found = distances(lines, curve, records, rounds)
    pictures = draw(lines, on_clocks(curve, records), folder / "plots" / "published")
    known = found.drop_nulls()
    said = (
        f"\nThe published loss is the same function of the round for all policies: the points of {len(known)} "
        f"published lines are on average {known['mean'].mean():.3f} from one curve in the round that our clocks show, "
        f"at most {known['most'].max():.3f} (from round {_KNOWN_FROM * rounds:,.0f} on; the loss falls from "
        f"{curve['loss'][0]:.2f} to {curve['loss'][-1]:.2f})."
    )
    return Report(found, [], [], pictures, remark=said if len(known) else "")


def draw(lines: pl.DataFrame, ours: pl.DataFrame, stem: Path) -> list[Path]:
    """Draw ours, dashed, on the published lines, on linear axes as there."""
    with style.figure(9.5, 4.2) as picture:
        for axes, clock in zip(picture.subplots(1, 2, sharey=True), CLOCKS, strict=True):
            for policy, look in style.lines(lines["policy"].unique(maintain_order=True).to_list()).items():
                line, mine = lines.filter(clock=clock, policy=policy), ours.filter(policy=policy)
                axes.plot(line["time"], line["loss"], color=look["color"], linewidth=4.0, alpha=0.45, label=policy)
                axes.plot(mine[clock], mine["loss"], color="black", linewidth=1.0, linestyle=(0, (4, 2)))
            axes.get_lines()[-1].set_label("ours, on our clocks")
            axes.set(xlabel=clock.replace("_", " "), xlim=(0, None), ylim=(0, None))
            style.plain_numbers(axes)
        picture.axes[0].set_ylabel("$f - f^*$")
        picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside right upper", handlelength=2.6)
        return style.save(picture, stem, "The published lines (wide) and ours (dashed)")
