"""How recorded losses are read, and on which clocks they lie."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from ata_gym.bench.report.losses import mean_clocks, on_clocks
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks

_SMOOTHED = 50  # the mean of a noisy loss is over about the number of rounds divided by this number


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
    losses = steps.select("round", loss=reading(steps["loss"]))
    return mean_clocks(records).join(losses, on="round", maintain_order="left")


def evaluations_on_clocks(trajectory: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """The problem's figures on held-out data, as of ``losses_on_clocks``, with a column for each in place of the loss.

    Between two recorded rounds a clock is taken to run evenly.
    """
    names = trajectory.columns[2:]
    evaluated = trajectory.filter(pl.col("round") > 0).drop_nulls(names).drop("loss")
    return on_clocks(evaluated, records)
