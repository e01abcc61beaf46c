"""One trajectory for all policies, with a progress bar: at one learning rate, or at the best of a grid."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ata_gym.cli.console import loss_bar, named_failure
from ata_gym.cli.options import USUAL, Effort
from ata_gym.utils.validation import whole_number

if TYPE_CHECKING:
    import polars as pl

    from ata_gym.bench.experiment.store import Folder
    from ata_gym.training.trainer.trainer import Trainer

MOST_THREADS = 1024
"""No machine has more processors for a task; with too many, torch fails in other words."""


class TrainingOptions(NamedTuple):
    """Options of training on which the bits of a trajectory depend, beside the trainer's settings."""

    threads: int = 1
    evaluate_every: int | None = None

    @classmethod
    def checked(cls, threads: int, evaluate_every: int | None) -> TrainingOptions:
        """Refuse a number of threads, or of rounds between evaluations, that makes no sense."""
        every = None if evaluate_every is None else whole_number("evaluate-every", evaluate_every)
        if whole_number("threads", threads) > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS:,}, not {threads:,}")
        return cls(threads, every)


_ALONE = TrainingOptions()


class Trained(NamedTuple):
    """What ``train_with_progress`` leaves."""

    folder: Folder
    """Of the results."""
    trajectory: pl.DataFrame
    trainer: Trainer
    """With the learning rate of the trajectory."""
    where: Path
    """The folder of the trajectory."""


def train_with_progress(
    trainer: Trainer,
    config: dict[str, object],
    out: Path,
    problem: str,
    data: Path | None,
    *,
    tune: bool = False,
    tensorboard: bool = False,
    effort: Effort = USUAL,
    options: TrainingOptions = _ALONE,
) -> Trained:
    """Train to the end with a progress bar, or from where a killed run stopped, with ``tune`` at each rate of the grid.

    The folder's results also depend on ``config``, whose ``rounds`` say how many optimiser steps there are, and on the
    problem and the data as the user named them. ValueError if the folder is of another configuration, the loss is not
    finite, or memory is short.
    """
    from ata_gym.bench.experiment.outdated import Made, check_code  # noqa: PLC0415
    from ata_gym.bench.experiment.store import discard, open_folder, withdrawn_on_failure  # noqa: PLC0415 - slow
    from ata_gym.training.studies.comparison import GRID, tune_policies  # noqa: PLC0415
    from ata_gym.training.studies.trajectory import (  # noqa: PLC0415
        deterministic,
        made_by_problem,
        tensorboard_log,
        train_once,
        training_config,
        trajectory_files,
    )

    rounds, made_by, chosen = int(str(config["rounds"])), made_by_problem(problem), options._asdict()

    def opened(trainer: Trainer, where: Path, **other: object) -> Folder:
        return open_folder(where, config | training_config(trainer, problem, data, **chosen) | other)

    def train_in(folder: Folder, trainer: Trainer, name: str) -> pl.DataFrame:
        check_code([Made(name, trajectory_files(folder), made_by)], effort.rerun_changed)
        log_to = folder.path / "tensorboard"
        logging = tensorboard_log(log_to, rounds) if tensorboard else nullcontext(lambda _: None)
        same_bits = deterministic(options.threads)
        with withdrawn_on_failure(folder), loss_bar(name, rounds) as progress, logging as log, same_bits:
            every, save_every = options.evaluate_every, effort.save_every
            return train_once(
                trainer, rounds, folder, progress, evaluate_every=every, save_every=save_every, log=log, made_by=made_by
            )

    def train_at(trainer: Trainer, where: Path) -> pl.DataFrame:
        folder = opened(trainer, where)
        with withdrawn_on_failure(folder):
            try:
                return train_in(folder, trainer, f"{problem} at {trainer.optimizer_choice.lr:g}")
            except FloatingPointError:
                discard(trajectory_files(folder)[1])  # as a method that diverges, it leaves nothing
                raise

    try:
        with named_failure(f"the problem {problem}"):
            if not tune:
                folder = opened(trainer, out)
                return Trained(folder, train_in(folder, trainer, problem), trainer, out)
            folder = opened(trainer, out, lr=GRID)
            with withdrawn_on_failure(folder):
                return Trained(folder, *tune_policies(trainer, rounds, folder.path / "rates", train_at))
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error
