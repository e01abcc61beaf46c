"""A summary of policies as tables, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.report.statistics import BASELINES, CONFIDENCE
from ata_gym.bench.report.table import LEFT, RIGHT, Table

TITLES = {
    "runtime": "runtime",
    "total_worker_time": "worker time",
    "cost": "cost",
    "regret": "proxy regret",
    "cost_regret": "cost regret",
    "support": "support",
    "round_time": "mean\nround time",
    "mean_regret": "mean\nproxy regret",
}
"""The column titles of the recorded quantities, and of their means over all rounds."""

_DIGITS = 5  # the largest number of significant digits that are shown; the CSV has all


def title_of(quantity: str) -> str:
    r"""The title of a quantity or of a ratio.

    >>> title_of("total_worker_time/ofta")
    'worker time\n/ OFTA'
    """
    name, _, baseline = quantity.partition("/")
    shown = baseline.upper().replace("DYNAMIC-", "dynamic\n")
    return f"{TITLES[name]}\n/ {shown}" if baseline else TITLES[name]


def interval_note(experiment: Experiment) -> str:
    """A phrase that says what the numbers are, to be added to a title; it is empty for a single seed."""
    return f", mean and {100 * CONFIDENCE:g} % confidence interval" if experiment.seeds > 1 else ""


def over_seeds(seeds: int, mean: str = "the mean") -> str:
    """A phrase that says what the numbers of a table are.

    >>> over_seeds(8), over_seeds(1)
    ('the mean over 8 seeds and half its 95 % interval', 'the figures of one seed, which has no interval')
    """
    if seeds == 1:
        return "the figures of one seed, which has no interval"
    return f"{mean} over {seeds:,} seeds and half its {100 * CONFIDENCE:g} % interval"


def band(seeds: int) -> str:
    """A sentence that says what the bands of a picture are; it is empty for a single seed, which has no bands."""
    return "" if seeds == 1 else f" The band is the {100 * CONFIDENCE:g} % interval of the mean over the seeds."


def summary_tables(summary: pl.DataFrame, experiment: Experiment, title: str = "") -> list[Table]:
    """One table of what was measured, and one of the ratios, if there is anything to compare with."""
    price = experiment.scenario.price
    cost = "" if price == 0 else f"\ncost = runtime + {price:g} x worker time"
    present = summary["quantity"].unique(maintain_order=True).to_list()
    plain = [quantity for quantity in TITLES if quantity in present]
    ratios = [quantity for quantity in present if "/" in quantity and summary["policy"].n_unique() > 1]
    ratios.sort(key=lambda quantity: BASELINES.index(quantity.partition("/")[2]))
    about = f"{title or experiment.about}\n{experiment.length}{interval_note(experiment)}{cost}"
    same = "ratios on the same seeds, geometric means" if experiment.seeds > 1 else "ratios on the same seed"
    parts = {about: plain, same: ratios}
    return [summary_table(title, summary, quantities) for title, quantities in parts.items() if quantities]


def summary_table(title: str, summary: pl.DataFrame, quantities: Sequence[str]) -> Table:
    """Quantities of a summary, one row for each policy, scaled by a power of ten for each column."""
    columns, cells = {"policy": LEFT}, []
    for quantity in quantities:
        found = summary.filter(pl.col("quantity") == quantity)
        heading, scale = scaled(quantity, found)
        columns[heading] = RIGHT
        cells.append({row["policy"]: show(row["mean"], row["high"], scale) for row in found.to_dicts()})
    names = summary["policy"].unique(maintain_order=True)
    return Table(title, columns, [(name, *(column[name] for column in cells)) for name in names])


def scaled(quantity: str, found: pl.DataFrame) -> tuple[str, float]:
    """The title of a column, and the power of ten that divides its numbers; ``found`` is a part of a summary."""
    power = _scale(found["mean"].max() if "/" not in quantity else 1.0)
    return title_of(quantity) + ("" if power == 0 else f"\n(1e{power})"), 10.0**power


def _scale(largest: object) -> int:
    """The power of ten for a column."""
    if not isinstance(largest, float) or not 0 < largest < math.inf:
        return 0
    exponent = math.floor(math.log10(largest))
    return 0 if -2 < exponent < 4 else exponent


def show(mean: float | None, high: float | None, unit: float = 1.0) -> str:
    """An estimate and half the width of its interval.

    >>> show(2000.0, 2010.0, 1000.0), show(0.0, 0.0), show(None, None)
    ('2.00 ± 0.01', '0', '-')
    """
    if mean is None:
        return "-"
    if mean == 0:
        return "0"
    half = 0.0 if high is None else (high - mean) / unit
    if not 0 < half < math.inf:
        return f"{mean / unit:.4g}"
    decimals = max(0, -math.floor(math.log10(half)))
    most = max(0, _DIGITS - 1 - math.floor(math.log10(abs(mean / unit))))
    if decimals > most:  # certain to the last digit shown
        return f"{mean / unit:.{most}f}"
    return f"{mean / unit:.{decimals}f} ± {half:.{decimals}f}"
