"""The summary as tables: for the terminal, as Markdown and as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import polars as pl
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.summary import BASELINES
from ata_gym.files import write_whole

TITLES: Mapping[str, str] = {
    "runtime": "runtime",
    "total_worker_time": "worker time",
    "cost": "cost",
    "regret": "proxy regret",
    "support": "support",
    "round_time": "mean\nround time",
    "mean_regret": "mean\nproxy regret",
}
"""What a reader calls the recorded quantities, and their means over all rounds."""

_DIGITS = 5
"""Significant digits shown at most; the CSV has all."""


@dataclass(frozen=True)
class Titled:
    """A table with lines of text above it, which may be wider."""

    title: str
    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show both."""
        yield Text(self.title, style="italic")
        yield self.table


def title_of(quantity: str) -> str:
    r"""Title of a quantity or of a ratio.

    >>> title_of("total_worker_time/ofta")
    'worker time\n/ OFTA'
    """
    name, _, baseline = quantity.partition("/")
    shown = baseline.upper().replace("DYNAMIC-", "dynamic\n")
    return f"{TITLES[name]}\n/ {shown}" if baseline else TITLES[name]


def tables(summary: pl.DataFrame, experiment: Experiment) -> list[Titled]:
    """One table of what was measured, and one of the ratios, if there is anything to compare with."""
    about = f"{experiment.title}: n = {experiment.pool.n}, B = {experiment.budget}"
    length = f"{experiment.rounds:,} rounds, {experiment.seeds} seed{'s' * (experiment.seeds > 1)}"
    sure = ", mean and 95 % confidence interval" if experiment.seeds > 1 else ""
    cost = "" if experiment.price == 0 else f"\ncost = runtime + {experiment.price:g} x worker time"
    present = summary["quantity"].unique(maintain_order=True).to_list()
    plain = [quantity for quantity in TITLES if quantity in present]
    ratios = [quantity for quantity in present if "/" in quantity and summary["policy"].n_unique() > 1]
    ratios.sort(key=lambda quantity: BASELINES.index(quantity.partition("/")[2]))
    made = [table(f"{about}\n{length}{sure}{cost}", summary, plain)]
    return [*made, table("ratios, each on the same seeds", summary, ratios)] if ratios else made


def table(title: str, summary: pl.DataFrame, quantities: Sequence[str]) -> Titled:
    """Quantities of a summary, one line for each policy, scaled by a power of ten for each column."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column("policy", no_wrap=True)
    columns = []
    for quantity in quantities:
        cells = summary.filter(pl.col("quantity") == quantity)
        scale = _scale(cells["mean"].max() if "/" not in quantity else 1.0)
        unit = "" if scale == 0 else f"\n(1e{scale})"
        made.add_column(f"{title_of(quantity)}{unit}", justify="right", no_wrap=True)
        columns.append({row["policy"]: show(row["mean"], row["high"], 10.0**scale) for row in cells.to_dicts()})
    for policy in summary["policy"].unique(maintain_order=True):
        made.add_row(policy, *(column[policy] for column in columns))
    return Titled(title, made)


def _scale(largest: object) -> int:
    """The power of ten for a column."""
    if not isinstance(largest, float) or not 0 < largest < math.inf:
        return 0
    exponent = math.floor(math.log10(largest))
    return 0 if -2 < exponent < 4 else exponent


def show(mean: float | None, high: float | None, unit: float = 1.0) -> str:
    """An estimate with its half-width.

    >>> show(2000.0, 2010.0, 1000.0), show(0.0, 0.0), show(None, None)
    ('2.00 ± 0.01', '0', '-')
    """
    if mean is None:
        return "-"
    if mean == 0:
        return "0"
    if high is None or high == mean:
        return f"{mean / unit:.4g}"
    half = (high - mean) / unit
    if not 0 < half < math.inf:
        return f"{mean / unit:.4g}"
    decimals = max(0, -math.floor(math.log10(half)))
    most = max(0, _DIGITS - 1 - math.floor(math.log10(abs(mean / unit))))
    if decimals > most:  # certain to the last digit shown
        return f"{mean / unit:.{most}f}"
    return f"{mean / unit:.{decimals}f} ± {half:.{decimals}f}"


def markdown(made: Sequence[Titled]) -> str:
    """Tables as Markdown, with their titles above them."""
    text = StringIO()
    console = Console(file=text, width=500, force_terminal=False, color_system=None)
    for part in made:
        part.table.box, part.table.pad_edge, part.table.collapse_padding = box.MARKDOWN, True, False
        for column in part.table.columns:
            column.header = str(column.header).replace("\n", " ")
        console.print(part.title, part.table, sep="\n", highlight=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def save(summary: pl.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """Write ``table.md`` and ``table.csv``; the CSV has all digits."""
    text = markdown(tables(summary, experiment))
    made = [folder / "table.md", folder / "table.csv"]
    write_whole(made[0], lambda part: part.write_text(text, "utf-8"))
    write_whole(made[1], summary.write_csv)
    return made
