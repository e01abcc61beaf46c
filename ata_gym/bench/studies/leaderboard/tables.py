"""The tables of a leaderboard, for a terminal, Markdown and the page, from the same rows."""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report.headline import more_or_less
from ata_gym.bench.report.page.sections import Column, Tables, TableView
from ata_gym.bench.report.quantities import title
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import over_seeds, show
from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Cell, Table, right
from ata_gym.bench.role import LEARNER
from ata_gym.bench.studies.leaderboard import ranking
from ata_gym.bench.studies.leaderboard.ranking import (
    COST,
    RUNTIME,
    TO_ORACLE,
    TO_OTHER,
    WORKER_TIME,
)
from ata_policies.registry import parse

NEAR = 1.05
"""A cost of up to so many times the cost of the best learner is near it."""

_ALL_PRICES = "all prices"
_DARKEST_RATIO = 4.0  # the ratio from which on a cell is as dark as can be

Row = Mapping[str, Any]
"""A row of a frame that ``ranking`` makes."""


class Standing(NamedTuple):
    """A policy among the policies of its env: the cells of a row, by name."""

    policy: Cell
    rank: Cell
    kind: Cell
    cost: Cell
    to_oracle: Cell
    runtime: Cell
    worker_time: Cell
    worst: Cell
    worst_scenario: Cell
    worst_seed: Cell
    scenario_of_worst_seed: Cell


_COLUMNS = (
    Column("policy", False),
    Column("rank"),
    Column("kind", False, wide=True),
    Column("cost\n/ best learner"),
    Column("cost\n/ best oracle"),
    Column(title(RUNTIME)),
    Column(title(WORKER_TIME)),
    Column("worst\nscenario"),
    Column("which", False),
    Column("worst\nseed"),
    Column("which", False),
)
"""The columns of a ``Standing`` on the page, in the order of its fields."""


Standings = dict[tuple[str, str], list[Standing]]
"""The policies of each env, the best first, at each price and over all prices.

The keys are the env and the price as a text, or ``all prices``.
"""


def standings(by_price: pl.DataFrame, at_all_prices: pl.DataFrame) -> Standings:
    """Return the rows of the tables of all policies.

    Args:
        by_price: What ``ranking.overall`` returns for each price.
        at_all_prices: What it returns over all prices.
    """
    frames = [(_ALL_PRICES, at_all_prices)]
    frames += [(f"{price:g}", rows) for (price,), rows in ranking.parts(by_price, "price")]
    rows_by_view = {}
    for price, frame in frames:
        for (env,), ranked in ranking.parts(frame, "env"):
            rows_by_view[env, price] = [_standing(row) for row in ranked.to_dicts()]
    return rows_by_view


def _standing(row: Row) -> Standing:
    """Return the cells of a policy."""
    if row["rank"] is None:
        rank = Cell("-")
    else:
        rank = Cell(str(row["rank"]), row["rank"])
    means = [
        Cell(_ratio(row, quantity), row[quantity])
        for quantity in (COST, TO_ORACLE, RUNTIME, WORKER_TIME)
    ]
    worst = [
        cell
        for suffix in ("", "_seed")
        for cell in (
            Cell(_plain(row[f"worst{suffix}"]), row[f"worst{suffix}"]),
            Cell(row[f"where{suffix}"] or "-"),
        )
    ]
    return Standing(Cell(row["policy"]), rank, Cell(row["kind"]), *means, *worst)


def overview_section(rows_by_view: Standings, seeds: int) -> Tables:
    """Make the section of the page with a table for each env and price, and over all prices."""
    views = [
        TableView(_COLUMNS, rows, {"env": env, "price": price})
        for (env, price), rows in rows_by_view.items()
    ]
    note = (
        "Cost is runtime + price x worker time. Cells are geometric means over the scenarios of"
        f" ratios on the same seeds: {over_seeds(seeds, 'the geometric mean')}; 1 is as good as the"
        " best, and less is better. The worst seed is the one of a scenario on which cost / best"
        " learner is largest. Oracles know what learners must learn; baselines neither know nor"
        " learn. Click on a title to sort."
    )
    return Tables("overview", "All policies", note, views)


