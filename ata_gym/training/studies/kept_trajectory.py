"""One trajectory for all policies in a results folder."""

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
    rounds, problem, threads, every = int(config["rounds"]), training.problem, training.threads, training.evaluate_every
    ours = one_trajectory.training_config(trainer, problem, training.data, every, threads)
    folder, made_by = open_folder(out, config | ours), one_trajectory.made_by_problem(problem)
    try:
        with named_failure(f"the problem {problem}"), withdrawn_on_failure(folder):
            made = Made(problem, one_trajectory.trajectory_files(folder), made_by)
            check_code([made], training.effort.rerun_changed)
            with progress_bars({problem: rounds}) as update, one_trajectory.deterministic(threads):
                trajectory = one_trajectory.train_once(
                    trainer, rounds, folder, lambda done, loss: update(problem, done, f"loss {loss:.4g}"),
                    evaluate_every=every, save_every=training.effort.save_every, made_by=made_by,
                )  # fmt: skip
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
