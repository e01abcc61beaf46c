"""The report on tracked policies: a table, the delays one by one, and the pictures."""

from __future__ import annotations

import numpy as np
import polars as pl
from rich import box
from rich.table import Table

from ata_gym.bench import tracking_picture
from ata_gym.bench.delays import BLOCK, WITHIN, delays, summarise
from ata_gym.bench.report import Report
from ata_gym.bench.store import Folder
from ata_gym.bench.tables import Titled, markdown
from ata_gym.bench.tracking import ORACLES, Tracking
from ata_gym.files import write_whole

_SHORT = {"dynamic-oracle": "oracle", "dynamic-ofta": "OFTA"}


def report(tracking: Tracking, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given, and leave table, delays and pictures in their folder."""
    records = folder.results(policies)
    found, summary = delays(records, tracking), summarise(records, tracking)
    files = [folder.path / name for name in ("table.md", "table.csv", "delays.csv")]
    text = markdown(tables(found, summary, tracking))
    write_whole(files[0], lambda part: part.write_text(text, "utf-8"))
    write_whole(files[1], summary.write_csv)
    write_whole(files[2], found.write_csv)
    pictures = tracking_picture.draw(records, tracking, folder.path / "plots")
    return Report(summary, tables(found, summary, tracking), files, pictures)


def tables(found: pl.DataFrame, summary: pl.DataFrame, tracking: Tracking) -> list[Titled]:
    """One table of the delays, and one of what the changes cost; a line for each policy."""
    changes = f"{len(tracking.changes)} changes, the first" if len(tracking.changes) > 1 else "a change"
    about = f"{tracking.title}: n = {tracking.pool.n}, B = {tracking.budget}\n" + (
        f"{changes} after {tracking.changes[0]:,} rounds, {tracking.seeds} seed{'s' * (tracking.seeds > 1)}\n"
        f"delay: rounds until the expected round time is within {WITHIN:.0%} of the oracle's (or OFTA's),\n"
        f"on average over {BLOCK} rounds; never: not within the {tracking.after:,} rounds looked at"
    )
    waited, cost = _empty(), _empty()
    for oracle in ORACLES:
        for title in ("median delay", "longest", "never"):
            waited.add_column(f"{title}\nto {_SHORT[oracle]}", justify="right", no_wrap=True)
        for title in ("before", "after"):
            cost.add_column(f"{title}\n/ {_SHORT[oracle]}", justify="right", no_wrap=True)
    cost.add_column("proxy regret\nof a change", justify="right", no_wrap=True)
    for policy in summary["policy"].unique(maintain_order=True):
        of = {row["quantity"]: row for row in summary.filter(pl.col("policy") == policy).to_dicts()}
        mine = found.filter(pl.col("policy") == policy)
        waits: list[str] = []
        for oracle in ORACLES:
            sample = mine.filter(pl.col("oracle") == oracle)["delay"]
            waits += [*waiting(sample, tracking.after), f"{sample.null_count()} of {len(sample)}"]
        waited.add_row(policy, *waits)
        ratios = [of[f"{part}/{oracle}"] for oracle in ORACLES for part in ("before", "after")]
        cost.add_row(policy, *(_ratio(**ratio) for ratio in ratios), f"{of['regret']['mean']:.3g}")
    lengths = f"{tracking.before:,} rounds before a change and {tracking.after:,} after it"
    return [
        Titled(about, waited),
        Titled(f"expected round times of {lengths}, over those of who knows the laws and of who knows the means", cost),
    ]


def _empty() -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column("policy", no_wrap=True)
    return made


def _ratio(mean: float, high: float | None, **_: object) -> str:
    return f"{mean:.2f}" if high is None else f"{mean:.2f} ± {high - mean:.2f}"


def waiting(delays: pl.Series, most: int) -> tuple[str, str]:
    """The median and the longest, where null is longer than ``most``.

    >>> waiting(pl.Series([3, 5, 8]), 100), waiting(pl.Series([3, None, None]), 100)
    (('5', '8'), ('> 100', '> 100'))
    """
    known = np.sort(delays.fill_null(most + 1).to_numpy())
    middle, longest = (f"> {most:,}" if rounds > most else f"{rounds:,.0f}" for rounds in (np.median(known), known[-1]))
    return middle, longest
