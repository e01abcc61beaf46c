"""The report on a leaderboard: tables for the terminal, Markdown, CSV, and the picture."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report.headline import NOUNS, leaders, more_or_less, of_game, with_intervals
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Table, markdown, right
from ata_gym.bench.role import LEARNER, Role
from ata_gym.bench.studies.leaderboard import front, ranking
from ata_gym.bench.studies.leaderboard.experiment import Leaderboard, PricedJob, finals
from ata_gym.bench.studies.leaderboard.ranking import (
    COST,
    RUNTIME,
    TO_ORACLE,
    TO_OTHER,
    WORKER_TIME,
)
from ata_gym.scenarios import Scenario
from ata_policies.registry import parse

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over scenarios and seeds,"
    " of the cost divided by that of the best learner of the same env, scenario and price, on the"
    " same seeds, and with several seeds half its 95 % confidence interval; columns with / oracle"
    " divide by the best oracle instead. Oracles know what learners must learn; baselines neither"
    " know nor learn. OFTA is that of each round where workers change. The worst seed is the one of"
    " a scenario on which the ratio is largest; in brackets it stands beside the mean. cells.csv"
    " has the figures of every seed."
)
"""The paragraph that explains the tables."""
_COUNTED = {"cost": COST, "runtime": RUNTIME, "total_worker_time": WORKER_TIME}
"""The ratio that the headlines use for each quantity."""
NEAR = 1.05
"""A cost of up to so many times the cost of the best learner is near it."""

Row = Mapping[str, Any]
"""A row of a frame that ``ranking`` makes."""


def report(board: Leaderboard, jobs: Sequence[PricedJob], recommended: Mapping[str, str]) -> Report:
    """Rank finished jobs, and leave tables and the picture in the board's folder.

    Args:
        board: The leaderboard.
        jobs: The jobs that have finished.
        recommended: The default policy of each env.
    """
    ends = finals(jobs)
    all_ratios = ranking.ratios(ends, board.set.reference)
    # Oracles have played at more prices for the picture, which the tables leave out.
    at_its_prices = pl.col("price").is_in(list(board.prices))
    ratios = all_ratios.filter(at_its_prices)
    by_scenario = ranking.by_scenario(ratios)
    by_price = ranking.overall(ratios)
    at_all_prices = ranking.overall(ratios, by_price=False)
    short_tables = [
        *overview(by_price, at_all_prices),
        *of_defaults(by_scenario, ends.filter(at_its_prices), recommended),
    ]
    title = heading(board)
    pictures = []
    if board.set.front in [scenario.name for scenario in board.scenarios]:
        points = ranking.by_scenario(all_ratios.filter(pl.col("scenario") == board.set.front))
        pictures = front.draw(points, f"{board.set.front}, {title}", board.out / "front")
    picture_links = [
        f"![Runtime against worker time of every policy]({path.name})\n" for path in pictures[:1]
    ]
    notes_below = [f"{note}\n" for note in (*board.notes, LEGEND)]
    compact_tables = [_side_by_side("All prices and scenarios", at_all_prices, recommended)]
    if 0.0 in board.prices and len(board.prices) > 1:
        compact_tables.append(
            _side_by_side("Price 0, all scenarios", by_price.filter(price=0.0), recommended),
        )
    compact_tables += constants(by_price)
    compact_text = markdown(compact_tables)
    short_text = markdown(short_tables)
    long_text = markdown([*each(by_scenario, by_price), _played(board.scenarios)])
    text = "\n".join(
        [f"## {title}\n", *notes_below, compact_text, short_text, *picture_links, long_text]
    )
    cells = ends.join(
        all_ratios.with_columns(pl.col(ranking.QUANTITIES).exp()),
        on=ranking.CELL,
        maintain_order="left",
    )
    frames = {
        "leaderboard.csv": by_price,
        "scenarios.csv": by_scenario,
        "cells.csv": cells.filter(at_its_prices),
    }
    files = write(board.out, {"leaderboard.md": text, **frames})
    return Report(
        by_price, short_tables, files, pictures, "\n".join([title, *board.notes]), lead(ratios)
    )


def lead(ratios: pl.DataFrame) -> str:
    """Return the headline of each env, over all scenarios and prices, and at price 0.

    Args:
        ratios: What ``ranking.ratios`` returns.
    """
    lines = _headlines(ratios, *_COUNTED)
    free_ratios = ratios.filter(price=0.0)
    if not lines:
        return "No learner was played: oracles and baselines are shown beside each other."
    lines = ["Over all scenarios and prices:", *lines]
    if 0 < free_ratios.height < ratios.height:
        lines += [
            "At price 0, where runtime alone counts:",
            *_headlines(free_ratios, "runtime", "total_worker_time"),
        ]
    return with_intervals(lines, ratios["seed"].n_unique())


def _headlines(ratios: pl.DataFrame, *quantities: str) -> list[str]:
    """Return the headline of each env, which ranks by the first of some quantities."""
    means = ranking.by_seed(ratios).filter(pl.col(COST).is_not_null())
    lines = []
    for (env,), env_means in means.group_by("env", maintain_order=True):
        means_by_policy = {
            rows["policy"][0]: rows.sort("seed")
            for _, rows in env_means.group_by("policy", maintain_order=True)
        }
        samples = {
            name: {
                policy: np.exp(rows[_COUNTED[name]].to_numpy())
                for policy, rows in means_by_policy.items()
            }
            for name in quantities
        }
        players = [
            Role(policy, str(env), rows["kind"][0]) for policy, rows in means_by_policy.items()
        ]
        lines.append(of_game(samples, players))
        # All players have the same env, so there is one leader.
        (best,) = leaders(samples, players)
        for rival, column in {"best learner": COST, "best oracle": TO_ORACLE}.items():
            ratio = Estimate.of_logarithms(
                means_by_policy[best][column].cast(pl.Float64).to_numpy()
            )
            if text := more_or_less(ratio, NOUNS[quantities[0]]):
                lines.append(f"  beside the {rival} of each scenario: {text}")
    return lines


def heading(board: Leaderboard) -> str:
    """Return the set and its version, and what was played of it."""
    quick = " (quick look)" if board.quick else ""
    played = f"{len(board.scenarios)} of {len(board.set.names())} scenarios"
    return f"Leaderboard {board.set.title}{quick}: {played}, {plural(board.seeds, 'seed')}"


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame) -> list[Table]:
    """Return a table for each env: the costs of policies, the best first.

    Costs are divided by the cost of the best learner, or of the best oracle.

    Args:
        by_price: What ``ranking.overall`` returns for each price.
        at_all_prices: What it returns over all prices.
    """
    prices = by_price["price"].unique().sort().to_list()
    titles = ("all prices", "all prices\n/ oracle", *(f"price\n{price:g}" for price in prices))
    columns = {"rank": LEFT, "policy": LEFT} | right(titles)
    columns |= {"worst scenario": WRAP, "worst seed": WRAP}
    tables = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        rows = []
        for row in ranked.to_dicts():
            price_rows = by_price.filter(pl.col("env") == env, pl.col("policy") == row["policy"])
            costs = {
                price_row["price"]: _plain(price_row[COST], 4)
                for price_row in price_rows.to_dicts()
            }
            if row["kind"] == LEARNER:
                rank = str(row["rank"])
            else:
                rank = row["kind"]
            over_prices = (_ratio(row, COST), _ratio(row, TO_ORACLE))
            at_prices = (costs.get(price, "-") for price in prices)
            worst = (_at(row[f"worst{suffix}"], row[f"where{suffix}"]) for suffix in ("", "_seed"))
            rows.append((rank, row["policy"], *over_prices, *at_prices, *worst))
        divisor = f"the best of {plural(_learners(ranked), 'learner')}"
        title = (
            f"{env}: cost / cost of {divisor} (or of the best oracle), geometric mean over all"
            " scenarios"
        )
        tables.append(Table(title, columns, rows))
    return tables


def of_defaults(
    by_scenario: pl.DataFrame,
    finals: pl.DataFrame,
    defaults: Mapping[str, str],
) -> list[Table]:
    """Return the costs of each default in each scenario, and the cells where it is not near.

    There is a table for each env whose default has played, and a table of the cells where the cost
    of a default is more than ``NEAR`` times the cost of the best learner.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        finals: What ``experiment.finals`` returns.
        defaults: The default policy of each env.
    """
    tables = []
    far_rows = []
    for env, policy in defaults.items():
        of_env = by_scenario.filter(pl.col("env") == env)
        default_rows = of_env.filter(pl.col("policy") == policy, pl.col(COST).is_not_null())
        if default_rows.height:
            rival_rows = ranking.to_best_other(finals.filter(pl.col("env") == env), policy)
            tables.append(
                Table(
                    _near_or_not(default_rows, _learners(of_env)),
                    *_compared(default_rows, rival_rows),
                )
            )
            far_rows += [(env, *cell) for cell in _far(of_env, default_rows)]
    if far_rows:
        titles = ["price", "default\n/ best learner"]
        if by_scenario[f"{COST}_low"].is_not_null().any():
            titles += ["95 % interval", "worst seed"]
        columns = {"env": LEFT, "scenario": LEFT, **right(titles), "best learner": LEFT}
        title = f"where a default is not within {NEAR - 1:.0%} of the best learner"
        tables.append(Table(title, columns, far_rows))
    return tables


def _near_or_not(default_rows: pl.DataFrame, learners: int) -> str:
    """Return the title of the table of a default: in how many cells it is near the best learner."""
    env = default_rows.row(0, named=True)["env"]
    policy = default_rows["policy"][0]
    difference = more_or_less(Estimate(_mean(default_rows[TO_ORACLE]), np.nan, np.nan), "cost")
    if difference:
        comparison = f"beside the best oracle it has {difference}"
    else:
        comparison = "no oracle has played"
    return (
        f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best of"
        f" {plural(learners, 'learner')} in {(default_rows[COST] <= NEAR).sum()} of"
        f" {default_rows.height};\n{comparison}. Its cost at each price, over that of the best"
        " other policy that knows nothing beforehand,\nand over that of the best oracle; in"
        " brackets on the worst seed"
    )


def _compared(
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
                cells.append(_and_worst(_plain(scenario_rows[0][ratio]), scenario_rows[0], ratio))
            else:
                cells.append("-")
        rows.append((scenario, *cells))
    if len(rows) > 1:
        rows.append(("geometric mean", *(_plain(_mean(part[ratio])) for part, ratio in parts)))
    titles = [f"{price:g}:\n/ {divisor}" for divisor in ("other", "oracle") for price in prices]
    return {"scenario": LEFT, **right(titles)}, rows


def _far(of_env: pl.DataFrame, default_rows: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return a row for each cell where the default is not near the best learner.

    A row has the scenario, the price, the ratio, its interval and its value on the worst seed where
    there are several seeds, and the best learner.
    """
    # The best learner has a ratio of exactly 1 to itself.
    best_rows = of_env.filter(pl.col("kind") == LEARNER, pl.col(COST) == 1.0)
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
    title: str,
    ranking_of_all: pl.DataFrame,
    recommended: Mapping[str, str],
) -> Table:
    """Return a table with the ranked policies of each env beside each other."""
    columns: dict[str, int] = {}
    sides: list[list[tuple[str, str]]] = []
    for (env,), ranked in ranking_of_all.group_by("env", maintain_order=True):
        columns |= {str(env): LEFT, f"{env}: cost / best learner": RIGHT}
        side = []
        for row in ranked.to_dicts():
            name = row["policy"]
            if name == recommended.get(str(env)):
                name = f"**{name}**, the default"
            if row["kind"] != LEARNER:
                name = f"{name}, {row['kind']}"
            side.append((name, _ratio(row, COST)))
        sides.append(side)
    rows = [
        [cell for pair in row for cell in pair] for row in zip_longest(*sides, fillvalue=("", ""))
    ]
    return Table(title, columns, rows)


