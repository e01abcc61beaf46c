"""The figures of the ATA paper's quadratic.

Source: Maranjyan et al., ATA, ICML 2025. The figures of the quadratic are f - f* against runtime
and worker time, and the mean round time and the averaged proxy regret against the round, for n =
17, 51 and 153. One trajectory serves all policies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import polars as pl

from ata_gym.bench.experiment import Sizes
from ata_gym.bench.report import charts, losses, statistics
from ata_gym.bench.report.headline import ONE_SEED
from ata_gym.bench.report.page.sections import Chart, Page, Tables, joined, section_of
from ata_gym.bench.report.pictures import Drawing, Panel
from ata_gym.bench.report.report import LeftFiles, Report, leave
from ata_gym.bench.report.summary_tables import summary_table
from ata_gym.bench.report.table import Table, markdown
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Failure
from ata_gym.bench.store.note import Note, read_note, sizes, write_note
from ata_gym.bench.studies.benchmark import Scenarios, scenario_reports
from ata_gym.bench.studies.paper.norms import beside_norms
from ata_gym.bench.studies.paper.trained.compiled_quadratic import CompiledQuadratic
from ata_gym.bench.studies.paper.trained.trajectory import open_training, read_trajectory
from ata_gym.bench.studies.training.trajectory import Training, keep_trajectory
from ata_gym.scenarios import scenario
from ata_gym.training.problems.quadratic import Quadratic
from ata_gym.utils.files.json_files import fields, text

PUBLISHED_ROUNDS = 3_000_000
"""The rounds of the paper's figure of the quadratic."""

_MIXED_NOTE = (
    f"The published curves have {PUBLISHED_ROUNDS:,} rounds. Ours: the training, the same as in"
    " icml2025-quadratic. Which one the paper showed over these times, and where its lines end, is"
    " not known to us: nothing is compared."
)

_QUANTITIES = ("runtime/ofta", "total_worker_time/ofta", "round_time", "mean_regret")
"""The columns of the tables of the quadratic."""


