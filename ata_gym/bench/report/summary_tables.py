"""A summary of policies as tables, and how its numbers are written."""

import math
from collections.abc import Iterable, Sequence

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.statistics import BASELINES, CONFIDENCE
from ata_gym.bench.report.table import LEFT, Cell, Table, right

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
    r"""Return the title of the column of a quantity or of a ratio.

    Example:
        >>> title_of("total_worker_time/ofta")
        'worker time\n/ OFTA'
    """
    name, _, baseline = quantity.partition("/")
    if not baseline:
        return TITLES[name]
    baseline_name = baseline.upper().replace("DYNAMIC-", "dynamic\n")
    return f"{TITLES[name]}\n/ {baseline_name}"


def over_seeds(seeds: int, mean: str = "the mean") -> str:
    """Return a phrase that says what the numbers of a table are.

    Args:
        seeds: The number of seeds.
        mean: What the mean is called.

    Example:
        >>> over_seeds(8)
        'the mean over 8 seeds and half its 95 % interval'
        >>> over_seeds(1)
        'the figures of one seed, which has no interval'
    """
    if seeds == 1:
        return "the figures of one seed, which has no interval"
    return f"{mean} over {seeds:,} seeds and half its {100 * CONFIDENCE:g} % interval"


def band(seeds: int) -> str:
    """Return a sentence on the bands of a picture; it is empty for one seed, which has none."""
    if seeds == 1:
        return ""
    return f" The band is the {100 * CONFIDENCE:g} % interval of the mean over the seeds."


def summary_tables(summary: pl.DataFrame, experiment: Experiment, title: str = "") -> list[Table]:
    """Return a table of what was measured, and one of ratios where there are several policies.

    Args:
        summary: What ``statistics.summarise`` returns.
        experiment: What was played.
        title: The first line above the tables, by default the scenario and its sizes.
    """
    price = experiment.scenario.price
    costs = experiment.scenario.unit_costs
    measured_title = f"{title or experiment.about}\n{experiment.length}"
    if experiment.seeds > 1:
        measured_title += f", mean and {100 * CONFIDENCE:g} % confidence interval"
        ratio_title = "ratios on the same seeds, geometric means"
    else:
        ratio_title = "ratios on the same seed"
    if price != 0:
        measured_title += f"\ncost = runtime + {price:g} x worker time"
    if costs is not None:
        measured_title += (
            f"\nin worker time a unit counts {min(costs):g} to {max(costs):g}, by worker"
        )
    present = summary["quantity"].unique(maintain_order=True).to_list()
    measured = [quantity for quantity in TITLES if quantity in present]
    ratios = []
    if summary["policy"].n_unique() > 1:
        ratios = [quantity for quantity in present if "/" in quantity]
        ratios.sort(key=lambda quantity: BASELINES.index(quantity.partition("/")[2]))
    parts = {measured_title: measured, ratio_title: ratios}
    return [
        summary_table(lines, summary, quantities)
        for lines, quantities in parts.items()
        if quantities
    ]


def summary_table(title: str, summary: pl.DataFrame, quantities: Sequence[str]) -> Table:
    """Return a table of quantities, a row for each policy, each column scaled by a power of ten."""
    columns = summary_cells(summary, quantities)
    names = summary["policy"].unique(maintain_order=True)
    rows = [(name, *(column[name].text for column in columns.values())) for name in names]
    return Table(title, {"policy": LEFT, **right(columns)}, rows)


def summary_cells(summary: pl.DataFrame, quantities: Iterable[str]) -> dict[str, dict[str, Cell]]:
    """Return the cells of a table: for each column, by its title, the cell of each policy.

    Each quantity is a column, whose numbers are divided by a power of ten that its title names.
    """
    columns = {}
    for quantity in quantities:
        quantity_rows = summary.filter(quantity=quantity)
        title, unit = scaled(quantity, quantity_rows)
        rows = quantity_rows.select("policy", "mean", "high").rows()
        columns[title] = {policy: Cell(show(mean, high, unit), mean) for policy, mean, high in rows}
    return columns


def scaled(quantity: str, found: pl.DataFrame) -> tuple[str, float]:
    """Return the title of a column, and the power of ten that divides its numbers.

    Args:
        quantity: The quantity of the column.
        found: The rows of a summary with this quantity.
    """
    largest = found["mean"].max()
    title = title_of(quantity)
    if "/" in quantity or not isinstance(largest, float) or not 0 < largest < math.inf:
        return title, 1.0
    power = math.floor(math.log10(largest))
    if -2 < power < 4:
        return title, 1.0
    return f"{title}\n(1e{power})", 10.0**power


def show(mean: float | None, high: float | None, unit: float = 1.0) -> str:
    """Write an estimate and half the width of its interval, divided by ``unit``.

    Args:
        mean: The mean; None where it is not known.
        high: The upper end of the interval; None where there is no interval.
        unit: What divides both.

    Example:
        >>> show(2000.0, 2010.0, 1000.0), show(0.0, 0.0), show(None, None)
        ('2.00 ± 0.01', '0', '-')
    """
    if mean is None:
        return "-"
    if mean == 0:
        return "0"
    if high is None:
        half = 0.0
    else:
        half = (high - mean) / unit
    if not 0 < half < math.inf:
        return f"{mean / unit:.4g}"
    # The interval has one significant digit, unless the mean would have too many then.
    decimals = max(0, -math.floor(math.log10(half)))
    most_decimals = max(0, _DIGITS - 1 - math.floor(math.log10(abs(mean / unit))))
    if decimals > most_decimals:  # certain to the last digit shown
        return f"{mean / unit:.{most_decimals}f}"
    return f"{mean / unit:.{decimals}f} ± {half:.{decimals}f}"