def constants(by_price: pl.DataFrame) -> list[Table]:
    """Return a table for each price: the policies that played with several constants.

    It has the cost of each as published, and with the best of the constants. A policy ``name`` is
    as published, and ``name:constant=...`` is another try.

    Args:
        by_price: What ``ranking.overall`` returns for each price.
    """
    tables = []
    tries = by_price.with_columns(
        pl.col("policy").map_elements(lambda name: parse(name)[0], pl.String).alias("of"),
    )
    repeated = tries.filter(pl.len().over("env", "price", "of") > 1)
    for (price,), price_rows in repeated.group_by("price", maintain_order=True):
        rows = []
        for (base_policy,), policy_rows in price_rows.group_by("of", maintain_order=True):
            best = policy_rows.row(0, named=True)  # the frame is ranked
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
            worst = _at(best["worst"], best["where"])
            rows.append(
                (base_policy, as_published, _ratio(best, COST), constant, worst, tried_text)
            )
        columns = {"policy": LEFT} | right(("as published", "best constant"))
        columns |= {"which": LEFT, "its worst scenario": WRAP, "tried": WRAP}
        title = (
            f"Price {price:g}, rivals as published and with their best constant: cost / cost of the"
            " best learner of each scenario, over all scenarios"
        )
        tables.append(Table(title, columns, rows))
    return tables


