"""How recorded losses are read, and on which clocks they lie."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from ata_gym.bench.report.losses import mean_clocks, on_clocks
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks

FIRST_PART = 100
"""The loss at which policies are compared is the first loss divided by this number."""

_SMOOTHING_DIVISOR = 50
"""The mean of a noisy loss is over about the number of rounds divided by this number."""


@dataclass(frozen=True)
class LossReading:
    """How recorded losses are read: as they are, or as an exponential mean of noisy losses.

    Example:
        The weights of the two losses are 1/2 and 1, divided by their sum:

        >>> LossReading(over=3)(pl.Series([3.0, None, 0.0])).to_list()
        [3.0, None, 1.0]
    """

    over: int
    """About how many steps the mean is over.

    With each step the weight of a loss is multiplied by (over - 1) / (over + 1)."""
    exact: bool = False
    """Whether the losses have no noise."""

    @classmethod
    def from_problem(cls, problem: Problem | Tasks, rounds: int) -> Self:
        """The reading for so many rounds of a problem.

        The losses have no noise if the problem's ``exact_loss`` is True.
        """
        exact = bool(getattr(problem, "exact_loss", False))
        if exact:
            window = 1
        else:
            window = max(1, rounds // _SMOOTHING_DIVISOR)
        return cls(window, exact)

    def stretched(self, factor: float) -> Self:
        """The reading for more steps by a factor, so that the mean is over as many gradients."""
        if self.exact:
            return self
        return replace(self, over=max(1, round(self.over * factor)))

    def label(self) -> str:
        """The name of what is read, for an axis."""
        if self.exact:
            return "loss, exact"
        if self.over == 1:
            return "training loss of each round"
        return f"training loss, exponential mean over about {self.over:,} rounds"

    def __call__(self, losses: pl.Series) -> pl.Series:
        """The losses as they are read.

        The mean is not biased to its start, and null where there is no loss.
        """
        if self.over == 1:
            return losses
        return losses.ewm_mean(span=self.over, adjust=True, ignore_nulls=True)


class Goal(NamedTuple):
    """A loss, and the first round in which the loss is that low."""

    loss: float
    round: int


def goal(trajectory: pl.DataFrame, reading: LossReading) -> Goal:
    """The loss at which policies are compared.

    It is a hundredth of the first loss, or the lowest loss where that is not reached.
    """
    steps = trajectory.filter(pl.col("round") > 0)
    losses = reading(steps["loss"]).to_numpy()
    level = max(losses[0] / FIRST_PART, losses.min())
    first = int(np.argmax(losses <= level))
    return Goal(float(level), int(steps["round"][first]))


def losses_on_clocks(
    trajectory: pl.DataFrame,
    records: pl.DataFrame,
    reading: LossReading,
) -> pl.DataFrame:
    """Join a trajectory with the records of policies, at the recorded rounds.

    Args:
        trajectory: What ``train_once`` gives.
        records: What ``ata_gym.bench`` records.
        reading: How the losses are read.

    Returns:
        The columns policy, round, runtime, total_worker_time (means over the seeds), and loss as
        it is read.
    """
    steps = trajectory.filter(pl.col("round") > 0)
    losses = steps.select("round", loss=reading(steps["loss"]))
    return mean_clocks(records).join(losses, on="round", maintain_order="left")


def evaluations_on_clocks(trajectory: pl.DataFrame, records: pl.DataFrame) -> pl.DataFrame:
    """Join the problem's figures on held-out data with the records of policies.

    Between two recorded rounds a clock is taken to run evenly.

    Returns:
        The columns of ``losses_on_clocks``, with a column for each figure in place of the loss.
    """
    names = trajectory.columns[2:]
    evaluated = trajectory.filter(pl.col("round") > 0).drop_nulls(names).drop("loss")
    return on_clocks(evaluated, records)
