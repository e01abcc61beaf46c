"""One trajectory for all policies in a results folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Config
from ata_gym.bench.experiment.jobs import USUAL, Effort
from ata_gym.bench.experiment.store import Folder, Made, check_code, open_folder, withdrawn_on_failure
from ata_gym.bench.progress import progress_bars
from ata_gym.training.studies import trajectory as one_trajectory
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
    effort: Effort = USUAL

    def __post_init__(self) -> None:
        if self.evaluate_every is not None:
            whole_number("evaluate-every", self.evaluate_every)
        if whole_number("threads", self.threads) > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS:,}, not {self.threads:,}")

    def open(self, trainer: Trainer, config: Config, where: Path) -> Folder:
        """The results folder of a trajectory; it raises what ``open_folder`` raises."""
        ours = one_trajectory.training_config(trainer, self.problem, self.data, self.evaluate_every, self.threads)
        return open_folder(where, config | ours)

    def train(self, trainer: Trainer, rounds: int, folder: Folder, name: str) -> pl.DataFrame:
        """The trajectory in an open folder, with a progress bar of this name."""
        made_by = one_trajectory.made_by_problem(self.problem)
        check_code([Made(name, one_trajectory.trajectory_files(folder), made_by)], self.effort.rerun_changed)
        same_bits = one_trajectory.deterministic(self.threads)
        with withdrawn_on_failure(folder), progress_bars({name: rounds}) as update, same_bits:
            return one_trajectory.train_once(
                trainer, rounds, folder, lambda done, loss: update(name, done, f"loss {loss:.4g}"),
                evaluate_every=self.evaluate_every, save_every=self.effort.save_every, made_by=made_by,
            )  # fmt: skip


class Trained(NamedTuple):
    """A finished trajectory."""

    folder: Folder  # the results folder
    trajectory: pl.DataFrame
    trainer: Trainer


def keep_trajectory(training: Training, trainer: Trainer, config: Config, out: Path) -> Trained:
    """Train to the end with a progress bar, or from where a killed run stopped.

    The folder's results also depend on ``config``, whose ``rounds`` are the optimiser steps. It raises ``ValueError``
    if the folder is of another configuration, the loss is not finite, or memory is short.
    """
    folder = training.open(trainer, config, out)
    try:
        with named_failure(f"the problem {training.problem}"), withdrawn_on_failure(folder):
            trajectory = training.train(trainer, int(config["rounds"]), folder, training.problem)
            return Trained(folder, trajectory, trainer)
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error


def train_beside(out: Path, trainer: Trainer, rounds: int, effort: Effort, problem: str, data: Path | None) -> Trained:
    """The trajectory of a published figure, kept in a folder of its own beside the records of the policies."""
    claimed = claim(out)
    training = Training(problem, data, effort=effort)
    trained = keep_trajectory(training, trainer, {"rounds": rounds}, out / "training")
    del claimed
    return trained
