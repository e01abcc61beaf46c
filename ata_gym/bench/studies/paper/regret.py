"""The proxy regret R, which grows as ln K under ATA, and whether dR / d ln K is constant."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.ticker import EngFormatter

import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import ONE_SEED
from ata_gym.bench.report.report import Report, curve, write
from ata_gym.bench.report.statistics import Estimate, estimates, values
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.store.folder import Folder
from ata_gym.bench.studies.paper.norms import beside_norms
from ata_gym.theory.guarantees import Guarantee
from ata_gym.typing import Floats, Ints
from ata_policies.allocation.estimates.ata import ConfidenceBound
from ata_policies.setting import Setting

POLICIES = ("ata-icml", "thompson", "ata")
"""The policies of the figure; the last has the constants of the preprint."""

PUBLISHED_ROUNDS = 4_000_000
PUBLISHED_SEEDS = 5

DECADES = 1.5
"""The number of the last decades of rounds over which the slope is fitted.

It is also fitted over each half decade of them.
"""

TOLERANCE = 0.2
"""How far the slope of a half decade may be from the slope of all, as a share of the latter.

Where the slope of each half decade is nearer, the slope counts as constant.
"""

_HALF_DECADES = int(2 * DECADES)
"""The number of half decades."""


def slope(rounds: Ints, regret: Floats, low: float, high: float) -> Floats:
    """Least-squares slopes dR / d ln K of regrets over the rounds K from ``low`` to ``high``.

    Args:
        rounds: The recorded rounds, shape (R,).
        regret: The regret of each seed in them, shape (seeds, R).
        low: The first round that counts.
        high: The last one.

    Returns:
        The slope of each seed, shape (seeds,); NaN where fewer than two recorded rounds count.

    Example:
        >>> rounds = np.array([1, 10, 100, 1000])
        >>> slope(rounds, 3.0 * np.log(rounds)[None] + 7.0, 10, 1000).round(9)
        array([3.])
    """
    window = (rounds >= low) & (rounds <= high)
    if window.sum() < 2:
        return np.full(len(regret), np.nan)
    return np.asarray(np.polyfit(np.log(rounds[window]), regret[:, window].T, 1)[0])


def slopes(records: pl.DataFrame) -> pl.DataFrame:
    """The slopes of each policy's proxy regret, with 95 % intervals over seeds.

    Returns:
        Columns policy, part, from, to (rounds), slope, low, high, deviation. Part 0 is all of
        ``DECADES``, and parts 1, 2, ... are its half decades. The deviation is from the slope of
        part 0, as a share of it.
    """
    rounds = records["round"].unique().sort().to_numpy()
    last_round = float(rounds[-1])
    ends = last_round * 10.0 ** (-0.5 * np.arange(_HALF_DECADES, -1, -1))
    rows = []
    for policy in records["policy"].unique(maintain_order=True):
        regret = values(records, policy, "regret")
        for part, (low, high) in enumerate([(ends[0], last_round), *pairwise(ends)]):
            # an end may be a recorded round, up to rounding
            fitted = slope(rounds, regret, low * (1 - 1e-9), high * (1 + 1e-9))
            rows.append((policy, part, low, high, Estimate.of(fitted)))
    estimated = estimates(rows, ["policy", "part", "from", "to"]).rename({"mean": "slope"})
    whole_slope = pl.col("slope").first().over("policy")
    return estimated.with_columns(
        deviation=pl.when(whole_slope != 0).then(pl.col("slope") / whole_slope - 1)
    )


def constant(slopes: pl.DataFrame) -> dict[str, bool]:
    """Whether the slope of each policy is the same over the half decades, up to ``TOLERANCE``."""
    deviation = pl.col("deviation")
    near = (deviation.abs().max() <= TOLERANCE) & ~deviation.has_nulls()
    return dict(slopes.group_by("policy", maintain_order=True).agg(near).iter_rows())


def report(experiment: Experiment, policies: list[str], folder: Folder) -> Report:
    """Fit the slopes of finished policies, and leave them and their picture in the folder."""
    records = folder.results(policies)
    slope_table = slopes(records)
    about = f"{experiment.scenario.name}, {experiment.length}"
    tables = [table(slope_table, about)]
    files = write(folder.path, {"slopes.md": markdown(tables), "slopes.csv": slope_table})
    bounds = regret_bounds(experiment, policies)
    pictures = draw(records, slope_table, about, folder.path / "plots" / "regret", bounds)
    remarks = [remark(experiment.rounds, experiment.seeds), beside_norms(experiment.scenario)]
    for policy, bound in bounds.items():
        measured = values(records, policy, "regret")[:, -1].mean()
        limit = float(bound.regret(experiment.rounds))
        remarks.append(
            f"{policy}: the theory bounds the expected regret by {limit:.3g},"
            f" {limit / measured:,.0f} times the measured {measured:.3g}; the worst"
            f" allocation in every round has {bound.most * experiment.rounds:.3g}.",
        )
    return Report(slope_table, tables, files, pictures, remark="\n".join(remarks))


def regret_bounds(experiment: Experiment, policies: Sequence[str]) -> dict[str, Guarantee]:
    """The guarantees of the policies that are ATA, with the constants with which they play."""
    envs = experiment.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    policy_by_name: dict[str, Any] = {name: ata_policies.make(name, envs) for name in policies}
    ata_by_name = {
        name: policy
        for name, policy in policy_by_name.items()
        if isinstance(getattr(policy, "estimate", None), ConfidenceBound)
    }
    return {
        name: policy.estimate.guarantee(Setting.of(envs)) for name, policy in ata_by_name.items()
    }


def table(slopes: pl.DataFrame, about: str) -> Table:
    """The slopes and the check, one row for each policy."""
    parts = slopes.filter(pl.col("policy") == slopes["policy"][0]).to_dicts()
    spans = [f"K = {_rounds(row['from'])}\nto {_rounds(row['to'])}" for row in parts]
    columns = {
        "policy": LEFT,
        **right((*spans, "largest\ndeviation")),
        f"constant\nwithin {TOLERANCE:.0%}": LEFT,
    }
    verdicts = constant(slopes)
    rows = []
    for (policy,), policy_slopes in slopes.group_by("policy", maintain_order=True):
        largest = max(policy_slopes["deviation"], key=lambda change: abs(change or 0.0))
        fitted = (show(row["slope"], row["high"]) for row in policy_slopes.to_dicts())
        if largest is None:
            deviation = "-"
        else:
            deviation = f"{largest:+.0%}"
        if verdicts[str(policy)]:
            is_constant = "yes"
        else:
            is_constant = "no"
        rows.append((str(policy), *fitted, deviation, is_constant))
    return Table(f"slope dR / d ln K of the proxy regret\n({about})", columns, rows)


def remark(rounds: int, seeds: int) -> str:
    """What a run of so many rounds and seeds cannot show."""
    text = f"The published run has {PUBLISHED_ROUNDS:,} rounds and {PUBLISHED_SEEDS} seeds"
    if rounds < PUBLISHED_ROUNDS:
        text += "; the preprint's constants (ata) settle only after 1,000,000 rounds"
    text += "."
    if seeds == 1:
        text += f" {ONE_SEED}"
    return text


def _rounds(number: float) -> str:
    """A number of rounds in two digits.

    Example:
        >>> _rounds(31622.8), _rounds(1e6), _rounds(100.0)
        ('32k', '1M', '100')
    """
    return str(EngFormatter(sep="")(float(f"{number:.2g}")))


def draw(
    records: pl.DataFrame,
    slopes: pl.DataFrame,
    title: str,
    stem: Path,
    bounds: Mapping[str, Guarantee],
) -> list[Path]:
    """Draw each policy's regret and fitted line, its slopes, and its bound, one below the other.

    The slope at round K is fitted over the half decade before K.
    """
    rounds = records["round"].unique().sort().to_numpy()
    policies = records["policy"].unique(maintain_order=True).to_list()
    with style.figure(3.2 * len(policies), 7.4) as picture:
        grid = picture.subplots(3, len(policies), sharex=True, squeeze=False)
        looks = style.lines(policies)
        for (regret_axes, slope_axes, bound_axes), policy in zip(grid.T, policies, strict=True):
            line = looks[policy]
            regret = values(records, policy, "regret")
            is_whole = (pl.col("policy") == policy) & (pl.col("part") == 0)
            fit = slopes.row(by_predicate=is_whole, named=True)
            window = rounds[rounds >= fit["from"]]
            curve(regret_axes, rounds, regret, line)
            # a least-squares line goes through the means of both axes
            level = regret.mean(axis=0)[rounds >= fit["from"]].mean()
            fitted = level + fit["slope"] * (np.log(window) - np.log(window).mean())
            regret_axes.plot(window, fitted, color="black", linewidth=1.0, linestyle=(0, (2, 2)))
            local = np.transpose([slope(rounds, regret, k / 10**0.5, k) for k in rounds])
            curve(slope_axes, rounds, local, line)
            low, high = ((1 + sign * TOLERANCE) * fit["slope"] for sign in (-1, 1))
            slope_axes.fill_between(window, low, high, color="#DDDDDD", linewidth=0, zorder=0)
            regret_axes.set(
                xscale="log",
                title=f"{policy}\nslope {show(fit['slope'], fit['high'])}",
                ylim=(0, None),
            )
            slope_axes.set(ylim=(0, None))
            bound_axes.plot(rounds, regret.mean(axis=0), label="measured", **line)
            if policy in bounds:
                bound_axes.plot(
                    rounds,
                    bounds[policy].regret(rounds),
                    color="black",
                    linewidth=1.0,
                    label="bound",
                )
            bound_axes.set(xlabel="round K", yscale="log")
            bound_axes.legend()
            style.plain_numbers(regret_axes, slope_axes, bound_axes)
        grid[0, 0].set_ylabel("proxy regret R")
        grid[1, 0].set_ylabel("dR / d ln K")
        grid[2, 0].set_ylabel("R, and its bound")
        return style.save(picture, stem, title)
