"""One trajectory for all policies in a results folder: at one learning rate, or at the best of a grid."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Config
from ata_gym.bench.experiment.jobs import USUAL, Effort
from ata_gym.bench.experiment.store import Folder, Made, check_code, discard, open_folder, withdrawn_on_failure
from ata_gym.bench.progress import progress_bars
from ata_gym.training.studies import trajectory as one_trajectory
from ata_gym.training.studies.comparison import GRID
from ata_gym.training.studies.curves import LossReading, goal
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.errors import named_failure
from ata_gym.utils.validation import whole_number

MOST_THREADS = 1024  # no machine has more processors; with too many threads, torch fails with an error of its own


@dataclass(frozen=True)
class Training:
    """How a trajectory is trained, beside the trainer's settings; a number out of range raises ``ValueError``."""

    problem: str  # the problem and its data, as the user named them
    data: Path | None = None
    threads: int = 1  # the number of torch's threads, on which the bits of a trajectory depend
    evaluate_every: int | None = None  # rounds between two evaluations; by default those of ``evaluation_rounds``
    tune: bool = False  # whether the learning rate is the best of ``GRID``
    tensorboard: bool = False  # whether TensorBoard gets a log
    effort: Effort = USUAL

    def __post_init__(self) -> None:
        if self.evaluate_every is not None:
            whole_number("evaluate-every", self.evaluate_every)
        if whole_number("threads", self.threads) > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS:,}, not {self.threads:,}")

    def open(self, trainer: Trainer, config: Config, where: Path) -> Folder:
        """The results folder of a trajectory; it raises what ``open_folder`` raises."""
        ours = one_trajectory.training_config(trainer, self.problem, self.data, self.evaluate_every, self.threads)
        return open_folder(where, config | ours | ({"lr": GRID} if self.tune else {}))

    def train(self, trainer: Trainer, rounds: int, folder: Folder, name: str) -> pl.DataFrame:
        """The trajectory in an open folder, with a progress bar of this name."""
        made_by, log_to = one_trajectory.made_by_problem(self.problem), folder.path / "tensorboard"
        check_code([Made(name, one_trajectory.trajectory_files(folder), made_by)], self.effort.rerun_changed)
        logging = one_trajectory.tensorboard_log(log_to, rounds) if self.tensorboard else nullcontext(lambda _: None)
        same_bits = one_trajectory.deterministic(self.threads)
        with withdrawn_on_failure(folder), progress_bars({name: rounds}) as update, logging as log, same_bits:
            return one_trajectory.train_once(
                trainer, rounds, folder, lambda done, loss: update(name, done, f"loss {loss:.4g}"),
                evaluate_every=self.evaluate_every, save_every=self.effort.save_every, log=log, made_by=made_by,
            )  # fmt: skip


class Trained(NamedTuple):
    """A finished trajectory."""

    folder: Folder  # the results folder
    trajectory: pl.DataFrame
    trainer: Trainer  # a trainer with the learning rate of the trajectory
    where: Path  # the folder of the trajectory


def keep_trajectory(training: Training, trainer: Trainer, config: Config, out: Path) -> Trained:
    """Train to the end with a progress bar, or from where a killed run stopped; with ``tune`` at each rate of the grid.

    The folder's results also depend on ``config``, whose ``rounds`` are the optimiser steps. It raises ``ValueError``
    if the folder is of another configuration, the loss is not finite, or memory is short.
    """
    folder = training.open(trainer, config, out)
    try:
        with named_failure(f"the problem {training.problem}"), withdrawn_on_failure(folder):
            if training.tune:
                return _tune(replace(training, tune=False), trainer, config, folder)
            trajectory = training.train(trainer, int(config["rounds"]), folder, training.problem)
            return Trained(folder, trajectory, trainer, out)
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error


def _tune(training: Training, trainer: Trainer, config: Config, folder: Folder) -> Trained:
    """Train at each learning rate of the grid, in a folder of its own, and choose the trajectory of the policies.

    All policies have the same losses, and their clocks only rise. So the trajectory whose ``goal`` comes first is the
    best for all of them. A rate at which the loss is not finite is left out; FloatingPointError if all rates are.
    """
    rounds = int(config["rounds"])
    reading, failure = LossReading.of(trainer.problem, rounds), None
    order: dict[float, tuple[float, ...]] = {}

    def at(rate: float) -> Trained:
        where = folder.path / "rates" / f"{rate:g}"
        one = Trainer(trainer.problem, trainer.budget, **(vars(trainer.settings) | {"lr": rate}))
        place = training.open(one, config, where)
        with withdrawn_on_failure(place):
            try:
                trajectory = training.train(one, rounds, place, f"{training.problem} at {rate:g}")
            except FloatingPointError:
                discard(one_trajectory.trajectory_files(place)[1])  # as a method that diverges, it leaves nothing
                raise
        return Trained(folder, trajectory, one, where)

    for rate in GRID:
        try:
            trajectory = at(rate).trajectory
        except FloatingPointError as error:
            failure = error
        else:
            order[rate] = (*goal(trajectory, reading), reading(trajectory["loss"])[-1])
    if not order:
        raise FloatingPointError(f"no learning rate of --tune trains; at the last one {failure}")
    return at(min(order, key=order.__getitem__))


def train_beside(out: Path, trainer: Trainer, rounds: int, effort: Effort, problem: str, data: Path | None) -> Trained:
    """The trajectory of a published figure, kept in a folder of its own beside the records of the policies."""
    claimed = claim(out)
    training = Training(problem, data, effort=effort)
    trained = keep_trajectory(training, trainer, {"rounds": rounds}, out / "training")
    del claimed
    return trained
