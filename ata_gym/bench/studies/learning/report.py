"""The report on a training: the agent compared with other policies on test seeds, and its curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import charts, style
from ata_gym.bench.report.headline import (
    DESCRIPTIONS,
    Samples,
    compared_with,
    more_or_less,
    with_intervals,
)
from ata_gym.bench.report.page.sections import (
    Chart,
    Column,
    Page,
    Series,
    Tables,
    TableView,
    View,
)
from ata_gym.bench.report.pictures import legend
from ata_gym.bench.report.quantities import noun
from ata_gym.bench.report.report import Report
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Cell, Table, markdown, right
from ata_gym.bench.role import LEARNER
from ata_gym.bench.store.note import EXPERIMENT, Note, sizes
from ata_gym.bench.studies.learning.experiment import (
    AGENT,
    END,
    PUBLISHED,
    START,
    UNIFORM,
    Evaluations,
    names_in,
    ratios,
    values,
)
from ata_gym.utils.files.json_files import fields, text
from ata_gym.utils.validation import whole_number

NOTE = fields(
    {
        **EXPERIMENT,
        **dict.fromkeys(("env", "algorithm", "action", "hyperparameters"), text),
        **dict.fromkeys(("steps", "rows", "validation_rows"), whole_number),
        "roles": fields(dict.fromkeys(("uniform", "default", "oracle"), text)),
        "refusals": fields({}, other_fields=text),
    },
)
"""The rule of the note of a training."""

_QUANTITIES = ("cost", "runtime", "total_worker_time")
"""The quantities that are compared on the test seeds."""


def report_on(
    note: Note,
    evaluations: Evaluations,
    origins: Sequence[tuple[str, str]] = (),
) -> Report:
    """Make the report on a training.

    Args:
        note: The note of the training.
        evaluations: What agents and references have got.
        origins: Versions, commit and machine.
    """
    content = _LearningContent(note, evaluations, origins)
    tables = [content.table()]
    summary = summarise(evaluations.test)
    scenario = pl.lit(note["title"]).alias("scenario")
    return Report(
        title=content.title,
        summary=summary.select(scenario, pl.all()),
        tables=tables,
        findings="\n".join([content.lead(), *content.refusals()]),
        samples={note["title"]: content.samples},
        records=evaluations.test.select(scenario, pl.all()),
        page=content.page,
        files={
            "table.md": markdown(tables),
            "table.csv": summary,
            "curve.csv": evaluations.curve,
        },
        pictures={"learning": content.draw},
        remarks=note["remarks"],
    )


def summarise(test: pl.DataFrame) -> pl.DataFrame:
    """Return geometric means of the ratios on the same seeds, with 95 % intervals.

    The columns are policy, quantity, over, mean, low and high.

    Args:
        test: Rows of ``SCHEMA`` for the test seeds.
    """
    rows = []
    for name in names_in(test):
        played = test.filter(policy=name)
        for quantity in _QUANTITIES:
            for reference, ratio in ratios(test, played, quantity).items():
                rows.append((name, quantity, reference, ratio))
    return estimates(rows, ["policy", "quantity", "over"])


@dataclass(frozen=True)
class _LearningContent:
    """What the table, the sentences, the picture and the page of a training are made of."""

    note: Note
    evaluations: Evaluations
    origins: Sequence[tuple[str, str]]

    @property
    def title(self) -> str:
        """The agent and the scenario."""
        note = self.note
        return (
            f"{note['algorithm']} with {note['action']} in {note['env']}, {note['title']}, price"
            f" {note['price']:g}"
        )

    @cached_property
    def names(self) -> Sequence[str]:
        """The policies that were played on the test seeds: first the agents."""
        return names_in(self.evaluations.test)

    @property
    def roles(self) -> dict[str, str]:
        """The policies whose costs divide the others, by role, of those that were played."""
        return {role: name for role, name in self.note["roles"].items() if name in self.names}

    @property
    def samples(self) -> Samples:
        """The values of the test seeds by quantity and policy; no cost without a price."""
        quantities = [*_QUANTITIES]
        if self.note["price"] == 0:
            quantities.remove("cost")
        return {quantity: self._values(quantity) for quantity in quantities}

    def _values(self, quantity: str) -> dict[str, Any]:
        return {name: values(self.evaluations.test, name, quantity) for name in self.names}

    @property
    def steps(self) -> dict[str, int]:
        """The steps of training of each agent on the test seeds: the kept, the first, the last."""
        curve = self.evaluations.curve
        return {AGENT: best_steps(curve), START: 0, END: int(curve["steps"][-1])}

    def shown_ratios(self) -> dict[tuple[str, str], str]:
        """The quantity and the divisor of each ratio of the table, with the title of its column."""
        pairs = [("cost", role) for role in self.roles]
        pairs += [(name, "uniform") for name in ("runtime", "total_worker_time")]
        return {
            (quantity, self.roles[role]): f"{noun(quantity)}\n/ {role}"
            for quantity, role in pairs
            if role in self.roles
        }

    def rows(self) -> dict[str, list[Cell]]:
        """The cells of each policy: its steps of training, if any, and the ratios of the table."""
        test = self.evaluations.test
        cells = {}
        for name in self.names:
            if name in self.steps:
                steps_cell = Cell(f"{self.steps[name]:,}", self.steps[name])
            else:
                steps_cell = Cell("-")
            cells[name] = [steps_cell]
            for quantity, divisor in self.shown_ratios():
                mean, _, high = ratios(test, test.filter(policy=name), quantity)[divisor]
                cells[name].append(Cell(show(mean, high), mean))
        return cells

    def table(self) -> Table:
        """The table for a terminal."""
        role_text = ", ".join(f"{role} is {name}" for role, name in self.roles.items())
        seeds_text = plural(self.note["seeds"], "test seed")
        columns = right(("after\nsteps", *self.shown_ratios().values()))
        rows = []
        for name, cells in self.rows().items():
            texts = [cell.text for cell in cells]
            rows.append((name, *texts))
        return Table(
            f"{self.title}\n{seeds_text}, geometric means; {role_text}",
            {"policy": LEFT, **columns},
            rows,
        )

    def refusals(self) -> list[str]:
        """A line for each reference that could not play."""
        return [f"left out: {name} ({reason})" for name, reason in self.note["refusals"].items()]

    def lead(self) -> str:
        """The lines on the kept agent, the first and the last one, by cost on the test seeds."""
        costs = {"cost": self._values("cost")}
        steps = self.steps
        uniform = {UNIFORM: DESCRIPTIONS[UNIFORM]}
        labels = dict(uniform)
        if self.note["env"] == "allocation":
            labels[PUBLISHED] = DESCRIPTIONS[PUBLISHED]
        labels |= {
            name: f"{name}, the {role}" for role, name in self.roles.items() if role != "uniform"
        }
        if steps[AGENT]:
            moment = f"after {steps[AGENT]:,} of {steps[END]:,} steps"
        else:
            moment = "before training, after 0 steps"
        if len(self.evaluations.curve) > 1:
            choice = (
                f", the best of {len(self.evaluations.curve)} evaluations on the validation seeds"
            )
        else:
            choice = ""
        (start,), (end,) = (compared_with(costs, name, uniform) for name in (START, END))
        change = more_or_less(Estimate.from_ratio(costs["cost"][END], costs["cost"][START]), "cost")
        lines = [
            f"The agent is kept as it was {moment}{choice}. On seeds that were never used before,"
            " it has",
            *(f"  {line}" for line in compared_with(costs, AGENT, labels)),
            "What training has changed, on the same seeds:",
            f"  the agent at the start, {start}",
            f"  the agent at the end, {end}",
            f"  the end compared with the start: {change}",
        ]
        return with_intervals(lines, len(costs["cost"][AGENT]))

    def validation_costs(self) -> dict[str, float]:
        """The cost of each reference over the uniform policy's cost, on the validation seeds."""
        validation = self.evaluations.validation
        return {
            name: ratios(validation, validation.filter(policy=name))[UNIFORM].mean
            for name in names_in(validation)
        }

    def draw(self) -> style.Picture:
        """Draw the costs of the agent and the references over the uniform policy's cost.

        Costs are on the validation seeds.
        """
        curve = self.evaluations.curve
        reference_costs = self.validation_costs()
        looks = style.lines([*self.names, *reference_costs])
        steps = curve["steps"].to_numpy()
        with style.figure(7.5, 3.8) as picture:
            axes = picture.subplots()
            costs = curve[f"cost/{UNIFORM}"].to_numpy()
            colour = looks[AGENT]["color"]
            axes.plot(steps, costs, color=colour, marker="o", markersize=3, label="agent", zorder=3)
            axes.scatter(
                [best_steps(curve)],
                [costs.min()],
                s=64,
                facecolor="white",
                edgecolor=colour,
                zorder=4,
            )
            for name, cost in reference_costs.items():
                axes.axhline(cost, label=name, **looks[name])
            axes.set(
                xlabel="steps of training (circle: the agent that is kept)",
                title=f"cost / cost of {UNIFORM}",
            )
            axes.margins(x=0.02)
            legend(picture, axes)
            axes.yaxis.set_major_formatter("{x:.3g}")
        return picture

    def page(self) -> Page:
        """The page."""
        note = self.note
        size = sizes(note)
        kinds = {entry["name"]: entry["kind"] for entry in note["policies"]}
        facts = [
            *size.facts(),
            ("env", note["env"]),
            ("algorithm", note["algorithm"]),
            ("action", note["action"]),
            ("hyperparameters", note["hyperparameters"]),
            ("steps of training", f"{note['steps']:,}"),
            ("rows in training", f"{note['rows']:,}"),
            ("validation seeds", f"{note['validation_rows']:,}"),
        ]
        return Page(
            study=note["study"],
            title=self.title,
            lead=self.lead(),
            facts=facts,
            series=[Series(name, kinds.get(name, LEARNER)) for name in self.names],
            sections=self._sections(kinds),
            cards=[note["scenario"], *(entry["card"] for entry in note["policies"])],
            command=note["command"],
            origin=self.origins,
            remarks=[*note["remarks"], *self.refusals()],
        )

    def _sections(self, kinds: Mapping[str, str]) -> list[Tables | Chart]:
        titles = ("after\nsteps", *self.shown_ratios().values())
        columns = [Column("policy", False), Column("kind", False, wide=True), *map(Column, titles)]
        rows = [
            [Cell(name), Cell(kinds.get(name, LEARNER)), *cells]
            for name, cells in self.rows().items()
        ]
        role_text = ", ".join(f"{role} is {name}" for role, name in self.roles.items())
        about = (
            f"On the test seeds: geometric means of ratios on the same seeds, and half the 95 %"
            f" interval; less is better. Of the divisors, {role_text}. Cost is runtime +"
            f" {self.note['price']:g} x worker time."
        )
        sections: list[Tables | Chart] = [
            Tables("overview", "All policies", about, [TableView(columns, rows)]),
            self._curve(),
        ]
        if self.note["seeds"] > 1:
            places = self._places()
            by_quantity = (
                (noun(name), {"quantity": noun(name)}, values_by_policy)
                for name, values_by_policy in self.samples.items()
            )
            sections.append(charts.spread(by_quantity, places))
        return sections

    def _places(self) -> dict[str, int]:
        """The place of each policy in the list of the page."""
        return {name: place for place, name in enumerate(self.names)}

    def _curve(self) -> Chart:
        """The chart of the costs on the validation seeds."""
        curve = self.evaluations.curve
        steps = curve["steps"].to_numpy()
        costs = {AGENT: (steps, curve[f"cost/{UNIFORM}"].to_numpy())}
        for name, cost in self.validation_costs().items():
            costs[name] = (steps[[0, -1]], np.full(2, cost))
        places = self._places()
        series = [
            {"p": places[name], "x": x, "mean": mean, "half": None}
            for name, (x, mean) in costs.items()
        ]
        settings = {
            "x": "steps of training",
            "y": f"cost / {UNIFORM}'s cost",
            "logX": False,
            "logY": False,
        }
        note = (
            "Geometric means over the validation seeds. The agent with the least cost is kept; the"
            " other policies do not learn from episode to episode, and have one value."
        )
        view = View({"x": [], "series": series})
        title = "Cost while the agent is trained: lower is better"
        return Chart("learning", title, note, "curves", [view], settings)


def best_steps(curve: pl.DataFrame) -> int:
    """Return the steps after which the agent was the best on the validation seeds.

    Of several, the first counts.

    Args:
        curve: A row for each evaluation.
    """
    return int(curve["steps"][int(curve[curve.columns[1]].arg_min() or 0)])
