"""The quadratic figures of the ATA paper: one trajectory on the clocks of the policies, for several numbers of workers.

Source: Maranjyan et al., ATA, ICML 2025: f - f* against runtime and worker time, the mean round time and the averaged
proxy regret against the round, for n = 17, 51 and 153.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ata_gym.bench.report import statistics, style
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.summary_tables import summary_table
from ata_gym.bench.report.table import Table, markdown
from ata_gym.scenarios import scenario

PUBLISHED_ROUNDS = 3_000_000


class PanelRow(NamedTuple):
    """A row of panels, one for each number of workers: two columns of ``lay`` and the labels of their axes."""

    x: str
    y: str
    x_label: str
    y_label: str


ROWS = (
    PanelRow("runtime", "suboptimality", "runtime", "$f - f^*$"),
    PanelRow("total_worker_time", "suboptimality", "total worker time", "$f - f^*$"),
    PanelRow("round", "round_time", "round", "mean round time"),
    PanelRow("round", "mean_regret", "round", "mean proxy regret"),
)
"""The rows of the paper's figure."""

_FALLEN = 0.98
"""The panels of f - f* begin where it has fallen to that part of its first value; before, the curves are flat."""


def scenario_name(growth: str, n: int) -> str:
    """The scenario of n workers and a growth of their mean task times; ValueError if the paper has none.

    >>> scenario_name("linear", 17)
    'icml2025-quadratic-linear-n17'
    """
    return scenario(f"icml2025-quadratic-{growth}-n{n}").name


def suboptimality(trajectory: pl.DataFrame) -> pl.DataFrame:
    """Columns round, from 0 on, and suboptimality: f - f* after each round of ``train_once`` on the quadratic.

    A task's loss is f - f* before the step, so that f - f* after a round is the next round's loss; the last round was
    evaluated.
    """
    after = pl.col("loss").shift(-1)
    return trajectory.select("round", suboptimality=after.fill_null(pl.col("suboptimality").last()))


def report(
    trajectory: pl.DataFrame, records: Mapping[int, pl.DataFrame], growth: str, about: str, folder: Path
) -> Report:
    """Summarise the policies, and leave tables, curves and the picture in a folder.

    Parameters
    ----------
    trajectory, records
        As for ``lay``.
    growth
        How the mean task times grow; the files are named after it.
    about
        Budget, rounds and seeds, for the titles.
    folder
        Where the files go.
    """
    curves, found = lay(trajectory, records), summarise(records)
    tables = [table(found, n, f"{growth}, {about}") for n in records]
    contents: dict[str, str | pl.DataFrame] = {
        f"{growth}.md": markdown(tables),
        f"{growth}.csv": found,
        f"{growth}-curves.csv": curves,
    }
    files = write(folder, contents)
    pictures = draw(curves, f"icml2025-quadratic, {growth} ({about})", folder / "plots" / growth)
    said = remark(curves["round"][-1], curves["suboptimality"][-1])
    return Report(found, tables, files, pictures, remark=said)


