"""The report on a leaderboard: tables for the terminal, Markdown to paste, CSV with all digits, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.leaderboard import defaults, front, ranking
from ata_gym.bench.leaderboard.decisions import FOLDER
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob, finals
from ata_gym.bench.leaderboard.ranking import COST, QUANTITIES, RUNTIME, TO_ORACLE, WORKER_TIME
from ata_gym.bench.report.headline import LEARNER, Competitor, in_brackets, leaders, more_or_less, of_game
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show, title_of
from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Table, markdown, right
from ata_gym.scenarios import Scenario

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over scenarios and seeds, of the cost divided "
    "by that of the best learner of the same env, scenario and price, on the same seeds, and with several seeds half "
    "its 95 % confidence interval; columns with / oracle divide by the best oracle instead. Oracles know what learners "
    "must learn; baselines neither know nor learn. OFTA is that of each round where workers change."
)

_WHO = {"rank": LEFT, "policy": LEFT}
_ALL_TO_ORACLE, _WORST = "all prices\n/ oracle", "worst scenario"
_TIMES = ("ms a\ndecision", "\nworst")


def report(
    board: Leaderboard,
    jobs: Sequence[PricedJob],
    recommended: Mapping[str, str],
    times: pl.DataFrame | None = None,
) -> Report:
    """Rank finished jobs, and leave tables and the picture in the board's folder.

    ``recommended`` is the default policy of each env. The times, as ``decisions.measure`` returns them, are shown in
    the terminal and left in a folder of their own: results repeat themselves byte by byte, and the clock does not.
    """
    ends = finals(jobs)
    everything = ranking.ratios(ends, board.set.reference)
    ranked = everything.filter(pl.col("price").is_in(list(board.prices)))
    by_scenario, by_price = ranking.by_scenario(ranked), ranking.overall(ranked)
    at_all_prices = ranking.overall(ranked, by_price=False)
    compared = ends.filter(pl.col("price").is_in(list(board.prices)))
    short = [*overview(by_price, at_all_prices), *defaults.tables(by_scenario, compared, recommended)]
    title, pictures = heading(board), []
    if board.set.front in [scenario.name for scenario in board.scenarios]:
        points = ranking.by_scenario(everything.filter(pl.col("scenario") == board.set.front))
        pictures = front.draw(points, f"{board.set.front}, {title}", board.out / "front")
    shown = [f"![Runtime against worker time of every policy]({path.name})\n" for path in pictures[:1]]
    notes_below = [f"{note}\n" for note in (*board.notes, LEGEND)]
    long = markdown([*details(by_price), played(board.scenarios)])
    compact = markdown([side_by_side(at_all_prices, recommended)])
    text = "\n".join([f"## {title}\n", *notes_below, compact, markdown(short), *shown, long])
    files = write(board.out, {"leaderboard.md": text, "leaderboard.csv": by_price, "scenarios.csv": by_scenario})
    if times is not None:
        short = [*overview(by_price, at_all_prices, times), *defaults.tables(by_scenario, compared, recommended, times)]
        files += write(board.out / FOLDER, {"leaderboard.md": markdown(short), "decisions.csv": times})
    return Report(by_price, short, files, pictures, "\n".join([title, *board.notes]), lead(ranked))


def lead(ratios: pl.DataFrame) -> str:
    """The headline of each env over all scenarios and prices, from what ``ranking.ratios`` returns."""
    means, lines = ranking.by_seed(ratios), []
    for (env,), there in means.filter(pl.col(COST).is_not_null()).group_by("env", maintain_order=True):
        of = {mine["policy"][0]: mine.sort("seed") for _, mine in there.group_by("policy", maintain_order=True)}
        columns = {"cost": COST, "runtime": RUNTIME, "total_worker_time": WORKER_TIME}
        samples = {
            name: {policy: np.exp(mine[column].to_numpy()) for policy, mine in of.items()}
            for name, column in columns.items()
        }
        players = [Competitor(policy, str(env), mine["kind"][0]) for policy, mine in of.items()]
        (best,) = leaders(samples, players)
        to = {"best learner": COST, "best oracle": TO_ORACLE}
        own = {who: Estimate.of_logarithms(of[best][column].cast(pl.Float64).to_numpy()) for who, column in to.items()}
        beside = [
            f"  beside the {who} of each scenario: {words}"
            for who, one in own.items()
            if (words := more_or_less(one, "cost"))
        ]
        lines += [of_game(samples, players), *beside]
    if not lines:
        return "No learner was played: oracles and baselines are shown beside each other."
    seeds = means["seed"].n_unique()
    lines = ["Over all scenarios and prices:", *lines]
    return "\n".join([in_brackets(1), *lines] if seeds == 1 else [*lines, in_brackets(seeds)])


def heading(board: Leaderboard) -> str:
    """The set and its version, and what was played of it."""
    quick = " (quick look)" * board.quick
    several = f"{len(board.scenarios)} of {len(board.set.names())} scenarios"
    return f"Leaderboard {board.set.title}{quick}: {several}, {plural(board.seeds, 'seed')}"


def side_by_side(at_all_prices: pl.DataFrame, recommended: Mapping[str, str]) -> Table:
    """The policies of all envs in one table, the best first: cost over that of the best learner of the env."""
    columns: dict[str, int] = {}
    sides: list[list[tuple[str, str]]] = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        columns |= {str(env): LEFT, f"{env}: cost / best learner": RIGHT}
        side = []
        for row in ranked.to_dicts():
            default = row["policy"] == recommended.get(str(env))
            name = f"**{row['policy']}**, the default" if default else row["policy"]
            side.append((name if row["kind"] == LEARNER else f"{name}, {row['kind']}", _ratio(row, COST)))
        sides.append(side)
    rows = [[cell for pair in row for cell in pair] for row in zip_longest(*sides, fillvalue=("", ""))]
    return Table("All prices and scenarios", columns, rows)


def overview(by_price: pl.DataFrame, at_all_prices: pl.DataFrame, times: pl.DataFrame | None = None) -> list[Table]:
    """A table for each env: costs to the best learner's at each price and over all, the best first.

    The arguments are what ``ranking.overall`` and ``decisions.measure`` return; the times, where they are wanted, take
    the place of the worst scenario.
    """
    prices = by_price["price"].unique().sort().to_list()
    titles = ("all prices", _ALL_TO_ORACLE, *(f"price\n{price:g}" for price in prices))
    titles += (_WORST,) if times is None else _TIMES
    made = []
    for (env,), ranked in at_all_prices.group_by("env", maintain_order=True):
        rows = []
        for row in ranked.to_dicts():
            at = by_price.filter(pl.col("env") == env, pl.col("policy") == row["policy"])
            costs = {one["price"]: "-" if one[COST] is None else f"{one[COST]:.4g}" for one in at.to_dicts()}
            cells = (_ratio(row, COST), _ratio(row, TO_ORACLE), *(costs.get(price, "-") for price in prices))
            last = (_worst(row),) if times is None else _times(times, row["policy"])
            rows.append((*_who(row), *cells, *last))
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


def _worst(row: Mapping[str, object]) -> str:
    return "-" if row["worst"] is None else f"{row['worst']:.3g} ({row['where']})"


def _times(times: pl.DataFrame, policy: str) -> tuple[str, ...]:
    """Milliseconds a decision, the mean and the worst of all scenarios."""
    mine = times.filter(pl.col("policy") == policy)
    return tuple(f"{value:.3g}" for value in mine.select(pl.col("mean").mean(), pl.col("worst").max()).row(0))
