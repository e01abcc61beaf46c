"""The proxy regret, which grows as ln K under ATA: slopes dR / d ln K, and whether they are constant."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.ticker import EngFormatter

import ata_policies
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.paper.norms import beside_norms
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import ONE_SEED
from ata_gym.bench.report.report import Report, curve, write
from ata_gym.bench.report.statistics import Estimate, estimates, values
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.theory.guarantees import Guarantee
from ata_gym.typing import Floats, Ints
from ata_policies.allocation.estimates.ata import ConfidenceBound
from ata_policies.setting import Setting

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
    bounds = regret_bounds(experiment, policies)
    pictures = draw(records, found, about, folder.path / "plots" / "regret", bounds)
    said = [remark(experiment.rounds, experiment.seeds), beside_norms(experiment.scenario)]
    for policy, bound in bounds.items():
        ends, most = values(records, policy, "regret")[:, -1].mean(), float(bound.regret(experiment.rounds))
        said.append(
            f"{policy}: the theory bounds the expected regret by {most:.3g}, {most / ends:,.0f} times the measured "
            f"{ends:.3g}; the worst allocation in every round has {bound.most * experiment.rounds:.3g}."
        )
    return Report(found, tables, files, pictures, remark="\n".join(said))


def regret_bounds(experiment: Experiment, policies: Sequence[str]) -> dict[str, Guarantee]:
    """What is promised of those of the policies that are ATA, with the constants that they play with."""
    envs = experiment.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    made: dict[str, Any] = {name: ata_policies.make(name, envs) for name in policies}
    are_ata = {name: it for name, it in made.items() if isinstance(getattr(it, "estimate", None), ConfidenceBound)}
    return {name: it.estimate.guarantee(Setting.of(envs)) for name, it in are_ata.items()}


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


def draw(
    records: pl.DataFrame, slopes: pl.DataFrame, title: str, stem: Path, bounds: Mapping[str, Guarantee]
) -> list[Path]:
    """Draw each policy's regret and fitted line; below the slope over the half decade before K, and the bound."""
    rounds = records["round"].unique().sort().to_numpy()
    policies = records["policy"].unique(maintain_order=True).to_list()
    with style.figure(3.2 * len(policies), 7.4) as picture:
        grid = picture.subplots(3, len(policies), sharex=True, squeeze=False)
        for (top, bottom, beside), (policy, line) in zip(grid.T, style.lines(policies).items(), strict=True):
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
            bottom.set(ylim=(0, None))
            beside.plot(rounds, regret.mean(axis=0), label="measured", **line)
            if policy in bounds:
                beside.plot(rounds, bounds[policy].regret(rounds), color="black", linewidth=1.0, label="bound")
            beside.set(xlabel="round K", yscale="log")
            beside.legend()
            style.plain_numbers(top, bottom, beside)
        grid[0, 0].set_ylabel("proxy regret R")
        grid[1, 0].set_ylabel("dR / d ln K")
        grid[2, 0].set_ylabel("R, and its bound")
        return style.save(picture, stem, title)
