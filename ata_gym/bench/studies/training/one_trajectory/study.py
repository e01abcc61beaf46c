"""One trajectory for all policies, on the clock of each, beside training methods."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.report import LeftFiles, Report, leave
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.runner.results import Failure
from ata_gym.bench.runner.study import Study
from ata_gym.bench.store.folder import (
    Folder,
    Product,
    check_code,
    finished,
    open_folder,
    origin,
    read_frame,
)
from ata_gym.bench.store.note import (
    EXPERIMENT,
    Note,
    about_experiment,
    finished_policies,
    read_note,
    write_note,
)
from ata_gym.bench.studies.benchmark_report import read_tasks
from ata_gym.bench.studies.training.curves import LossReading, goal
from ata_gym.bench.studies.training.methods import TUNED, MethodChoice, result, run_once
from ata_gym.bench.studies.training.one_trajectory.content import LossContent
from ata_gym.bench.studies.training.one_trajectory.tuning import (
    POLICIES,
    TUNING,
    Tuning,
    chosen_rates,
    read_trials,
    tune,
)
from ata_gym.bench.studies.training.trajectory import (
    Training,
    keep_trajectory,
    trajectory_files,
    weights_file,
)
from ata_gym.utils.files.json_files import fields, items, nullable, number, text
from ata_gym.utils.validation import flag, whole_number

_NOTE = fields(
    {
        **EXPERIMENT,
        "problem": text,
        "points": whole_number,
        "reading": fields({"over": whole_number, "exact": flag}),
        "lr": nullable(number),
        "kind": text,
        "methods": items(fields({"label": text, "lr": nullable(number), "kind": nullable(text)})),
        "tuning": nullable(TUNING),
    },
)
"""The rule of the note of a training."""


@dataclass(frozen=True)
class LossStudy(Study):
    """Policies and methods compared by the time until the loss of a training is low.

    The policies share one trajectory, since an allocation never changes a gradient.
    """

    name: ClassVar[str] = "train"

    experiment: Experiment
    training: Training
    kind: str
    """The kind of the policies' learning rate, as ``rate_of_policies`` gives it."""
    methods: Sequence[MethodChoice] = ()
    tuning: Tuning | None = None
    """How learning rates are chosen; None where they are given."""

    def check(self) -> None:
        for policy in self.policies:
            self.experiment.try_out(policy)
        for choice in self.methods:
            choice.check(self.experiment, self.training.trainer)

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        experiment = self.experiment
        trainer = self.training.trainer
        config = experiment.config() | self.training.config()
        if self.tuning is None:
            tuning = None
        else:
            tuning = self.tuning.to_data()
            config["tuning"] = {name: tuning[name] for name in ("rounds", "seed")}
        store = open_folder(folder, config)
        lr = trainer.optimizer_choice.lr
        note = {
            **about_experiment(experiment, self.policies),
            "problem": trainer.problem.name,
            "points": experiment.points,
            "reading": asdict(LossReading.from_problem(trainer.problem, experiment.rounds)),
            "lr": lr,
            "kind": self.kind,
            "methods": [
                {
                    "label": choice.label,
                    "lr": choice.rate(experiment, trainer.problem, lr),
                    "kind": choice.kind,
                }
                for choice in self.methods
            ],
            "tuning": tuning,
        }
        write_note(folder, self.name, command, note)
        return [Job(experiment, policy, store) for policy in self.policies]

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        store = jobs[0].folder
        rounds = self.experiment.rounds
        training, methods = self._tuned(store, effort)
        trajectory = keep_trajectory(training, store, rounds, effort)
        reading = LossReading.from_problem(self.training.trainer.problem, rounds)
        # The clocks of the policies are recorded at the round of the goal, too.
        experiment = replace(self.experiment, also=(goal(trajectory, reading).round,))
        to_goal = [job._replace(experiment=experiment) for job in jobs]
        # In this process, which has torch already.
        failures = super().run(folder, to_goal, effort._replace(jobs=1))
        return failures | self._run_methods(training, methods, store, effort)

    def _tuned(self, store: Folder, effort: Effort) -> tuple[Training, Sequence[MethodChoice]]:
        """What is trained, and the methods, with the learning rates that are chosen."""
        if self.tuning is None:
            return self.training, self.methods
        trials = self.tuning.trials(self.experiment, self.training, self.methods, store.path)
        tune(trials, self.training, store, effort)
        rates = chosen_rates(read_trials(store.path, self.tuning.to_data()))
        methods = [
            replace(choice, lr=rates[choice.label], kind=TUNED) if choice.label in rates else choice
            for choice in self.methods
        ]
        return self.training.at(rates[POLICIES], self.experiment.seed), methods

    def _run_methods(
        self,
        training: Training,
        methods: Sequence[MethodChoice],
        store: Folder,
        effort: Effort,
    ) -> dict[str, Failure]:
        """Run the methods, and return the failure of each whose loss was not finite."""
        made_by = training.made_by(run_once.__module__)
        runs = [
            Product(choice.label, (result(store, choice.label),), made_by) for choice in methods
        ]
        check_code(runs, effort.rerun_changed)
        total = self.experiment.rounds * self.experiment.scenario.budget
        failures = {}
        with progress_bars({choice.label: total for choice in methods}) as update:
            for choice in methods:
                try:
                    run_once(
                        choice,
                        training.trainer,
                        self.experiment,
                        store,
                        partial(update, choice.label),
                        made_by,
                        training.threads,
                    )
                except FloatingPointError as error:
                    advice = f"another learning rate is given as {choice.method}=RATE"
                    failures[choice.label] = Failure(FloatingPointError(f"{error}; {advice}"))
        return failures

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, _NOTE)
        store = Folder(folder)
        policies = finished_policies(folder, note)
        trials = None
        if note["tuning"] is not None:
            trials = read_trials(folder, note["tuning"])
            note = _with_rates(note, chosen_rates(trials))
        methods = {}
        for entry in note["methods"]:
            file = result(store, entry["label"])
            if finished(file):
                methods[entry["label"]] = read_frame(file)
        content = LossContent(
            note,
            read_frame(trajectory_files(store)[0]),
            store.results(policies),
            methods,
            read_tasks(store, policies),
            origin([store.result(policy) for policy in policies]),
            trials,
        )
        return content.report()

    def leave(self, report: Report, folder: Path) -> LeftFiles:
        left = leave(report, folder)
        store = Folder(folder)
        kept = [
            trajectory_files(store)[0],
            weights_file(store),
            *(result(store, choice.label) for choice in self.methods),
        ]
        return left._replace(tables=[*left.tables, *filter(Path.exists, kept)])


def _with_rates(note: Note, rates: Mapping[str, float]) -> Note:
    """The note with the learning rates that were chosen."""
    methods = []
    for entry in note["methods"]:
        if entry["label"] in rates:
            methods.append({**entry, "lr": rates[entry["label"]], "kind": TUNED})
        else:
            methods.append(entry)
    return {**note, "lr": rates[POLICIES], "kind": TUNED, "methods": methods}
