"""The policies on the scenarios of the leaderboard: who plays what, and what it cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import polars as pl

import ata_policies
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.run import Job
from ata_gym.bench.experiment.store import Folder, open_folder
from ata_gym.bench.leaderboard.scenario_set import ScenarioSet
from ata_gym.bench.report.headline import ORACLE, Competitor
from ata_gym.scenarios import Scenario
from ata_gym.utils.errors import explained


class PricedJob(NamedTuple):
    """A job, and the prices at which its results count."""

    competitor: Competitor
    job: Job
    prices: tuple[float, ...]


@dataclass(frozen=True)
class Leaderboard:
    """Who plays, where, at which prices, how often, and where the results go."""

    set: ScenarioSet
    scenarios: Sequence[Scenario]  # those of the set that are played
    prices: Sequence[float]
    competitors: Sequence[Competitor]
    seeds: int
    out: Path
    quick: bool = False  # whether it is the short version
    notes: Sequence[str] = ()  # sentences that a reader of its tables should know

    def unable(self) -> dict[str, str]:
        """Policies that cannot be made for the first scenario, for instance without a hyperparameter, and why."""
        experiment, reasons = self.experiment(self.scenarios[0], self.prices[0]), {}
        for competitor in self.competitors:
            envs = experiment.make_envs(ata_policies.load(competitor.policy).env_id, rows=1)
            try:
                ata_policies.make(competitor.policy, envs)
            except (Exception, SystemExit) as error:  # a policy of the user's may raise anything
                reasons[competitor.policy] = explained(error)
        return reasons

    def jobs(self) -> list[PricedJob]:
        """Every job, scenario by scenario; a policy that does not look at the price plays once for all prices."""
        made: list[PricedJob] = []
        opened: dict[Path, Folder] = {}
        for scenario, competitor in product(self.scenarios, self.competitors):
            for price, counts_at in self._priced(competitor, scenario):
                experiment = self.experiment(scenario, price)
                path = self.out / "scenarios" / scenario.name / f"price-{price:g}"
                if path not in opened:
                    opened[path] = open_folder(path, experiment.config())
                made.append(PricedJob(competitor, Job(experiment, competitor.policy, opened[path]), counts_at))
        return made

    def _priced(self, competitor: Competitor, scenario: Scenario) -> list[tuple[float, tuple[float, ...]]]:
        if not competitor.priced:
            return [(self.prices[0], tuple(self.prices))]
        pictured = scenario.name == self.set.front and competitor.kind == ORACLE and not self.quick
        more = self.set.front_prices if pictured else ()
        return [(price, (price,)) for price in sorted({*self.prices, *more})]

    def experiment(self, scenario: Scenario, price: float) -> Experiment:
        """What is played on a scenario at a price."""
        return Experiment.on_scenario(scenario, seeds=self.seeds, seed=self.set.first_seed, price=price)


def finals(jobs: Sequence[PricedJob]) -> pl.DataFrame:
    """What each of some finished jobs cost in the end, at each price at which it counts.

    Columns env, scenario, policy, kind, price, seed, runtime, total_worker_time, cost.
    """
    return pl.concat(
        costs(job.folder.results([competitor.policy]), competitor, job.experiment.scenario.name, prices)
        for competitor, job, prices in jobs
    )


def costs(records: pl.DataFrame, who: Competitor, scenario: str, prices: Iterable[float]) -> pl.DataFrame:
    """What a competitor's records of a scenario say that it cost in the end, at each price: as :func:`finals`."""
    last = records.filter(pl.col("round") == pl.col("round").max())
    about = {"env": who.env, "scenario": scenario, "policy": who.policy, "kind": who.kind}
    about_each = pl.DataFrame({**about, "price": [float(price) for price in prices]})
    clocks = last.select("seed", "runtime", "total_worker_time")
    cost = pl.col("runtime") + pl.col("price") * pl.col("total_worker_time")
    return about_each.join(clocks, how="cross").with_columns(cost=cost)
