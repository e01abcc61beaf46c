"""Loss curves against the runtime and the worker time of each policy."""

from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from ata_gym.bench.report import style
from ata_gym.bench.report.headline import listed
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks

_SMOOTHED = 50  # the mean of a noisy loss is over about the number of rounds divided by this number
SHOWN = 1000  # the pictures begin at the longest time divided by this number; before, little happens
CLOCKS = ("runtime", "total_worker_time")
_TITLES = ("how long training takes (left is faster)", "how much work it costs (left is cheaper)")


@dataclass(frozen=True)
class LossReading:
    """How recorded losses are read: as they are, or, where they are noisy, as an exponential mean.

    >>> LossReading(over=3)(pl.Series([3.0, None, 0.0])).to_list()  # weights 1 and 1/2, divided by their sum
    [3.0, None, 1.0]
    """

    over: int  # about how many steps: the weight of a loss falls by (over - 1) / (over + 1) with each step
    exact: bool = False

    @classmethod
    def of(cls, problem: Problem | Tasks, rounds: int) -> Self:
        """The reading for so many rounds of a problem; its losses have no noise if its ``exact_loss`` is True."""
        exact = bool(getattr(problem, "exact_loss", False))
        return cls(1 if exact else max(1, rounds // _SMOOTHED), exact)

    def stretched(self, factor: float) -> Self:
        """The reading for steps that are shorter by a factor: the mean is over as many gradients."""
        return self if self.exact else replace(self, over=max(1, round(self.over * factor)))

    def label(self) -> str:
        """The name of what is read, for an axis."""
        if self.exact:
            return "loss, exact"
        if self.over == 1:
            return "training loss of each round"
        return f"training loss, exponential\nmean over about {self.over:,} rounds"

    def __call__(self, losses: pl.Series) -> pl.Series:
        """The losses as they are read; the mean is not biased to its start, and null where there is no loss."""
        if self.over == 1:
            return losses
        return losses.ewm_mean(span=self.over, adjust=True, ignore_nulls=True)


class Goal(NamedTuple):
    """A loss, and the first round in which the loss is that low."""

    loss: float
    round: int


def goal(trajectory: pl.DataFrame, reading: LossReading) -> Goal:
    """A loss to compare the policies at: a hundredth of the first one, or the lowest where that is not reached."""
    steps = trajectory.filter(pl.col("round") > 0)
    losses = reading(steps["loss"]).to_numpy()
    level = max(losses[0] / 100, losses.min())
    return Goal(float(level), int(steps["round"][int(np.argmax(losses <= level))]))


def losses_on_clocks(trajectory: pl.DataFrame, records: pl.DataFrame, reading: LossReading) -> pl.DataFrame:
    """Join a trajectory of ``train_once`` with the records of ``ata_gym.bench``, at the recorded rounds.

    The columns are policy, round, runtime, total_worker_time (means over the seeds) and loss as it is read.
    """
    steps = trajectory.filter(pl.col("round") > 0)
    return _clocks(records).join(steps.select("round", loss=reading(steps["loss"])), on="round", maintain_order="left")


def evaluations_on_clocks(trajectory: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """The problem's figures on held-out data, as of ``losses_on_clocks``, with a column for each in place of the loss.

    Between two recorded rounds a clock is taken to run evenly.
    """
    names = trajectory.columns[2:]
    evaluated = trajectory.filter(pl.col("round") > 0).drop_nulls(names).drop("loss")
    at, frames = evaluated["round"].to_numpy(), []
    for (policy,), clock in _clocks(records).group_by("policy", maintain_order=True):
        rounds = np.append(0, clock["round"].to_numpy())
        times = {name: np.interp(at, rounds, np.append(0.0, clock[name].to_numpy())) for name in CLOCKS}
        frames.append(evaluated.select(pl.lit(policy).alias("policy"), "round", *names).with_columns(**times))
    return pl.concat(frames)


def _clocks(records: pl.DataFrame) -> pl.DataFrame:
    return records.group_by("policy", "round", maintain_order=True).agg(pl.col(*CLOCKS).mean())


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
    policies = curves["policy"].unique(maintain_order=True).to_list()
    with style.figure(9.5, 1.0 + 2.6 * len(rows)) as picture:
        grid = picture.subplots(len(rows), 2, sharex="col", sharey="row", squeeze=False)
        for (frame, quantity, name), panels in zip(rows, grid, strict=True):
            for axes, clock in zip(panels, CLOCKS, strict=True):
                for policy, line in style.lines(policies).items():
                    mine = frame.filter(policy=policy)
                    axes.plot(mine[clock].to_numpy(), mine[quantity].to_numpy(), label=policy, **line)
                finish(axes, curves[clock], frame[quantity])
            panels[0].set_ylabel(name)
        for top, bottom, clock, title_of_clock in zip(grid[0], grid[-1], CLOCKS, _TITLES, strict=True):
            top.set_title(title_of_clock)
            bottom.set_xlabel(clock.replace("_", " "))
        picture.align_ylabels(grid[:, 0])
        picture.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right upper", handlelength=2.6)
        picture.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
        if note:
            picture.supxlabel(fill(note, 120), x=0.01, ha="left", fontsize=8.5)
        return style.save(picture, stem)


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
