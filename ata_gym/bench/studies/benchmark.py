"""Policies are played on scenarios and compared, as by the command ``bench``."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl

from ata_gym.bench.experiment import Experiment, group_edges
from ata_gym.bench.report import charts, losses
from ata_gym.bench.report.headline import headline, leaders
from ata_gym.bench.report.page.sections import Chart, Page, Series, Tables, joined
from ata_gym.bench.report.pictures import Drawing, Panel, against_clocks, sums_and_means
from ata_gym.bench.report.quantities import CURVES, REGRETS, is_known, noun, with_cost_regret
from ata_gym.bench.report.report import LeftFiles, Report, leave
from ata_gym.bench.report.statistics import ends, summarise
from ata_gym.bench.report.summary_tables import overview, summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.bench.runner.cost_regret import (
    CostRun,
    best_allocation,
    gap_in_words,
    has_expected_costs,
    no_regret_in_words,
)
from ata_gym.bench.runner.jobs import Effort, Runner, on_this_machine
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.results import Results
from ata_gym.bench.runner.study import Study, play
from ata_gym.bench.store.folder import Folder, finished, open_folder, origin, read_frame
from ata_gym.bench.store.note import (
    EXPERIMENT,
    Note,
    NothingFinishedError,
    about_experiment,
    finished_policies,
    kinds_in_words,
    lower_bound_of,
    not_finished,
    read_note,
    roles,
    sizes,
    write_note,
)
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_gym.utils.files.atomic import file_name
from ata_gym.utils.files.json_files import fields, items, nullable, text
from ata_gym.utils.validation import non_negative

Tasks = Mapping[str, tuple[Sequence[int], Floats]]
"""For each policy its recorded rounds, and the tasks of each group of workers in them.

