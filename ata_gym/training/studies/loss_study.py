"""A study of losses from beginning to end: one trajectory, the clocks of the policies, the methods, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import play_all
from ata_gym.bench.experiment.store import Made, check_code
from ata_gym.bench.page.note import write_note
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.report import Report
from ata_gym.training.studies.comparison import MethodChoice, best, result, run_once
from ata_gym.training.studies.curves import Goal, LossReading, goal
from ata_gym.training.studies.kept_trajectory import Trained, Training, keep_trajectory
from ata_gym.training.studies.loss_report import report
from ata_gym.training.studies.page import about
from ata_gym.training.studies.trajectory import made_by_problem
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
    tune: bool = False  # whether methods without a learning rate get the best of the grid

    def __post_init__(self) -> None:
        for choice in self.methods:
            choice.rate(self.experiment, self.trainer.problem, 1.0)

    def run(self, out: Path, command: Sequence[str] = ()) -> Outcome:
        """Play, train and report, with progress bars, or go on from where a killed run stopped.

        ``command`` holds the words of the command that the page shows. It raises what ``keep_trajectory`` raises.
        """
        trained = keep_trajectory(self.training, self.trainer, self.experiment.config(), out)
        reading = LossReading.of(self.trainer.problem, self.experiment.rounds)
        low = goal(trained.trajectory, reading)
        experiment = replace(self.experiment, also=(low.round,))
        with progress_bars(dict.fromkeys(self.policies, experiment.rounds)) as update:
            effort = self.training.effort._replace(jobs=1)
            failures = play_all(experiment, self.policies, trained.folder, effort=effort, progress=update)
        frames, diverged = self._run_methods(trained, experiment, low, reading)
        made, finished = None, [name for name in self.policies if name not in failures]
        if finished:
            trained_in = trained.where.relative_to(trained.folder.path)
            note = about(experiment, self.policies, list(frames), trained.trainer, self.kind, trained_in)
            write_note(trained.folder.path, "train", command, note)
            made = report(
                experiment, finished, trained.folder, trained.trajectory, trained.trainer, frames, self.kind
            )  # fmt: skip
        return Outcome(made, trained, [result(trained.folder, choice) for choice in frames], failures, diverged)

    def _run_methods(
        self, trained: Trained, experiment: Experiment, low: Goal, reading: LossReading
    ) -> tuple[dict[MethodChoice, pl.DataFrame], dict[str, FloatingPointError]]:
        """The updates of each method at its best learning rate, and why the others could not continue."""
        tried = [choice.at_each_rate() if self.tune else [choice] for choice in self.methods]
        made_by = made_by_problem(self.training.problem, best.__module__)
        everything = [choice for choices in tried for choice in choices]
        files = [(choice.label, (result(trained.folder, choice),)) for choice in everything]
        check_code([Made(label, paths, made_by) for label, paths in files], self.training.effort.rerun_changed)
        total = experiment.rounds * experiment.scenario.budget
        frames: dict[MethodChoice, pl.DataFrame] = {}
        diverged: dict[str, FloatingPointError] = {}
        with progress_bars(dict.fromkeys((label for label, _ in files), total)) as update:
            for choices in tried:
                done, failed = {}, {}
                for choice in choices:
                    tell = partial(update, choice.label)
                    try:
                        done[choice] = run_once(
                            choice, trained.trainer, experiment, trained.folder, tell, made_by, self.training.threads
                        )
                    except FloatingPointError as error:
                        failed[choice.label] = error
                if done:
                    chosen = best(done, low, experiment, reading)
                    frames[chosen] = done[chosen]
                else:
                    diverged |= failed
        return frames, diverged