def each(by_scenario: pl.DataFrame, by_price: pl.DataFrame) -> list[Table]:
    """Return a table of every policy in every scenario, for each env and price.

    Args:
        by_scenario: What ``ranking.by_scenario`` returns.
        by_price: What ``ranking.overall`` returns for each price.
    """
    tables = []
    for (env, price), env_rows in by_scenario.group_by("env", "price", maintain_order=True):
        ranked = by_price.filter(env=env, price=price)["policy"]
        scenarios = env_rows["scenario"].unique(maintain_order=True).to_list()
        rows = []
        for policy in dict.fromkeys([*ranked, *env_rows["policy"]]):
            rows_by_scenario = {
                record["scenario"]: record for record in env_rows.filter(policy=policy).to_dicts()
            }
            cells = []
            for name in scenarios:
                if name in rows_by_scenario:
                    row = rows_by_scenario[name]
                    cells.append(_and_worst(_ratio(row, COST), row, COST))
                else:
                    cells.append("-")
            rows.append([policy, *cells])
        title = (
            f"{env}, price {price:g}, each scenario: cost / cost of its best learner; in brackets"
            " on the worst seed"
        )
        tables.append(Table(title, {"policy": LEFT, **right(scenarios)}, rows))
    return tables


def _played(scenarios: Sequence[Scenario]) -> Table:
    """Return a table of the scenarios that were played."""
    rows = [
        (s.name, *(f"{number:,}" for number in (s.pool.n, s.budget, s.horizon)), s.summary)
        for s in scenarios
    ]
    columns = {"scenario": LEFT, **right(("n", "B", "rounds")), "task times": WRAP}
    return Table("The scenarios", columns, rows)


def _learners(frame: pl.DataFrame) -> int:
    """Count the learners."""
    return frame.filter(pl.col("kind") == LEARNER)["policy"].n_unique()


def _ratio(row: Row, quantity: str) -> str:
    """Write a ratio of a row, and half the width of its interval."""
    return show(row[quantity], row[f"{quantity}_high"])


def _at(ratio: float | None, scenario: str) -> str:
    """Write a ratio, with the scenario where it is."""
    if ratio is None:
        return "-"
    return f"{ratio:.3g} ({scenario})"


def _and_worst(mean: str, row: Row, quantity: str) -> str:
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
