"""The quantities that reports show: each has its words, its curve and its axes here alone."""

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

_PER_ROUND = ", or its mean per round, which falls while a policy learns."

REGRETS = (
    "Proxy regret is the regret of max a_i mu_i, which ATA minimises; cost regret is the regret of"
    " the expected round time + price x worker time, which our defaults minimise. Where the two are"
    " least at different allocations, a policy that finds one of these has a regret of the other"
    " kind that grows with every round."
)
"""What the two regrets are, to be said where both are shown."""


class Quantity(NamedTuple):
    """A column of records or of a summary, in words; of all of them less is better but support."""

    noun: str
    """The word for it in sentences, on axes and in tables."""
    title: str = ""
    """The title of its column in a table where that is not the noun."""
    curve: str = ""
    """What its curve over the rounds shows, for quantities that have one."""
    compared: bool = False
    """Whether ratios of it on the same seeds are shown."""
    zero: bool = False
    """Whether it may be 0, so that no axis of it is logarithmic, and its mean is not drawn."""


QUANTITIES = {
    "runtime": Quantity(
        "runtime",
        curve=f"The time until all rounds so far were over{_PER_ROUND}",
        compared=True,
    ),
    "total_worker_time": Quantity(
        "worker time",
        curve=f"The time that all workers together were busy{_PER_ROUND}",
        compared=True,
    ),
    "cost": Quantity("cost", compared=True),
    "regret": Quantity(
        "proxy regret",
        curve=(
            "The proxy loss above the least possible one, added up over the rounds: a curve that"
            " becomes flat has found the best allocation."
        ),
        zero=True,
    ),
    "cost_regret": Quantity("cost regret", curve=REGRETS, zero=True),
    "support": Quantity("support"),
    "expected": Quantity("expected round time"),
    "round_time": Quantity("mean round time", "mean\nround time"),
    "mean_regret": Quantity("mean proxy regret", "mean\nproxy regret"),
}
"""The quantities by the names of their columns, in the order of tables and pages."""

CURVES = tuple(name for name, quantity in QUANTITIES.items() if quantity.curve)
"""The quantities that have a curve over the rounds."""

_COST_ACCURACY = 1e-6
"""The relative accuracy of expected costs: a smaller regret counts as none."""


def noun(name: str) -> str:
    """Return the word for a quantity; another column has its name for a word.

    Example:
        >>> noun("total_worker_time"), noun("delay")
        ('worker time', 'delay')
    """
    if name in QUANTITIES:
        return QUANTITIES[name].noun
    return name


def title(name: str) -> str:
    r"""Return the title of the column of a quantity, or of a ratio to a baseline.

    Example:
        >>> title("total_worker_time/ofta")
        'worker time\n/ OFTA'
    """
    quantity, _, baseline = name.partition("/")
    text = QUANTITIES[quantity].title or QUANTITIES[quantity].noun
    if not baseline:
        return text
    baseline_name = baseline.upper().replace("DYNAMIC-", "dynamic\n")
    return f"{text}\n/ {baseline_name}"


def in_order(names: Iterable[str]) -> list[str]:
    """Return the quantities among some names of columns, in the order of tables."""
    present = {*names}
    return [name for name in QUANTITIES if name in present]


def is_known(records: pl.DataFrame, quantity: str) -> bool:
    """Return whether some policy has a quantity."""
    return quantity in records.columns and not records[quantity].is_null().all()


def with_cost_regret(records: pl.DataFrame, least: float | None) -> pl.DataFrame:
    """Return records with the column cost_regret, which is null where it is not known.

    Args:
        records: Records of ``CostRun``; records without its column are given back as they are.
        least: The least expected cost of a round, or None if it is not known.
    """
    if "expected_cost" not in records.columns:
        return records
    # For polars NaN <= NaN holds, so that a NaN would have the regret 0.
    cost = pl.col("expected_cost").fill_nan(None)
    regret = cost - pl.lit(least, pl.Float64) * pl.col("round")
    return records.with_columns(
        cost_regret=pl.when(regret.abs() <= _COST_ACCURACY * cost).then(0.0).otherwise(regret),
    )
