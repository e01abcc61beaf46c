"""One training trajectory for all policies, kept in a results folder.

One is enough, since the allocation never changes a gradient.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl
import torch

from ata_gym.bench.experiment import Config
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.folder import Folder
from ata_gym.bench.store.provenance import Provenance, provenance_of
from ata_gym.models import checkpoint
from ata_gym.models.determinism import deterministic
from ata_gym.training.problem import module_of
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.errors import named_failure
from ata_gym.utils.files.manifest import write_listed
from ata_gym.utils.files.sealed import load_checkpoint, save_checkpoint
from ata_gym.utils.process.signals import stop_requested
from ata_gym.utils.validation import whole_number

# No machine has more processors; with too many threads, torch fails with an error of its own.
MOST_THREADS = 1024
# A trajectory has so many evaluations after round 0, unless the user says how often. They are
# log-spaced, as the pictures are.
EVALUATIONS = 16
# The largest number of rounds that a trainer takes at once.
_LONGEST_LEAP = 10_000


@dataclass(frozen=True, eq=False)
class Training:
    """What is trained, and how its trajectory is recorded.

    Raises:
        ValueError: For a number out of range.
    """

    problem: str
    """The problem, as the user named it."""
    trainer: Trainer
    """What trains it, before its first round."""
    data: Path | None = None
    """The problem's data, as the user named them."""
    threads: int = 1
    """The number of torch's threads, on which the bits of a trajectory depend."""
    evaluate_every: int | None = None
    """The rounds between two evaluations; by default ``evaluation_rounds`` chooses them."""

    def __post_init__(self) -> None:
        if self.evaluate_every is not None:
            whole_number("evaluate-every", self.evaluate_every)
        if whole_number("threads", self.threads) > MOST_THREADS:
            raise ValueError(f"threads must be at most {MOST_THREADS:,}, not {self.threads:,}")

    def config(self) -> Config:
        """What a trajectory depends on beside the number of rounds."""
        if self.data is None:
            data = None
        else:
            data = _digest(self.data)
        return self.trainer.config() | {
            "problem": self.problem,
            "data": data,
            "evaluate_every": self.evaluate_every,
            "threads": self.threads,
        }

    def made_by(self, trained_by: str = __name__) -> Provenance:
        """The provenance of what a module trains on the problem."""
        return provenance_of(trained_by, module_of(self.problem))

    def at(self, lr: float, seed: int) -> "Training":
        """The training from its beginning with another learning rate and another seed."""
        trainer = self.trainer
        chosen = replace(trainer.settings, lr=lr, seed=seed)
        return replace(self, trainer=Trainer(trainer.problem, trainer.budget, **vars(chosen)))


def keep_trajectory(
    training: Training,
    folder: Folder,
    rounds: int,
    effort: Effort,
) -> pl.DataFrame:
    """Train to the end with a progress bar, or from where a killed run stopped.

    Args:
        training: What is trained.
        folder: Where the trajectory is kept, whose configuration includes the training's.
        rounds: The number of optimiser steps.
        effort: How the work is done.

    Returns:
        The trajectory, as ``train_once`` gives it.

    Raises:
        ValueError: If the loss is not finite, memory is short, or other code has made what is
            there.
    """
    problem = training.problem
    made_by = training.made_by()
    try:
        with named_failure(f"the problem {problem}"), store.withdrawn_on_failure(folder):
            run = store.Product(problem, trajectory_files(folder), made_by)
            store.check_code([run], effort.rerun_changed)
            with progress_bars({problem: rounds}) as update, deterministic(training.threads):
                return train_once(
                    training.trainer,
                    rounds,
                    folder,
                    lambda done, loss: update(problem, done, f"loss {loss:.4g}"),
                    evaluate_every=training.evaluate_every,
                    save_every=effort.save_every,
                    made_by=made_by,
                )
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error


