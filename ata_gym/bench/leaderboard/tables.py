"""The rankings as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.leaderboard.experiment import LEARNER
from ata_gym.bench.leaderboard.ranking import COST, QUANTITIES, RUNTIME, TO_ORACLE, WORKER_TIME
from ata_gym.bench.report.summary_tables import show, title_of
from ata_gym.bench.report.table import LEFT, WRAP, Table, right
from ata_gym.scenarios import Scenario

NEAR = 1.05
"""A cost of up to so many times the best learner's is near the best."""

_WHO = {"rank": LEFT, "policy": LEFT}
_WORST = "worst scenario"


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame) -> list[Table]:
    """A table for each env: costs to the best learner's at each price and over all, the best first.

    The arguments are what ``ranking.overall`` returns.
    """
    prices = by_price["price"].unique().sort().to_list()
    titles = ("all prices", "all prices\n/ oracle", *(f"price\n{price:g}" for price in prices), _WORST)
    made = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        rows = []
        for row in ranked.to_dicts():
            at = by_price.filter(pl.col("env") == env, pl.col("policy") == row["policy"])
            costs = {one["price"]: "-" if one[COST] is None else f"{one[COST]:.4g}" for one in at.to_dicts()}
            means = _ratio(row, COST), _ratio(row, TO_ORACLE)
            rows.append((*_who(row), *means, *(costs.get(price, "-") for price in prices), _worst(row)))
        best = f"the best of {plural(_learners(ranked), 'learner')}"
        about = f"{env}: cost / cost of {best} (or of the best oracle), geometric mean over all scenarios"
        made.append(Table(about, {**_WHO, **right(titles)}, rows))
    return made


def details(by_price: pl.DataFrame) -> list[Table]:
    """A table for each env and price, with runtime and worker time, too."""
    titles = (title_of(RUNTIME), title_of(WORKER_TIME), "cost\n/ best", "cost\n/ oracle", _WORST)
    made = []
    for (env, price), ranked in by_price.group_by("env", "price", maintain_order=True):
        rows = [
            (*_who(row), *(_ratio(row, quantity) for quantity in QUANTITIES), _worst(row)) for row in ranked.to_dicts()
        ]
        about = f"{env} at price {price:g}: cost = runtime + {price:g} x worker time"
        made.append(Table(about, {**_WHO, **right(titles)}, rows))
    return made


def nearness(by_scenario: pl.DataFrame, defaults: Mapping[str, str]) -> list[Table]:
    """For each env whose default has played, its cost to the best learner's in each scenario, and to the best oracle's.

    Parameters
    ----------
    by_scenario
        As ``ranking.by_scenario`` returns it.
    defaults
        The recommended policy of each env.
    """
    made = []
    for env, policy in defaults.items():
        of_env = by_scenario.filter(pl.col("env") == env)
        mine = of_env.filter(pl.col("policy") == policy, pl.col(COST).is_not_null())
        if not mine.height:
            continue
        prices = mine["price"].unique().sort().to_list()
        rows = []
        for (scenario,), group in mine.group_by("scenario", maintain_order=True):
            costs = {row["price"]: _ratio(row, COST) + " !" * (row[COST] > NEAR) for row in group.to_dicts()}
            rows.append((str(scenario), *(costs.get(price, "-") for price in prices), _mean(group[TO_ORACLE])))
        near, learners = int((mine[COST] <= NEAR).sum()), plural(_learners(of_env), "learner")
        oracle = _mean(mine[TO_ORACLE])
        about = (
            f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best of {learners} in {near} of "
            f"{mine.height} (! marks the others);\n"
            + ("no oracle has played" if oracle == "-" else f"its cost is {oracle} times that of the best oracle")
        )
        columns = {"scenario": LEFT, **right((*(f"price {price:g}" for price in prices), "all prices\n/ oracle"))}
        made.append(Table(about, columns, rows))
    return made


def played(scenarios: Sequence[Scenario]) -> Table:
    """The scenarios that were played."""
    rows = [(s.name, *(f"{number:,}" for number in (s.pool.n, s.budget, s.horizon)), s.summary) for s in scenarios]
    return Table("The scenarios", {"scenario": LEFT, **right(("n", "B", "rounds")), "task times": WRAP}, rows)


def _learners(frame: pl.DataFrame) -> int:
    return frame.filter(pl.col("kind") == LEARNER)["policy"].n_unique()


def _who(row: Mapping[str, object]) -> tuple[str, str]:
    """The rank of a learner, or what another is; and the name."""
    return (str(row["rank"]) if row["kind"] == LEARNER else f"{row['kind']}", str(row["policy"]))


def _ratio(row: Mapping[str, float | None], quantity: str) -> str:
    return show(row[quantity], row[f"{quantity}_high"])


def _mean(ratios: pl.Series) -> str:
    """The geometric mean."""
    return "-" if ratios.has_nulls() else f"{np.exp(ratios.log().to_numpy().mean()):.3g}"


def _worst(row: Mapping[str, object]) -> str:
    return "-" if row["worst"] is None else f"{row['worst']:.3g} ({row['where']})"
