"""Policies and methods compared at a low loss."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from ata_gym.bench.experiment import Sizes, log_spaced
from ata_gym.bench.report.losses import CLOCKS
from ata_gym.bench.report.statistics import summarise
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.bench.studies.training.curves import Goal, LossReading, goal, losses_on_clocks
from ata_gym.training.methods.method import UpdateRecord


@dataclass(frozen=True)
class LossComparison:
    """Policies and methods on their own clocks, until the loss of a training is low."""

    sizes: Sizes
    """The sizes of what was played."""
    points: int
    """The largest number of rounds, or updates, of a curve."""
    trajectory: pl.DataFrame
    """The trajectory of the policies, which ``train_once`` gives."""
    reading: LossReading
    records: pl.DataFrame
    """The clocks of the policies."""
    methods: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    """The updates of each method by its label, which ``run_once`` gives."""
    without_ratio: Collection[str] = ()
    """The methods that are not compared with policies."""

    @cached_property
    def goal(self) -> Goal:
        """The loss at which policies and methods are compared."""
        return goal(self.trajectory, self.reading)

    @property
    def until_goal(self) -> pl.DataFrame:
        """The policies' records up to the goal."""
        return self.records.filter(pl.col("round") <= self.goal.round)

    def losses(self, method: str) -> pl.Series:
        """The losses of a method's updates as they are read.

        Each mean is over as many gradients as a mean of the policies' losses.
        """
        updates = self.methods[method]
        return self.reading.stretched(len(updates) / self.sizes.rounds)(updates["loss"])

    def reached(self, method: str) -> tuple[float, float] | tuple[None, None]:
        """When a method has reached the goal.

        Returns:
            Runtime and worker time of the first update at which it has; None if it does not.
        """
        low = self.methods[method].filter(self.losses(method) <= self.goal.loss)
        if len(low):
            return low.select(CLOCKS).row(0)
        return (None, None)

    def summary(self) -> pl.DataFrame:
        """The clocks of policies and methods at the goal, from ``statistics.summarise``."""
        clocks = self.until_goal
        if self.methods:
            # A method counts as a policy with one seed, whose only row is at the goal.
            seed_and_round = self.sizes.first_seed, self.goal.round
            rows = [(method, *seed_and_round, *self.reached(method)) for method in self.methods]
            schema = {
                "policy": pl.String,
                "seed": pl.Int64,
                "round": pl.Int64,
                **dict.fromkeys(CLOCKS, pl.Float64),
            }
            clocks = pl.concat([clocks, pl.DataFrame(rows, schema, orient="row")], how="diagonal")
        summary = summarise(clocks, self.sizes.price)
        summary = summary.filter(~pl.col("quantity").is_in(["regret", "support"]))
        # Ratios of methods that are not compared become null.
        is_ratio = pl.col("quantity").str.contains("/", literal=True)
        ratio = is_ratio & pl.col("policy").is_in([*self.without_ratio])
        return summary.with_columns(pl.when(~ratio).then(pl.col("mean", "low", "high")))

    def policy_curves(self) -> pl.DataFrame:
        """The policies' losses on their clocks; see ``curves.losses_on_clocks``."""
        return losses_on_clocks(self.trajectory, self.records, self.reading)

    def method_curves(self) -> list[pl.DataFrame]:
        """The losses of each method on its clocks, at log-spaced updates in place of rounds."""
        curves = []
        for method, updates in self.methods.items():
            curve = updates.select(
                pl.lit(method).alias("policy"),
                pl.col("update").alias("round"),
                *CLOCKS,
                self.losses(method).alias("loss"),
            )
            shown_updates = log_spaced(len(updates), self.points)
            curves.append(curve[shown_updates - 1].drop_nulls("loss"))
        return curves

    def table(self, rates: Mapping[str, float | None]) -> Table:
        """A table of the methods' learning rates, updates, gradients and final figures.

        Args:
            rates: The learning rate of each method; None for the optimiser's own.
        """
        evaluated = next(iter(self.methods.values())).columns[len(UpdateRecord._fields) :]
        titles = ["learning\nrate", "updates", "gradients\ncomputed", "\nused", "training\nloss"]
        columns = {
            "method": LEFT,
            **right((*titles, *(name.replace("_", "\n") for name in evaluated))),
        }
        rows = []
        for method, updates in self.methods.items():
            last_row = updates.row(-1, named=True)
            numbers = [f"{last_row[name]:,}" for name in ("update", "computed", "used")]
            figures = [
                self.losses(method).drop_nulls()[-1],
                *(last_row[name] for name in evaluated),
            ]
            rate = rates[method]
            if rate is None:
                rate_text = "its own"
            else:
                rate_text = f"{rate:.3g}"
            rows.append((method, rate_text, *numbers, *(f"{figure:.4g}" for figure in figures)))
        gradients = f"{self.sizes.rounds:,} x {self.sizes.budget} gradients"
        return Table(f"methods, each until it has used {gradients}", columns, rows)
