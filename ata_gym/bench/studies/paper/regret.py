"""The proxy regret R, which grows as ln K under ATA, and whether dR / d ln K is constant.

Beside it are what the theory promises of ATA, and what no policy that learns can do better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import ONE_SEED
from ata_gym.bench.report.page.sections import Page, section_of
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import Estimate, estimate, estimates, values
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.store.note import read_note, sizes
from ata_gym.bench.studies.benchmark import Benchmark
from ata_gym.bench.studies.paper.norms import beside_norms
from ata_gym.theory.guarantees import Guarantee
from ata_gym.theory.lower_bound import RegretLowerBound, regret_lower_bound
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
            rows.append((policy, part, low, high, Estimate.from_sample(fitted)))
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


@dataclass(frozen=True)
class RegretFigure(Benchmark):
    """The proxy regret of policies on the published scenario, and whether it grows as ln K."""

    name: ClassVar[str] = "regret"

    @staticmethod
    def report(folder: Path) -> Report:
        report = Benchmark.report(folder)
        size = sizes(read_note(folder))
        experiment = Experiment.on_scenario(size.title, rounds=size.rounds, seeds=size.seeds)
        return _RegretContent(report, experiment).report()


@dataclass(frozen=True)
class _RegretContent:
    """What the table, the picture and the page of the slopes are made of."""

    benchmark: Report
    """The report that ``bench`` makes of the same results."""
    experiment: Experiment

    @cached_property
    def slopes(self) -> pl.DataFrame:
        return slopes(self.benchmark.records)

    @cached_property
    def bounds(self) -> dict[str, Guarantee]:
        """The guarantees of the policies that are ATA."""
        policies = self.benchmark.records["policy"].unique(maintain_order=True).to_list()
        return regret_bounds(self.experiment, policies)

    @cached_property
    def lower_bound(self) -> RegretLowerBound:
        """The lower bound for policies that learn."""
        scenario = self.experiment.scenario
        return regret_lower_bound(scenario.pool, scenario.budget)

    @cached_property
    def above_lower_bound(self) -> dict[str, float]:
        """The mean regret after the last round over c ln K, by policy; empty without a bound."""
        least = float(self.lower_bound.regret(self.experiment.rounds))
        if not least:
            return {}
        policies = self.benchmark.records["policy"].unique(maintain_order=True).to_list()
        return {
            policy: float(values(self.benchmark.records, policy, "regret")[:, -1].mean()) / least
            for policy in policies
        }

    def report(self) -> Report:
        tables = [self._table()]
        return self.benchmark._replace(
            title=self._about(),
            summary=self.slopes,
            tables=tables,
            findings="\n".join(self._sentences()),
            page=self.page,
            files={"slopes.md": markdown(tables), "slopes.csv": self.slopes},
            pictures={"regret": self.draw},
        )

    def draw(self) -> style.Picture:
        return draw(self.benchmark.records, self.slopes, self.bounds, self.lower_bound)

    def page(self) -> Page:
        """Make the page: the page of the benchmark, with the slopes before the rest."""
        page = self.benchmark.page()
        note = f"The slope is constant where each half decade has it within {TOLERANCE:.0%}."
        return page._replace(
            sections=[section_of("slopes", self._table(), note), *page.sections],
            remarks=[*page.remarks, *self._sentences()],
        )

    def _about(self) -> str:
        return f"{self.experiment.scenario.name}, {self.experiment.sizes.length}"

    def _table(self) -> Table:
        return table(self.slopes, self._about(), self.above_lower_bound)

    def _sentences(self) -> list[str]:
        """What the run cannot show, the published constants, and the bounds of the theory."""
        rounds = self.experiment.rounds
        sentences = [
            remark(rounds, self.experiment.seeds),
            beside_norms(self.experiment.scenario),
        ]
        for policy, bound in self.bounds.items():
            measured = values(self.benchmark.records, policy, "regret")[:, -1].mean()
            limit = float(bound.regret(rounds))
            sentences.append(
                f"{policy}: the theory bounds the expected regret by {limit:.3g},"
                f" {limit / measured:,.0f} times the measured {measured:.3g}; the worst"
                f" allocation in every round has {bound.largest_regret * rounds:.3g}.",
            )
        sentences.append(self.lower_bound.after(self.experiment.rounds))
        return sentences


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
        name: policy.estimate.guarantee(Setting.from_env(envs))
        for name, policy in ata_by_name.items()
    }


def table(
    slopes: pl.DataFrame,
    about: str,
    above_lower_bound: Mapping[str, float],
) -> Table:
    """The slopes, the check, and the last regret over the lower bound; one row for each policy."""
    parts = slopes.filter(pl.col("policy") == slopes["policy"][0]).to_dicts()
    spans = [f"K = {_rounds(row['from'])}\nto {_rounds(row['to'])}" for row in parts]
    columns = {
        "policy": LEFT,
        **right((*spans, "largest\ndeviation")),
        f"constant\nwithin {TOLERANCE:.0%}": LEFT,
        "last R over\nthe lower bound": LEFT,
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
        above = _above_in_words(above_lower_bound.get(str(policy)))
        rows.append((str(policy), *fitted, deviation, is_constant, above))
    return Table(f"slope dR / d ln K of the proxy regret\n({about})", columns, rows)


def _above_in_words(ratio: float | None) -> str:
    """A regret over its asymptotic lower bound, in a cell of the table.

    Example:
        >>> _above_in_words(3.9), _above_in_words(0.5), _above_in_words(None)
        ('3.9', '0.50: asymptotic, not reached', 'none known')
    """
    if ratio is None:
        return "none known"
    if ratio < 1:
        return f"{ratio:.2f}: asymptotic, not reached"
    return f"{ratio:,.1f}"


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
    bounds: Mapping[str, Guarantee],
    lower_bound: RegretLowerBound,
) -> style.Picture:
    """Draw each policy's regret and fitted line, its slopes, and its bounds, one below the other.

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
            _curve(regret_axes, rounds, regret, line)
            # a least-squares line goes through the means of both axes
            level = regret.mean(axis=0)[rounds >= fit["from"]].mean()
            fitted = level + fit["slope"] * (np.log(window) - np.log(window).mean())
            regret_axes.plot(window, fitted, color="black", linewidth=1.0, linestyle=(0, (2, 2)))
            local = np.transpose([slope(rounds, regret, k / 10**0.5, k) for k in rounds])
            _curve(slope_axes, rounds, local, line)
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
                    label="upper bound",
                )
            if lower_bound.constant:
                later = rounds[rounds > 1]
                bound_axes.plot(
                    later,
                    lower_bound.regret(later),
                    color="black",
                    linewidth=1.0,
                    linestyle=(0, (1, 1)),
                    label="lower bound",
                )
            bound_axes.set(xlabel="round K", yscale="log")
            bound_axes.legend()
            style.plain_numbers(regret_axes, slope_axes, bound_axes)
        grid[0, 0].set_ylabel("proxy regret R")
        grid[1, 0].set_ylabel("dR / d ln K")
        grid[2, 0].set_ylabel("R, and its bounds")
    return picture


def _curve(axes: Axes, rounds: Ints, sample: Floats, line: Mapping[str, Any]) -> None:
    """Draw the mean over seeds of a sample, shape (seeds, rounds), and its interval."""
    mean, half = estimate(sample)
    axes.plot(rounds, mean, **line)
    if not np.isnan(half).all():
        band = {"color": line["color"], "alpha": 0.2, "linewidth": 0}
        axes.fill_between(rounds, mean - half, mean + half, **band)