def suboptimality_on_clocks(
    trajectory: pl.DataFrame,
    records: Mapping[int, pl.DataFrame],
) -> pl.DataFrame:
    """A trajectory of the quadratic on the clocks of the records for each n.

    The figures are means over the seeds. ``round_time`` and ``mean_regret`` are means of all rounds
    so far; the regret of GTA is null. Columns that end in ``_half`` hold half the width of the 95 %
    confidence interval; null for one seed.
    """
    # A task's loss is f - f* before the step: after a round it is the next round's loss. After the
    # last round the quadratic was evaluated.
    suboptimality = pl.col("loss").shift(-1).fill_null(pl.col("suboptimality").last())
    quantities = pl.col("runtime", "total_worker_time", "regret")
    frames = []
    for n, frame in records.items():
        seeds = frame["seed"].n_unique()
        half_width = quantities.std() * (statistics.quantile(seeds) / seeds**0.5)
        means = frame.group_by("policy", "round", maintain_order=True).agg(
            quantities.mean(),
            half_width.name.suffix("_half"),
        )
        frames.append(means.select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    rounds = pl.col("round")
    return (
        pl.concat(frames)
        .with_columns(
            round_time=pl.col("runtime") / rounds,
            round_time_half=pl.col("runtime_half") / rounds,
        )
        .with_columns(
            mean_regret=pl.col("regret") / rounds,
            mean_regret_half=pl.col("regret_half") / rounds,
        )
        .drop("regret", "regret_half")
        .join(
            trajectory.select("round", suboptimality=suboptimality),
            on="round",
            maintain_order="left",
        )
    )


def summarise(records: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """What ``statistics.summarise`` gives for each n, and the means over rounds.

    The means are ``round_time`` and ``mean_regret``.
    """
    frames = []
    for n, frame in records.items():
        totals = statistics.summarise(frame)
        sums = totals.filter(pl.col("quantity").is_in(["runtime", "regret"]))
        means = sums.with_columns(
            pl.col("quantity").replace({"runtime": "round_time", "regret": "mean_regret"}),
            pl.col("mean", "low", "high") / pl.lit(frame["round"].max()),
        )
        joint = pl.concat([totals, means])
        frames.append(joint.select(pl.lit(n, pl.Int64).alias("n"), pl.all()))
    return pl.concat(frames)


def remark(rounds: int, left: float) -> str:
    """A sentence on what is not as published.

    Args:
        rounds: The number of rounds played.
        left: f - f* after the last round.
    """
    if rounds == PUBLISHED_ROUNDS:
        return f"This is the published length; f - f* ends at {left:.3g}."
    return (
        f"The published curves have {PUBLISHED_ROUNDS:,} rounds and these have {rounds:,}, with the"
        f" published problem, step size and task times: they end at f - f* = {left:.3g}, earlier"
        " than the published ones, and what ata and ata-empirical have learned until then gives"
        f" other ratios and means than the published end. --rounds {PUBLISHED_ROUNDS} plays them"
        " all."
    )


@dataclass(frozen=True)
class QuadraticFigure(Scenarios):
    """The paper's quadratic, trained once, on the clocks of pools of several sizes."""

    name: ClassVar[str] = "quadratic"

    growth: str
    """How the mean task times grow with the worker, or ``"mixed"``."""
    training: Training

    @property
    def rounds(self) -> int:
        """The number of optimiser steps."""
        return next(iter(self.benchmarks.values())).experiment.rounds

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        open_training(self.training, self.rounds, folder)
        jobs = [
            job
            for name, benchmark in self.benchmarks.items()
            for job in benchmark.begin(folder / name, command)
        ]
        note = {"folders": [*self.benchmarks], "growth": self.growth}
        write_note(folder, self.name, command, note)
        return jobs

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        store = open_training(self.training, self.rounds, folder)
        keep_trajectory(self.training, store, self.rounds, effort)
        return super().run(folder, jobs, effort)

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, _QUADRATIC_NOTE)
        reports = scenario_reports(folder)
        notes = {name: read_note(folder / name) for name in reports}
        return _QuadraticContent(note, notes, reports, read_trajectory(folder)).report()

    def leave(self, report: Report, folder: Path) -> LeftFiles:
        return leave(report, folder)


_QUADRATIC_NOTE = fields({"growth": text})


@dataclass(frozen=True)
class _QuadraticContent:
    """What the tables, the picture and the page of the quadratic are made of."""

    note: Note
    notes: Mapping[str, Note]
    """The notes of the pools of which a policy has finished, by folder."""
    reports: Mapping[str, Report]
    """The reports on the clocks of these pools."""
    trajectory: pl.DataFrame

    @cached_property
    def records(self) -> dict[int, pl.DataFrame]:
        """The records of the policies for each number of workers."""
        return {
            self.notes[name]["workers"]: report.records for name, report in self.reports.items()
        }

    @cached_property
    def size(self) -> Sizes:
        """The sizes of the first pool."""
        return sizes(next(iter(self.notes.values())))

    @cached_property
    def curves(self) -> pl.DataFrame:
        return suboptimality_on_clocks(self.trajectory, self.records)

    @cached_property
    def summary(self) -> pl.DataFrame:
        return summarise(self.records)

    @property
    def about(self) -> str:
        """The budget, rounds and seeds in words."""
        return f"B = {self.size.budget}, {self.size.length}"

    def report(self) -> Report:
        """Make the report."""
        growth = self.note["growth"]
        if growth == "mixed":
            name = "icml2025-mixed"
        else:
            name = f"icml2025-quadratic, {growth}"
        tables = [*self._tables().values()]
        first = next(iter(self.reports.values()))
        samples = dict(first.samples)
        for report in self.reports.values():
            samples |= report.samples
        records = [report.records for report in self.reports.values()]
        return Report(
            title=f"{name} ({self.about})",
            summary=self.summary,
            tables=tables,
            findings="\n".join(self._sentences()),
            samples=samples,
            records=pl.concat(records, how="diagonal"),
            page=self.page,
            files={
                f"{growth}.md": markdown(tables),
                f"{growth}.csv": self.summary,
                f"{growth}-curves.csv": self.curves,
            },
            pictures={growth: self.drawing()},
            remarks=first.remarks,
        )

    def page(self) -> Page:
        """Make the page, on which the reader chooses the pool."""
        tables = self._tables()
        pages = {}
        for name, report in self.reports.items():
            n = self.notes[name]["workers"]
            page = report.page()
            note = "Ratios are on the same seeds; means are over all rounds."
            sections: list[Tables | Chart] = [
                section_of("quadratic", tables[n], note),
                *self._charts(n),
            ]
            pages[self.notes[name]["title"]] = page._replace(
                sections=[*sections, *page.sections],
            )
        page = joined(pages)
        return page._replace(
            study=self.note["study"],
            command=self.note["command"],
            remarks=[*page.remarks, *self._sentences()],
        )

    def drawing(self) -> Drawing:
        """The picture, with a column for each number of workers."""
        columns = {}
        for n, records in self.records.items():
            panels = [Panel(chart) for chart in self._charts(n)]
            panels += [
                Panel(
                    charts.curves(records, quantity, self._places(), self.size.seeds),
                    per_round=True,
                )
                for quantity in ("runtime", "regret")
            ]
            columns[n] = panels
        rows = [
            [panel._replace(in_table=True) for panel in row]
            for row in zip(*columns.values(), strict=True)
        ]
        rows[0] = [
            panel._replace(title=f"n = {n}") for n, panel in zip(columns, rows[0], strict=True)
        ]
        return Drawing(rows, [*self._places()])

    def _places(self) -> dict[str, int]:
        policies = next(iter(self.notes.values()))["policies"]
        return {policy["name"]: place for place, policy in enumerate(policies)}

    def _charts(self, n: int) -> list[Chart]:
        curves = self.curves.filter(n=n)
        return charts.against_clocks(curves, "suboptimality", "f - f*", self._places())

    def _tables(self) -> dict[int, Table]:
        """The table of each number of workers."""
        growth = self.note["growth"]
        return {
            n: summary_table(
                f"n = {n}: {growth}, {self.about}", self.summary.filter(n=n), _QUANTITIES
            )
            for n in self.records
        }

    def _sentences(self) -> list[str]:
        """What is not as published, and which clocks are equal."""
        if self.note["growth"] == "mixed":
            sentences = [_MIXED_NOTE]
        else:
            last = self.curves.row(-1, named=True)
            sentences = [remark(last["round"], last["suboptimality"])]
        if self.size.seeds == 1:
            sentences.append(ONE_SEED)
        for n, records in self.records.items():
            equal_clocks = losses.equal_clocks_note(records)
            if equal_clocks:
                sentences.append(f"n = {n}: {equal_clocks}")
        sentences += [beside_norms(scenario(note["title"])) for note in self.notes.values()]
        return sentences


def quadratic_training(budget: int) -> Training:
    """The paper's quadratic with its optimiser, in compiled rounds."""
    return Training("quadratic", CompiledQuadratic(Quadratic(), budget))
