"""Policies that train a model each: on real workers, or on data that differ by worker."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import polars as pl

import ata_policies
from ata_gym.bench.experiment import Experiment, Sizes
from ata_gym.bench.report.losses import CLOCKS
from ata_gym.bench.report.report import Report
from ata_gym.bench.runner.failure import raised_by_policy
from ata_gym.bench.runner.jobs import Effort, write_traceback
from ata_gym.bench.runner.policy_run import Job
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.runner.results import Failure
from ata_gym.bench.runner.study import Study
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.folder import Folder, Product
from ata_gym.bench.store.note import (
    EXPERIMENT,
    about_experiment,
    about_policy,
    finished_policies,
    read_note,
    write_note,
)
from ata_gym.bench.store.provenance import Provenance, merged, provenance
from ata_gym.bench.studies.training.curves import LossReading
from ata_gym.bench.studies.training.methods import MethodChoice, result, run_once
from ata_gym.bench.studies.training.separate.content import SeparateContent
from ata_gym.bench.studies.training.trajectory import Training, with_last
from ata_gym.models.determinism import deterministic
from ata_gym.pools import Pool, trace
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.card import CARD
from ata_gym.training.devices.clock import DeviceClock
from ata_gym.training.devices.workers import measure_times
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.training.wrapper import TrainingWrapper
from ata_gym.utils.errors import named_failure
from ata_gym.utils.files.json_files import fields, items, nullable, text
from ata_gym.utils.process.signals import stop_requested
from ata_gym.utils.validation import flag, whole_number
from ata_policies.steps import decide, play_on

MEASURED = 30
"""The number of tasks of each worker that are timed at first.

The times are for policies that know something of the workers.
"""

_PLAYED_ENVS = ("ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0")
"""The envs whose policies can train a model of their own."""

_RECORDED = ("loss", *CLOCKS)
"""What is recorded of each round, beside the last evaluation."""

_NOTE = fields(
    {
        **EXPERIMENT,
        "scenario": nullable(CARD),
        "problem": text,
        "timed": flag,
        "points": whole_number,
        "reading": fields({"over": whole_number, "exact": flag}),
        "methods": items(text),
    },
)
"""The rule of the note of trainings that are separate."""


@dataclass(frozen=True)
class SeparateTrainings(Study):
    """Policies and methods that train a model each, from the same weights.

    With workers, tasks are run on these. At first some tasks of each worker are timed; these times
    are the pool that the policies' constants and oracles know. On workers of one device all
    policies have the same losses. The times are measured in the run, and not the same the next
    time.

    Without workers the task times come from the scenario. This is for data that differ by worker,
    where each policy and method has gradients of its own.
    """

    name: ClassVar[str] = "train-each"

    experiment: Experiment
    """With workers, only its rounds and its price count."""
    training: Training
    workers: str = ""
    """The workers, such as ``"cuda:0,cuda:1,cpu:2"``; empty for the scenario's workers."""
    methods: Sequence[MethodChoice] = ()
    """The methods that train, too, where there are no workers."""

    @cached_property
    def clock(self) -> DeviceClock | None:
        """What runs tasks on the workers; None for the scenario's workers."""
        if self.workers:
            return DeviceClock(self.training.trainer, self.workers)
        return None

    def check(self) -> None:
        for policy in self.policies:
            env_id = ata_policies.load(policy).env_id
            if env_id not in _PLAYED_ENVS:
                raise ValueError(
                    f"{policy} plays {env_id}, and real workers run allocations and races: leave"
                    " it out",
                )
            self.experiment.try_out(policy)
        for choice in self.methods:
            choice.check(self.experiment, self.training.trainer)
        # It refuses wrong workers.
        _ = self.clock

    def begin(self, folder: Path, command: Sequence[str]) -> list[Job]:
        experiment = self.experiment
        trainer = self.training.trainer
        if self.clock is None:
            config = experiment.config()
            about = about_experiment(experiment, self.policies)
        else:
            names = [str(worker) for worker in self.clock.workers]
            rounds = experiment.rounds
            price = experiment.scenario.price
            config = {"clock": "device", "workers": names, "rounds": rounds, "price": price}
            size = Sizes(
                ", ".join(names),
                workers=len(names),
                budget=trainer.budget,
                rounds=rounds,
                seeds=1,
                first_seed=trainer.settings.seed,
                price=price,
            )
            about = {
                **size._asdict(),
                "scenario": None,
                "policies": [about_policy(policy) for policy in self.policies],
                "remarks": [],
                "lower_bound": 0.0,
            }
        opened = store.open_folder(folder, config | self.training.config())
        note = {
            **about,
            "problem": trainer.problem.name,
            "timed": self.clock is not None,
            "points": experiment.points,
            "reading": asdict(LossReading.from_problem(trainer.problem, experiment.rounds)),
            "methods": [choice.label for choice in self.methods],
        }
        write_note(folder, self.name, command, note)
        return [Job(experiment, policy, opened) for policy in self.policies]

    def run(self, folder: Path, jobs: Sequence[Job], effort: Effort) -> dict[str, Failure]:
        del folder
        results = jobs[0].folder
        problem = self.training.problem
        trainer = self.training.trainer
        rounds = self.experiment.rounds
        made_by = self.training.made_by(__name__)
        measured = results.path / "measured" / "times.parquet"
        policy_runs = [_product(policy, results, made_by) for policy in self.policies]
        method_runs = [
            Product(choice.label, (result(results, choice.label),), made_by)
            for choice in self.methods
        ]
        store.check_code(
            [Product(problem, (measured,), made_by), *policy_runs, *method_runs],
            effort.rerun_changed,
        )
        # Policies count rounds, and methods count gradients.
        totals = dict.fromkeys(self.policies, rounds) | {
            choice.label: rounds * trainer.budget for choice in self.methods
        }
        failures = {}
        with (
            named_failure(f"the problem {problem}"),
            self._determined(),
            progress_bars(totals) as update,
        ):
            scenario = self._scenario(measured, made_by)
            with stop_requested() as stop:
                for run in policy_runs:
                    if not stop():
                        progress = partial(update, run.name)
                        try:
                            _train(
                                run,
                                self.clock,
                                trainer,
                                scenario,
                                progress,
                                effort.save_every,
                                stop,
                            )
                        except FloatingPointError as error:
                            raise ValueError(str(error)) from error
                        except Exception as error:
                            if not raised_by_policy(error):
                                raise
                            file = results.failure(run.name)
                            write_traceback(file, error)
                            failures[run.name] = Failure(error, file)
            for choice in self.methods:
                try:
                    run_once(
                        choice,
                        trainer,
                        self.experiment,
                        results,
                        partial(update, choice.label),
                        made_by,
                        self.training.threads,
                    )
                except FloatingPointError as error:
                    failures[choice.label] = Failure(error)
        return failures

    def _determined(self) -> AbstractContextManager[None]:
        """Make torch give the same bits each time, where the times are the same each time."""
        if self.clock is None:
            return deterministic(self.training.threads)
        return nullcontext()

    def _scenario(self, measured: Path, made_by: Provenance) -> Scenario:
        """The scenario that policies play; its pool may be of measured times, kept in a file."""
        scenario = replace(self.experiment.scenario, horizon=self.experiment.rounds)
        if self.clock is None:
            return scenario
        return Scenario(
            _measured_pool(self.clock, measured, made_by),
            self.training.trainer.budget,
            scenario.horizon,
            price=scenario.price,
        )

    @staticmethod
    def report(folder: Path) -> Report:
        note = read_note(folder, _NOTE)
        opened = Folder(folder)
        files = {policy: opened.result(policy) for policy in finished_policies(folder, note)}
        files |= {
            label: file
            for label in note["methods"]
            if store.finished(file := result(opened, label))
        }
        origins = store.origin(files.values())
        return SeparateContent(
            note, {name: store.read_frame(file) for name, file in files.items()}, origins
        ).report()