The tasks have the shape (rounds, groups).
"""

NOTE = fields(
    {**EXPERIMENT, "loss_curve": nullable(losses.kept_curve), "least_cost": nullable(non_negative)},
)
"""The rule of the note of a benchmark."""

_SCENARIOS_NOTE = fields({"folders": items(text)})
"""The rule of the note of several benchmarks."""


def run(
    policies: Policies,
    scenario: str | Scenario | Sequence[str | Scenario],
    *,
    rounds: int | None = None,
    seeds: int = 8,
    seed: int = 0,
    budget: int | None = None,
    price: float | None = None,
    loss_curve: losses.CurveLike | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    runner: Runner = on_this_machine,
    command: Sequence[str] = (),
) -> Results:
    """Play policies on a scenario, or on several ones, and compare them on the same luck.

    Each policy plays the same task times: seed e of one is seed e of every other one. Results
    depend neither on ``jobs`` nor on ``runner``. There is a PolicyFailedWarning for each policy
    that failed, and for one of yours that decides otherwise for a row alone than in a batch.

    Args:
        policies: Names (as ``ata_policies.make`` takes them), classes, or policies that are made
            already, which keep their own seed: one, a list of them, or a mapping from names of your
            own to classes and objects. Objects, and classes that no module holds, such as classes
            of a notebook, are played in this process; all others in processes of their own.
        scenario: A scenario or its name, or several ones, each of which has another name.
        rounds: The number of rounds in an episode, by default the horizon of each scenario.
        seeds: The number of episodes.
        seed: The first seed; neighbouring seeds follow.
        budget: The number B of results in a round, by default the budget of each scenario.
        price: What one unit of worker time costs in units of runtime, by default the price of each
            scenario.
        loss_curve: The loss of a training with B gradients a round: a CSV file, or columns,
            ``round`` and ``loss``, as for ``losses.loss_curve``. It is the same for all policies,
            where all workers draw from the same data; the report and ``Results.plot("loss")`` lay
            it over the clocks. By default there is none.
        out: A folder that keeps tables, pictures, records and a page; each of several scenarios has
            a folder in it. Killed or called again, the same call goes on where it was. Without it
            nothing is left on the disk.
        jobs: The number of policies that are played at once, each in a process, by default as many
            as processors; 1: in this process.
        save_every: Seconds between checkpoints.
        rerun_changed: Whether to play anew what was played by other code, which is refused
            otherwise.
        runner: Where policies are played: by default on this machine.
        command: The words by which the page says how to repeat this; by default this call.

    Raises:
        ValueError: If there is no such policy or scenario, a number is out of its range, a policy
            fails in its first round, the folder holds other results, or ``out`` is given for a
            policy whose source cannot be had.

    Example:
        >>> from ata_gym import bench
        >>> results = bench.run(["uta", "ofta"], "five-workers", rounds=50, seeds=4, jobs=1)
        >>> print(results.compare("ofta", "uta").sentence.partition(",")[0])
        ofta compared with uta: 54 % less runtime (51 to 56 %)
        >>> results.table().filter(policy="ofta", quantity="regret")["mean"].item()
        0.0
    """
    policies_by_name = by_name(policies)
    if isinstance(scenario, str | Scenario):
        scenarios = [scenario]
    else:
        scenarios = list(scenario)
    size: dict[str, Any] = {
        "rounds": rounds,
        "budget": budget,
        "seeds": seeds,
        "seed": seed,
        "price": price,
    }
    benchmarks = [
        Benchmark(
            policies_by_name,
            Experiment.on_scenario(setting, **size),
            loss_curve=loss_curve,
        )
        for setting in scenarios
    ]
    names = [benchmark.experiment.scenario.name for benchmark in benchmarks]
    if not names:
        raise ValueError("name at least one scenario")
    if len(names) > 1 and (len({*names}) < len(names) or not all(names)):
        raise ValueError("several scenarios need names, each another one: Scenario(..., name=...)")
    if isinstance(loss_curve, str | os.PathLike):
        curve_name = repr(str(loss_curve))
    else:
        curve_name = None
    page_command = command or _call(policies_by_name, scenarios, {**size, "loss_curve": curve_name})
    effort = Effort(jobs, save_every, rerun_changed, runner)
    study: Study
    if len(benchmarks) == 1:
        # one scenario has the folder of the results to itself
        study = benchmarks[0]
    else:
        by_folder = {
            file_name(name): benchmark for name, benchmark in zip(names, benchmarks, strict=True)
        }
        study = Scenarios(policies_by_name, by_folder)
    return play(study, out, effort, page_command)


@dataclass(frozen=True)
class Benchmark(Study):
    """Policies on one scenario."""

    name: ClassVar[str] = "bench"

    experiment: Experiment
    names: Sequence[str] = ()
    """The names under which policies play, with hyperparameters; by default those given."""
    loss_curve: losses.CurveLike | None = field(default=None, compare=False)
    """The loss of a training, as for ``run``."""
    remarks: Sequence[str] = ()
    """Sentences for the reader, beside those that follow from the experiment."""

    @property
    def played(self) -> list[str]:
        """The names under which policies play, each once."""
        return [*dict.fromkeys(self.names or self.policies)]

    def check(self) -> None:
        for name in self.played:
            self.experiment.try_out(name)
        self._kept_curve()

    def about(self) -> Note:
        """What the page needs to know."""
        note = about_experiment(self.experiment, self.played)
        no_regret = no_regret_in_words(self.experiment.scenario)
        note["remarks"] = [*self.remarks, *no_regret, *note["remarks"]]
        best = None
        if any(entry["env"] == "TaskAllocation" for entry in note["policies"]):
            best = best_allocation(self.experiment.scenario)
        least_cost = None
        if best is not None:
            least_cost = best.cost
            if has_expected_costs(self.experiment):
                note["remarks"] += gap_in_words(best)
        return note | {"least_cost": least_cost, "loss_curve": self._kept_curve()}

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        store = open_folder(folder, self.experiment.config())
        write_note(folder, self.name, command, self.about())
        return [Job(self.experiment, policy, store, CostRun) for policy in self.played]

    def doubts(self, folder: Path) -> list[str]:
        """Policies whose seeds are not independent; one that failed is not tried again."""
        store = Folder(folder)
        finished_names = [name for name in self.played if store.finished(name)]
        remarks = [*filter(None, map(self.experiment.dependence, finished_names))]
        if remarks:
            note = read_note(folder, NOTE)
            more = {**note, "remarks": [*remarks, *note["remarks"]]}
            write_note(folder, self.name, note["command"], more)
        return remarks

    def _kept_curve(self) -> dict[str, list[float]] | None:
        """The loss curve at the recorded rounds and some more."""
        if self.loss_curve is None:
            return None
        curve = losses.loss_curve(self.loss_curve, self.experiment.record_at())
        return curve.to_dict(as_series=False)

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, NOTE)
        store = Folder(folder)
        finished_names = finished_policies(folder, note)
        records = with_cost_regret(store.results(finished_names), note["least_cost"])
        return report_on(
            note,
            records,
            read_tasks(store, finished_names),
            origin([store.result(name) for name in finished_names]),
        )


@dataclass(frozen=True)
class Scenarios(Study):
    """Policies on several scenarios, each of which has a folder of its own."""

    name: ClassVar[str] = "scenarios"

    benchmarks: Mapping[str, Benchmark]
    """What is played on each scenario, by the name of its folder."""

    def check(self) -> None:
        for benchmark in self.benchmarks.values():
            benchmark.check()

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        write_note(folder, self.name, command, {"folders": [*self.benchmarks]})
        return [
            job
            for name, benchmark in self.benchmarks.items()
            for job in benchmark.begin(folder / name, command)
        ]

    def doubts(self, folder: Path) -> list[str]:
        return [
            doubt
            for name, benchmark in self.benchmarks.items()
            for doubt in benchmark.doubts(folder / name)
        ]

    def label(self, job: Job) -> str:
        return f"{job.policy} on {job.experiment.sizes.title}"

    @staticmethod
    def report(folder: Path) -> Report:
        return joint_report([*scenario_reports(folder).values()])

    def leave(self, report: Report, folder: Path) -> LeftFiles:
        for name, part in scenario_reports(folder).items():
            leave(part, folder / name)
        return leave(report, folder)


def scenario_reports(folder: Path) -> dict[str, Report]:
    """Return the reports of the scenarios in a folder, as ``finished_reports`` does."""
    return finished_reports(folder, read_note(folder, _SCENARIOS_NOTE)["folders"])


def finished_reports(folder: Path, subfolders: Iterable[str]) -> dict[str, Report]:
    """Return the reports of the benchmarks in which a policy has finished, by subfolder.

    Raises:
        NothingFinishedError: If none has finished in any of them.
    """
    reports = {}
    unfinished: NothingFinishedError | None = None
    for name in subfolders:
        try:
            reports[name] = Benchmark.report(folder / name)
        except NothingFinishedError as error:
            unfinished = error
    if unfinished is not None and not reports:
        raise unfinished
    return reports


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


def _call(
    policies: Mapping[str, Any],
    scenarios: Sequence[str | Scenario],
    size: Mapping[str, Any],
) -> list[str]:
    """The words of a command that repeats a call of ``run``."""
    names = [scenario if isinstance(scenario, str) else scenario.name for scenario in scenarios]
    options = "".join(f", {name}={value}" for name, value in size.items() if value is not None)
    return [
        "python",
        "-c",
        f"from ata_gym import bench; bench.run({[*policies]}, {names}{options}, out='results/run')",
    ]
