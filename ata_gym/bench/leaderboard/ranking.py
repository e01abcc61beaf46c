"""How far each policy is from the best: ratios on the same seeds, their means and intervals, and ranks.

Means are geometric, over seeds, scenarios and prices alike, so that a mean of means is the mean. The interval is
Student's over seeds, of the logarithms; the scenarios are fixed.
"""

from collections.abc import Sequence
from itertools import chain

import polars as pl

from ata_gym.bench.report.headline import LEARNER, ORACLE
from ata_gym.bench.report.statistics import Estimate

RUNTIME, WORKER_TIME, COST, TO_ORACLE = "runtime/ofta", "total_worker_time/ofta", "cost/best", "cost/oracle"
QUANTITIES = (RUNTIME, WORKER_TIME, COST, TO_ORACLE)
"""Ratios to OFTA, to the best learner, and to the best oracle, these two of the same env, scenario and price.

OFTA is the reference of the set: where workers change, the one of each round.
"""
TO_OTHER = "cost/other"  # ratio to the best other policy that knows nothing beforehand, be it a learner or a baseline

_WHERE = ("env", "price", "scenario")
CELL = (*_WHERE, "policy", "kind", "seed")  # what one play of a policy is known by


def ratios(finals: pl.DataFrame, reference: str) -> pl.DataFrame:
    """Logarithms of ratios of ``experiment.finals``: columns env, price, scenario, policy, kind, seed, ``QUANTITIES``.

    The reference is the policy that stands for OFTA. The best is the one of the least mean logarithm of cost. Where
    there is no learner, ``cost/best`` is null; where there is no oracle, ``cost/oracle`` is.
    """
    logs = finals.with_columns(pl.col("runtime", "total_worker_time", "cost").log())
    ofta = logs.filter(pl.col("policy") == reference).unique(["scenario", "seed"], maintain_order=True)
    others = {
        "ofta": ofta.select("scenario", "seed", "runtime", "total_worker_time"),
        "best": _costs_of_best(logs.filter(pl.col("kind") == LEARNER)).drop("policy"),
        "oracle": _costs_of_best(logs.filter(pl.col("kind") == ORACLE)).drop("policy"),
    }
    paired = logs
    for name, other in others.items():
        on = [column for column in (*_WHERE, "seed") if column in other.columns]
        paired = paired.join(other, on=on, suffix=f"/{name}", how="left", maintain_order="left")
    differences = [(pl.col(name.partition("/")[0]) - pl.col(name)).alias(name) for name in QUANTITIES]
    return paired.select(*CELL, *differences)


def to_best_other(finals: pl.DataFrame, policy: str) -> pl.DataFrame:
    """A policy beside the best other one that knows nothing: price, scenario, other, ``TO_OTHER``, low, high, worst."""
    logs = finals.with_columns(pl.col("cost").log())
    best = _costs_of_best(logs.filter(pl.col("policy") != policy, pl.col("kind") != ORACLE))
    best = best.rename({"policy": "other", "cost": "least"})
    paired = logs.filter(pl.col("policy") == policy).join(best, on=[*_WHERE, "seed"], maintain_order="left")
    ratio = paired.select("price", "scenario", "other", (pl.col("cost") - pl.col("least")).alias(TO_OTHER))
    return _with_worst(ratio, ("price", "scenario", "other"), [TO_OTHER])


def _costs_of_best(logs: pl.DataFrame) -> pl.DataFrame:
    return (
        logs.group_by(*_WHERE, "policy", maintain_order=True)
        .agg(pl.col("cost").mean())
        .sort("cost", maintain_order=True)
        .unique(_WHERE, keep="first", maintain_order=True)
        .select(*_WHERE, "policy")
        .join(logs, on=[*_WHERE, "policy"])
        .select(*_WHERE, "policy", "seed", "cost")
    )


def by_scenario(ratios: pl.DataFrame) -> pl.DataFrame:
    """Means over seeds: columns env, price, scenario, policy, kind, and each quantity with its low, high and worst.

    The worst is the ratio on the seed where it is largest: a mean can hide a seed that is lost.
    """
    return _with_worst(ratios, (*_WHERE, "policy", "kind"))


def overall(ratios: pl.DataFrame, by_price: bool = True) -> pl.DataFrame:
    """Means over scenarios and seeds, the best first, for each price or over all of them.

    Policies that have not played all scenarios, at all prices, are left out. Columns env, price (if ``by_price``),
    policy, kind, each quantity with its low and high, worst (the largest ``cost/best`` in a scenario) and where (in
    which), worst_seed (the largest on one seed of a scenario) and where_seed, and rank among the learners, null for
    others.
    """
    price = ("price",) if by_price else ()
    by = (*price, "env", "policy", "kind")
    made, cells = _estimates(by_seed(ratios, by_price), by), by_scenario(ratios)
    for quantity, end in ((COST, ""), (f"{COST}_worst", "_seed")):
        worst = (
            cells.sort(quantity, descending=True, nulls_last=True, maintain_order=True)
            .unique(by, keep="first", maintain_order=True)
            .select(*by, pl.col(quantity).alias(f"worst{end}"), pl.col("scenario").alias(f"where{end}"))
        )
        made = made.join(worst, on=by, how="left", maintain_order="left")
    order = ["env", *price]
    rank = pl.when(pl.col("kind") == LEARNER).then(pl.col(COST)).rank("min").over(order).cast(pl.Int64).alias("rank")
    return made.sort(*order, COST, nulls_last=True, maintain_order=True).with_columns(rank)


def by_seed(ratios: pl.DataFrame, by_price: bool = False) -> pl.DataFrame:
    """Mean logarithms over scenarios of each seed, of the policies that have played all of them: see ``overall``."""
    by = (*(("price",) if by_price else ()), "env", "policy", "kind")
    parts = pl.struct("scenario") if by_price else pl.struct("scenario", "price")
    everywhere = parts.n_unique().over(by) == parts.n_unique()
    return ratios.filter(everywhere).group_by(*by, "seed", maintain_order=True).agg(pl.col(QUANTITIES).mean())


def _with_worst(ratios: pl.DataFrame, by: Sequence[str], quantities: Sequence[str] = QUANTITIES) -> pl.DataFrame:
    worst = ratios.group_by(by, maintain_order=True).agg(pl.col(quantities).max().exp().name.suffix("_worst"))
    return _estimates(ratios, by, quantities).join(worst, on=by, how="left", maintain_order="left")


def _estimates(ratios: pl.DataFrame, by: Sequence[str], quantities: Sequence[str] = QUANTITIES) -> pl.DataFrame:
    rows = []
    for keys, group in ratios.group_by(by, maintain_order=True):
        means = (Estimate.of_logarithms(group[name].cast(pl.Float64).to_numpy()) for name in quantities)
        rows.append([*keys, *chain.from_iterable(means)])
    names = [quantity + part for quantity in quantities for part in ("", "_low", "_high")]
    kinds = {name: ratios.schema[name] for name in by} | dict.fromkeys(names, pl.Float64())
    return pl.DataFrame(rows, kinds, orient="row").fill_nan(None)
