"""A summary of policies as tables, and how its numbers are written."""

import math
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from ata_gym.bench.experiment import Sizes
from ata_gym.bench.report.page.sections import Column, Tables, TableView
from ata_gym.bench.report.quantities import in_order, title
from ata_gym.bench.report.statistics import BASELINES, CONFIDENCE
from ata_gym.bench.report.table import LEFT, Cell, Table, right
from ata_gym.bench.role import LEARNER

_DIGITS = 5  # the largest number of significant digits that are shown; the CSV has all


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


def summary_tables(summary: pl.DataFrame, sizes: Sizes, heading: str = "") -> list[Table]:
    """Return a table of what was measured, and one of ratios where there are several policies.

    Args:
        summary: What ``statistics.summarise`` returns.
        sizes: The sizes of what was played.
        heading: The first line above the tables, by default the scenario and its sizes.
    """
    measured_title = f"{heading or sizes.about}\n{sizes.length}"
    if sizes.seeds > 1:
        measured_title += f", mean and {100 * CONFIDENCE:g} % confidence interval"
        ratio_title = "ratios on the same seeds, geometric means"
    else:
        ratio_title = "ratios on the same seed"
    if sizes.price != 0:
        measured_title += f"\ncost = runtime + {sizes.price:g} x worker time"
    if sizes.unit_costs is not None:
        least, largest = sizes.unit_costs
        measured_title += f"\nin worker time a unit counts {least:g} to {largest:g}, by worker"
    present = summary["quantity"].unique(maintain_order=True).to_list()
    measured = in_order(present)
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


def summary_table(heading: str, summary: pl.DataFrame, quantities: Sequence[str]) -> Table:
    """Return a table of quantities, a row for each policy, each column scaled by a power of ten."""
    columns = summary_cells(summary, quantities)
    names = summary["policy"].unique(maintain_order=True)
    rows = []
    for name in names:
        texts = [column[name].text for column in columns.values()]
        rows.append((name, *texts))
    return Table(heading, {"policy": LEFT, **right(columns)}, rows)


def summary_cells(summary: pl.DataFrame, quantities: Iterable[str]) -> dict[str, dict[str, Cell]]:
    """Return the cells of a table: for each column, by its title, the cell of each policy.

    Each quantity is a column, whose numbers are divided by a power of ten that its title names.
    """
    columns = {}
    for quantity in quantities:
        quantity_rows = summary.filter(quantity=quantity)
        column, unit = scaled(quantity, quantity_rows)
        rows = quantity_rows.select("policy", "mean", "high").rows()
        columns[column] = {
            policy: Cell(show(mean, high, unit), mean) for policy, mean, high in rows
        }
    return columns


def scaled(quantity: str, rows: pl.DataFrame) -> tuple[str, float]:
    """Return the title of a column, and the power of ten that divides its numbers.

    Args:
        quantity: The quantity of the column.
        rows: The rows of a summary with this quantity.
    """
    largest = rows["mean"].max()
    column = title(quantity)
    if "/" in quantity or not isinstance(largest, float) or not 0 < largest < math.inf:
        return column, 1.0
    power = math.floor(math.log10(largest))
    if -2 < power < 4:
        return column, 1.0
    return f"{column}\n(1e{power})", 10.0**power


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
    magnitude = math.floor(math.log10(abs(mean / unit)))
    most_decimals = max(0, _DIGITS - 1 - magnitude)
    # The mean is then certain to the last digit shown.
    if decimals > most_decimals:
        return f"{mean / unit:.{most_decimals}f}"
    return f"{mean / unit:.{decimals}f} ± {half:.{decimals}f}"


def overview(
    summary: pl.DataFrame,
    sizes: Sizes,
    kinds: Mapping[str, str],
    best: Sequence[str] = (),
) -> Tables:
    """Make the table of all quantities, with intervals; what costs least comes first.

    Args:
        summary: What ``statistics.summarise`` returns.
        sizes: The sizes of what was played.
        kinds: The kind of each policy that has a row, such as learner.
        best: The policies in bold; only learners among them are.
    """
    present = summary["quantity"].unique(maintain_order=True).to_list()
    if sizes.price > 0:
        ranked_by = "cost"
        cost_text = f" Cost is runtime + {sizes.price:g} x worker time."
    else:
        ranked_by = "runtime"
        cost_text = ""
    quantities = in_order(present)
    # Ratios to one baseline are enough here; table.csv has all. They come first, and of these the
    # one that policies are ranked by: a narrow screen shows it without a scroll.
    baseline = next((name for name in BASELINES if f"runtime/{name}" in present), "")
    if baseline and summary["policy"].n_unique() > 1:
        ratios = [name for name in present if name.partition("/")[2] == baseline]
        ratios.sort(key=lambda name: not name.startswith(ranked_by))
        quantities = [*ratios, *quantities]
    cells = {
        column: column_cells
        for column, column_cells in summary_cells(summary, quantities).items()
        if any(cell.value is not None for cell in column_cells.values())
    }
    ranked = summary.filter(quantity=ranked_by).sort("mean", nulls_last=True)
    rows = []
    for name in ranked["policy"]:
        if name in kinds:
            figures = [column_cells.get(name, Cell("-")) for column_cells in cells.values()]
            rows.append([Cell(name), Cell(kinds[name]), *figures])
    columns = [Column("policy", False), Column("kind", False, wide=True), *map(Column, cells)]
    if sizes.seeds > 1:
        ratio_text = "geometric means of ratios on the same seeds"
    else:
        ratio_text = "of the same seed"
    note_text = (
        f"After {sizes.rounds:,} rounds: {over_seeds(sizes.seeds)}; less is better in every"
        f" column but support. Ratios are {ratio_text}.{cost_text} The best learner of each"
        " env is in bold."
    )
    view = TableView(columns, rows, best=[name for name in best if kinds[name].startswith(LEARNER)])
    return Tables("overview", "All policies", note_text, [view])
