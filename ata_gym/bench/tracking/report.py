"""The report on tracked policies: tables, the delays one by one, and the picture."""

from __future__ import annotations

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.tracking import picture
from ata_gym.bench.tracking.delays import BLOCK, WITHIN, delays, summarise
from ata_gym.bench.tracking.experiment import ORACLES, Tracking

_SHORT = {"dynamic-oracle": "oracle", "dynamic-ofta": "OFTA"}


def report(tracking: Tracking, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given, and leave tables, delays and the picture in their folder."""
    records = folder.results(policies)
    found, summary = delays(records, tracking), summarise(records, tracking)
    tables = [_delays(found, tracking), _costs(summary, tracking)]
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary, "delays.csv": found})
    return Report(summary, tables, files, picture.draw(records, tracking, folder.path / "plots"))


def _delays(found: pl.DataFrame, tracking: Tracking) -> Table:
    """The delays after the changes, a row for each policy."""
    changes = f"{len(tracking.changed_at)} changes, the first" if len(tracking.changed_at) > 1 else "a change"
    title = (
        f"{tracking.about}\n{changes} after {tracking.changed_at[0]:,} rounds, {plural(tracking.seeds, 'seed')}\n"
        f"delay: rounds until the expected round time is within {WITHIN:.0%} of the oracle's (or OFTA's),\n"
        f"on average over {BLOCK} rounds; never: not within the {tracking.after:,} rounds after the change"
    )
    parts = ("median delay", "longest", "never")
    columns = {"policy": LEFT, **right(f"{part}\nto {_SHORT[oracle]}" for oracle in ORACLES for part in parts)}
    rows = []
    for (policy,), mine in found.group_by("policy", maintain_order=True):
        cells = [str(policy)]
        for oracle in ORACLES:
            sample = mine.filter(pl.col("oracle") == oracle)["delay"]
            cells += [*waiting(sample, tracking.after), f"{sample.null_count()} of {len(sample)}"]
        rows.append(cells)
    return Table(title, columns, rows)


def _costs(summary: pl.DataFrame, tracking: Tracking) -> Table:
    """The round times around the changes and the regret after them, a row for each policy."""
    title = (
        f"expected round times of {tracking.before:,} rounds before a change and {tracking.after:,} after it,\n"
        "divided by those of the oracle that knows the distributions, and of the one that knows the means (OFTA)"
    )
    names = [(f"{part}/{oracle}", f"{part}\n/ {_SHORT[oracle]}") for oracle in ORACLES for part in ("before", "after")]
    rows = []
    for (policy,), quantities in summary.group_by("policy", maintain_order=True):
        of = {row["quantity"]: row for row in quantities.to_dicts()}
        rows.append([str(policy), *(_ratio(**of[name]) for name, _ in names), f"{of['regret']['mean']:.3g}"])
    return Table(title, {"policy": LEFT, **right((*(shown for _, shown in names), "proxy regret\nof a change"))}, rows)


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