def lay(trajectory: pl.DataFrame, records: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """Join a trajectory of the quadratic with the records of ``ata_gym.bench`` for each n; means over the seeds.

    Returns
    -------
    Columns n, policy, round, runtime, total_worker_time, round_time (the mean of all rounds so far), mean_regret
    (likewise the proxy regret; null for GTA, whose rounds are races), for each of these four a column with ``_half``
    added (half the width of the 95 % confidence interval over seeds; null for one seed), and suboptimality, f - f*.
    """
    quantities, frames = pl.col("runtime", "total_worker_time", "regret"), []
    for n, frame in records.items():
        seeds = frame["seed"].n_unique()
        half = quantities.std() * (statistics.quantile(seeds) / seeds**0.5)
        means = frame.group_by("policy", "round", maintain_order=True).agg(quantities.mean(), half.name.suffix("_half"))
        frames.append(means.select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    rounds = pl.col("round")
    return (
        pl.concat(frames)
        .with_columns(round_time=pl.col("runtime") / rounds, round_time_half=pl.col("runtime_half") / rounds)
        .with_columns(mean_regret=pl.col("regret") / rounds, mean_regret_half=pl.col("regret_half") / rounds)
        .drop("regret", "regret_half")
        .join(suboptimality(trajectory), on="round", maintain_order="left")
    )


def summarise(records: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """Results after the last round: columns n, policy, quantity, mean, low and high, as of ``statistics.summarise``.

    Beside the quantities of ``statistics.summarise`` these are ``round_time`` and ``mean_regret``, means over rounds.
    """
    frames = []
    for n, frame in records.items():
        totals = statistics.summarise(frame)
        means = totals.filter(pl.col("quantity").is_in(["runtime", "regret"])).with_columns(
            pl.col("quantity").replace({"runtime": "round_time", "regret": "mean_regret"}),
            pl.col("mean", "low", "high") / pl.lit(frame["round"].max()),
        )
        frames.append(pl.concat([totals, means]).select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    return pl.concat(frames)


def table(found: pl.DataFrame, n: int, about: str) -> Table:
    """What ``summarise`` returned for n workers, as a table with ratios to OFTA."""
    return summary_table(
        f"n = {n}: {about}", found.filter(pl.col("n") == n),
        ["runtime/ofta", "total_worker_time/ofta", "round_time", "mean_regret"],
    )  # fmt: skip


def remark(rounds: int, left: float) -> str:
    """A sentence on what is not as published, from the number of rounds played and f - f* after the last."""
    if rounds == PUBLISHED_ROUNDS:
        return f"This is the published length; f - f* ends at {left:.3g}."
    return (
        f"The published curves have {PUBLISHED_ROUNDS:,} rounds and these have {rounds:,}, with the published problem, "
        f"step size and task times: they end at f - f* = {left:.3g}, earlier than the published ones, and what ata and "
        f"ata-empirical have learned until then gives other ratios and means than the published end. "
        f"--rounds {PUBLISHED_ROUNDS} plays them all."
    )


def draw(curves: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw what ``lay`` returned as one picture, a column for each number of workers, as PNG and SVG.

    Bands are 95 % confidence intervals over seeds: of the mean round time and regret, or of the clock at each round.
    """
    sizes = curves["n"].unique(maintain_order=True).to_list()
    with style.figure(1.0 + 2.9 * len(sizes), 9.6) as picture:
        picture.set_layout_engine("constrained", w_pad=0.1)
        grid = picture.subplots(len(ROWS), len(sizes), sharey="row", squeeze=False)
        for row, panels in zip(ROWS, grid, strict=True):
            for n, axes in zip(sizes, panels, strict=True):
                _panel(axes, curves.filter(pl.col("n") == n), row)
            panels[0].set_ylabel(row.y_label)
        picture.align_ylabels(grid[:, 0])
        for n, axes in zip(sizes, grid[0], strict=True):
            axes.set_title(f"n = {n}", fontweight="bold")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside lower center", ncols=len(labels), handlelength=2.6)
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return style.save(picture, stem)


def _panel(axes: Axes, curves: pl.DataFrame, row: PanelRow) -> None:
    policies = curves["policy"].unique(maintain_order=True).to_list()
    if row.x == "round":
        axes.set(xlabel=row.x_label, yscale="log")
    else:
        axes.set(xlabel=row.x_label, xscale="log", yscale="log")
        fallen = curves.filter(pl.col(row.y) <= _FALLEN * pl.col(row.y).max())
        curves = fallen if fallen["round"].n_unique() > 1 else curves
    for policy, line in style.lines(policies).items():
        mine = curves.filter(pl.col("policy") == policy)
        above = mine.filter(pl.col(row.y) > 0)  # OFTA has no regret, and GTA's is not defined
        x, y = above[row.x].to_numpy(), above[row.y].to_numpy()
        axes.plot(x, y, label=policy, **line)
        uncertain = row.y if row.x == "round" else row.x
        half = above[f"{uncertain}_half"].cast(pl.Float64).to_numpy()
        if np.isnan(half).all():
            continue
        value = y if row.x == "round" else x
        low, high = np.maximum(value - half, value / 10), value + half  # the axis is logarithmic
        band = axes.fill_between if row.x == "round" else axes.fill_betweenx
        band(x if row.x == "round" else y, low, high, color=line["color"], alpha=0.2, linewidth=0)
    axes.margins(x=0.02)
    style.plain_numbers(axes)
    if row.y == "suboptimality":
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