def overview(rows_by_view: Standings) -> list[Table]:
    """Return a table for each env: the costs of policies, the best first.

    Costs are divided by the cost of the best learner, or of the best oracle.
    """
    prices = [*dict.fromkeys(price for _, price in rows_by_view if price != _ALL_PRICES)]
    titles = ("all prices", "all prices\n/ oracle", *(f"price\n{price}" for price in prices))
    columns = {"rank": LEFT, "policy": LEFT} | right(titles)
    columns |= {"worst scenario": WRAP, "worst seed": WRAP}
    tables = []
    for env in [env for env, price in rows_by_view if price == _ALL_PRICES]:
        at_each_price = [
            {row.policy.text: row.cost.value for row in rows_by_view.get((env, price), [])}
            for price in prices
        ]
        ranked = rows_by_view[env, _ALL_PRICES]
        rows = []
        for row in ranked:
            # Only learners have a rank.
            place = row.rank.text if row.kind.text == LEARNER else row.kind.text
            costs = [_plain(by_policy.get(row.policy.text), 4) for by_policy in at_each_price]
            worst = _with_scenario(row.worst, row.worst_scenario)
            worst_seed = _with_scenario(row.worst_seed, row.scenario_of_worst_seed)
            rows.append(
                (
                    place,
                    row.policy.text,
                    row.cost.text,
                    row.to_oracle.text,
                    *costs,
                    worst,
                    worst_seed,
                )
            )
        learners = sum(row.kind.text == LEARNER for row in ranked)
        heading = (
            f"{env}: cost / cost of the best of {plural(learners, 'learner')} (or of the best"
            " oracle), geometric mean over all scenarios"
        )
        tables.append(Table(heading, columns, rows))
    return tables


def side_by_side(rows_by_view: Standings, defaults: Mapping[str, str]) -> list[Table]:
    """Return tables with the ranked policies of each env next to each other.

    There is one over all prices, and one at price 0 where that is one of several.
    """
    titles = {_ALL_PRICES: "All prices and scenarios"}
    if len({price for _, price in rows_by_view}) > 2:
        titles["0"] = "Price 0, all scenarios"
    tables = []
    for shown_price, heading in titles.items():
        ranked = {env: rows for (env, price), rows in rows_by_view.items() if price == shown_price}
        if ranked:
            tables.append(_side_by_side(heading, ranked, defaults))
    return tables


def default_tables(
    by_scenario: pl.DataFrame,
    finals: pl.DataFrame,
    defaults: Mapping[str, str],
) -> list[Table]:
    """Return the costs of each default in each scenario, and the cells where it is not near.

    There is a table for each env whose default has played, and a table of the cells where the cost
    of a default is more than ``NEAR`` times the cost of the best learner.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        finals: What ``ranking.costs`` returns, of all policies.
        defaults: The default policy of each env.
    """
    tables = []
    far_rows = []
    for env, policy in defaults.items():
        env_rows = by_scenario.filter(pl.col("env") == env)
        default_rows = env_rows.filter(pl.col("policy") == policy, pl.col(COST).is_not_null())
        if default_rows.height:
            rival_rows = ranking.to_best_other(finals.filter(pl.col("env") == env), policy)
            tables.append(
                Table(
                    _default_title(default_rows, _learners(env_rows)),
                    *_default_columns_and_rows(default_rows, rival_rows),
                )
            )
            far_rows += [(env, *cell) for cell in _far_rows(env_rows, default_rows)]
    if far_rows:
        titles = ["price", "default\n/ best learner"]
        if by_scenario[f"{COST}_low"].is_not_null().any():
            titles += ["95 % interval", "worst seed"]
        columns = {"env": LEFT, "scenario": LEFT, **right(titles), "best learner": LEFT}
        heading = f"where a default is not within {NEAR - 1:.0%} of the best learner"
        tables.append(Table(heading, columns, far_rows))
    return tables


def _default_title(default_rows: pl.DataFrame, learners: int) -> str:
    """Return the title of the table of a default: in how many cells it is near the best learner."""
    env = default_rows.row(0, named=True)["env"]
    policy = default_rows["policy"][0]
    difference = more_or_less(Estimate(_mean(default_rows[TO_ORACLE]), np.nan, np.nan), "cost")
    if difference:
        comparison = f"compared with the best oracle it has {difference}"
    else:
        comparison = "no oracle has played"
    return (
        f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best of"
        f" {plural(learners, 'learner')} in {(default_rows[COST] <= NEAR).sum()} of"
        f" {default_rows.height};\n{comparison}. Its cost at each price, over the cost of the"
        " best other policy that knows nothing beforehand,\nand over the cost of the best oracle;"
        " in brackets on the worst seed"
    )


