"""The quadratic figures of the ATA paper: one trajectory on the clocks of the policies, for several numbers of workers.

Source: Maranjyan et al., ATA, ICML 2025: f - f* against runtime and worker time, the mean round time and the averaged
proxy regret against the round, for n = 17, 51 and 153.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ata_gym.bench import style, summary, tables
from ata_gym.scenarios import scenario

PUBLISHED_ROUNDS = 3_000_000


class Row(NamedTuple):
    """A row of the picture, with a panel for each number of workers."""

    across: str
    height: str
    label: str
    """Of the horizontal axis."""
    title: str
    """Of the vertical one."""


ROWS = (
    Row("runtime", "suboptimality", "runtime", "$f - f^*$"),
    Row("total_worker_time", "suboptimality", "total worker time", "$f - f^*$"),
    Row("round", "round_time", "round", "mean round time"),
    Row("round", "mean_regret", "round", "mean proxy regret"),
)
"""What the paper draws."""

_FALLEN = 0.98
"""The panels of f - f* begin where it has fallen to that part; before, all is flat."""


def scenario_name(growth: str, n: int) -> str:
    """The scenario of n workers, whose mean task times grow in that way.

    Raises
    ------
    ValueError
        If the paper has no such growth, or no such number of workers.

    Examples
    --------
    >>> scenario_name("linear", 17)
    'icml2025-quadratic-linear-n17'
    """
    return scenario(f"icml2025-quadratic-{growth}-n{n}").name


def suboptimality(trajectory: pl.DataFrame) -> pl.DataFrame:
    """F - f* after each round: columns round, from 0 on, and suboptimality.

    Parameters
    ----------
    trajectory
        Of the problem ``quadratic``, as ``trajectory.train_once`` gives it. A task's loss is f - f* at the weights
        before the step, so that the loss of the next round is what is asked for; the last round was evaluated.
    """
    after = pl.col("loss").shift(-1)
    return trajectory.select("round", suboptimality=after.fill_null(pl.col("suboptimality").last()))


def lay(trajectory: pl.DataFrame, records: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """Everything that the figures show, at the recorded rounds, as means over the seeds.

    Parameters
    ----------
    trajectory
        As for ``suboptimality``.
    records
        For each number of workers, what ``ata_gym.bench`` recorded.

    Returns
    -------
    Columns n, policy, round, runtime, total_worker_time, round_time (the mean of all rounds so far), mean_regret
    (likewise the proxy regret; null for GTA, whose rounds are races) and suboptimality, f - f*.
    """
    clocks = pl.concat(
        frame.group_by("policy", "round", maintain_order=True)
        .agg(pl.col("runtime", "total_worker_time", "regret").mean())
        .select(pl.lit(n, pl.Int64).alias("n"), pl.all())
        for n, frame in records.items()
    )
    return (
        clocks.with_columns(round_time=pl.col("runtime") / pl.col("round"))
        .with_columns(mean_regret=pl.col("regret") / pl.col("round"))
        .drop("regret")
        .join(suboptimality(trajectory), on="round", maintain_order="left")
    )


def summarise(records: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """How the policies stand after the last round: columns n, policy, quantity, mean, low and high.

    Beside the quantities of ``summary.summarise`` these are ``round_time`` and ``mean_regret``, means over the rounds.
    """
    frames = []
    for n, frame in records.items():
        totals = summary.summarise(frame)
        means = totals.filter(pl.col("quantity").is_in(["runtime", "regret"])).with_columns(
            pl.col("quantity").replace({"runtime": "round_time", "regret": "mean_regret"}),
            pl.col("mean", "low", "high") / pl.lit(frame["round"].max()),
        )
        frames.append(pl.concat([totals, means]).select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    return pl.concat(frames)


def table(found: pl.DataFrame, n: int, about: str) -> tables.Titled:
    """What ``summarise`` gave for n workers, as a table with ratios to OFTA."""
    return tables.table(
        f"n = {n}: {about}", found.filter(pl.col("n") == n),
        ["runtime/ofta", "total_worker_time/ofta", "round_time", "mean_regret"],
    )  # fmt: skip


def remark(rounds: int, left: float) -> str:
    """What is as published, and what is not.

    Parameters
    ----------
    rounds
        How many were played.
    left
        f - f* after the last.
    """
    if rounds == PUBLISHED_ROUNDS:
        return f"This is the published length; f - f* ends at {left:.3g}."
    return (
        f"The published curves have {PUBLISHED_ROUNDS:,} rounds and these have {rounds:,}, with the published problem, "
        f"step size and task times: they end at f - f* = {left:.3g}, earlier than the published ones, and what ata and "
        f"ata-empirical have learned until then gives other ratios and means than the published end. "
        f"--rounds {PUBLISHED_ROUNDS} plays them all."
    )


def draw(curves: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw what ``lay`` gave as one picture, a column for each number of workers, as PNG and SVG."""
    sizes = curves["n"].unique(maintain_order=True).to_list()
    with style.figure(1.0 + 2.9 * len(sizes), 9.6) as picture:
        picture.set_layout_engine("constrained", w_pad=0.1)
        grid = picture.subplots(len(ROWS), len(sizes), sharey="row", squeeze=False)
        for row, panels in zip(ROWS, grid, strict=True):
            for n, axes in zip(sizes, panels, strict=True):
                _panel(axes, curves.filter(pl.col("n") == n), row)
            panels[0].set_ylabel(row.title)
        picture.align_ylabels(grid[:, 0])
        for n, axes in zip(sizes, grid[0], strict=True):
            axes.set_title(f"n = {n}", fontweight="bold")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside lower center", ncols=len(labels), handlelength=2.6)
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        return style.save(picture, stem)


def _panel(axes: Axes, curves: pl.DataFrame, row: Row) -> None:
    policies = curves["policy"].unique(maintain_order=True).to_list()
    if row.across == "round":
        axes.set(xlabel=row.label, yscale="log")
    else:
        axes.set(xlabel=row.label, xscale="log", yscale="log")
        fallen = curves.filter(pl.col(row.height) <= _FALLEN * pl.col(row.height).max())
        curves = fallen if fallen["round"].n_unique() > 1 else curves
    for policy, line in style.lines(policies).items():
        mine = curves.filter(pl.col("policy") == policy)
        above = mine.filter(pl.col(row.height) > 0)  # OFTA has no regret, and GTA's is not defined
        axes.plot(above[row.across].to_numpy(), above[row.height].to_numpy(), label=policy, **line)
    axes.margins(x=0.02)
    style.plain_numbers(axes)
    if row.height == "suboptimality":
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
