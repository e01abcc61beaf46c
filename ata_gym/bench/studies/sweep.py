"""Sweeps: the same policies on one scenario, with a parameter at several values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import polars as pl
from matplotlib.ticker import NullLocator

from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import what_counts
from ata_gym.bench.report.page.sections import (
    Chart,
    Column,
    Page,
    Series,
    Tables,
    TableView,
    View,
)
from ata_gym.bench.report.quantities import title
from ata_gym.bench.report.report import LeftFiles, Report, leave
from ata_gym.bench.report.summary_tables import band, over_seeds, show
from ata_gym.bench.report.table import LEFT, Cell, Table, markdown, right
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Results
from ata_gym.bench.runner.study import Study, play
from ata_gym.bench.store.note import read_note, write_note
from ata_gym.bench.studies.benchmark import Benchmark, finished_reports
from ata_gym.scenarios import Scenario, resolve
from ata_gym.scenarios.published import with_workers
from ata_gym.utils.files import json_files
from ata_gym.utils.files.atomic import file_name
from ata_gym.utils.validation import short, whole_number
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES
from ata_policies.lb_bsp.cpu import PREDICTORS
from ata_policies.presets import Preset
from ata_policies.registry import RegisteredPolicy, load, parse

_SIZES = ("budget", "price", "rounds")
"""The parameters that are arguments of an experiment."""

_OF_EXPERIMENTS = (*_SIZES, "workers")
"""The parameters that are not hyperparameters of policies."""

_INTERVAL = ("mean", "low", "high")

_PARTS = {"estimate": ESTIMATES, "memory": MEMORIES, "rule": RULES, "predictor": PREDICTORS}
"""The hyperparameters that name a part of a policy, which has some of its own."""


def _number_or_text(name: str, value: Any) -> None:
    """Check a value of a note."""
    if not isinstance(value, int | float | str):
        raise ValueError(  # noqa: TRY004 - as all rules of notes do
            f"{name} must be a number or a text, not {short(value)}",
        )


_NOTE = json_files.fields(
    {
        "scenario": json_files.text,
        "parameter": json_files.text,
        "seeds": whole_number,
        "points": json_files.items(
            json_files.fields(
                {
                    "folder": json_files.inner_path,
                    "value": _number_or_text,
                    "names": json_files.fields({}, other_fields=json_files.text),
                },
            ),
        ),
    },
)
"""The rule of the note of a sweep."""


class Point(NamedTuple):
    """One value of the parameter."""

    value: Any
    """A number, or a text."""
    names: dict[str, str]
    """For each policy, by the name that was given, the name under which it plays."""
    benchmark: Benchmark


def sweep(
    policies: Policies,
    scenario: str | Scenario,
    parameter: str,
    values: Sequence[Any],
    *,
    out: str | Path | None = None,
    command: Sequence[str] = (),
    **options: Any,
) -> Results:
    """Play policies on a scenario at several values of one parameter, all values side by side.

    Args:
        policies: The policies, as for ``run``.
        scenario: A scenario or its name.
        parameter: Budget, price, rounds, workers (their number, in a published scenario, whose
            workers follow a formula of it), or a hyperparameter, such as alpha of ata: policies
            that do not have it play as they are.
        values: The values of the parameter, numbers or texts; each counts once.
        out: A folder with a folder for each value, which holds what ``run`` leaves, and may go on
            from.
        command: The words by which a page says how to repeat this; by default this call.
        options: Rounds, seeds, seed, budget, price, jobs, save_every, rerun_changed and runner, as
            for ``run``.

    Returns:
        Results whose table has the columns policy, value, quantity, mean, low and high: the
        runtime, or the cost where worker time has a price, and where OFTA has played the ratio to
        the same quantity of OFTA.

    Raises:
        ValueError: Where ``run`` raises one, and if no policy has the hyperparameter.

    Example:
        >>> from ata_gym import bench
        >>> size = {"rounds": 20, "seeds": 2, "jobs": 1}
        >>> results = bench.sweep("ofta,uta", "five-workers", "budget", [4, 8], **size)
        >>> results.table().filter(policy="uta")["mean"].round(2).to_list()
        [2.04, 2.35]
    """
    policies_by_name = by_name(policies)
    values = [*{str(value): value for value in values}.values()]
    sizes: dict[str, Any] = {"seeds": options.pop("seeds", 8)}
    sizes |= {name: options.pop(name) for name in (*_SIZES, "seed") if name in options}
    if not values:
        raise ValueError(f"name at least one value of {parameter}")
    if not all(isinstance(value, Real) for value in values):
        values = [*map(str, values)]
    takers = _takers(parameter, policies_by_name)
    if sizes.get(parameter):
        raise ValueError(
            f"{parameter} is what is swept: leave its other value, {sizes[parameter]}, out",
        )
    resolved = resolve(scenario, budget=sizes.get("budget"), price=sizes.get("price"))
    effort = Effort(**options)
    points = {}
    for value in values:
        if parameter == "workers":
            played = with_workers(resolved, value)
        else:
            played = resolved
        size = dict(sizes)
        if parameter in _SIZES:
            size[parameter] = value
        names = {name: name for name in policies_by_name}
        names |= {
            name: f"{name}:{parameter}={value}" for name in policies_by_name if name in takers
        }
        experiment = Experiment.on_scenario(played, **size)
        benchmark = Benchmark(policies_by_name, experiment, [*names.values()])
        points[file_name(f"{parameter}-{value}")] = Point(value, names, benchmark)
    scenario_name = resolved.name or "a scenario without a name"
    call = (
        f"bench.sweep({[*policies_by_name]}, {scenario_name!r}, {parameter!r}, {values},"
        " out='results/sweep')"
    )
    page_command = command or ["python", "-c", f"from ata_gym import bench; {call}"]
    return play(Sweep(policies_by_name, parameter, points), out, effort, page_command)


@dataclass(frozen=True)
class Sweep(Study):
    """Policies on one scenario at several values of a parameter."""

    name: ClassVar[str] = "sweep"

    parameter: str
    points: Mapping[str, Point]
    """What is played at each value, by the name of its folder."""

    def check(self) -> None:
        for point in self.points.values():
            point.benchmark.check()

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        experiment = next(iter(self.points.values())).benchmark.experiment
        note = {
            "scenario": experiment.sizes.title,
            "parameter": self.parameter,
            "seeds": experiment.seeds,
            "points": [
                {"folder": name, "value": point.value, "names": point.names}
                for name, point in self.points.items()
            ],
        }
        write_note(folder, self.name, command, note)
        return [
            job
            for name, point in self.points.items()
            for job in point.benchmark.begin(folder / name, command)
        ]

    def label(self, job: Job) -> str:
        (point,) = (point for name, point in self.points.items() if name == job.folder.path.name)
        (policy,) = (policy for policy, name in point.names.items() if name == job.policy)
        return f"{policy} at {self.parameter} = {point.value}"

    @staticmethod
    def report(folder: Path) -> Report:
        return _report(folder, _reports(folder))

    def leave(self, report: Report, folder: Path) -> LeftFiles:
        for name, part in _reports(folder).items():
            leave(part, folder / name)
        return leave(report, folder)


def _reports(folder: Path) -> dict[str, Report]:
    """The reports on the values at which a policy has finished, by subfolder."""
    points = read_note(folder, _NOTE)["points"]
    return finished_reports(folder, [point["folder"] for point in points])


def _report(folder: Path, reports: Mapping[str, Report]) -> Report:
    """Make the report on a sweep from the reports on its values."""
    note = read_note(folder, _NOTE)
    first = next(iter(reports))
    (names,) = (point["names"] for point in note["points"] if point["folder"] == first)
    swept = _Swept(
        title=f"{note['scenario']} by {note['parameter']}, {plural(note['seeds'], 'seed')}",
        parameter=note["parameter"],
        seeds=note["seeds"],
        values=[point["value"] for point in note["points"]],
        policies=[*note["points"][0]["names"]],
        table=_table(note["points"], reports),
        names=names,
        first=reports[first].page,
    )
    shown = swept.shown()
    value = {point["folder"]: point["value"] for point in note["points"]}
    samples = {}
    records = []
    # Values often share a remark, which is shown once.
    remarks: dict[str, None] = {}
    for folder_name, report in reports.items():
        scope = f"{note['parameter']} = {value[folder_name]}"
        for scenario_samples in report.samples.values():
            samples[scope] = scenario_samples
        records.append(report.records.select(pl.lit(scope).alias("value"), pl.all()))
        remarks |= dict.fromkeys(report.remarks)
    return Report(
        title=swept.title,
        summary=swept.table,
        tables=[shown],
        findings="",
        samples=samples,
        records=pl.concat(records, how="diagonal"),
        page=swept.page,
        files={"sweep.md": markdown([shown]), "sweep.csv": swept.table},
        pictures={"sweep": swept.draw},
        remarks=[*remarks],
    )


def _table(points: Sequence[Mapping[str, Any]], reports: Mapping[str, Report]) -> pl.DataFrame:
    """The means and intervals of the quantity that counts, at each value.

    The columns are policy, value, quantity, mean, low, high. A policy that has failed has no row.
    """
    rows = []
    for point in points:
        if point["folder"] in reports:
            report = reports[point["folder"]]
            (samples,) = report.samples.values()
            quantity = what_counts(samples)
            if "ofta" in point["names"]:
                quantity += "/ofta"
            policy_by_name = {name: policy for policy, name in point["names"].items()}
            rows += [
                (policy_by_name[row["policy"]], point["value"], quantity, *map(row.get, _INTERVAL))
                for row in report.summary.filter(quantity=quantity).to_dicts()
            ]
    # types for a table without rows, and for columns without a number
    kinds = {
        "policy": pl.String,
        "quantity": pl.String,
        **dict.fromkeys(_INTERVAL, pl.Float64),
    }
    return pl.DataFrame(
        rows,
        ["policy", "value", "quantity", *_INTERVAL],
        schema_overrides=kinds,
        orient="row",
        strict=False,
    )


class _Swept(NamedTuple):
    """What the table, the picture and the page of a sweep are made of."""

    title: str
    parameter: str
    seeds: int
    values: Sequence[Any]
    policies: Sequence[str]
    table: pl.DataFrame
    names: Mapping[str, str]
    """For each policy the name under which it played at the first of the values."""
    first: Callable[[], Page]
    """What makes the page of that value."""

    @property
    def quantity(self) -> str:
        """What is compared, in words; where prices are swept, the cost."""
        names = self.table["quantity"].unique(maintain_order=True).to_list()
        dearest = max(names, key=lambda name: name.startswith("cost"), default="runtime")
        return title(dearest).replace("\n", " ")

    @property
    def heading(self) -> str:
        """The quantity at the beginning of a sentence."""
        return self.quantity[0].upper() + self.quantity[1:]

    def shown(self) -> Table:
        """The table for a terminal: a row for each policy, a column for each value."""
        cells = {
            (policy, value): show(mean, high)
            for policy, value, _, mean, _, high in self.table.rows()
        }
        rows = [
            (name, *(cells.get((name, value), "-") for value in self.values))
            for name in self.policies
        ]
        heading = f"{self.title}\n{self.quantity}, {over_seeds(self.seeds)}"
        columns = right(f"{self.parameter}\n{value}" for value in self.values)
        return Table(heading, {"policy": LEFT, **columns}, rows)

    def draw(self) -> style.Picture:
        """Draw a line for each policy, with its intervals."""
        numbers = isinstance(self.values[0], Real)
        # texts stand side by side, at 0, 1, 2, ...
        if numbers:
            position_by_value = dict(zip(self.values, self.values, strict=True))
        else:
            position_by_value = dict(zip(self.values, range(len(self.values)), strict=True))
        with style.figure(6.5, 3.8) as picture:
            axes = picture.subplots()
            for policy, line in style.lines(self.policies).items():
                rows = self.table.filter(policy=policy)
                positions = [position_by_value[value] for value in rows["value"]]
                mean = rows["mean"].to_numpy()
                errors = mean - rows["low"].to_numpy(), rows["high"].to_numpy() - mean
                axes.errorbar(
                    positions,
                    mean,
                    errors,
                    label=policy,
                    marker="o",
                    markersize=4,
                    capsize=3,
                    **line,
                )
            style.logarithmic(axes.yaxis)
            if numbers and max(self.values) >= 10 * min(self.values) > 0:
                scale = "log"
            else:
                scale = "linear"
            axes.set(xscale=scale, xlabel=self.parameter, title=self.quantity)
            axes.set_xticks([*position_by_value.values()], [*map(str, self.values)])
            axes.xaxis.set_minor_locator(NullLocator())
            style.legend(picture, axes.get_legend_handles_labels()[0])
        return picture

    def page(self) -> Page:
        """Make the page: the table, its picture, and the cards of the page of one value."""
        first = self.first()
        kinds = {line.name: line.kind for line in first.series}
        return first._replace(
            study=Sweep.name,
            title=self.title,
            lead="",
            facts=[fact for fact in first.facts if fact[0].split()[0] != self.parameter],
            series=[Series(name, kinds.get(played, "")) for name, played in self.names.items()],
            sections=[self._page_table(), *self._charts()],
        )

    def _page_table(self) -> Tables:
        means = {(policy, value): mean for policy, value, _, mean, _, _ in self.table.rows()}
        rows = []
        for name, *texts in self.shown().rows:
            cells = [
                Cell(text, means.get((name, value)))
                for text, value in zip(texts, self.values, strict=True)
            ]
            rows.append([Cell(name), *cells])
        columns = [Column("policy", False), *(Column(f"{value}") for value in self.values)]
        about = f"{self.heading}: {over_seeds(self.seeds)}; less is better."
        return Tables("sweep", f"By {self.parameter}", about, [TableView(columns, rows)])

    def _charts(self) -> list[Chart]:
        """The chart of the quantity against the parameter, if the values are numbers."""
        if not isinstance(self.values[0], Real):
            return []
        series = []
        for place, name in enumerate(self.names):
            rows = self.table.filter(policy=name)
            mean = rows["mean"].to_numpy()
            if len(rows):
                half = rows["high"].to_numpy() - mean
                x = rows["value"].to_numpy()
                series.append({"p": place, "x": x, "mean": mean, "half": half})
        settings = {
            "x": self.parameter,
            "y": self.quantity,
            "logX": min(self.values) > 0,
            "logY": True,
            "half": True,
        }
        view = View({"x": [], "series": series})
        heading = f"{self.heading} by {self.parameter}: lower is better"
        return [Chart("by-value", heading, band(self.seeds).strip(), "curves", [view], settings)]


def _takers(parameter: str, policies: Mapping[str, RegisteredPolicy | None]) -> set[str]:
    """The names of the policies that have a hyperparameter; none where the experiment has it.

    Raises:
        ValueError: If none has it, and it is no parameter of an experiment either.
    """
    if parameter in _OF_EXPERIMENTS:
        return set()
    hyperparameters = {
        name: _hyperparameters(name, given_policy) for name, given_policy in policies.items()
    }
    takers = {name for name, available in hyperparameters.items() if parameter in available}
    if not takers:
        sweepable = ", ".join(sorted({*_OF_EXPERIMENTS}.union(*hyperparameters.values())))
        raise ValueError(
            f"none of {', '.join(policies)} has a hyperparameter {parameter!r}; what can be swept:"
            f" {sweepable}",
        )
    return takers


def _hyperparameters(name: str, given_policy: RegisteredPolicy | None) -> set[str]:
    """The hyperparameters of a policy and of the parts that it is made of."""
    build: Any
    if given_policy is None:
        build = load(name)
    else:
        build = given_policy.maker
    chosen = parse(name)[1]
    if isinstance(build, Preset):
        build, chosen = build.build, {**build.hyperparameters, **chosen}
    parts: list[Any] = [
        choices[chosen[kind]]
        for kind, choices in _PARTS.items()
        if str(chosen.get(kind)) in choices
    ]
    own_names = {
        parameter.name
        for parameter in signature(build).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    names = set(own_names)
    for part in parts:
        names.update(field.name for field in fields(part))
    return names - {"seed"}