def train_once(
    trainer: Trainer,
    rounds: int,
    folder: Folder,
    progress: Callable[[int, float], None] = lambda _round, _loss: None,
    *,
    evaluate_every: int | None = None,
    save_every: float = 10.0,
    made_by: Provenance | None = None,
) -> pl.DataFrame:
    """Train to the last round, or read the trajectory if it is complete.

    Training begins from a checkpoint if there is one. In the end the results folder holds the
    trajectory, ``training.parquet``, and the final weights, ``weights.pt``, which
    ``checkpoint.load`` reads. It raises what ``Trainer.step`` raises; the checkpoint stays.

    Args:
        trainer: A trainer before its first round.
        rounds: The number of rounds.
        folder: The results folder.
        progress: Called with the number of rounds done and the last loss.
        evaluate_every: The rounds between two evaluations.
        save_every: The seconds between two checkpoints.
        made_by: The provenance that the files get.

    Returns:
        One row for each round from 0 on: ``round``, ``loss`` (null in round 0, before the first
        step) and the problem's evaluation, null where there was none.
    """
    trajectory_file, checkpoint_file = trajectory_files(folder)
    if store.finished(trajectory_file):
        trajectory = store.read_frame(trajectory_file)
        progress(rounds, trajectory["loss"][-1])
        return trajectory
    with stop_requested() as stop:
        evaluated = sorted(evaluation_rounds(rounds, evaluate_every))
        record = _Record(trainer, set(evaluated), checkpoint_file, made_by or {})
        last_save = perf_counter()
        while trainer.round < rounds:
            try:
                # A leap ends at the next round that is evaluated.
                next_evaluation = evaluated[bisect_right(evaluated, trainer.round)]
                losses = trainer.train_rounds(
                    min(_LONGEST_LEAP, next_evaluation - trainer.round)
                ).tolist()
            except FloatingPointError as error:
                record.save()
                note = f"rounds 0 to {trainer.round} are kept in {record.path}"
                raise FloatingPointError(f"{error}; {note}") from error
            record.add(losses)
            progress(trainer.round, losses[-1])
            stopped = stop()
            if stopped or perf_counter() - last_save >= save_every:
                record.save()
                last_save = perf_counter()
            if stopped:
                break
    write_listed(
        weights_file(folder),
        lambda part: checkpoint.save(part, trainer.model.state_dict()),
    )
    trajectory = record.frame()
    store.write_frame(trajectory_file, trajectory, made_by or {})
    store.discard(checkpoint_file)
    return trajectory


def evaluation_rounds(rounds: int, every: int | None = None) -> set[int]:
    """The rounds after which the model is evaluated, which always include the last round.

    Args:
        rounds: The number of rounds.
        every: The rounds between two evaluations; None for a few that are log-spaced.
    """
    if every is not None:
        return {*range(every, rounds, every), rounds}
    return {int(k) for k in np.geomspace(1, rounds, EVALUATIONS).round()}


def trajectory_files(folder: Folder) -> tuple[Path, Path]:
    """The trajectory in a results folder, and its checkpoint."""
    return folder.path / "training.parquet", folder.path / "checkpoints" / "training.pt"


def weights_file(folder: Folder) -> Path:
    """The final weights in a results folder."""
    return folder.path / "weights.pt"


class _Record:
    """The losses and evaluations so far, and their checkpoint."""

    def __init__(
        self,
        trainer: Trainer,
        evaluated: Container[int],
        path: Path,
        made_by: Provenance,
    ) -> None:
        self._trainer = trainer
        self._evaluated = evaluated
        self.path = path
        self._losses: list[float] = []
        self._evaluations: list[dict[str, float]] = []
        tree = load_checkpoint(path, checkpoint.unpack)
        if tree is None:
            store.begin(path, made_by)
            self._evaluate()
            return
        trainer.restore(tree["trainer"])
        self._losses = tree["losses"].tolist()
        self._evaluations = tree["evaluations"]

    def add(self, losses: list[float]) -> None:
        """Record the losses of the last rounds, and evaluate after them if it is time."""
        self._losses += losses
        if self._trainer.round in self._evaluated:
            self._evaluate()

    def save(self) -> None:
        """Write the checkpoint."""
        losses = torch.tensor(self._losses, dtype=torch.float64)
        tree = {
            "trainer": self._trainer.checkpoint(),
            "losses": losses,
            "evaluations": self._evaluations,
        }
        save_checkpoint(self.path, checkpoint.pack(tree))

    def frame(self) -> pl.DataFrame:
        """The trajectory."""
        schema = {"round": pl.Int64, "loss": pl.Float64}
        steps = pl.DataFrame(
            {"round": range(len(self._losses) + 1), "loss": [None, *self._losses]},
            schema,
        )
        return steps.join(
            pl.DataFrame(self._evaluations),
            on="round",
            how="left",
            maintain_order="left",
        )

    def _evaluate(self) -> None:
        self._evaluations.append({"round": self._trainer.round, **self._trainer.evaluate()})


def with_last(frame: pl.DataFrame, figures: Mapping[str, float]) -> pl.DataFrame:
    """A frame with a column for each figure, which has it in the last row."""
    is_last = pl.int_range(pl.len()) == pl.len() - 1
    columns = []
    for name, value in figures.items():
        column = pl.when(is_last).then(pl.lit(value))
        columns.append(column.alias(name))
    return frame.with_columns(columns)


def _digest(data: Path) -> str:
    """A hash of the content of a file or a folder; for anything else, its name."""
    if data.is_file():
        with data.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if not data.exists():
        return str(data)
    paths = sorted(path for path in data.rglob("*") if path.is_file())
    content = b"".join(path.name.encode() + bytes.fromhex(_digest(path)) for path in paths)
    return hashlib.sha256(content).hexdigest()
