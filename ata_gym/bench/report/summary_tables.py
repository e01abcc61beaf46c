"""A summary of policies as tables, and how its numbers are written."""

import math
from collections.abc import Iterable, Sequence

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.report.statistics import BASELINES, CONFIDENCE
from ata_gym.bench.report.table import LEFT, Cell, Table, right

TITLES = {
    "runtime": "runtime", "total_worker_time": "worker time", "cost": "cost", "regret": "proxy regret",
    "cost_regret": "cost regret", "support": "support", "round_time": "mean\nround time",
    "mean_regret": "mean\nproxy regret",
}  # fmt: skip
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
    price, costs = experiment.scenario.price, experiment.scenario.unit_costs
    cost = "" if price == 0 else f"\ncost = runtime + {price:g} x worker time"
    cost += "" if costs is None else f"\nin worker time a unit counts {min(costs):g} to {max(costs):g}, by worker"
    present = summary["quantity"].unique(maintain_order=True).to_list()
    plain = [quantity for quantity in TITLES if quantity in present]
    ratios = [quantity for quantity in present if "/" in quantity and summary["policy"].n_unique() > 1]
    ratios.sort(key=lambda quantity: BASELINES.index(quantity.partition("/")[2]))
    interval = f", mean and {100 * CONFIDENCE:g} % confidence interval" if experiment.seeds > 1 else ""
    about = f"{title or experiment.about}\n{experiment.length}{interval}{cost}"
    same = "ratios on the same seeds, geometric means" if experiment.seeds > 1 else "ratios on the same seed"
    parts = {about: plain, same: ratios}
    return [summary_table(title, summary, quantities) for title, quantities in parts.items() if quantities]


def summary_table(title: str, summary: pl.DataFrame, quantities: Sequence[str]) -> Table:
    """Quantities of a summary, one row for each policy, scaled by a power of ten for each column."""
    columns, names = summary_cells(summary, quantities), summary["policy"].unique(maintain_order=True)
    rows = [(name, *(column[name].text for column in columns.values())) for name in names]
    return Table(title, {"policy": LEFT, **right(columns)}, rows)


def summary_cells(summary: pl.DataFrame, quantities: Iterable[str]) -> dict[str, dict[str, Cell]]:
    """The cells of policies, by the titles of columns, one for each quantity, which are scaled by a power of ten."""
    columns = {}
    for quantity in quantities:
        found = summary.filter(quantity=quantity)
        title, unit = scaled(quantity, found)
        rows = found.select("policy", "mean", "high").rows()
        columns[title] = {policy: Cell(show(mean, high, unit), mean) for policy, mean, high in rows}
    return columns


def scaled(quantity: str, found: pl.DataFrame) -> tuple[str, float]:
    """The title of a column, and the power of ten that divides its numbers; ``found`` is a part of a summary."""
    largest, title = found["mean"].max(), title_of(quantity)
    if "/" in quantity or not isinstance(largest, float) or not 0 < largest < math.inf:
        return title, 1.0
    power = math.floor(math.log10(largest))
    return (title, 1.0) if -2 < power < 4 else (f"{title}\n(1e{power})", 10.0**power)


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
