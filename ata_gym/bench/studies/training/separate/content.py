"""What trainings that are separate show: where each ends, and its loss against both clocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from ata_gym.bench.experiment import Sizes, log_spaced, plural
from ata_gym.bench.report import charts
from ata_gym.bench.report.headline import Samples, headline
from ata_gym.bench.report.losses import CLOCKS
from ata_gym.bench.report.page.sections import Chart, Column, Page, Series, Tables, TableView
from ata_gym.bench.report.pictures import Drawing, against_clocks
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.report.table import LEFT, Cell, Table, markdown, right
from ata_gym.bench.store.note import Note, kinds_in_words, roles, sizes
from ata_gym.bench.studies.training.curves import FIRST_PART, LossReading

_COUNTS = ("policy", "round", "computed", "used")
"""The columns of records that are no figures."""

_SEPARATE = "Each trains a model of its own, from the same weights."


@dataclass(frozen=True)
class SeparateContent:
    """What the tables, the pictures and the page of separate trainings are made of."""

    note: Note
    results: Mapping[str, pl.DataFrame]
    """The rounds of each policy, and the updates of each method, which have finished."""
    origins: Sequence[tuple[str, str]]

    @cached_property
    def sizes(self) -> Sizes:
        return sizes(self.note)

    @cached_property
    def reading(self) -> LossReading:
        """How losses are read."""
        return LossReading(self.note["reading"]["over"], self.note["reading"]["exact"])

    @cached_property
    def read(self) -> dict[str, pl.DataFrame]:
        """The rounds of each with the loss as it is read, each mean over as many gradients."""
        frames = {}
        for name, frame in self.results.items():
            reading = self.reading.stretched(len(frame) / self.sizes.rounds)
            frames[name] = frame.rename({"update": "round"}, strict=False).with_columns(
                policy=pl.lit(name), loss=reading(frame["loss"].forward_fill())
            )
        return frames

    @cached_property
    def goal(self) -> float:
        """The loss at which all are compared.

        It is a hundredth of the first loss, or the lowest loss that all reach.
        """
        losses = [frame["loss"].drop_nulls().to_numpy() for frame in self.read.values()]
        first = max(float(loss[0]) for loss in losses)
        return max(first / FIRST_PART, *(float(loss.min()) for loss in losses))

    @cached_property
    def samples(self) -> Samples:
        """The clocks of the policies at the goal."""
        rows = []
        for policy in self.note["policies"]:
            name = policy["name"]
            if name in self.read:
                reached = self.read[name].filter(pl.col("loss") <= self.goal)
                rows.append(reached.select("policy", *CLOCKS, seed=0, round=0).head(1))
        return ends(pl.concat(rows), self.sizes.price)

    def report(self) -> Report:
        """Make the report."""
        if self.note["timed"]:
            about = f"{self._about()}, times in seconds"
        else:
            about = self._about()
        table = self._table()
        return Report(
            title=about,
            summary=self.summary(),
            tables=[table],
            findings=self._findings(),
            samples={self.sizes.title: self.samples},
            records=pl.concat(self.read.values(), how="diagonal_relaxed"),
            page=self.page,
            files={"table.md": markdown([table]), "table.csv": self.summary()},
            pictures={"loss": self.drawing()},
            remarks=self.note["remarks"],
        )

    def summary(self) -> pl.DataFrame:
        """The clocks and the figures of each at its end, and the cost where there is a price."""
        price = self.sizes.price
        summary = pl.concat(
            (frame.tail(1) for frame in self.read.values()),
            how="diagonal_relaxed",
        )
        columns = {}
        if price:
            columns["cost"] = pl.col("runtime") + price * pl.col("total_worker_time")
        return summary.select("policy", pl.exclude(_COUNTS), **columns)

    def drawing(self) -> Drawing:
        """The picture of the loss against both clocks."""
        return Drawing(against_clocks([self._charts()]), [line.name for line in self._series()])

    def page(self) -> Page:
        """Make the page."""
        note = self.note
        cards = [policy["card"] for policy in note["policies"]]
        if note["scenario"] is not None:
            cards.insert(0, note["scenario"])
        missing = [policy["name"] for policy in note["policies"] if policy["name"] not in self.read]
        remarks = [*note["remarks"]]
        if missing:
            remarks.append(
                f"Not finished, and not shown: {', '.join(missing)}. The same command goes on with"
                " them.",
            )
        return Page(
            study=note["study"],
            title=f"{note['problem']} on {self.sizes.title}",
            lead=self._findings(),
            facts=self.sizes.facts(),
            series=self._series(),
            sections=[self._overview(), *self._charts()],
            cards=cards,
            command=note["command"],
            origin=self.origins,
            remarks=remarks,
        )

    def _about(self) -> str:
        rounds = plural(self.sizes.rounds, "round")
        return f"{self.note['problem']} on {self.sizes.about}, {rounds}"

    def _findings(self) -> str:
        scope = (
            f"Until the loss is {self.goal:.3g}, a hundredth of the first or the lowest that all"
            " reach:"
        )
        return headline(self.samples, roles(self.note), scope)

    def _series(self) -> list[Series]:
        policies = [Series(policy["name"], policy["kind"]) for policy in self.note["policies"]]
        return [*policies, *(Series(label, "method") for label in self.note["methods"])]

    def _charts(self) -> list[Chart]:
        """The charts of the loss against both clocks.

        Times on real workers are shown for every round, other times at log-spaced rounds.
        """
        curves = []
        for frame in self.read.values():
            curve = frame.select("policy", "loss", *CLOCKS)
            if not self.note["timed"]:
                curve = curve[log_spaced(len(curve), self.note["points"]) - 1]
            curves.append(curve)
        places = {line.name: place for place, line in enumerate(self._series())}
        label = self.reading.label()
        return charts.against_clocks(pl.concat(curves), "loss", label, places, _SEPARATE)

    def _columns(self) -> list[str]:
        """The titles of the columns of figures."""
        names = self.summary().columns[1:]
        return [name.removeprefix("total_").replace("_", " ") for name in names]

    def _table(self) -> Table:
        rows = [
            (str(policy), *(f"{figure:.4g}" for figure in figures))
            for policy, *figures in self.summary().iter_rows()
        ]
        title = self._about()
        if self.note["timed"]:
            title += "\ntimes in seconds, as measured in this run"
        return Table(title, {"policy": LEFT, **right(self._columns())}, rows)

    def _overview(self) -> Tables:
        """The table of the page, in which what ends first stands first."""
        kinds = {line.name: line.kind for line in self._series()} | kinds_in_words(self.note)
        rows = []
        for name, *figures in self.summary().sort("runtime").iter_rows():
            cells = [Cell(f"{figure:.4g}", figure) for figure in figures]
            rows.append([Cell(name), Cell(kinds[name]), *cells])
        columns = [
            Column("policy", False),
            Column("kind", False, wide=True),
            *map(Column, self._columns()),
        ]
        if self.note["timed"]:
            unit = " Times are in seconds, as measured in this run."
        else:
            unit = ""
        note = (
            f"After {plural(self.sizes.rounds, 'round')}, or as many gradients: what it took, and"
            f" what was reached. {_SEPARATE}{unit}"
        )
        return Tables("overview", "Where each ends", note, [TableView(columns, rows)])
