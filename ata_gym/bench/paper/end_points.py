"""The end points of the published CIFAR-100 figure, and ours beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from ata_gym.bench.report.summary_tables import show, title_of
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.scenarios import PAPER


class EndPoint(NamedTuple):
    """Where a policy's line ends in a published figure."""

    runtime: float
    total_worker_time: float
    runtime_to_ofta: float
    total_worker_time_to_ofta: float


class PublishedFigure(NamedTuple):
    """The end points of a published figure."""

    scenario: str
    rounds: int
    end_points: Mapping[str, EndPoint]
    source: str
    tolerance: float  # how far ours may be from a published ratio, as a share of it


CIFAR100 = PublishedFigure(
    scenario="icml2025-cifar100",
    rounds=750_000,
    end_points={
        "gta": EndPoint(0.36906e9, 1.88262e10, 0.6331, 6.2904),
        "ofta": EndPoint(0.58292e9, 0.29929e10, 1.0, 1.0),
        "ata-empirical": EndPoint(1.15514e9, 0.52672e10, 1.9817, 1.7599),
        "ata": EndPoint(1.57554e9, 0.64149e10, 2.7029, 2.1434),
        "uta": EndPoint(3.57091e9, 2.59473e10, 6.1259, 8.6697),
    },
    source=f"{PAPER}, CIFAR-100 figure, vector paths of the authors' poster",
    tolerance=0.005,
)

_RATIOS = ("runtime/ofta", "total_worker_time/ofta")
QUANTITIES = ("runtime", "total_worker_time", *_RATIOS)  # of ``EndPoint``, as ``statistics.summarise`` names them


def compare(figure: PublishedFigure, summary: pl.DataFrame, rounds: int) -> pl.DataFrame:
    """Ours beside the published: columns policy, quantity, ours, high, published, deviation (a share of it).

    Where ``rounds`` is not the published number, the deviation is null, and the totals are left out.
    """
    comparable = rounds == figure.rounds
    ours = {(row["policy"], row["quantity"]): row for row in summary.to_dicts()}
    rows = []
    for name in QUANTITIES if comparable else _RATIOS:
        for policy, end in figure.end_points.items():
            mine, published = ours[policy, name], end[QUANTITIES.index(name)]
            deviation = mine["mean"] / published - 1 if comparable else None
            rows.append((policy, name, mine["mean"], mine["high"], published, deviation))
    schema = ["policy", "quantity", "ours", "high", "published", "deviation"]
    return pl.DataFrame(rows, schema, orient="row")


def _in_words(quantity: str) -> str:
    return title_of(quantity).replace("\n", " ")


def comparison_table(figure: PublishedFigure, comparison: pl.DataFrame) -> Table:
    """The comparison for the terminal."""
    units = {"runtime": "1e9", "total_worker_time": "1e10"}
    rows: list[tuple[str, ...]] = []
    for (name,), compared in comparison.group_by("quantity", maintain_order=True):
        unit = float(units.get(str(name), 1))
        quantity = _in_words(str(name)) + (f" ({units[str(name)]})" if name in units else "")
        rows.append(())
        for row in compared.to_dicts():
            deviation = "not comparable" if row["deviation"] is None else f"{row['deviation']:+.2%}"
            ours, published = show(row["ours"], row["high"], unit), f"{row['published'] / unit:.5g}"
            rows.append((row["policy"], quantity, ours, published, deviation))
    columns = {"policy": LEFT, "": LEFT, **right(("ours", "published", "deviation"))}
    return Table(f"beside the published figure\n({figure.source})", columns, rows)


def verdict(figure: PublishedFigure, comparison: pl.DataFrame, rounds: int) -> tuple[bool, str]:
    """Whether the figure was reproduced, and a sentence on it; a run of another length proves nothing either way."""
    if rounds != figure.rounds:
        return True, (
            f"The published end points are for {figure.rounds:,} rounds; these are {rounds:,}, so the ratios of "
            "the policies that learn are not comparable. Without --rounds the run has the published length."
        )
    ratios = comparison.filter(pl.col("quantity").is_in(_RATIOS))
    worst = ratios.sort(pl.col("deviation").abs(), maintain_order=True).row(-1, named=True)
    most = f"the largest deviation is {worst['deviation']:+.2%} ({worst['policy']}, {_in_words(worst['quantity'])})"
    if abs(worst["deviation"]) <= figure.tolerance:
        return True, f"Reproduced: every ratio is within {figure.tolerance:.1%} of the published one; {most}."
    return False, f"Not reproduced: a ratio is more than {figure.tolerance:.1%} from the published one; {most}."
