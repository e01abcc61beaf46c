"""One trajectory for all policies in a results folder: at one learning rate, or at the best of a grid."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment.experiment import Config
from ata_gym.bench.experiment.jobs import USUAL, Effort
from ata_gym.bench.experiment.store import Folder, Made, check_code, discard, open_folder, withdrawn_on_failure
from ata_gym.bench.progress import progress_bars
from ata_gym.training.studies.comparison import GRID
from ata_gym.training.studies.curves import LossReading, goal
from ata_gym.training.studies.trajectory import (
    deterministic,
    made_by_problem,
    tensorboard_log,
    train_once,
    training_config,
    trajectory_files,
)
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
        ours = training_config(trainer, self.problem, self.data, self.evaluate_every, self.threads)
        return open_folder(where, config | ours | ({"lr": GRID} if self.tune else {}))

    def train(self, trainer: Trainer, rounds: int, folder: Folder, name: str) -> pl.DataFrame:
        """The trajectory in an open folder, with a progress bar of this name."""
        made_by, log_to = made_by_problem(self.problem), folder.path / "tensorboard"
        check_code([Made(name, trajectory_files(folder), made_by)], self.effort.rerun_changed)
        logging = tensorboard_log(log_to, rounds) if self.tensorboard else nullcontext(lambda _: None)
        same_bits = deterministic(self.threads)
        with withdrawn_on_failure(folder), progress_bars({name: rounds}) as update, logging as log, same_bits:
            return train_once(
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
    rounds, folder = int(config["rounds"]), training.open(trainer, config, out)
    at_one_rate = Training(**(vars(training) | {"tune": False}))

    def train_at(trainer: Trainer, where: Path) -> pl.DataFrame:
        place = at_one_rate.open(trainer, config, where)
        name = f"{training.problem} at {trainer.optimizer_choice.lr:g}"
        with withdrawn_on_failure(place):
            try:
                return at_one_rate.train(trainer, rounds, place, name)
            except FloatingPointError:
                discard(trajectory_files(place)[1])  # as a method that diverges, it leaves nothing
                raise

    try:
        with named_failure(f"the problem {training.problem}"), withdrawn_on_failure(folder):
            if not training.tune:
                return Trained(folder, training.train(trainer, rounds, folder, training.problem), trainer, out)
            return Trained(folder, *tune_policies(trainer, rounds, folder.path / "rates", train_at))
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error


def tune_policies(
    trainer: Trainer, rounds: int, folder: Path, train: Callable[[Trainer, Path], pl.DataFrame]
) -> tuple[pl.DataFrame, Trainer, Path]:
    """Choose the learning rate of the policies' trajectory from the grid, as ``best`` does for a method.

    All policies have the same losses, and their clocks only rise. So one trajectory is the best for all of them: the
    one that reaches a hundredth of the first loss in the earliest round, or else the lowest loss; see ``goal``.

    Each rate gets a folder of its own in ``folder``. ``train`` trains there to the last round, or reads what is there;
    a rate at which it raises ``FloatingPointError`` is left out. If all rates are, that error is raised.

    Returns the chosen trajectory, a trainer with its learning rate, before the first round, and its folder.
    """
    reading = LossReading.of(trainer.problem, rounds)
    order: dict[float, tuple[float, ...]] = {}

    def at(rate: float) -> tuple[pl.DataFrame, Trainer, Path]:
        where = folder / f"{rate:g}"
        one = Trainer(trainer.problem, trainer.budget, **(vars(trainer.settings) | {"lr": rate}))
        return train(one, where), one, where

    failure = None
    for rate in GRID:
        try:
            trajectory = at(rate)[0]
        except FloatingPointError as error:
            failure = error
        else:
            order[rate] = (*goal(trajectory, reading), reading(trajectory["loss"])[-1])
    if not order:
        raise FloatingPointError(f"no learning rate of --tune trains; at the last one {failure}")
    return at(min(order, key=order.__getitem__))
