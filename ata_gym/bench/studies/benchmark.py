"""Policies are played on scenarios and compared, as by the command ``bench``."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import losses
from ata_gym.bench.report.quantities import with_cost_regret
from ata_gym.bench.report.report import LeftFiles, Report, leave
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
from ata_gym.bench.store.folder import Folder, open_folder, origin
from ata_gym.bench.store.note import (
    EXPERIMENT,
    Note,
    NothingFinishedError,
    about_experiment,
    finished_policies,
    read_note,
    write_note,
)
from ata_gym.bench.studies.benchmark_report import joint_report, read_tasks, report_on
from ata_gym.scenarios import Scenario
from ata_gym.utils.files.atomic import file_name
from ata_gym.utils.files.json_files import fields, items, nullable, text
from ata_gym.utils.validation import non_negative

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
        by_scenario = [
            benchmark.doubts(folder / name) for name, benchmark in self.benchmarks.items()
        ]
        # what shows on several scenarios is said once
        return [*dict.fromkeys(chain.from_iterable(by_scenario))]

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