def _default_columns_and_rows(
    default_rows: pl.DataFrame,
    rival_rows: pl.DataFrame,
) -> tuple[dict[str, int], list[Sequence[str]]]:
    """Return the columns and rows of the table of a default.

    A row has the ratios of a scenario at each price, to the best other policy and to the best
    oracle; the last row has the means over scenarios.
    """
    prices = default_rows["price"].unique().sort().to_list()
    frames = (rival_rows, TO_OTHER), (default_rows, TO_ORACLE)
    # A part of a frame, and its ratio, for each column of numbers.
    parts = [(frame.filter(price=price), ratio) for frame, ratio in frames for price in prices]
    rows: list[Sequence[str]] = []
    for scenario in default_rows["scenario"].unique(maintain_order=True):
        cells = []
        for part, ratio in parts:
            scenario_rows = part.filter(scenario=scenario).to_dicts()
            if scenario_rows:
                cells.append(
                    _with_worst_seed(_plain(scenario_rows[0][ratio]), scenario_rows[0], ratio)
                )
            else:
                cells.append("-")
        rows.append((scenario, *cells))
    if len(rows) > 1:
        means = [_mean(part[ratio]) for part, ratio in parts]
        rows.append(("geometric mean", *map(_plain, means)))
    titles = [f"{price:g}:\n/ {divisor}" for divisor in ("other", "oracle") for price in prices]
    return {"scenario": LEFT, **right(titles)}, rows


