"""How far each policy is from the best: ratios on the same seeds, their means, and ranks.

Means are geometric, over seeds, scenarios and prices alike, so that a mean of means is the mean.
The interval is Student's over seeds, of the logarithms; the scenarios are fixed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import polars as pl

from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.role import LEARNER, ORACLE, Role

RUNTIME = "runtime/ofta"
WORKER_TIME = "total_worker_time/ofta"
COST = "cost/best"
TO_ORACLE = "cost/oracle"
QUANTITIES = (RUNTIME, WORKER_TIME, COST, TO_ORACLE)
"""The ratios to OFTA, to the best learner, and to the best oracle.

OFTA is the reference of the set: where workers change, the OFTA of each round. The best learner and
the best oracle have the same env, scenario and price.
"""
TO_OTHER = "cost/other"
"""The ratio to the best other policy that knows nothing beforehand, a learner or a baseline."""

_SETTING = ("env", "price", "scenario")
CELL = (*_SETTING, "policy", "kind", "seed")
"""The columns that identify one episode of a policy."""


def costs(
    records: pl.DataFrame,
    role: Role,
    scenario: str,
    prices: Iterable[float],
) -> pl.DataFrame:
    """Return what a policy cost in the end in one scenario, at each price.

    Args:
        records: The records of the policy.
        role: The policy.
        scenario: The name of the scenario.
        prices: The prices.

    Returns:
        Columns env, scenario, policy, kind, price, seed, runtime, total_worker_time and cost.
    """
    last_records = records.filter(pl.col("round") == pl.col("round").max())
    labels = {"env": role.env, "scenario": scenario, "policy": role.policy, "kind": role.kind}
    labels_by_price = pl.DataFrame({**labels, "price": [float(price) for price in prices]})
    clocks = last_records.select("seed", "runtime", "total_worker_time")
    cost = pl.col("runtime") + pl.col("price") * pl.col("total_worker_time")
    return labels_by_price.join(clocks, how="cross").with_columns(cost=cost)


def ratios(finals: pl.DataFrame, reference: str) -> pl.DataFrame:
    """Return logarithms of the ratios ``QUANTITIES``, for each episode of each policy.

    The best learner has the least mean logarithm of cost, and so has the best oracle. Where there
    is no learner, ``cost/best`` is null; where there is no oracle, ``cost/oracle`` is null.

    Args:
        finals: What ``costs`` returns, of all policies.
        reference: The policy that stands for OFTA.

    Returns:
        The columns of ``CELL`` (env, price, scenario, policy, kind, seed) and of ``QUANTITIES``.
    """
    logs = finals.with_columns(pl.col("runtime", "total_worker_time", "cost").log())
    # The reference decides without the price: its clocks count at all prices, and for all envs.
    ofta = logs.filter(pl.col("policy") == reference).unique(
        ["scenario", "seed"],
        maintain_order=True,
    )
    divisors = {
        "ofta": ofta.select("scenario", "seed", "runtime", "total_worker_time"),
        "best": _costs_of_best(logs.filter(pl.col("kind") == LEARNER)).drop("policy"),
        "oracle": _costs_of_best(logs.filter(pl.col("kind") == ORACLE)).drop("policy"),
    }
    paired = logs
    for name, divisor in divisors.items():
        keys = [column for column in (*_SETTING, "seed") if column in divisor.columns]
        paired = paired.join(divisor, on=keys, suffix=f"/{name}", how="left", maintain_order="left")
    differences = [
        (pl.col(name.partition("/")[0]) - pl.col(name)).alias(name) for name in QUANTITIES
    ]
    return paired.select(*CELL, *differences)


def to_best_other(finals: pl.DataFrame, policy: str) -> pl.DataFrame:
    """Compare a policy with the best other one that knows nothing beforehand.

    Args:
        finals: What ``costs`` returns, of all policies of one env.
        policy: The policy.

    Returns:
        Columns price, scenario, other (the best other policy) and ``TO_OTHER``, with its low, high
        and worst.
    """
    logs = finals.with_columns(pl.col("cost").log())
    best = _costs_of_best(logs.filter(pl.col("policy") != policy, pl.col("kind") != ORACLE))
    best = best.rename({"policy": "other", "cost": "least"})
    paired = logs.filter(pl.col("policy") == policy).join(
        best,
        on=[*_SETTING, "seed"],
        maintain_order="left",
    )
    ratio = paired.select(
        "price",
        "scenario",
        "other",
        (pl.col("cost") - pl.col("least")).alias(TO_OTHER),
    )
    return _with_worst(ratio, ("price", "scenario", "other"), [TO_OTHER])


def _costs_of_best(logs: pl.DataFrame) -> pl.DataFrame:
    """Return the costs of the policy of the least mean cost, for each env, price and scenario."""
    by_policy = logs.group_by(*_SETTING, "policy", maintain_order=True)
    ranked = by_policy.agg(pl.col("cost").mean()).sort("cost", maintain_order=True)
    best = ranked.unique(_SETTING, keep="first", maintain_order=True).select(*_SETTING, "policy")
    costs = best.join(logs, on=[*_SETTING, "policy"])
    return costs.select(*_SETTING, "policy", "seed", "cost")


def by_scenario(ratios: pl.DataFrame) -> pl.DataFrame:
    """Return means over seeds, from what :func:`ratios` returns.

    The columns are env, price, scenario, policy, kind, and each quantity with its low, high and
    worst. The worst is the ratio on the seed where it is largest: a mean can hide a bad seed.
    """
    return _with_worst(ratios, (*_SETTING, "policy", "kind"))


def overall(ratios: pl.DataFrame, by_price: bool = True) -> pl.DataFrame:
    """Return means over scenarios and seeds, the best first, for each price or over all prices.

    Policies that have not played all scenarios, at all prices, are left out.

    Args:
        ratios: What :func:`ratios` returns.
        by_price: Whether there is a row for each price.

    Returns:
        Columns env, price (if ``by_price``), policy, kind, and each quantity with its low and high;
        worst, the largest ``cost/best`` in a scenario, and where, the scenario; worst_seed, the
        largest on one seed of a scenario, and where_seed; and rank among the learners, null for
        others.
    """
    price = ("price",) if by_price else ()
    by = (*price, "env", "policy", "kind")
    means = _estimates(by_seed(ratios, by_price), by)
    cells = by_scenario(ratios)
    for quantity, suffix in ((COST, ""), (f"{COST}_worst", "_seed")):
        ordered = cells.sort(quantity, descending=True, nulls_last=True, maintain_order=True)
        worst = ordered.unique(by, keep="first", maintain_order=True).select(
            *by,
            pl.col(quantity).alias(f"worst{suffix}"),
            pl.col("scenario").alias(f"where{suffix}"),
        )
        means = means.join(worst, on=by, how="left", maintain_order="left")
    order = ["env", *price]
    # The costs of others are null here, so that learners are ranked among learners.
    learner_costs = pl.when(pl.col("kind") == LEARNER).then(pl.col(COST))
    rank = learner_costs.rank("min").over(order).cast(pl.Int64)
    ranked = means.sort(*order, COST, nulls_last=True, maintain_order=True)
    return ranked.with_columns(rank.alias("rank"))


def by_seed(ratios: pl.DataFrame, by_price: bool = False) -> pl.DataFrame:
    """Return the mean logarithms over scenarios of each seed, from what :func:`ratios` returns.

    Policies that have not played all scenarios, at all prices, are left out. Without ``by_price``
    the means are over prices, too.
    """
    by = (*(("price",) if by_price else ()), "env", "policy", "kind")
    if by_price:
        parts = pl.struct("scenario")
    else:
        parts = pl.struct("scenario", "price")
    # Whether a policy has as many parts as there are in all.
    everywhere = parts.n_unique().over(by) == parts.n_unique()
    return (
        ratios.filter(everywhere)
        .group_by(*by, "seed", maintain_order=True)
        .agg(pl.col(QUANTITIES).mean())
    )


def parts(frame: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Iterate over the parts of a frame that have the same values in some columns, in its order."""
    return iter(frame.group_by(by, maintain_order=True))


def _with_worst(
    ratios: pl.DataFrame,
    by: Sequence[str],
    quantities: Sequence[str] = QUANTITIES,
) -> pl.DataFrame:
    """Return the estimates of quantities, and the largest value of each, for each group."""
    worst = ratios.group_by(by, maintain_order=True).agg(
        pl.col(quantities).max().exp().name.suffix("_worst"),
    )
    return _estimates(ratios, by, quantities).join(worst, on=by, how="left", maintain_order="left")


def _estimates(
    ratios: pl.DataFrame,
    by: Sequence[str],
    quantities: Sequence[str] = QUANTITIES,
) -> pl.DataFrame:
    """Return the geometric mean of quantities with its low and high, for each group."""
    rows = []
    for keys, group in ratios.group_by(by, maintain_order=True):
        means = (
            Estimate.from_logarithms(group[name].cast(pl.Float64).to_numpy()) for name in quantities
        )
        rows.append([*keys, *chain.from_iterable(means)])
    names = [quantity + part for quantity in quantities for part in ("", "_low", "_high")]
    kinds = {name: ratios.schema[name] for name in by} | dict.fromkeys(names, pl.Float64())
    return pl.DataFrame(rows, kinds, orient="row").fill_nan(None)
