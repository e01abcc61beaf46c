"""The report on a leaderboard: tables for the terminal, Markdown to paste, CSV with all digits, and the picture."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.leaderboard import front, ranking
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob, finals
from ata_gym.bench.leaderboard.ranking import COST, RUNTIME, TO_ORACLE, TO_OTHER, WORKER_TIME
from ata_gym.bench.report.headline import LEARNER, NOUNS, Competitor, leaders, more_or_less, of_game, with_intervals
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Table, markdown, right
from ata_gym.scenarios import Scenario
from ata_policies.registry import parse

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over scenarios and seeds, of the cost divided "
    "by that of the best learner of the same env, scenario and price, on the same seeds, and with several seeds half "
    "its 95 % confidence interval; columns with / oracle divide by the best oracle instead. Oracles know what learners "
    "must learn; baselines neither know nor learn. OFTA is that of each round where workers change. The worst seed is "
    "the one of a scenario on which the ratio is largest; in brackets it stands beside the mean. cells.csv has the "
    "figures of every seed."
)
_COUNTED = {"cost": COST, "runtime": RUNTIME, "total_worker_time": WORKER_TIME}  # what the headlines tell of
NEAR = 1.05  # a cost of up to so many times the best learner's is near the best

Row = Mapping[str, Any]  # of a frame that ``ranking`` makes


def report(board: Leaderboard, jobs: Sequence[PricedJob], recommended: Mapping[str, str]) -> Report:
    """Rank finished jobs, and leave tables and the picture in the board's folder.

    ``recommended`` is the default policy of each env.
    """
    ends = finals(jobs)
    everything = ranking.ratios(ends, board.set.reference)
    at_its_prices = pl.col("price").is_in(list(board.prices))
    ranked = everything.filter(at_its_prices)
    by_scenario, by_price = ranking.by_scenario(ranked), ranking.overall(ranked)
    at_all_prices = ranking.overall(ranked, by_price=False)
    short = [*overview(by_price, at_all_prices), *of_defaults(by_scenario, ends.filter(at_its_prices), recommended)]
    title, pictures = heading(board), []
    if board.set.front in [scenario.name for scenario in board.scenarios]:
        points = ranking.by_scenario(everything.filter(pl.col("scenario") == board.set.front))
        pictures = front.draw(points, f"{board.set.front}, {title}", board.out / "front")
    shown = [f"![Runtime against worker time of every policy]({path.name})\n" for path in pictures[:1]]
    notes_below = [f"{note}\n" for note in (*board.notes, LEGEND)]
    compared = [_side_by_side("All prices and scenarios", at_all_prices, recommended)]
    if 0.0 in board.prices and len(board.prices) > 1:
        compared.append(_side_by_side("Price 0, all scenarios", by_price.filter(price=0.0), recommended))
    compared += constants(by_price)
    compact, tables, long = map(markdown, (compared, short, [*each(by_scenario, by_price), _played(board.scenarios)]))
    text = "\n".join([f"## {title}\n", *notes_below, compact, tables, *shown, long])
    cells = ends.join(everything.with_columns(pl.col(ranking.QUANTITIES).exp()), on=ranking.CELL, maintain_order="left")
    frames = {"leaderboard.csv": by_price, "scenarios.csv": by_scenario, "cells.csv": cells.filter(at_its_prices)}
    files = write(board.out, {"leaderboard.md": text, **frames})
    return Report(by_price, short, files, pictures, "\n".join([title, *board.notes]), lead(ranked))


def lead(ratios: pl.DataFrame) -> str:
    """The headline of each env over all scenarios and prices, and at price 0, from what ``ranking.ratios`` returns."""
    lines, free = _headlines(ratios, *_COUNTED), ratios.filter(price=0.0)
    if not lines:
        return "No learner was played: oracles and baselines are shown beside each other."
    lines = ["Over all scenarios and prices:", *lines]
    if 0 < free.height < ratios.height:
        lines += ["At price 0, where runtime alone counts:", *_headlines(free, "runtime", "total_worker_time")]
    return with_intervals(lines, ratios["seed"].n_unique())


def _headlines(ratios: pl.DataFrame, *quantities: str) -> list[str]:
    means, lines = ranking.by_seed(ratios).filter(pl.col(COST).is_not_null()), []
    for (env,), there in means.group_by("env", maintain_order=True):
        of = {mine["policy"][0]: mine.sort("seed") for _, mine in there.group_by("policy", maintain_order=True)}
        samples = {
            name: {policy: np.exp(mine[_COUNTED[name]].to_numpy()) for policy, mine in of.items()}
            for name in quantities
        }
        players = [Competitor(policy, str(env), mine["kind"][0]) for policy, mine in of.items()]
        lines.append(of_game(samples, players))
        (best,) = leaders(samples, players)
        for who, column in {"best learner": COST, "best oracle": TO_ORACLE}.items():
            own = Estimate.of_logarithms(of[best][column].cast(pl.Float64).to_numpy())
            if words := more_or_less(own, NOUNS[quantities[0]]):
                lines.append(f"  beside the {who} of each scenario: {words}")
    return lines


def heading(board: Leaderboard) -> str:
    """The set and its version, and what was played of it."""
    quick = " (quick look)" * board.quick
    several = f"{len(board.scenarios)} of {len(board.set.names())} scenarios"
    return f"Leaderboard {board.set.title}{quick}: {several}, {plural(board.seeds, 'seed')}"


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame) -> list[Table]:
    """A table for each env, from two frames of ``ranking.overall``: costs to the best learner's, the best first."""
    prices = by_price["price"].unique().sort().to_list()
    titles = ("all prices", "all prices\n/ oracle", *(f"price\n{price:g}" for price in prices))
    columns = {"rank": LEFT, "policy": LEFT, **right(titles), "worst scenario": WRAP, "worst seed": WRAP}
    made = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        rows = []
        for row in ranked.to_dicts():
            at = by_price.filter(pl.col("env") == env, pl.col("policy") == row["policy"])
            costs = {one["price"]: _plain(one[COST], 4) for one in at.to_dicts()}
            cells = (_ratio(row, COST), _ratio(row, TO_ORACLE), *(costs.get(price, "-") for price in prices))
            place = str(row["rank"]) if row["kind"] == LEARNER else row["kind"]
            worst = [_at(row[f"worst{end}"], row[f"where{end}"]) for end in ("", "_seed")]
            rows.append((place, row["policy"], *cells, *worst))
        best = f"the best of {plural(_learners(ranked), 'learner')}"
        about = f"{env}: cost / cost of {best} (or of the best oracle), geometric mean over all scenarios"
        made.append(Table(about, columns, rows))
    return made


