"""The report on the policies of one scenario or several: tables, charts, pictures and the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ata_gym.bench.experiment import group_edges
from ata_gym.bench.report import charts, losses
from ata_gym.bench.report.headline import headline, leaders
from ata_gym.bench.report.page.sections import Chart, Page, Series, Tables, joined
from ata_gym.bench.report.pictures import Drawing, Panel, against_clocks, sums_and_means
from ata_gym.bench.report.quantities import CURVES, REGRETS, is_known, noun
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import overview, summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.bench.store.folder import Folder, finished, read_frame
from ata_gym.bench.store.note import (
    Note,
    kinds_in_words,
    lower_bound_of,
    not_finished,
    roles,
    sizes,
)
from ata_gym.typing import Floats

Tasks = Mapping[str, tuple[Sequence[int], Floats]]
"""For each policy its recorded rounds, and the tasks of each group of workers in them.

The tasks have the shape (rounds, groups).
"""


def read_tasks(folder: Folder, policies: Sequence[str]) -> Tasks:
    """Read the tasks of workers, for each policy of which they were recorded."""
    tasks = {}
    for policy in policies:
        file = folder.allocations(policy)
        if finished(file):
            frame = read_frame(file)
            groups = np.array(frame["tasks"].to_list(), np.float64)
            tasks[policy] = (frame["round"].to_list(), groups)
    return tasks


def report_on(
    note: Note,
    records: pl.DataFrame,
    tasks: Tasks,
    origins: Sequence[tuple[str, str]] = (),
) -> Report:
    """Make the report on one scenario from records.

    Args:
        note: The note of the benchmark.
        records: The records of the policies that have finished.
        tasks: The tasks of their workers, as ``read_tasks`` returns them.
        origins: Versions, commit and machine.
    """
    size = sizes(note)
    summary = summarise(records, size.price)
    samples = ends(records, size.price)
    tables = summary_tables(summary, size)
    findings = headline(samples, roles(note))
    if is_known(records, "cost_regret"):
        findings += f"\n{REGRETS}"
        if bound := lower_bound_of(note):
            findings += f"\n{bound.after(size.rounds)}"
    if note["loss_curve"] is not None:
        findings += f"\n{losses.SAME}"
    content = _BenchmarkContent(note, summary, records, tasks, origins)
    scenario = pl.lit(size.title).alias("scenario")
    return Report(
        title=f"{size.about}, {size.length}",
        summary=summary.select(scenario, pl.all()),
        tables=tables,
        findings=findings,
        samples={size.title: samples},
        records=records.select(scenario, pl.all()),
        page=content.page,
        files={"table.md": markdown(tables), "table.csv": summary},
        pictures=content.pictures(),
        remarks=note["remarks"],
    )


@dataclass(frozen=True)
class _BenchmarkContent:
    """What the page and the pictures of one scenario are made of."""

    note: Note
    summary: pl.DataFrame
    records: pl.DataFrame
    tasks: Tasks
    origins: Sequence[tuple[str, str]]

    @property
    def places(self) -> dict[str, int]:
        """The place of each policy in the list of the page."""
        return {policy["name"]: place for place, policy in enumerate(self.note["policies"])}

    def curves(self) -> dict[str, Chart]:
        """The charts of the quantities that are known, by quantity."""
        curves = {
            quantity: charts.curves(self.records, quantity, self.places, self.note["seeds"])
            for quantity in CURVES
            if is_known(self.records, quantity)
        }
        bound = lower_bound_of(self.note)
        if bound is not None and "regret" in curves:
            learners = [self.places[role.policy] for role in roles(self.note) if role.learns]
            curves["regret"] = charts.with_lower_bound(curves["regret"], bound, learners)
        return curves

    def losses(self) -> list[Chart]:
        """The charts of the loss against both clocks; none without a loss curve."""
        curve = self.note["loss_curve"]
        if curve is None:
            return []
        figures = losses.on_clocks(losses.frame_of(curve), self.records)
        return charts.against_clocks(figures, "loss", "loss", self.places)

    def pictures(self) -> dict[str, Drawing]:
        """The pictures of a folder, by name."""
        names = [*self.places]
        curves = self.curves()
        rows = {
            "runtime": sums_and_means(curves["runtime"]),
            "worker_time": sums_and_means(curves["total_worker_time"]),
            "regret": [Panel(curves[name]) for name in ("regret", "cost_regret") if name in curves],
        }
        pictures = {name: Drawing([panels], names) for name, panels in rows.items() if panels}
        clock_charts = self.losses()
        if clock_charts:
            note = losses.equal_clocks_note(self.records)
            pictures["loss"] = Drawing(against_clocks([clock_charts]), names, note)
        return pictures

    def page(self) -> Page:
        """The page."""
        note = self.note
        size = sizes(note)
        remarks = [*note["remarks"]]
        if note["loss_curve"] is not None:
            remarks.append(losses.SAME)
        remarks += not_finished(note, self.records["policy"])
        samples = ends(self.records, size.price)
        return Page(
            study=note["study"],
            title=size.title,
            lead=headline(samples, roles(note)),
            facts=[*size.facts(), ("policies", f"{len(note['policies'])}")],
            series=[Series(policy["name"], policy["kind"]) for policy in note["policies"]],
            sections=self._sections(leaders(samples, roles(note))),
            cards=[note["scenario"], *(policy["card"] for policy in note["policies"])],
            command=note["command"],
            origin=self.origins,
            remarks=remarks,
        )

    def _sections(self, best: Sequence[str]) -> list[Tables | Chart]:
        """The sections of the page; ``best`` are the best policies of each env."""
        size = sizes(self.note)
        sections: list[Tables | Chart] = [
            overview(self.summary, size, kinds_in_words(self.note), best),
            *self.losses(),
            *self.curves().values(),
            charts.front(self.summary, self.places, size.seeds),
        ]
        if self.tasks:
            # The best policies come first, since the page shows the first picture when it opens.
            order = sorted(self.tasks, key=lambda name: name not in best)
            groups = np.diff(group_edges(size.workers)).tolist()
            tasks = {name: self.tasks[name] for name in order}
            sections.append(charts.allocations(tasks, groups, size.budget))
        if size.seeds > 1:
            samples = ends(self.records, size.price)
            by_quantity = (
                (noun(name), {"quantity": noun(name)}, values_by_policy)
                for name, values_by_policy in samples.items()
            )
            sections.append(charts.spread(by_quantity, self.places))
        return sections


def joint_report(reports: Sequence[Report]) -> Report:
    """Join the reports on several scenarios; a picture has a row of panels for each of them."""
    rows: dict[str, list[Sequence[Panel]]] = {}
    drawings: dict[str, Drawing] = {}
    for report in reports:
        (scenario,) = report.samples
        for name, drawing in report.pictures.items():
            assert isinstance(drawing, Drawing)
            for panels in drawing.rows:
                titled = [panel.titled(scenario) for panel in panels]
                rows.setdefault(name, []).append(titled)
            drawings.setdefault(name, drawing)
    return Report(
        title="; ".join(report.title for report in reports),
        summary=pl.concat(report.summary for report in reports),
        tables=[table for report in reports for table in report.tables],
        findings="\n".join(f"{next(iter(r.samples))}:\n{r.findings}" for r in reports),
        samples={name: sample for report in reports for name, sample in report.samples.items()},
        records=pl.concat((report.records for report in reports), how="diagonal"),
        page=_JointPage(reports),
        pictures={
            name: replace(drawing, rows=rows[name], note="") for name, drawing in drawings.items()
        },
        remarks=[*dict.fromkeys(remark for report in reports for remark in report.remarks)],
    )


@dataclass(frozen=True)
class _JointPage:
    """The page of several scenarios, of which the reader chooses one."""

    reports: Sequence[Report]

    def __call__(self) -> Page:
        """Make the page."""
        return joined({next(iter(report.samples)): report.page() for report in self.reports})
