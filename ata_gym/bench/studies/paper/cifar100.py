"""The published CIFAR-100 figure, and ours beside it.

Its end points are here; its lines come from a file of the user.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from matplotlib.ticker import EngFormatter

from ata_gym.bench.report import style
from ata_gym.bench.report.headline import listed
from ata_gym.bench.report.losses import CLOCKS, frame_of, mean_clocks, on_clocks, read_columns
from ata_gym.bench.report.page.sections import Page, section_of
from ata_gym.bench.report.quantities import title
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import summarise
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Failure
from ata_gym.bench.store.note import Note, read_note
from ata_gym.bench.studies.benchmark import NOTE, Benchmark
from ata_gym.bench.studies.paper.norms import beside_norms
from ata_gym.scenarios import PAPER, scenario
from ata_gym.utils.files.json_files import fields, items, nullable, number, text


class EndPoint(NamedTuple):
    """Where a policy's line ends in a published figure."""

    runtime: float
    """The runtime of all rounds, in units of time."""
    total_worker_time: float
    """The worker time of all rounds, in units of time."""
    runtime_to_ofta: float
    """Its ratio to the runtime of OFTA."""
    total_worker_time_to_ofta: float
    """Its ratio to the total worker time of OFTA."""


class PublishedFigure(NamedTuple):
    """The end points of a published figure."""

    scenario: str
    rounds: int
    end_points: Mapping[str, EndPoint]
    source: str
    tolerance: float
    """How far our ratio may be from a published one, as a share of the published one."""


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
QUANTITIES = ("runtime", "total_worker_time", *_RATIOS)
"""The fields of ``EndPoint`` in their order, as ``statistics.summarise`` names them."""


def compare(figure: PublishedFigure, summary: pl.DataFrame, rounds: int) -> pl.DataFrame:
    """Our end points beside the published ones.

    Args:
        figure: The published figure.
        summary: Our results, as ``statistics.summarise`` gives them.
        rounds: The number of our rounds. Where it is not the published number, the deviation is
            null, and the totals are left out.

    Returns:
        Columns policy, quantity, ours, high, published, deviation; the last is a share of the
        published value. A policy that has not finished has no row, and none has one where OFTA has
        not finished.
    """
    comparable = rounds == figure.rounds
    our_rows = {(row["policy"], row["quantity"]): row for row in summary.to_dicts()}
    finished = [policy for policy in figure.end_points if (policy, _RATIOS[0]) in our_rows]
    names: tuple[str, ...]
    if comparable:
        names = QUANTITIES
    else:
        names = _RATIOS
    rows = []
    for name in names:
        for policy in finished:
            our_row = our_rows[policy, name]
            published = figure.end_points[policy][QUANTITIES.index(name)]
            if comparable:
                deviation = our_row["mean"] / published - 1
            else:
                deviation = None
            rows.append((policy, name, our_row["mean"], our_row["high"], published, deviation))
    schema: dict[str, Any] = {
        **dict.fromkeys(("policy", "quantity"), pl.String),
        **dict.fromkeys(("ours", "high", "published", "deviation"), pl.Float64),
    }
    return pl.DataFrame(rows, schema, orient="row")


def _in_words(quantity: str) -> str:
    return title(quantity).replace("\n", " ")


def comparison_table(figure: PublishedFigure, comparison: pl.DataFrame) -> Table:
    """The comparison for the terminal."""
    units = {"runtime": "1e9", "total_worker_time": "1e10"}
    rows: list[tuple[str, ...]] = []
    for (name,), compared in comparison.group_by("quantity", maintain_order=True):
        unit = float(units.get(str(name), 1))
        quantity = _in_words(str(name))
        if name in units:
            quantity += f" ({units[str(name)]})"
        # an empty row stands above the rows of each quantity
        rows.append(())
        for row in compared.to_dicts():
            if row["deviation"] is None:
                deviation = "not comparable"
            else:
                deviation = f"{row['deviation']:+.2%}"
            ours = show(row["ours"], row["high"], unit)
            published = f"{row['published'] / unit:.5g}"
            rows.append((row["policy"], quantity, ours, published, deviation))
    columns = {"policy": LEFT, "": LEFT, **right(("ours", "published", "deviation"))}
    return Table(f"compared with the published figure\n({figure.source})", columns, rows)


