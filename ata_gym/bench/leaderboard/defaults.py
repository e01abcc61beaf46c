"""How the defaults compare: with the best other policy, with the oracle, and in time per decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ata_gym.bench.leaderboard import ranking
from ata_gym.bench.leaderboard.ranking import COST, TO_ORACLE, TO_OTHER
from ata_gym.bench.report.headline import LEARNER, more_or_less
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.table import LEFT, Table, right

NEAR = 1.05  # a cost of up to so many times the best learner's is near the best


def tables(
    by_scenario: pl.DataFrame, finals: pl.DataFrame, defaults: Mapping[str, str], times: pl.DataFrame | None = None
) -> list[Table]:
    """For each env whose default has played, its costs in each scenario; and the cells where it is not near the best.

    The arguments are what ``ranking.by_scenario`` and ``experiment.finals`` return, the recommended policy of each env,
    and what ``decisions.measure`` returns, if its figures are wanted.
    """
    made, far = [], []
    for env, policy in defaults.items():
        of_env = by_scenario.filter(pl.col("env") == env)
        mine = of_env.filter(pl.col("policy") == policy, pl.col(COST).is_not_null())
        if not mine.height:
            continue
        others = ranking.to_best_other(finals.filter(pl.col("env") == env), policy)
        timed = None if times is None else times.filter(pl.col("env") == env, pl.col("policy") == policy)
        made.append(_compared(env, policy, mine, others, timed, _learners(of_env)))
        far += [(env, *cell) for cell in _far(of_env, mine)]
    if far:
        intervals = by_scenario[f"{COST}_low"].is_not_null().any()
        titles = ("price", "default\n/ best learner", *(["95 % interval"] if intervals else []))
        columns = {"env": LEFT, "scenario": LEFT, **right(titles), "best learner": LEFT}
        made.append(Table(f"where a default is not within {NEAR - 1:.0%} of the best learner", columns, far))
    return made


def _compared(
    env: str, policy: str, mine: pl.DataFrame, others: pl.DataFrame, times: pl.DataFrame | None, learners: int
) -> Table:
    """A row for each scenario, with the ratios at each price and the times, and one for the means over scenarios."""
    prices = mine["price"].unique().sort().to_list()
    rows = []
    for (scenario,), group in mine.group_by("scenario", maintain_order=True):
        to_other = {row["price"]: row for row in others.filter(pl.col("scenario") == scenario).to_dicts()}
        to_oracle = {row["price"]: row[TO_ORACLE] for row in group.to_dicts()}
        cells = [_plain(to_other[price][TO_OTHER]) if price in to_other else "-" for price in prices]
        cells += [_plain(to_oracle.get(price)) for price in prices]
        rows.append((str(scenario), *cells, *_times(times, str(scenario))))
    if len(rows) > 1:
        over = (others, TO_OTHER), (mine, TO_ORACLE)
        means = [_mean(frame.filter(pl.col("price") == price)[ratio]) for frame, ratio in over for price in prices]
        rows.append(("geometric mean", *means, *([""] * (len(rows[0]) - 1 - len(means)))))
    near, oracle = (mine[COST] <= NEAR).sum(), mine[TO_ORACLE]
    mean = np.nan if oracle.has_nulls() else float(np.exp(oracle.log().to_numpy().mean()))
    more = more_or_less(Estimate(mean, np.nan, np.nan), "cost")
    words = f"beside the best oracle it has {more}" if more else "no oracle has played"
    about = (
        f"{env}: the default, {policy}, is within {NEAR - 1:.0%} of the best of {learners} learner"
        f"{'s' * (learners != 1)} in {near} of {mine.height};\n{words}. Its cost at each price, over that of the best "
        "other policy that knows nothing beforehand,\nand over that of the best oracle"
    )
    titles = [f"{price:g}:\n/ {other}" for other in ("other", "oracle") for price in prices]
    titles += ["ms a\ndecision", "\nworst"] * (times is not None)
    return Table(about, {"scenario": LEFT, **right(titles)}, rows)


def _far(of_env: pl.DataFrame, mine: pl.DataFrame) -> list[tuple[str, ...]]:
    """Scenario, price, ratio, its interval and the best learner of each cell where the default is not near it."""
    best = of_env.filter(pl.col("kind") == LEARNER, pl.col(COST) == 1.0)
    found: list[tuple[str, ...]] = []
    for row in mine.filter(pl.col(COST) > NEAR).to_dicts():
        who = best.filter(pl.col("scenario") == row["scenario"], pl.col("price") == row["price"])["policy"]
        low, high = (row[f"{COST}_{end}"] for end in ("low", "high"))
        between = () if low is None else (f"{_plain(low)} to {_plain(high)}",)
        found.append((row["scenario"], f"{row['price']:g}", _plain(row[COST]), *between, ", ".join(who)))
    return found


def _learners(of_env: pl.DataFrame) -> int:
    return of_env.filter(pl.col("kind") == LEARNER)["policy"].n_unique()


def _plain(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3g}"


def _mean(ratios: pl.Series) -> str:
    """The geometric mean."""
    return "-" if ratios.is_empty() or ratios.has_nulls() else f"{np.exp(ratios.log().to_numpy().mean()):.3g}"


def _times(times: pl.DataFrame | None, scenario: str) -> Sequence[str]:
    """Mean and worst milliseconds, if they are wanted."""
    if times is None:
        return ()
    here = times.filter(pl.col("scenario") == scenario).to_dicts()
    return (f"{here[0]['mean']:.2g}", f"{here[0]['worst']:.3g}") if here else ("-", "-")
