"""Quantities."""

import polars as pl

REGRETS = (
    "Proxy regret is that of max a_i mu_i, which ATA minimises; cost regret is that of the expected"
    " round time + price x worker time, which our defaults minimise. Where the two are least at"
    " different allocations, a policy that finds one of these has a regret of the other kind that"
    " grows with every round."
)
"""What the two regrets are, to be said where both are shown."""

_COST_ACCURACY = 1e-6
"""The relative accuracy of expected costs: a smaller regret counts as none."""


def with_cost_regret(records: pl.DataFrame, least: float | None) -> pl.DataFrame:
    """Records with the column cost_regret, which is null where it is not known.

    Args:
        records: Records of ``CostRun``; records without its column are given back as they are.
        least: The least expected cost of a round, or None if it is not known.
    """
    if "expected_cost" not in records.columns:
        return records
    # for polars NaN <= NaN holds, so that a NaN would have the regret 0
    cost = pl.col("expected_cost").fill_nan(None)
    regret = cost - pl.lit(least, pl.Float64) * pl.col("round")
    return records.with_columns(
        cost_regret=pl.when(regret.abs() <= _COST_ACCURACY * cost).then(0.0).otherwise(regret),
    )