def verdict(figure: PublishedFigure, comparison: pl.DataFrame, rounds: int) -> tuple[bool, str]:
    """Whether the figure was reproduced, and a sentence on it.

    A run of another length, or without all policies, proves nothing, and counts as reproduced.
    """
    if comparison["policy"].n_unique() < len(figure.end_points):
        return True, "Not all published policies have finished, so nothing follows yet."
    if rounds != figure.rounds:
        sentence = (
            f"The published end points are for {figure.rounds:,} rounds; these are {rounds:,},"
            " so the ratios of the policies that learn are not comparable. Without --rounds"
            " the run has the published length."
        )
        return True, sentence
    ratios = comparison.filter(pl.col("quantity").is_in(_RATIOS))
    worst = ratios.sort(pl.col("deviation").abs(), maintain_order=True).row(-1, named=True)
    deviation_text = (
        f"the largest deviation is {worst['deviation']:+.2%} ({worst['policy']},"
        f" {_in_words(worst['quantity'])})"
    )
    if abs(worst["deviation"]) <= figure.tolerance:
        sentence = (
            f"Reproduced: every ratio is within {figure.tolerance:.1%} of the published one;"
            f" {deviation_text}."
        )
        return True, sentence
    sentence = (
        f"Not reproduced: a ratio is more than {figure.tolerance:.1%} from the published one;"
        f" {deviation_text}."
    )
    return False, sentence


EVEN = ("gta", "ofta", "uta")
"""Policies whose rounds are alike: a share of the time is the same share of the rounds."""

_KNOWN_FROM = 0.01
"""The share of the rounds from which on the lines of ``EVEN`` are known.

Before, they have only their first point.
"""


def read_lines(path: Path, figure: PublishedFigure) -> pl.DataFrame:
    """The lines of a published figure, from a CSV file.

    Args:
        path: A file with the columns axis (runtime or total_worker_time), policy, time and
            loss_above_optimum.
        figure: The figure whose policies have lines.

    Returns:
        Columns clock, policy, time, loss.

    Raises:
        ValueError: If a line of the figure is not in the file, or a number is none.
    """
    lines = read_columns(path, ["time", "loss_above_optimum"], ["axis", "policy"])[1]
    lines = lines.rename({"axis": "clock", "loss_above_optimum": "loss"})
    present = set(lines.select("clock", "policy").unique().rows())
    missing = [
        f"{policy} against {clock}"
        for clock in CLOCKS
        for policy in figure.end_points
        if (clock, policy) not in present
    ]
    if missing:
        raise ValueError(
            f"{path} must have the lines of all policies for the axes runtime and"
            f" total_worker_time; it lacks {listed(missing)}",
        )
    return lines


def common_curve(lines: pl.DataFrame, rounds: int) -> pl.DataFrame:
    """The loss by round, from all points of the lines of ``EVEN``.

    Args:
        lines: Lines as ``read_lines`` gives them.
        rounds: The number of rounds after which these lines end.

    Returns:
        Columns round and loss, the rounds rising.

    Example:
        >>> points = {"time": [0.0, 3.0, 4.0], "loss": [5.0, 2.0, 1.0]}
        >>> line = pl.DataFrame({"clock": "runtime", "policy": "uta", **points})
        >>> common_curve(line, 100).rows()
        [(0, 5.0), (75, 2.0), (100, 1.0)]
    """
    time = pl.col("time")
    end = time.max().over("clock", "policy")
    # A point of the traced picture may lie a little before 0.
    rounds_at = (rounds * time / end).clip(0).round()
    even = lines.filter(pl.col("policy").is_in(EVEN))
    even = even.with_columns(round=rounds_at.cast(pl.Int64))
    return even.group_by("round").agg(pl.col("loss").mean()).sort("round")


def distances(
    lines: pl.DataFrame,
    curve: pl.DataFrame,
    records: pl.DataFrame,
    rounds: int,
) -> pl.DataFrame:
    """How far the published lines are from one curve in the round that our clocks show.

    Args:
        lines: The published lines, as ``read_lines`` gives them.
        curve: The loss by round, as ``common_curve`` gives it.
        records: Our records.
        rounds: The published number of rounds.

    Returns:
        Each published point from ``_KNOWN_FROM`` on, our round at its time, and its ``distance``
        from the curve, in units of the loss.
    """
    clocks = mean_clocks(records)
    frames = []
    for (clock, policy), line in lines.group_by("clock", "policy", maintain_order=True):
        our_clocks = clocks.filter(policy=policy)
        if not len(our_clocks):
            continue
        rounds_at = np.interp(
            line["time"], our_clocks[str(clock)], our_clocks["round"], left=0.0, right=np.inf
        )
        gap = (line["loss"] - np.interp(rounds_at, curve["round"], curve["loss"])).abs()
        frames.append(line.with_columns(round=rounds_at, distance=gap))
    return pl.concat(frames).filter(pl.col("round").is_between(_KNOWN_FROM * rounds, rounds))


def distances_in_words(points: pl.DataFrame, curve: pl.DataFrame, rounds: int) -> str:
    """A sentence on ``distances``; empty where no round of a published point was played."""
    if not len(points):
        return ""
    distance = points["distance"].to_numpy()
    return (
        "The published loss is the same function of the round for all policies: from round"
        f" {_KNOWN_FROM * rounds:,.0f} on, the {len(distance):,} points of their lines are on"
        f" average {distance.mean():.3f}, and at most {distance.max():.3f}, from one curve in the"
        f" round that has their time in ours, falling from {curve['loss'][0]:.2f} to"
        f" {curve['loss'][-1]:.2f}."
    )


