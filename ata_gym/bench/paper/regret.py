"""The proxy regret, which grows as ln K under ATA: slopes dR / d ln K, and whether they are constant."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.ticker import EngFormatter

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import ONE_SEED
from ata_gym.bench.report.report import Report, curve, write
from ata_gym.bench.report.statistics import Estimate, estimates, values
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.typing import Floats, Ints

POLICIES = ("ata-icml", "thompson", "ata")  # those of the figure; the last has the preprint's constants

PUBLISHED_ROUNDS, PUBLISHED_SEEDS = 4_000_000, 5
DECADES = 1.5  # the slope is fitted over so many of the last decades of rounds, and over each half decade of them
TOLERANCE = 0.2  # a slope is constant if that of each half decade is so near to that of all, as a share of it
_PARTS = int(2 * DECADES)


def slope(rounds: Ints, regret: Floats, low: float, high: float) -> Floats:
    """Least-squares slopes dR / d ln K of regrets (seeds, recorded rounds) over the rounds from ``low`` to ``high``.

    >>> rounds = np.array([1, 10, 100, 1000])
    >>> slope(rounds, 3.0 * np.log(rounds)[None] + 7.0, 10, 1000).round(9)
    array([3.])
    """
    window = (rounds >= low) & (rounds <= high)
    if window.sum() < 2:
        return np.full(len(regret), np.nan)
    return np.asarray(np.polyfit(np.log(rounds[window]), regret[:, window].T, 1)[0])


def slopes(records: pl.DataFrame) -> pl.DataFrame:
    """Columns policy, part, from, to (rounds), slope, low, high, deviation (a share of the slope of part 0).

    Part 0 is all of ``DECADES``, and 1, 2, ... are its half decades.
    """
    rounds = records["round"].unique().sort().to_numpy()
    last = float(rounds[-1])
    ends = last * 10.0 ** (-0.5 * np.arange(_PARTS, -1, -1))
    rows = []
    for policy in records["policy"].unique(maintain_order=True):
        regret = values(records, policy, "regret")
        for part, (low, high) in enumerate([(ends[0], last), *pairwise(ends)]):
            fitted = slope(rounds, regret, low * (1 - 1e-9), high * (1 + 1e-9))
            rows.append((policy, part, low, high, Estimate.of(fitted)))
    found = estimates(rows, ["policy", "part", "from", "to"]).rename({"mean": "slope"})
    whole = pl.col("slope").first().over("policy")
    return found.with_columns(deviation=pl.when(whole != 0).then(pl.col("slope") / whole - 1))


def constant(slopes: pl.DataFrame) -> dict[str, bool]:
    """Whether the slope of each policy is the same over the half decades, up to ``TOLERANCE``."""
    deviation = pl.col("deviation")
    near = (deviation.abs().max() <= TOLERANCE) & ~deviation.has_nulls()
    return dict(slopes.group_by("policy", maintain_order=True).agg(near).iter_rows())


def report(experiment: Experiment, policies: list[str], folder: Folder) -> Report:
    """Fit the slopes of finished policies, and leave them and their picture in the folder."""
    records = folder.results(policies)
    found = slopes(records)
    about = f"{experiment.scenario.name}, {experiment.length}"
    tables = [table(found, about)]
    files = write(folder.path, {"slopes.md": markdown(tables), "slopes.csv": found})
    pictures = draw(records, found, about, folder.path / "plots" / "regret")
    return Report(found, tables, files, pictures, remark=remark(experiment.rounds, experiment.seeds))


def table(slopes: pl.DataFrame, about: str) -> Table:
    """The slopes and the check, one row for each policy."""
    parts = slopes.filter(pl.col("policy") == slopes["policy"][0]).to_dicts()
    spans = [f"K = {_rounds(row['from'])}\nto {_rounds(row['to'])}" for row in parts]
    columns = {"policy": LEFT, **right((*spans, "largest\ndeviation")), f"constant\nwithin {TOLERANCE:.0%}": LEFT}
    verdicts, rows = constant(slopes), []
    for (policy,), mine in slopes.group_by("policy", maintain_order=True):
        largest = max(mine["deviation"], key=lambda change: abs(change or 0.0))
        fitted = (show(row["slope"], row["high"]) for row in mine.to_dicts())
        deviation = "-" if largest is None else f"{largest:+.0%}"
        rows.append((str(policy), *fitted, deviation, "yes" if verdicts[str(policy)] else "no"))
    return Table(f"slope dR / d ln K of the proxy regret\n({about})", columns, rows)


def remark(rounds: int, seeds: int) -> str:
    """What a run of so many rounds and seeds cannot show."""
    alone = f" {ONE_SEED}" * (seeds == 1)
    short = "; the preprint's constants (ata) settle only after 1,000,000 rounds" * (rounds < PUBLISHED_ROUNDS)
    return f"The published run has {PUBLISHED_ROUNDS:,} rounds and {PUBLISHED_SEEDS} seeds{short}.{alone}"


def _rounds(number: float) -> str:
    """A number of rounds in two digits.

    >>> _rounds(31622.8), _rounds(1e6), _rounds(100.0)
    ('32k', '1M', '100')
    """
    return str(EngFormatter(sep="")(float(f"{number:.2g}")))


def draw(records: pl.DataFrame, slopes: pl.DataFrame, title: str, stem: Path) -> list[Path]:
    """Draw the regret of each policy with the fitted line, and below it the slope over the half decade before K."""
    rounds = records["round"].unique().sort().to_numpy()
    policies = records["policy"].unique(maintain_order=True).to_list()
    with style.figure(3.2 * len(policies), 5.2) as picture:
        grid = picture.subplots(2, len(policies), sharex=True, squeeze=False)
        for (top, bottom), (policy, line) in zip(grid.T, style.lines(policies).items(), strict=True):
            regret = values(records, policy, "regret")
            fit = slopes.row(by_predicate=(pl.col("policy") == policy) & (pl.col("part") == 0), named=True)
            window = rounds[rounds >= fit["from"]]
            curve(top, rounds, regret, line)
            level = regret.mean(axis=0)[rounds >= fit["from"]].mean()
            fitted = level + fit["slope"] * (np.log(window) - np.log(window).mean())
            top.plot(window, fitted, color="black", linewidth=1.0, linestyle=(0, (2, 2)))
            curve(bottom, rounds, np.transpose([slope(rounds, regret, k / 10**0.5, k) for k in rounds]), line)
            low, high = ((1 + sign * TOLERANCE) * fit["slope"] for sign in (-1, 1))
            bottom.fill_between(window, low, high, color="#DDDDDD", linewidth=0, zorder=0)
            top.set(xscale="log", title=f"{policy}\nslope {show(fit['slope'], fit['high'])}", ylim=(0, None))
            bottom.set(xlabel="round K", ylim=(0, None))
            style.plain_numbers(top, bottom)
        grid[0, 0].set_ylabel("proxy regret R")
        grid[1, 0].set_ylabel("dR / d ln K")
        return style.save(picture, stem, title)
