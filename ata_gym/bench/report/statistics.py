"""Statistics of records: means over seeds with 95 % confidence intervals, and ratios to the fixed policies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 0.95
BASELINES = ("ofta", "gta", "dynamic-ofta", "dynamic-oracle")
"""Policies that the others are compared with."""


class Estimate(NamedTuple):
    """Means over seeds, and half the width of their confidence intervals (NaN for a single seed)."""

    mean: NDArray[np.float64]
    half: NDArray[np.float64]


def estimate(values: NDArray[np.float64]) -> Estimate:
    """Student's interval for the mean of ``values``, shape (seeds, ...), over the first axis.

    >>> mean, half = estimate(np.array([1.0, 2.0, 3.0]))
    >>> float(mean), float(half.round(4))
    (2.0, 2.4841)
    """
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Estimate(mean, np.full_like(mean, np.nan))
    return Estimate(mean, np.asarray(quantile(len(values)) * values.std(axis=0, ddof=1) / len(values) ** 0.5))


def quantile(seeds: int) -> float:
    """Student's quantile for an interval over so many seeds; NaN for one."""
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, seeds - 1))


def values(records: pl.DataFrame, policy: str, quantity: str) -> NDArray[np.float64]:
    """One quantity of one policy, shape (seeds, recorded rounds)."""
    mine = records.filter(pl.col("policy") == policy)
    return mine[quantity].cast(pl.Float64).to_numpy().reshape(mine["seed"].n_unique(), -1)


def summarise(records: pl.DataFrame, price: float = 0.0) -> pl.DataFrame:
    """Summarise the last round: one row for each policy and quantity.

    Parameters
    ----------
    records
        As ``run.SCHEMA`` says, of one or more policies.
    price
        What one unit of worker time costs; if it is above 0, ``cost`` is runtime + price * total worker time.

    Returns
    -------
    Columns policy, quantity, mean, low, high. Quantities such as ``runtime/ofta`` are means of the ratios of
    the two policies' values on the same seed; they are there for those of ``BASELINES`` that were played.
    """
    last = records.filter(pl.col("round") == pl.col("round").max())
    if price > 0:
        last = last.with_columns(cost=pl.col("runtime") + price * pl.col("total_worker_time"))
    policies = records["policy"].unique(maintain_order=True).to_list()
    compared = ["runtime", "total_worker_time", *(["cost"] if price > 0 else [])]
    rows = []
    for policy in policies:
        of = {name: values(last, policy, name)[:, 0] for name in (*compared, "regret", "support")}
        for baseline in BASELINES:
            if baseline in policies:
                with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
                    of |= {f"{name}/{baseline}": of[name] / values(last, baseline, name)[:, 0] for name in compared}
        for name, sample in of.items():
            mean, half = estimate(sample) if np.isfinite(sample).all() else (np.nan, np.nan)
            rows.append((policy, name, float(mean), float(mean - half), float(mean + half)))
    schema = ["policy", "quantity", "mean", "low", "high"]
    return pl.DataFrame(rows, schema, orient="row").fill_nan(None)