def of_defaults(by_scenario: pl.DataFrame, finals: pl.DataFrame, defaults: Mapping[str, str]) -> list[Table]:
    """For each env whose default has played, its costs in each scenario; and the cells where it is not near the best.

    The arguments are what ``ranking.by_scenario`` and ``experiment.finals`` return, and the default of each env.
    """
    made, far = [], []
    for env, policy in defaults.items():
        of_env = by_scenario.filter(pl.col("env") == env)
        mine = of_env.filter(pl.col("policy") == policy, pl.col(COST).is_not_null())
        if mine.height:
            others = ranking.to_best_other(finals.filter(pl.col("env") == env), policy)
            made.append(Table(_near_or_not(mine, _learners(of_env)), *_compared(mine, others)))
            far += [(env, *cell) for cell in _far(of_env, mine)]
    if far:
        intervals = by_scenario[f"{COST}_low"].is_not_null().any()
        titles = ("price", "default\n/ best learner", *(["95 % interval", "worst seed"] if intervals else []))
        columns = {"env": LEFT, "scenario": LEFT, **right(titles), "best learner": LEFT}
        made.append(Table(f"where a default is not within {NEAR - 1:.0%} of the best learner", columns, far))
    return made


def _near_or_not(mine: pl.DataFrame, learners: int) -> str:
    env, policy = mine.row(0, named=True)["env"], mine["policy"][0]
    more = more_or_less(Estimate(_mean(mine[TO_ORACLE]), np.nan, np.nan), "cost")
    words = f"beside the best oracle it has {more}" if more else "no oracle has played"
    return (
        f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best of {plural(learners, 'learner')} in "
        f"{(mine[COST] <= NEAR).sum()} of {mine.height};\n{words}. Its cost at each price, over that of the best other "
        "policy that knows nothing beforehand,\nand over that of the best oracle; in brackets on the worst seed"
    )


def _compared(mine: pl.DataFrame, others: pl.DataFrame) -> tuple[dict[str, int], list[Sequence[str]]]:
    """Columns, and a row for each scenario with the ratios at each price, and one for the means over scenarios."""
    prices = mine["price"].unique().sort().to_list()
    frames = (others, TO_OTHER), (mine, TO_ORACLE)
    parts = [(frame.filter(price=price), ratio) for frame, ratio in frames for price in prices]
    rows: list[Sequence[str]] = []
    for scenario in mine["scenario"].unique(maintain_order=True):
        found = ((part.filter(scenario=scenario).to_dicts(), ratio) for part, ratio in parts)
        rows.append((scenario, *(_and_worst(_plain(of[0][r]), of[0], r) if of else "-" for of, r in found)))
    if len(rows) > 1:
        rows.append(("geometric mean", *(_plain(_mean(part[ratio])) for part, ratio in parts)))
    titles = [f"{price:g}:\n/ {other}" for other in ("other", "oracle") for price in prices]
    return {"scenario": LEFT, **right(titles)}, rows


