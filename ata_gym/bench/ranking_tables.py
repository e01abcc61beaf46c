"""The rankings as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from rich import box
from rich.table import Table

from ata_gym.bench.leaderboard import LEARNER
from ata_gym.bench.ranking import COST, QUANTITIES, RUNTIME, WORKER_TIME
from ata_gym.bench.tables import Titled, show, title_of
from ata_gym.scenarios import Scenario

NEAR = 1.05
"""A cost of so many times the best learner's is near the best."""


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame) -> list[Titled]:
    """A table for each env: costs to the best learner's at each price and over all, the best first.

    The arguments are what ``ranking.overall`` gives.
    """
    prices = by_price["price"].unique().sort().to_list()
    made = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        table = _table("rank", "policy")
        columns = ("all prices", *(f"price\n{price:g}" for price in prices), "worst world")
        for title in columns:
            table.add_column(title, justify="right", no_wrap=True)
        for row in ranked.to_dicts():
            at = by_price.filter(pl.col("env") == env, pl.col("policy") == row["policy"])
            costs = {one["price"]: "-" if one[COST] is None else f"{one[COST]:.4g}" for one in at.to_dicts()}
            table.add_row(*_who(row), _ratio(row, COST), *(costs.get(price, "-") for price in prices), _worst(row))
        made.append(Titled(f"{env}: cost / cost of the best learner, geometric mean over all worlds", table))
    return made


def details(by_price: pl.DataFrame) -> list[Titled]:
    """A table for each env and price, with runtime and worker time, too."""
    made = []
    for (env, price), ranked in by_price.group_by("env", "price", maintain_order=True):
        table = _table("rank", "policy")
        for title in (title_of(RUNTIME), title_of(WORKER_TIME), "cost\n/ best", "worst world"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in ranked.to_dicts():
            table.add_row(*_who(row), *(_ratio(row, quantity) for quantity in QUANTITIES), _worst(row))
        made.append(Titled(f"{env} at price {price:g}: cost = runtime + {price:g} x worker time", table))
    return made


def nearness(by_world: pl.DataFrame, defaults: Mapping[str, str]) -> list[Titled]:
    """For each env whose default has played, its cost to the best learner's in each world, marked where above ``NEAR``.

    Parameters
    ----------
    by_world
        As ``ranking.by_world`` gives it.
    defaults
        The recommended policy of each env.
    """
    made = []
    for env, policy in defaults.items():
        mine = by_world.filter(pl.col("env") == env, pl.col("policy") == policy, pl.col(COST).is_not_null())
        if not mine.height:
            continue
        prices = mine["price"].unique().sort().to_list()
        table = _table("world")
        for price in prices:
            table.add_column(f"price {price:g}", justify="right", no_wrap=True)
        for (world,), group in mine.group_by("world", maintain_order=True):
            costs = {row["price"]: _ratio(row, COST) + " !" * (row[COST] > NEAR) for row in group.to_dicts()}
            table.add_row(str(world), *(costs.get(price, "-") for price in prices))
        near = int((mine[COST] <= NEAR).sum())
        about = f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best learner in {near} of {mine.height}"
        made.append(Titled(f"{about} (! marks the others)", table))
    return made


def scenery(worlds: Sequence[Scenario]) -> Titled:
    """The worlds that were played."""
    table = _table("world")
    for title in ("n", "B", "rounds"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("task times")
    for world in worlds:
        table.add_row(
            world.name, *(f"{number:,}" for number in (world.pool.n, world.budget, world.horizon)), world.summary
        )
    return Titled("The worlds", table)


def _table(*titles: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for title in titles:
        made.add_column(title, no_wrap=True)
    return made


def _who(row: Mapping[str, object]) -> tuple[str, str]:
    """The rank and the name of a learner; for others, what they are and the name."""
    return (str(row["rank"]) if row["kind"] == LEARNER else f"{row['kind']}", str(row["policy"]))


def _ratio(row: Mapping[str, float | None], quantity: str) -> str:
    return show(row[quantity], row[f"{quantity}_high"])


def _worst(row: Mapping[str, object]) -> str:
    return "-" if row["worst"] is None else f"{row['worst']:.3g} ({row['where']})"