def _product(policy: str, folder: Folder, problem: Provenance) -> Product:
    """What a policy leaves: its result, its checkpoint, and their provenance."""
    files = folder.result(policy), folder.checkpoint(policy).with_suffix(".pt")
    return Product(policy, files, merged(provenance(policy, __name__), problem))


def _measured_pool(clock: DeviceClock, path: Path, made_by: Provenance) -> Pool:
    """The pool of the measured times, which are kept in a file."""
    n = len(clock.workers)
    if not store.finished(path):
        # Workers take turns: row k of the file is task k // n of worker k mod n.
        task, worker = np.divmod(np.arange(MEASURED * n), n)
        times = measure_times(clock.trainer, clock.workers, MEASURED)
        store.write_frame(
            path,
            pl.DataFrame({"worker": worker, "task": task, "duration": times.T.ravel()}),
            made_by,
        )
    durations = store.read_frame(path)["duration"].to_numpy()
    return trace(list(durations.reshape(MEASURED, n).T))


def _train(
    run: Product,
    clock: DeviceClock | None,
    trainer: Trainer,
    scenario: Scenario,
    progress: Callable[[int], None],
    save_every: float,
    stop: Callable[[], bool],
) -> None:
    """Let one policy train to the end, or from its checkpoint, until it has a result."""
    result, checkpoint = run.files
    name = run.name
    seed = trainer.settings.seed
    rounds = int(scenario.horizon or 0)
    if store.finished(result):
        progress(rounds)
        return
    env: Any = gym.make(ata_policies.load(name).env_id, scenario=scenario, backend=clock)
    if clock:
        env = TrainingWrapper(env)
    else:
        env = TrainingWrapper(env, trainer.problem, **vars(trainer.settings))
    policy = ata_policies.make(name, env, seed=seed)
    observation, _ = env.reset(seed=seed)
    state: Any = None
    rows: list[list[float]] = []
    if checkpoint.exists():
        # Any decision gives a state of the right form, which the checkpoint then fills.
        example_state = decide(policy, env, observation)[1]
        observation, (state, table) = env.load(checkpoint, like=(example_state, np.empty(0)))
        rows = table.tolist()
    else:
        store.begin(checkpoint, run.by)
    last_save = perf_counter()
    for step in islice(play_on(policy, env, observation, state), rounds - len(rows)):
        rows.append([step.info[quantity] for quantity in _RECORDED])
        progress(len(rows))
        stopped = stop()
        if stopped or perf_counter() - last_save >= save_every:
            env.save(checkpoint, (step.state, np.array(rows)))
            last_save = perf_counter()
        if stopped:
            return
    frame = pl.DataFrame(rows, _RECORDED, orient="row").with_row_index("round", 1)
    frame = with_last(frame, env.trainer.evaluate())
    store.write_frame(result, frame.with_columns(policy=pl.lit(name)), run.by)
    store.discard(checkpoint)
