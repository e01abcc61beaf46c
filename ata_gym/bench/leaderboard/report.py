"""The report on a leaderboard: tables for the terminal, Markdown to paste, CSV with all digits, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.leaderboard import front, ranking, scenarios
from ata_gym.bench.leaderboard.experiment import LEARNER, Leaderboard, PricedJob, finals
from ata_gym.bench.leaderboard.ranking import COST, QUANTITIES, RUNTIME, TO_ORACLE, WORKER_TIME
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.summary_tables import show, title_of
from ata_gym.bench.report.table import LEFT, WRAP, Table, markdown, right
from ata_gym.scenarios import Scenario

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over scenarios and seeds, of the cost divided "
    "by that of the best learner of the same env, scenario and price, on the same seeds, and half its 95 % confidence "
    "interval; columns with / oracle divide by the best oracle instead. Oracles know what learners must learn; "
    "baselines neither know nor learn."
)

NEAR = 1.05
"""A cost of up to so many times the best learner's is near the best."""

_WHO = {"rank": LEFT, "policy": LEFT}
_ALL_TO_ORACLE, _WORST = "all prices\n/ oracle", "worst scenario"


def report(board: Leaderboard, jobs: Sequence[PricedJob], defaults: Mapping[str, str], notes: Sequence[str]) -> Report:
    """Rank finished jobs, and leave tables and the picture in the board's folder.

    The defaults are the recommended policy of each env; the notes are sentences that a reader should know.
    """
    everything = ranking.ratios(finals(jobs))
    ranked = everything.filter(pl.col("price").is_in(list(board.prices)))
    by_scenario, by_price = ranking.by_scenario(ranked), ranking.overall(ranked)
    short = [*overview(by_price, ranking.overall(ranked, by_price=False)), *nearness(by_scenario, defaults)]
    heading, pictures = _heading(board), []
    if scenarios.FRONT in [scenario.name for scenario in board.scenarios]:
        points = ranking.by_scenario(everything.filter(pl.col("scenario") == scenarios.FRONT))
        pictures = front.draw(points, f"{scenarios.FRONT}, {heading}", board.out / "front")
    shown = [f"![Runtime against worker time of every policy]({path.name})\n" for path in pictures[:1]]
    notes_below = [f"{note}\n" for note in (*notes, LEGEND)]
    long = markdown([*details(by_price), played(board.scenarios)])
    text = "\n".join([f"## {heading}\n", *notes_below, markdown(short), *shown, long])
    files = write(board.out, {"leaderboard.md": text, "leaderboard.csv": by_price, "scenarios.csv": by_scenario})
    return Report(by_price, short, files, pictures, "\n".join([heading, *notes]))


def _heading(board: Leaderboard) -> str:
    """The version of the set, and what was played of it."""
    quick = " (quick look)" * board.quick
    several = f"{len(board.scenarios)} of {len(scenarios.names())} scenarios"
    version = f"{scenarios.VERSION}-{scenarios.fingerprint()[:8]}"
    return f"Leaderboard {version}{quick}: {several}, {plural(board.seeds, 'seed')}"


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame) -> list[Table]:
    """A table for each env: costs to the best learner's at each price and over all, the best first.

    The arguments are what ``ranking.overall`` returns.
    """
    prices = by_price["price"].unique().sort().to_list()
    titles = ("all prices", _ALL_TO_ORACLE, *(f"price\n{price:g}" for price in prices), _WORST)
    made = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        rows = []
        for row in ranked.to_dicts():
            at = by_price.filter(pl.col("env") == env, pl.col("policy") == row["policy"])
            costs = {one["price"]: "-" if one[COST] is None else f"{one[COST]:.4g}" for one in at.to_dicts()}
            cells = (_ratio(row, COST), _ratio(row, TO_ORACLE), *(costs.get(price, "-") for price in prices))
            rows.append((*_who(row), *cells, _worst(row)))
        best = f"the best of {_learners(ranked)}"
        about = f"{env}: cost / cost of {best} (or of the best oracle), geometric mean over all scenarios"
        made.append(Table(about, {**_WHO, **right(titles)}, rows))
    return made


def details(by_price: pl.DataFrame) -> list[Table]:
    """A table for each env and price, with runtime and worker time, too."""
    titles = (title_of(RUNTIME), title_of(WORKER_TIME), "cost\n/ best", "cost\n/ oracle", _WORST)
    made = []
    for (env, price), ranked in by_price.group_by("env", "price", maintain_order=True):
        rows = [(*_who(row), *(_ratio(row, name) for name in QUANTITIES), _worst(row)) for row in ranked.to_dicts()]
        about = f"{env} at price {price:g}: cost = runtime + {price:g} x worker time"
        made.append(Table(about, {**_WHO, **right(titles)}, rows))
    return made


def nearness(by_scenario: pl.DataFrame, defaults: Mapping[str, str]) -> list[Table]:
    """For each env whose default has played, its cost to the best learner's in each scenario, and to the best oracle's.

    The arguments are what ``ranking.by_scenario`` returns, and the recommended policy of each env.
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
        near, oracle = (mine[COST] <= NEAR).sum(), _mean(mine[TO_ORACLE])
        to_oracle = "no oracle has played" if oracle == "-" else f"its cost is {oracle} times that of the best oracle"
        about = (
            f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best of {_learners(of_env)} in {near} of "
            f"{mine.height} (! marks the others);\n{to_oracle}"
        )
        columns = {"scenario": LEFT, **right((*(f"price {price:g}" for price in prices), _ALL_TO_ORACLE))}
        made.append(Table(about, columns, rows))
    return made


def played(scenarios: Sequence[Scenario]) -> Table:
    """The scenarios that were played."""
    rows = [(s.name, *(f"{number:,}" for number in (s.pool.n, s.budget, s.horizon)), s.summary) for s in scenarios]
    return Table("The scenarios", {"scenario": LEFT, **right(("n", "B", "rounds")), "task times": WRAP}, rows)


def _learners(frame: pl.DataFrame) -> str:
    return plural(frame.filter(pl.col("kind") == LEARNER)["policy"].n_unique(), "learner")


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
