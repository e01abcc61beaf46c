"""Statistics of records: means over seeds with 95 % confidence intervals, and ratios to the fixed policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from ata_gym.typing import Floats

CONFIDENCE = 0.95
BASELINES = ("ofta", "gta", "dynamic-ofta", "dynamic-oracle")
"""Policies that the others are compared with."""


def estimate(values: Floats) -> tuple[Floats, Floats]:
    """The mean of ``values``, shape (seeds, ...), over the first axis, and half the width of Student's interval for it.

    The latter is NaN for a single seed.

    >>> mean, half = estimate(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), float(half.round(4))
    (2.0, 2.4841)
    """
    mean = values.mean(axis=0)
    if len(values) == 1:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(quantile(len(values)) * values.std(axis=0, ddof=1) / len(values) ** 0.5)


def estimates(samples: Iterable[tuple[Any, ...]], names: Sequence[str]) -> pl.DataFrame:
    """Columns of these names, mean, low, high, from rows of their cells with an array of shape (seeds,) at the end.

    The last three are null for a sample that is not finite; low and high are null for a single seed.

    >>> estimates([("ata", "runtime", np.array([1.0, 2.0, 3.0]))], ["policy", "quantity"]).row(0)[:3]
    ('ata', 'runtime', 2.0)
    """
    rows = []
    for *cells, sample in samples:
        mean, half = estimate(sample) if np.isfinite(sample).all() else (np.nan, np.nan)
        rows.append((*cells, float(mean), float(mean - half), float(mean + half)))
    return pl.DataFrame(rows, [*names, "mean", "low", "high"], orient="row").fill_nan(None)


def quantile(seeds: int) -> float:
    """Student's quantile for an interval over so many seeds; NaN for one."""
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, seeds - 1))


def values(records: pl.DataFrame, policy: str, quantity: str) -> Floats:
    """One quantity of one policy, shape (seeds, recorded rounds)."""
    mine = records.filter(pl.col("policy") == policy)
    return mine[quantity].cast(pl.Float64).to_numpy().reshape(mine["seed"].n_unique(), -1)


def summarise(records: pl.DataFrame, price: float = 0.0) -> pl.DataFrame:
    """Summarise the last round of records as of ``run.SCHEMA``: columns policy, quantity, mean, low, high.

    Quantities such as ``runtime/ofta`` are means of the ratios of the two policies' values on the same seed; they are
    there for those of ``BASELINES`` that were played. Where worker time has a price, there is ``cost``, too.
    """
    last = records.filter(pl.col("round") == pl.col("round").max())
    if price > 0:
        last = last.with_columns(cost=pl.col("runtime") + price * pl.col("total_worker_time"))
    policies = records["policy"].unique(maintain_order=True).to_list()
    compared = ["runtime", "total_worker_time", *(["cost"] if price > 0 else [])]
    samples = []
    for policy in policies:
        of = {name: values(last, policy, name)[:, 0] for name in (*compared, "regret", "support")}
        for baseline in BASELINES:
            if baseline in policies:
                with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
                    of |= {f"{name}/{baseline}": of[name] / values(last, baseline, name)[:, 0] for name in compared}
        samples += [(policy, *item) for item in of.items()]
    return estimates(samples, ["policy", "quantity"])