def _far(of_env: pl.DataFrame, mine: pl.DataFrame) -> list[tuple[str, ...]]:
    """Scenario, price, ratio, its interval and the best learner of each cell where the default is not near it."""
    best = of_env.filter(pl.col("kind") == LEARNER, pl.col(COST) == 1.0)
    found: list[tuple[str, ...]] = []
    for row in mine.filter(pl.col(COST) > NEAR).to_dicts():
        who = best.filter(pl.col("scenario") == row["scenario"], pl.col("price") == row["price"])["policy"]
        low, high = (row[f"{COST}_{end}"] for end in ("low", "high"))
        between = () if low is None else (f"{_plain(low)} to {_plain(high)}", _plain(row[f"{COST}_worst"]))
        found.append((row["scenario"], f"{row['price']:g}", _plain(row[COST]), *between, ", ".join(who)))
    return found


def _side_by_side(title: str, ranking_of_all: pl.DataFrame, recommended: Mapping[str, str]) -> Table:
    columns: dict[str, int] = {}
    sides: list[list[tuple[str, str]]] = []
    for (env,), ranked in ranking_of_all.group_by("env", maintain_order=True):
        columns |= {str(env): LEFT, f"{env}: cost / best learner": RIGHT}
        side = []
        for row in ranked.to_dicts():
            default = row["policy"] == recommended.get(str(env))
            name = f"**{row['policy']}**, the default" if default else row["policy"]
            side.append((name if row["kind"] == LEARNER else f"{name}, {row['kind']}", _ratio(row, COST)))
        sides.append(side)
    rows = [[cell for pair in row for cell in pair] for row in zip_longest(*sides, fillvalue=("", ""))]
    return Table(title, columns, rows)


def constants(by_price: pl.DataFrame) -> list[Table]:
    """A table for each price: policies that played with several constants, as published and with the best of them.

    The frame is what ``ranking.overall`` returns. ``name`` is as published, and ``name:constant=...`` is another try.
    """
    made = []
    tries = by_price.with_columns(pl.col("policy").map_elements(lambda name: parse(name)[0], pl.String).alias("of"))
    for (price,), there in tries.filter(pl.len().over("env", "price", "of") > 1).group_by("price", maintain_order=True):
        rows = []
        for (of,), played in there.group_by("of", maintain_order=True):
            best = played.row(0, named=True)  # the frame is ranked
            published = played.filter(policy=of).to_dicts()
            constant = best["policy"].removeprefix(of).removeprefix(":") or "as published"
            tried = ", ".join(name.removeprefix(f"{of}:") for name in played["policy"].sort() if name != of)
            as_published = _ratio(published[0], COST) if published else "-"
            rows.append((of, as_published, _ratio(best, COST), constant, _at(best["worst"], best["where"]), tried))
        titles = ("as published", "best constant")
        columns = {"policy": LEFT, **right(titles), "which": LEFT, "its worst scenario": WRAP, "tried": WRAP}
        about = "cost / cost of the best learner of each scenario, over all scenarios"
        made.append(Table(f"Price {price:g}, rivals as published and with their best constant: {about}", columns, rows))
    return made


def each(by_scenario: pl.DataFrame, by_price: pl.DataFrame) -> list[Table]:
    """A table of every policy in every scenario for each env and price, from two frames of ``ranking``."""
    made = []
    for (env, price), there in by_scenario.group_by("env", "price", maintain_order=True):
        ranked = by_price.filter(env=env, price=price)["policy"]
        scenarios, rows = there["scenario"].unique(maintain_order=True).to_list(), []
        for policy in dict.fromkeys([*ranked, *there["policy"]]):
            played = {one["scenario"]: one for one in there.filter(policy=policy).to_dicts()}
            found = (played.get(name) for name in scenarios)
            rows.append([policy, *("-" if one is None else _and_worst(_ratio(one, COST), one, COST) for one in found)])
        about = f"{env}, price {price:g}, each scenario: cost / cost of its best learner; in brackets on the worst seed"
        made.append(Table(about, {"policy": LEFT, **right(scenarios)}, rows))
    return made


def _played(scenarios: Sequence[Scenario]) -> Table:
    rows = [(s.name, *(f"{number:,}" for number in (s.pool.n, s.budget, s.horizon)), s.summary) for s in scenarios]
    return Table("The scenarios", {"scenario": LEFT, **right(("n", "B", "rounds")), "task times": WRAP}, rows)


def _learners(frame: pl.DataFrame) -> int:
    return frame.filter(pl.col("kind") == LEARNER)["policy"].n_unique()


def _ratio(row: Row, quantity: str) -> str:
    return show(row[quantity], row[f"{quantity}_high"])


def _at(ratio: float | None, scenario: str) -> str:
    return "-" if ratio is None else f"{ratio:.3g} ({scenario})"


def _and_worst(mean: str, row: Row, quantity: str) -> str:
    return mean if row[f"{quantity}_low"] is None else f"{mean} ({_plain(row[f'{quantity}_worst'])})"


def _plain(ratio: float | None, digits: int = 3) -> str:
    return "-" if ratio is None or np.isnan(ratio) else f"{ratio:.{digits}g}"


def _mean(ratios: pl.Series) -> float:  # the geometric mean; NaN where one is not known
    return float(np.exp(ratios.log().to_numpy().mean())) if len(ratios) and not ratios.has_nulls() else np.nan
