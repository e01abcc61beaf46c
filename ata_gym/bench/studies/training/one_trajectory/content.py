"""What a training shows: the loss against the clocks of policies and methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from textwrap import wrap

import polars as pl

from ata_gym.bench.report import charts, losses
from ata_gym.bench.report.headline import headline, leaders
from ata_gym.bench.report.page.sections import Chart, Page, Series, Tables, section_of
from ata_gym.bench.report.pictures import Drawing, against_clocks
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.report.summary_tables import overview, summary_tables
from ata_gym.bench.report.table import Table, markdown
from ata_gym.bench.store.note import Note, kinds_in_words, roles, sizes
from ata_gym.bench.studies.benchmark_report import Tasks, report_on
from ata_gym.bench.studies.training.curves import LossReading, evaluations_on_clocks
from ata_gym.bench.studies.training.methods import no_ratio_note, other_kinds, rate_note
from ata_gym.bench.studies.training.one_trajectory.comparison import LossComparison
from ata_gym.bench.studies.training.one_trajectory.tuning import at_the_end, tuning_table

_CLOCKS = {"runtime", "worker-time", "allocations"}
"""The sections of the page of a benchmark that are shown, too."""

_LINE = 96
"""The number of letters in a line above a table."""


@dataclass(frozen=True)
class LossContent:
    """What the tables, the pictures and the page of a training are made of."""

    note: Note
    trajectory: pl.DataFrame
    records: pl.DataFrame
    """The records of the policies that have finished."""
    methods: Mapping[str, pl.DataFrame]
    """The updates of the methods that have finished, by label."""
    tasks: Tasks
    origins: Sequence[tuple[str, str]]
    trials: pl.DataFrame | None
    """The trials of learning rates, as ``read_trials`` returns them; None without tuning."""

    @cached_property
    def compared(self) -> LossComparison:
        """The comparison at a low loss."""
        return LossComparison(
            sizes(self.note),
            self.note["points"],
            self.trajectory,
            LossReading(self.note["reading"]["over"], self.note["reading"]["exact"]),
            self.records,
            self.methods,
            self._other_kinds(),
        )

    def report(self) -> Report:
        """Make the report."""
        compared = self.compared
        tables = self._tables()
        files: dict[str, str | pl.DataFrame] = {}
        if self.trials is not None:
            files["rates.csv"] = self.trials
        summary = compared.summary()
        samples = ends(compared.until_goal, compared.sizes.price)
        steps = self.trajectory.select("round", loss=compared.reading(self.trajectory["loss"]))
        records = self.records.join(steps, on="round", how="left", maintain_order="left")
        return Report(
            title=f"{self.note['problem']}, trained with the workers of {compared.sizes.about}",
            summary=summary,
            tables=tables,
            findings=self._findings(),
            samples={compared.sizes.title: samples},
            records=pl.concat([records, *compared.method_curves()], how="diagonal_relaxed"),
            page=self.page,
            files={"table.md": markdown(tables), "table.csv": summary, **files},
            pictures={"loss": self.drawing()},
            remarks=self.note["remarks"],
        )

    def page(self) -> Page:
        """Make the page: the page of the clocks, with the losses before them."""
        note = self.note
        report_of_clocks = report_on(
            {**note, "loss_curve": None, "least_cost": None},
            self.records,
            self.tasks,
            self.origins,
        )
        clocks = report_of_clocks.page()
        series = self._series()
        charts_of_losses = chain.from_iterable(self._charts())
        charts_of_clocks = [section for section in clocks.sections if section.id in _CLOCKS]
        remarks = [*clocks.remarks]
        equal_clocks = losses.equal_clocks_note(self.records)
        if equal_clocks:
            remarks.append(equal_clocks)
        remarks += filter(None, self._rate_notes())
        return clocks._replace(
            study=note["study"],
            title=f"{note['problem']} on {note['title']}",
            lead=self._headline(),
            facts=[*clocks.facts, *self._last_figures()],
            series=series,
            sections=[
                self._overview(series),
                *self._rates(),
                *charts_of_losses,
                *charts_of_clocks,
            ],
            remarks=remarks,
        )

    def drawing(self) -> Drawing:
        """The picture of the loss and of each held-out figure against both clocks."""
        names = [line.name for line in self._series()]
        note = losses.equal_clocks_note(self.records)
        return Drawing(against_clocks(self._charts()), names, note)

    def _series(self) -> list[Series]:
        policies = [Series(policy["name"], policy["kind"]) for policy in self.note["policies"]]
        return [*policies, *(Series(label, "method") for label in self.methods)]

    def _charts(self) -> list[list[Chart]]:
        """For the loss and each held-out figure, the charts against both clocks."""
        compared = self.compared
        places = {line.name: place for place, line in enumerate(self._series())}
        curves = pl.concat(
            [compared.policy_curves(), *compared.method_curves()],
            how="diagonal_relaxed",
        )
        label = compared.reading.label()
        rows = [charts.against_clocks(curves, "loss", label, places)]
        # Where losses are exact, held-out figures say nothing more.
        if not compared.reading.exact:
            evaluations = evaluations_on_clocks(self.trajectory, self.records)
            for figure in self.trajectory.columns[2:]:
                title = figure.replace("_", " ")
                rows.append(charts.against_clocks(evaluations, figure, title, places))
        return rows

    def _tables(self) -> list[Table]:
        """The tables at the goal, of the methods if there are any, and of tried rates."""
        compared = self.compared
        summary = compared.summary()
        if summary.filter(quantity="runtime")["mean"].is_null().any():
            missed = " (-: not reached)"
        else:
            missed = ""
        heading = (
            f"{self.note['problem']} until the loss is {compared.goal.loss:.3g}, a hundredth of the"
            f" first or the lowest{missed}\non {compared.sizes.about}"
        )
        for sentence in self._rate_notes():
            heading += "".join(f"\n{line}" for line in wrap(sentence, _LINE))
        tables = summary_tables(
            summary,
            compared.sizes._replace(rounds=compared.goal.round),
            heading,
        )
        if self.methods:
            rates = {entry["label"]: entry["lr"] for entry in self.note["methods"]}
            tables.append(compared.table(rates))
        if self.trials is not None:
            tables.append(tuning_table(self.trials, self.note["tuning"], compared.sizes.budget))
        return tables

    def _findings(self) -> str:
        """Who is best at the goal, how the training ended, and which lines are equal."""
        compared = self.compared
        figures = [f"{name} {value}" for name, value in self._last_figures()]
        last_loss = compared.policy_curves()["loss"][-1]
        end = (
            f"after all {compared.sizes.rounds:,} rounds: {', '.join(figures)},"
            f" {compared.reading.label()}: {last_loss:.4g}"
        )
        if self.methods:
            end = f"the policies, {end}"
        lines = (self._headline(), end, losses.equal_clocks_note(self.records))
        return "\n".join(filter(None, lines))

    def _headline(self) -> str:
        """Who is best at the goal."""
        compared = self.compared
        scope = f"Until the loss is {compared.goal.loss:.3g}:"
        samples = ends(compared.until_goal, compared.sizes.price)
        return headline(samples, roles(self.note), scope)

    def _last_figures(self) -> list[tuple[str, str]]:
        """The figures of the trajectory's last evaluation, each with its name first."""
        last_row = self.trajectory.row(-1, named=True)
        return [
            (name.replace("_", " "), f"{last_row[name]:.4g}")
            for name in self.trajectory.columns[2:]
        ]

    def _other_kinds(self) -> dict[str, str]:
        kinds = {entry["label"]: entry["kind"] for entry in self.note["methods"]}
        return other_kinds({label: kinds[label] for label in self.methods}, self.note["kind"])

    def _rate_notes(self) -> list[str]:
        """Sentences on the learning rates."""
        kind = self.note["kind"]
        sentences = [
            rate_note(self.note["lr"], kind),
            no_ratio_note(self._other_kinds(), kind),
        ]
        if self.trials is not None:
            sentences.append(at_the_end(self.trials))
        return [sentence for sentence in sentences if sentence]

    def _rates(self) -> list[Tables]:
        """The table of the learning rates that were tried, if any were."""
        if self.trials is None:
            return []
        table = tuning_table(self.trials, self.note["tuning"], self.compared.sizes.budget)
        return [section_of("rates", table, "Each is compared at its best.")]

    def _overview(self, series: Sequence[Series]) -> Tables:
        compared = self.compared
        loss = compared.goal.loss
        kinds = {line.name: line.kind for line in series} | kinds_in_words(self.note)
        samples = ends(compared.until_goal, compared.sizes.price)
        best = leaders(samples, roles(self.note))
        explanation = (
            f"The time until the loss is {loss:.3g}, and the time that all workers were busy until"
            " then; less is better, - where it was not reached. Ratios are on the same seeds. Click"
            " on a title to sort."
        )
        tables = overview(compared.summary(), compared.sizes, kinds, best)
        return tables._replace(
            title=f"How soon each reaches a loss of {loss:.3g}", note=explanation
        )
