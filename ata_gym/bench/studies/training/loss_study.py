"""A study of losses: a trajectory, the clocks of the policies, the methods, and the report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import losses
from ata_gym.bench.report.headline import headline
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.bench.role import Role
from ata_gym.bench.runner.play import play_with_bars
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.store.folder import Folder, Made, check_code
from ata_gym.bench.store.note import write_note
from ata_gym.bench.studies.training import comparison
from ata_gym.bench.studies.training.comparison import LossComparison, MethodChoice
from ata_gym.bench.studies.training.curves import LossReading, evaluations_on_clocks
from ata_gym.bench.studies.training.page import about
from ata_gym.bench.studies.training.trajectory import (
    Trained,
    Training,
    keep_trajectory,
    made_by_problem,
)
from ata_gym.training.trainer.trainer import Trainer


class Outcome(NamedTuple):
    """What a study leaves."""

    report: Report | None
    """The report; None if no policy has finished."""
    trained: Trained
    methods: Sequence[Path]
    """The files of the methods."""
    failures: dict[str, Exception]
    """The error of each policy that failed."""
    diverged: dict[str, FloatingPointError]
    """The error of each method whose loss was not finite."""


@dataclass(frozen=True)
class LossStudy:
    """Compare policies and methods by the time until the loss of a training is low.

    The time is the runtime, and the worker time.

    Raises:
        ValueError: For a method that cannot run on the pool or the problem.
    """

    experiment: Experiment
    policies: Sequence[str]
    trainer: Trainer
    """A trainer before its first round."""
    training: Training
    kind: str
    """The kind of the policies' learning rate, as ``rate_of_policies`` gives it."""
    methods: Sequence[MethodChoice] = ()

    def __post_init__(self) -> None:
        # The rates do not matter yet: what cannot have a rate is refused before anything runs.
        for choice in self.methods:
            choice.rate(self.experiment, self.trainer.problem, 1.0)

    def run(self, out: Path, command: Sequence[str] = ()) -> Outcome:
        """Play, train and report, with progress bars, or go on from where a killed run stopped.

        It raises what ``keep_trajectory`` raises.

        Args:
            out: The results folder.
            command: The words of the command that the page shows.
        """
        trained = keep_trajectory(self.training, self.trainer, self.experiment.config(), out)
        folder = trained.folder
        reading = LossReading.of(self.trainer.problem, self.experiment.rounds)
        compared = LossComparison(self.experiment, trained.trajectory, reading)
        # The clocks of the policies are recorded at the round of the goal, too.
        experiment = replace(self.experiment, also=(compared.goal.round,))
        jobs = [Job(experiment, policy, folder) for policy in dict.fromkeys(self.policies)]
        job_errors = play_with_bars(jobs, self.training.effort._replace(jobs=1))
        failures = {job.policy: error for job, error in job_errors.items()}
        methods, diverged = self._run_methods(folder)
        policy_report = None
        finished = [name for name in self.policies if name not in failures]
        if finished:
            other_kinds = comparison.other_kinds(methods, self.kind)
            records = folder.results(finished)
            compared = LossComparison(
                experiment,
                trained.trajectory,
                reading,
                methods,
                records,
                other_kinds,
            )
            note = about(compared, self.policies, self.trainer, self.kind)
            write_note(folder.path, "train", command, note)
            policy_report = report(compared, finished, folder, self.trainer, self.kind)
        return Outcome(
            policy_report,
            trained,
            [comparison.result(folder, choice) for choice in methods],
            failures,
            diverged,
        )

    def _run_methods(
        self,
        folder: Folder,
    ) -> tuple[dict[MethodChoice, pl.DataFrame], dict[str, FloatingPointError]]:
        made_by = made_by_problem(self.training.problem, LossComparison.__module__)
        runs = [
            Made(choice.label, (comparison.result(folder, choice),), made_by)
            for choice in self.methods
        ]
        check_code(runs, self.training.effort.rerun_changed)
        total = self.experiment.rounds * self.experiment.scenario.budget
        records: dict[MethodChoice, pl.DataFrame] = {}
        diverged: dict[str, FloatingPointError] = {}
        with progress_bars({choice.label: total for choice in self.methods}) as update:
            for choice in self.methods:
                try:
                    records[choice] = comparison.run_once(
                        choice,
                        self.trainer,
                        self.experiment,
                        folder,
                        partial(update, choice.label),
                        made_by,
                        self.training.threads,
                    )
                except FloatingPointError as error:
                    diverged[choice.label] = error
        return records, diverged


def report(
    compared: LossComparison,
    policies: list[str],
    folder: Folder,
    trainer: Trainer,
    kind: str,
) -> Report:
    """Compare policies and methods at a low loss, and leave tables and pictures in the folder."""
    experiment = compared.experiment
    reading = compared.reading
    goal = compared.goal
    problem = trainer.problem.name
    curves = compared.policy_curves()
    summary = compared.summary()
    if summary.filter(quantity="runtime")["mean"].is_null().any():
        missed = " (-: not reached)"
    else:
        missed = ""
    title = (
        f"{problem} to loss {goal.loss:.3g}, a hundredth of the first or the lowest{missed}\non"
        f" {experiment.about}"
    )
    lr = trainer.optimizer_choice.lr
    without_ratio = compared.without_ratio
    for note in (comparison.rate_note(lr, kind), comparison.no_ratio_note(without_ratio, kind)):
        title += "".join(f"\n{line}" for line in wrap(note, 96))
    tables = summary_tables(summary, replace(experiment, rounds=goal.round), title)
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary})
    if compared.methods:
        tables.append(compared.table(trainer))
    last_row = compared.trajectory.row(-1, named=True)
    figures = [
        f"{name.replace('_', ' ')} {last_row[name]:.4g}" for name in compared.trajectory.columns[2:]
    ]
    remark = (
        f"after all {experiment.rounds:,} rounds: {', '.join(figures)},"
        f" {reading.label().replace(chr(10), ' ')}: {curves['loss'][-1]:.4g}"
    )
    if compared.methods:
        remark = f"the policies, {remark}"
    note = losses.equal_clocks_note(compared.records)
    plots = folder.path / "plots"
    title = f"{problem}, trained on the clocks of the workers of {experiment.about}"
    if reading.exact:
        # Beside exact losses, no evaluations are drawn.
        evaluations = curves.head(0)
    else:
        evaluations = evaluations_on_clocks(compared.trajectory, compared.records)
    pictures = losses.draw(curves, evaluations, reading.label(), title, plots / "loss", note)
    best = headline(ends(compared.until_goal), map(Role.of, policies))
    first = f"To the loss {goal.loss:.3g}:\n{best}"
    remarks = "\n".join(filter(None, (first, remark, note)))
    return Report(summary, tables, files, pictures, remark=remarks)
