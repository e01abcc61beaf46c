"""The policies on the scenarios of the leaderboard: who plays what, and what it cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import polars as pl

import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.role import ORACLE, Role
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.store.folder import Folder, open_folder
from ata_gym.bench.studies.leaderboard.scenario_set import ScenarioSet
from ata_gym.scenarios import Scenario
from ata_gym.utils.errors import explained


class PricedJob(NamedTuple):
    """A job, and the prices at which its results count."""

    competitor: Role
    job: Job
    prices: tuple[float, ...]


@dataclass(frozen=True)
class Leaderboard:
    """Who plays, where, at which prices, how often, and where the results go."""

    set: ScenarioSet
    scenarios: Sequence[Scenario]
    """The scenarios of the set that are played."""
    prices: Sequence[float]
    """What a unit of worker time costs, in units of runtime; each scenario has all of them."""
    competitors: Sequence[Role]
    seeds: int
    """The episodes of each policy in each scenario."""
    out: Path
    """The results folder."""
    quick: bool = False
    """Whether it is the short version."""
    notes: Sequence[str] = ()
    """Sentences that a reader of its tables should know."""

    def unable(self) -> dict[str, str]:
        """Return the policies that cannot be made for the first scenario, each with the reason.

        A policy may lack a hyperparameter, for instance.
        """
        experiment = self.experiment(self.scenarios[0], self.prices[0])
        reasons = {}
        for competitor in self.competitors:
            envs = experiment.make_envs(ata_policies.load(competitor.policy).env_id, rows=1)
            try:
                ata_policies.make(competitor.policy, envs)
            except (Exception, SystemExit) as error:  # a policy of the user's may raise anything
                reasons[competitor.policy] = explained(error)
        return reasons

    def jobs(self) -> list[PricedJob]:
        """Return every job, scenario by scenario, with the folders opened.

        A policy whose decisions do not depend on the price plays once for all prices.

        Raises:
            ValueError: If a folder is refused; see ``store.open_folder``.
        """
        priced_jobs: list[PricedJob] = []
        folders: dict[Path, Folder] = {}
        for scenario, competitor in product(self.scenarios, self.competitors):
            for price, counts_at in self._priced(competitor, scenario):
                experiment = self.experiment(scenario, price)
                path = self.out / "scenarios" / scenario.name / f"price-{price:g}"
                if path not in folders:
                    folders[path] = open_folder(path, experiment.config())
                job = Job(experiment, competitor.policy, folders[path])
                priced_jobs.append(PricedJob(competitor, job, counts_at))
        return priced_jobs

    def _priced(
        self,
        competitor: Role,
        scenario: Scenario,
    ) -> list[tuple[float, tuple[float, ...]]]:
        """Return the prices at which a competitor plays, each with the prices where it counts."""
        if not competitor.priced:
            return [(self.prices[0], tuple(self.prices))]
        # In the scenario of the picture, oracles play at more prices: their points form a front.
        pictured = scenario.name == self.set.front and competitor.kind == ORACLE and not self.quick
        if pictured:
            further_prices = self.set.front_prices
        else:
            further_prices = ()
        return [(price, (price,)) for price in sorted({*self.prices, *further_prices})]

    def experiment(self, scenario: Scenario, price: float) -> Experiment:
        """Return what is played on a scenario at a price."""
        return Experiment.on_scenario(
            scenario,
            seeds=self.seeds,
            seed=self.set.first_seed,
            price=price,
        )


def finals(jobs: Sequence[PricedJob]) -> pl.DataFrame:
    """Return what each of some finished jobs cost in the end, at each price at which it counts.

    The columns are env, scenario, policy, kind, price, seed, runtime, total_worker_time and cost.
    """
    return pl.concat(
        costs(
            job.folder.results([competitor.policy]),
            competitor,
            job.experiment.scenario.name,
            prices,
        )
        for competitor, job, prices in jobs
    )


def costs(
    records: pl.DataFrame,
    who: Role,
    scenario: str,
    prices: Iterable[float],
) -> pl.DataFrame:
    """Return what a competitor cost in the end in one scenario, at each price.

    Args:
        records: The competitor's records.
        who: The competitor.
        scenario: The name of the scenario.
        prices: The prices.

    Returns:
        The columns of :func:`finals`.
    """
    last_records = records.filter(pl.col("round") == pl.col("round").max())
    labels = {"env": who.env, "scenario": scenario, "policy": who.policy, "kind": who.kind}
    labels_by_price = pl.DataFrame({**labels, "price": [float(price) for price in prices]})
    clocks = last_records.select("seed", "runtime", "total_worker_time")
    cost = pl.col("runtime") + pl.col("price") * pl.col("total_worker_time")
    return labels_by_price.join(clocks, how="cross").with_columns(cost=cost)
