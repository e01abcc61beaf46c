"""Who is how far from the best: ratios on the same seeds, their means and intervals, and ranks.

Ratios are averaged as logarithms: over seeds, worlds and prices alike, so that a mean of means is the mean. The
interval is Student's, over seeds; the worlds are fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from ata_gym.bench.leaderboard import LEARNER, REFERENCE
from ata_gym.bench.summary import estimate

RUNTIME, WORKER_TIME, COST = "runtime/ofta", "total_worker_time/ofta", "cost/best"
QUANTITIES = (RUNTIME, WORKER_TIME, COST)
"""Ratios to OFTA, and to the best learner of the same env, world and price."""

_WHERE = ("env", "price", "world")
_WHO = ("env", "policy", "kind")


def ratios(finals: pl.DataFrame) -> pl.DataFrame:
    """Logarithms of the ratios on each seed.

    The best learner is the one of the least mean logarithm of cost. Where there is none, ``cost/best`` is null.

    Parameters
    ----------
    finals
        As ``leaderboard.finals`` gives it.

    Returns
    -------
    Columns env, price, world, policy, kind, seed, and ``QUANTITIES``.
    """
    logs = finals.with_columns(pl.col("runtime", "total_worker_time", "cost").log())
    reference = logs.filter(pl.col("policy") == REFERENCE).unique(["world", "seed"], maintain_order=True)
    best = (
        logs.filter(pl.col("kind") == LEARNER)
        .group_by(*_WHERE, "policy", maintain_order=True)
        .agg(pl.col("cost").mean())
        .sort("cost", maintain_order=True)
        .unique(_WHERE, keep="first", maintain_order=True)
        .select(*_WHERE, "policy")
        .join(logs, on=[*_WHERE, "policy"])
    )
    return (
        logs.join(
            reference.select("world", "seed", "runtime", "total_worker_time"),
            on=["world", "seed"], suffix="_ofta", how="left", maintain_order="left",
        )
        .join(best.select(*_WHERE, "seed", "cost"), on=[*_WHERE, "seed"], suffix="_best", how="left",
              maintain_order="left")
        .select(
            *_WHERE, "policy", "kind", "seed",
            (pl.col("runtime") - pl.col("runtime_ofta")).alias(RUNTIME),
            (pl.col("total_worker_time") - pl.col("total_worker_time_ofta")).alias(WORKER_TIME),
            (pl.col("cost") - pl.col("cost_best")).alias(COST),
        )
    )  # fmt: skip


def by_world(ratios: pl.DataFrame) -> pl.DataFrame:
    """Geometric means over seeds: columns env, price, world, policy, kind, and each quantity with its low and high."""
    return _estimates(ratios, (*_WHERE, "policy", "kind"))


def overall(ratios: pl.DataFrame, by_price: bool = True) -> pl.DataFrame:
    """Geometric means over worlds and seeds, the best first, for each price or over all of them.

    Policies that have not played all worlds, at all prices, are left out.

    Returns
    -------
    Columns env, price (if ``by_price``), policy, kind, each quantity with its low and high, worst (the largest
    ``cost/best`` in a world), where (in which world), and rank among the learners, null for others.
    """
    by = (*(("price",) if by_price else ()), *_WHO)
    played = ratios.group_by(by, maintain_order=True).agg(pl.struct("world", "price").n_unique().alias("played"))
    everything = ratios.select(pl.struct(*(("world",) if by_price else ("world", "price"))).n_unique()).item()
    complete = played.filter(pl.col("played") == everything).select(by)
    mean = (
        ratios.join(complete, on=by, maintain_order="left")
        .group_by(*by, "seed", maintain_order=True)
        .agg(pl.col(QUANTITIES).mean())
    )
    worst = (
        by_world(ratios)
        .sort(COST, descending=True, nulls_last=True, maintain_order=True)
        .unique(by, keep="first", maintain_order=True)
        .select(*by, pl.col(COST).alias("worst"), pl.col("world").alias("where"))
    )
    order = ["env", *(("price",) if by_price else ())]
    made = _estimates(mean, by).join(worst, on=by, how="left", maintain_order="left")
    rank = pl.when(pl.col("kind") == LEARNER).then(pl.col(COST)).rank("min").over(order).cast(pl.Int64).alias("rank")
    return made.sort(*order, COST, nulls_last=True, maintain_order=True).with_columns(rank)


def _estimates(ratios: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Means of the logarithms in each group, and their intervals, back as ratios."""
    rows = []
    for keys, group in ratios.group_by(by, maintain_order=True):
        row = dict(zip(by, keys, strict=True))
        for quantity in QUANTITIES:
            mean, half = estimate(group[quantity].cast(pl.Float64).to_numpy())
            for name, value in (("", mean), ("_low", mean - half), ("_high", mean + half)):
                row[quantity + name] = float(np.exp(value))
        rows.append(row)
    return pl.DataFrame(rows).fill_nan(None)