def draw(lines: pl.DataFrame, ours: pl.DataFrame) -> style.Picture:
    """Draw ours, dashed, on the published lines, on linear axes as there."""
    looks = style.lines(lines["policy"].unique(maintain_order=True).to_list())
    with style.figure(9.5, 4.2) as picture:
        for axes, clock in zip(picture.subplots(1, 2, sharey=True), CLOCKS, strict=True):
            for policy, look in looks.items():
                line = lines.filter(clock=clock, policy=policy)
                our_line = ours.filter(policy=policy)
                axes.plot(
                    line["time"],
                    line["loss"],
                    color=look["color"],
                    linewidth=4.0,
                    alpha=0.45,
                    label=policy,
                )
                axes.plot(
                    our_line[clock],
                    our_line["loss"],
                    color="black",
                    linewidth=1.0,
                    linestyle=(0, (4, 2)),
                )
            axes.get_lines()[-1].set_label("ours (dashed)")
            axes.set(xlabel=clock.replace("_", " "), xlim=(0, None), ylim=(0, None))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        picture.axes[0].set_ylabel("$f - f^*$")
        style.legend(picture, picture.axes[0].get_legend_handles_labels()[0])
    return picture


def _kept_lines(name: str, value: Any) -> None:
    """Check published lines in a note: columns of the same length, and at least one point."""
    _LINES(name, value)
    if len({len(value[column]) for column in _LINE_COLUMNS}) > 1 or not value["time"]:
        raise ValueError(f"{name} must have as many policies, times and losses, and at least one")


_LINE_COLUMNS = {"clock": text, "policy": text, "time": number, "loss": number}
_LINES = fields({name: items(rule) for name, rule in _LINE_COLUMNS.items()})
_NOTE = fields({"lines": nullable(_kept_lines)})


@dataclass(frozen=True)
class Cifar100Figure(Benchmark):
    """Our end points beside the published ones, and our lines on the lines of the figure."""

    name: ClassVar[str] = "cifar100"

    lines: pl.DataFrame | None = field(default=None, compare=False)
    """The published lines, as ``read_lines`` gives them."""

    def about(self) -> Note:
        if self.lines is None:
            lines = None
        else:
            lines = self.lines.select([*_LINE_COLUMNS]).to_dict(as_series=False)
        return super().about() | {"lines": lines}

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        failures = super().run(folder, jobs, effort)
        if failures:
            return failures
        summary = summarise(jobs[0].folder.results([*CIFAR100.end_points]))
        rounds = self.experiment.rounds
        reproduced, sentence = verdict(CIFAR100, compare(CIFAR100, summary, rounds), rounds)
        if reproduced:
            return {}
        return {CIFAR100.scenario: Failure(ValueError(sentence))}

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, _NOTE)
        read_note(folder, NOTE)
        return _Cifar100Content(note, Benchmark.report(folder)).report()


@dataclass(frozen=True)
class _Cifar100Content:
    """The comparison with the published figure, beside the report of the benchmark."""

    note: Note
    benchmark: Report

    @cached_property
    def lines(self) -> pl.DataFrame | None:
        """The published lines, if they were given."""
        if self.note["lines"] is None:
            return None
        return pl.DataFrame(self.note["lines"])

    @cached_property
    def compared(self) -> pl.DataFrame:
        """Our end points beside the published ones."""
        return compare(CIFAR100, self.benchmark.summary, self.note["rounds"])

    def report(self) -> Report:
        pictures = dict(self.benchmark.pictures)
        if self.lines is not None:
            pictures["published"] = self.draw
        return self.benchmark._replace(
            tables=[*self.benchmark.tables, comparison_table(CIFAR100, self.compared)],
            findings="\n".join([self.benchmark.findings, *self._sentences()]),
            page=self.page,
            pictures=pictures,
        )

    def draw(self) -> style.Picture:
        """Draw our lines on the published ones."""
        assert self.lines is not None
        curve = frame_of(self.note["loss_curve"])
        return draw(self.lines, on_clocks(curve, self.benchmark.records))

    def page(self) -> Page:
        """Make the page: the page of the benchmark, with the comparison after its table."""
        page = self.benchmark.page()
        first, *rest = page.sections
        note = f"Source of the published figures: {CIFAR100.source}."
        section = section_of("published", comparison_table(CIFAR100, self.compared), note)
        return page._replace(
            sections=[first, section, *rest],
            remarks=[*page.remarks, *self._sentences()],
        )

    def _sentences(self) -> list[str]:
        rounds = self.note["rounds"]
        sentences = [
            verdict(CIFAR100, self.compared, rounds)[1],
            beside_norms(scenario(CIFAR100.scenario)),
        ]
        if self.lines is not None:
            curve = frame_of(self.note["loss_curve"])
            points = distances(self.lines, curve, self.benchmark.records, CIFAR100.rounds)
            sentences.append(distances_in_words(points, curve, CIFAR100.rounds))
        return [sentence for sentence in sentences if sentence]
