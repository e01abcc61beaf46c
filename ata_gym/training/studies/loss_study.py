"""A study of losses from beginning to end: one trajectory, the clocks of the policies, the methods, and the report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.run import Job
from ata_gym.bench.experiment.store import Folder, Made, check_code
from ata_gym.bench.page.note import write_note
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report import losses
from ata_gym.bench.report.headline import Competitor, headline
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import ends
from ata_gym.bench.report.summary_tables import summary_tables
from ata_gym.bench.report.table import markdown
from ata_gym.bench.study import play_with_bars
from ata_gym.training.studies import comparison
from ata_gym.training.studies.comparison import Comparison, MethodChoice
from ata_gym.training.studies.curves import LossReading, evaluations_on_clocks
from ata_gym.training.studies.page import about
from ata_gym.training.studies.trajectory import Trained, Training, keep_trajectory, made_by_problem
from ata_gym.training.trainer.trainer import Trainer


class Outcome(NamedTuple):
    """What a study leaves."""

    report: Report | None  # None if no policy has finished
    trained: Trained
    methods: Sequence[Path]  # the files of the methods
    failures: dict[str, Exception]  # the error of each policy that failed
    diverged: dict[str, FloatingPointError]  # the error of each method whose loss was not finite


@dataclass(frozen=True)
class LossStudy:
    """Compare policies and methods by the runtime and the worker time until the loss of a training is low.

    A method that cannot run on the pool or the problem raises ``ValueError``.
    """

    experiment: Experiment
    policies: Sequence[str]
    trainer: Trainer  # a trainer before its first round
    training: Training
    kind: str  # the kind of the policies' learning rate, as ``rate_of_policies`` gives it
    methods: Sequence[MethodChoice] = ()

    def __post_init__(self) -> None:
        for choice in self.methods:
            choice.rate(self.experiment, self.trainer.problem, 1.0)

    def run(self, out: Path, command: Sequence[str] = ()) -> Outcome:
        """Play, train and report, with progress bars, or go on from where a killed run stopped.

        ``command`` holds the words of the command that the page shows. It raises what ``keep_trajectory`` raises.
        """
        trained = keep_trajectory(self.training, self.trainer, self.experiment.config(), out)
        folder, reading = trained.folder, LossReading.of(self.trainer.problem, self.experiment.rounds)
        compared = Comparison(self.experiment, trained.trajectory, reading)
        experiment = replace(self.experiment, also=(compared.goal.round,))
        jobs = [Job(experiment, policy, folder) for policy in dict.fromkeys(self.policies)]
        played = play_with_bars(jobs, self.training.effort._replace(jobs=1))
        failures = {job.policy: error for job, error in played.items()}
        methods, diverged = self._run_methods(folder)
        made, finished = None, [name for name in self.policies if name not in failures]
        if finished:
            unlike, records = comparison.other_kinds(methods, self.kind), folder.results(finished)
            compared = Comparison(experiment, trained.trajectory, reading, methods, records, unlike)
            note = about(compared, self.policies, self.trainer, self.kind)
            write_note(folder.path, "train", command, note)
            made = report(compared, finished, folder, self.trainer, self.kind)
        return Outcome(made, trained, [comparison.result(folder, choice) for choice in methods], failures, diverged)

    def _run_methods(self, folder: Folder) -> tuple[dict[MethodChoice, pl.DataFrame], dict[str, FloatingPointError]]:
        made_by = made_by_problem(self.training.problem, Comparison.__module__)
        made = [Made(one.label, (comparison.result(folder, one),), made_by) for one in self.methods]
        check_code(made, self.training.effort.rerun_changed)
        total = self.experiment.rounds * self.experiment.scenario.budget
        done: dict[MethodChoice, pl.DataFrame] = {}
        diverged: dict[str, FloatingPointError] = {}
        with progress_bars({one.label: total for one in self.methods}) as update:
            for one in self.methods:
                try:
                    done[one] = comparison.run_once(
                        one, self.trainer, self.experiment, folder, partial(update, one.label), made_by,
                        self.training.threads,
                    )  # fmt: skip
                except FloatingPointError as error:
                    diverged[one.label] = error
        return done, diverged


def report(compared: Comparison, policies: list[str], folder: Folder, trainer: Trainer, kind: str) -> Report:
    """Compare policies and methods at a low loss, and leave tables and pictures in the folder."""
    experiment, reading, low = compared.experiment, compared.reading, compared.goal
    problem, curves, summary = trainer.problem.name, compared.policy_curves(), compared.summary()
    missed = " (-: not reached)" if summary.filter(quantity="runtime")["mean"].is_null().any() else ""
    title = f"{problem} to loss {low.loss:.3g}, a hundredth of the first or the lowest{missed}\non {experiment.about}"
    lr, unlike = trainer.optimizer_choice.lr, compared.without_ratio
    for note in (comparison.rate_note(lr, kind), comparison.no_ratio_note(unlike, kind)):
        title += "".join(f"\n{line}" for line in wrap(note, 96))
    tables = summary_tables(summary, replace(experiment, rounds=low.round), title)
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary})
    if compared.methods:
        tables.append(compared.table(trainer))
    end = compared.trajectory.row(-1, named=True)
    figures = [f"{name.replace('_', ' ')} {end[name]:.4g}" for name in compared.trajectory.columns[2:]]
    remark = (
        f"{'the policies, ' * bool(compared.methods)}after all {experiment.rounds:,} rounds: {', '.join(figures)}, "
        f"{reading.label().replace(chr(10), ' ')}: {curves['loss'][-1]:.4g}"
    )
    note, plots = losses.equal_clocks_note(compared.records), folder.path / "plots"
    title = f"{problem}, trained on the clocks of the workers of {experiment.about}"
    exact = reading.exact
    evaluations = curves.head(0) if exact else evaluations_on_clocks(compared.trajectory, compared.records)
    pictures = losses.draw(curves, evaluations, reading.label(), title, plots / "loss", note)
    first = f"To the loss {low.loss:.3g}:\n{headline(ends(compared.until_goal), map(Competitor.of, policies))}"
    return Report(summary, tables, files, pictures, remark="\n".join(filter(None, (first, remark, note))))
