"""The published CIFAR-100 figure, and ours beside it: the end points, and the lines from a file of a user."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.ticker import EngFormatter

from ata_gym.bench.report import style
from ata_gym.bench.report.headline import listed
from ata_gym.bench.report.losses import CLOCKS, mean_clocks, on_clocks, read_columns
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.summary_tables import show, title_of
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.scenarios import PAPER


class EndPoint(NamedTuple):
    """Where a policy's line ends in a published figure."""

    runtime: float
    total_worker_time: float
    runtime_to_ofta: float
    total_worker_time_to_ofta: float


class PublishedFigure(NamedTuple):
    """The end points of a published figure."""

    scenario: str
    rounds: int
    end_points: Mapping[str, EndPoint]
    source: str
    tolerance: float  # how far ours may be from a published ratio, as a share of it


CIFAR100 = PublishedFigure(
    scenario="icml2025-cifar100", rounds=750_000,
    end_points={
        "gta": EndPoint(0.36906e9, 1.88262e10, 0.6331, 6.2904), "ofta": EndPoint(0.58292e9, 0.29929e10, 1.0, 1.0),
        "ata-empirical": EndPoint(1.15514e9, 0.52672e10, 1.9817, 1.7599),
        "ata": EndPoint(1.57554e9, 0.64149e10, 2.7029, 2.1434), "uta": EndPoint(3.57091e9, 2.59473e10, 6.1259, 8.6697),
    },
    source=f"{PAPER}, CIFAR-100 figure, vector paths of the authors' poster", tolerance=0.005,
)  # fmt: skip

_RATIOS = ("runtime/ofta", "total_worker_time/ofta")
QUANTITIES = ("runtime", "total_worker_time", *_RATIOS)  # of ``EndPoint``, as ``statistics.summarise`` names them


def compare(figure: PublishedFigure, summary: pl.DataFrame, rounds: int) -> pl.DataFrame:
    """Ours beside the published: columns policy, quantity, ours, high, published, deviation (a share of it).

    Where ``rounds`` is not the published number, the deviation is null, and the totals are left out.
    """
    comparable = rounds == figure.rounds
    ours = {(row["policy"], row["quantity"]): row for row in summary.to_dicts()}
    rows = []
    for name in QUANTITIES if comparable else _RATIOS:
        for policy, end in figure.end_points.items():
            mine, published = ours[policy, name], end[QUANTITIES.index(name)]
            deviation = mine["mean"] / published - 1 if comparable else None
            rows.append((policy, name, mine["mean"], mine["high"], published, deviation))
    schema = ["policy", "quantity", "ours", "high", "published", "deviation"]
    return pl.DataFrame(rows, schema, orient="row")


def _in_words(quantity: str) -> str:
    return title_of(quantity).replace("\n", " ")


def comparison_table(figure: PublishedFigure, comparison: pl.DataFrame) -> Table:
    """The comparison for the terminal."""
    units = {"runtime": "1e9", "total_worker_time": "1e10"}
    rows: list[tuple[str, ...]] = []
    for (name,), compared in comparison.group_by("quantity", maintain_order=True):
        unit = float(units.get(str(name), 1))
        quantity = _in_words(str(name)) + (f" ({units[str(name)]})" if name in units else "")
        rows.append(())
        for row in compared.to_dicts():
            deviation = "not comparable" if row["deviation"] is None else f"{row['deviation']:+.2%}"
            ours, published = show(row["ours"], row["high"], unit), f"{row['published'] / unit:.5g}"
            rows.append((row["policy"], quantity, ours, published, deviation))
    columns = {"policy": LEFT, "": LEFT, **right(("ours", "published", "deviation"))}
    return Table(f"beside the published figure\n({figure.source})", columns, rows)


def verdict(figure: PublishedFigure, comparison: pl.DataFrame, rounds: int) -> tuple[bool, str]:
    """Whether the figure was reproduced, and a sentence on it; a run of another length proves nothing either way."""
    if rounds != figure.rounds:
        return True, (
            f"The published end points are for {figure.rounds:,} rounds; these are {rounds:,}, so the ratios of "
            "the policies that learn are not comparable. Without --rounds the run has the published length."
        )
    ratios = comparison.filter(pl.col("quantity").is_in(_RATIOS))
    worst = ratios.sort(pl.col("deviation").abs(), maintain_order=True).row(-1, named=True)
    most = f"the largest deviation is {worst['deviation']:+.2%} ({worst['policy']}, {_in_words(worst['quantity'])})"
    if abs(worst["deviation"]) <= figure.tolerance:
        return True, f"Reproduced: every ratio is within {figure.tolerance:.1%} of the published one; {most}."
    return False, f"Not reproduced: a ratio is more than {figure.tolerance:.1%} from the published one; {most}."


EVEN = ("gta", "ofta", "uta")  # their rounds are alike, so that a share of the time is that share of the rounds
_KNOWN_FROM = 0.01  # of the rounds: before, the even lines have no point but their first


def read_lines(path: Path, figure: PublishedFigure) -> pl.DataFrame:
    """The lines in a CSV file with the columns axis, policy, time and loss_above_optimum: clock, policy, time, loss.

    ``axis`` is runtime or total_worker_time. ValueError if a line of the figure is not there, or a number is none.
    """
    lines = read_columns(path, ["time", "loss_above_optimum"], ["axis", "policy"])[1]
    lines = lines.rename({"axis": "clock", "loss_above_optimum": "loss"})
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


def report_lines(lines: pl.DataFrame, curve: pl.DataFrame, records: pl.DataFrame, rounds: int, folder: Path) -> Report:
    """Draw our lines on the published ones, and say how far these are from one curve; ``rounds`` are the published.

    The summary has each published point from ``_KNOWN_FROM`` on, our round then, and its ``distance`` from the curve.
    """
    clocks, frames = mean_clocks(records), []
    for (clock, policy), line in lines.group_by("clock", "policy", maintain_order=True):
        ours = clocks.filter(policy=policy)
        at = np.interp(line["time"], ours[str(clock)], ours["round"], left=0.0, right=np.inf)
        gap = (line["loss"] - np.interp(at, curve["round"], curve["loss"])).abs()
        frames.append(line.with_columns(round=at, distance=gap))
    found = pl.concat(frames).filter(pl.col("round").is_between(_KNOWN_FROM * rounds, rounds))
    away, first = found["distance"].to_numpy(), f"{_KNOWN_FROM * rounds:,.0f}"
    pictures = draw(lines, on_clocks(curve, records), folder / "plots" / "published")
    if not len(away):
        return Report(found, [], [], pictures)
    said = (
        f"\nThe published loss is the same function of the round for all policies: from round {first} on, the "
        f"{len(away):,} points of their lines are on average {away.mean():.3f}, and at most {away.max():.3f}, from "
        f"one curve in the round that our clocks show, falling from {curve['loss'][0]:.2f} to {curve['loss'][-1]:.2f}."
    )
    return Report(found, [], [], pictures, remark=said)


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
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        picture.axes[0].set_ylabel("$f - f^*$")
        picture.legend(*picture.axes[0].get_legend_handles_labels(), loc="outside right upper", handlelength=2.6)
        return style.save(picture, stem, "The published lines (wide) and ours (dashed)")