def _far_rows(env_rows: pl.DataFrame, default_rows: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return a row for each cell where the default is not near the best learner.

    A row has the scenario, the price, the ratio, its interval and its value on the worst seed where
    there are several seeds, and the best learner.
    """
    # The best learner has a ratio of exactly 1 to itself.
    best_rows = env_rows.filter(pl.col("kind") == LEARNER, pl.col(COST) == 1.0)
    rows: list[tuple[str, ...]] = []
    for row in default_rows.filter(pl.col(COST) > NEAR).to_dicts():
        cells = [row["scenario"], f"{row['price']:g}", _plain(row[COST])]
        low, high = (row[f"{COST}_{end}"] for end in ("low", "high"))
        if low is not None:
            cells += [f"{_plain(low)} to {_plain(high)}", _plain(row[f"{COST}_worst"])]
        best_learners = best_rows.filter(
            pl.col("scenario") == row["scenario"], pl.col("price") == row["price"]
        )
        rows.append((*cells, ", ".join(best_learners["policy"])))
    return rows


def _side_by_side(
    heading: str,
    ranked: Mapping[str, Sequence[Standing]],
    defaults: Mapping[str, str],
) -> Table:
    """Return a table with the policies of each env next to each other, the best first."""
    columns: dict[str, int] = {}
    sides: list[list[tuple[str, str]]] = []
    for env, rows in ranked.items():
        columns |= {env: LEFT, f"{env}: cost / best learner": RIGHT}
        side = []
        for row in rows:
            name = row.policy.text
            if name == defaults.get(env):
                name = f"**{name}**, the default"
            if row.kind.text != LEARNER:
                name = f"{name}, {row.kind.text}"
            side.append((name, row.cost.text))
        sides.append(side)
    pairs_by_row = zip_longest(*sides, fillvalue=("", ""))
    joint_rows = [[*chain.from_iterable(pairs)] for pairs in pairs_by_row]
    return Table(heading, columns, joint_rows)


def constants(by_price: pl.DataFrame) -> list[Table]:
    """Return a table for each price: the policies that played with several constants.

    It has the cost of each as published, and with the best of the constants. A policy ``name`` is
    as published, and ``name:constant=...`` is another try.

    Args:
        by_price: What ``ranking.overall`` returns for each price.
    """
    tables = []
    tries = by_price.with_columns(
        pl.col("policy").map_elements(lambda name: parse(name)[0], pl.String).alias("base"),
    )
    repeated = tries.filter(pl.len().over("env", "price", "base") > 1)
    for (price,), price_rows in repeated.group_by("price", maintain_order=True):
        rows = []
        for (base_policy,), policy_rows in price_rows.group_by("base", maintain_order=True):
            # The frame is ranked, so that the first row is the best.
            best = policy_rows.row(0, named=True)
            published = policy_rows.filter(policy=base_policy).to_dicts()
            constant = best["policy"].removeprefix(base_policy).removeprefix(":") or "as published"
            tried_text = ", ".join(
                name.removeprefix(f"{base_policy}:")
                for name in policy_rows["policy"].sort()
                if name != base_policy
            )
            if published:
                as_published = _ratio(published[0], COST)
            else:
                as_published = "-"
            worst = _with_scenario(
                Cell(_plain(best["worst"]), best["worst"]), Cell(best["where"] or "-")
            )
            rows.append(
                (base_policy, as_published, _ratio(best, COST), constant, worst, tried_text)
            )
        columns = {"policy": LEFT} | right(("as published", "best constant"))
        columns |= {"which": LEFT, "its worst scenario": WRAP, "tried": WRAP}
        heading = (
            f"Price {price:g}, rivals as published and with their best constant: cost / cost of the"
            " best learner of each scenario, over all scenarios"
        )
        tables.append(Table(heading, columns, rows))
    return tables


class Matrix(NamedTuple):
    """The costs of the policies of an env in each scenario, at one price."""

    env: str
    price: float
    policies: Sequence[str]
    """The ranked ones come first; the others have not played all scenarios."""
    scenarios: Sequence[str]
    rows: Mapping[tuple[str, str], Row]
    """What ``ranking.by_scenario`` has of a policy in a scenario."""


def matrices(by_scenario: pl.DataFrame, by_price: pl.DataFrame) -> list[Matrix]:
    """Return the costs of every policy in every scenario, for each env and price.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        by_price: What ``ranking.overall`` returns for each price.
    """
    result = []
    for (env, price), cells in ranking.parts(by_scenario, "env", "price"):
        ranked = by_price.filter(env=env, price=price)["policy"]
        rows = {(row["policy"], row["scenario"]): row for row in cells.to_dicts()}
        policies = [*dict.fromkeys([*ranked, *cells["policy"]])]
        scenarios = cells["scenario"].unique(maintain_order=True).to_list()
        result.append(Matrix(env, price, policies, scenarios, rows))
    return result


def in_each_scenario(costs: Sequence[Matrix]) -> list[Table]:
    """Return a table of every policy in every scenario, for each env and price."""
    tables = []
    for matrix in costs:
        rows = []
        for policy in matrix.policies:
            cells = (matrix.rows.get((policy, scenario)) for scenario in matrix.scenarios)
            texts = []
            for row in cells:
                if row is None:
                    texts.append("-")
                else:
                    texts.append(_with_worst_seed(_ratio(row, COST), row, COST))
            rows.append([policy, *texts])
        heading = (
            f"{matrix.env}, price {matrix.price:g}, each scenario: cost / cost of its best"
            " learner; in brackets on the worst seed"
        )
        tables.append(Table(heading, {"policy": LEFT, **right(matrix.scenarios)}, rows))
    return tables


def matrix_section(costs: Sequence[Matrix], seeds: int) -> Tables:
    """Make the section of the page with the same costs, coloured.

    They are means over the seeds, or those on the worst seed.
    """
    if seeds > 1:
        columns_by_name = {"mean": COST, "worst seed": f"{COST}_worst"}
    else:
        columns_by_name = {"one seed": COST}
    views = []
    for matrix in costs:
        # Names of scenarios may break after a hyphen.
        names = [name.replace("-", "-\u200b") for name in matrix.scenarios]
        columns = [Column("policy", False), *map(Column, names)]
        for statistic, column in columns_by_name.items():
            rows = []
            for policy in matrix.policies:
                played = [matrix.rows.get((policy, name), {}) for name in matrix.scenarios]
                rows.append([Cell(policy), *(_shaded(cells.get(column)) for cells in played)])
            choice = {"env": matrix.env, "price": f"{matrix.price:g}", "seeds": statistic}
            views.append(TableView(columns, rows, choice))
    note = (
        "The cost of each policy in each scenario, divided by the cost of the best learner there,"
        " on the same seeds: 1 is the best learner, an oracle may be below. The darker, the worse."
        " The mean over seeds, or the worst seed."
    )
    return Tables("matrix", "Where each policy is good", note, views)


def _shaded(ratio: float | None) -> Cell:
    """Return the cell of a ratio, the darker, the larger it is."""
    if ratio is None:
        return Cell("-")
    shade = float(np.log(ratio) / np.log(_DARKEST_RATIO))
    return Cell(_plain(ratio), ratio, min(1.0, max(0.0, shade)))


def _learners(frame: pl.DataFrame) -> int:
    """Count the learners."""
    return frame.filter(pl.col("kind") == LEARNER)["policy"].n_unique()


def _ratio(row: Row, quantity: str) -> str:
    """Write a ratio of a row, and half the width of its interval."""
    return show(row[quantity], row[f"{quantity}_high"])


def _with_scenario(ratio: Cell, scenario: Cell) -> str:
    """Write a ratio, with the scenario where it is."""
    if ratio.value is None:
        return "-"
    return f"{ratio.text} ({scenario.text})"


def _with_worst_seed(mean: str, row: Row, quantity: str) -> str:
    """Write a mean, and in brackets the value on the worst seed where there are several seeds."""
    if row[f"{quantity}_low"] is None:
        return mean
    return f"{mean} ({_plain(row[f'{quantity}_worst'])})"


def _plain(ratio: float | None, digits: int = 3) -> str:
    """Write a ratio without an interval."""
    if ratio is None or np.isnan(ratio):
        return "-"
    return f"{ratio:.{digits}g}"


def _mean(ratios: pl.Series) -> float:
    """Return the geometric mean; NaN where a ratio is not known."""
    if len(ratios) and not ratios.has_nulls():
        return float(np.exp(ratios.log().to_numpy().mean()))
    return np.nan
