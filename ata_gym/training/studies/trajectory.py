"""One training trajectory, kept in a results folder, for all policies: the allocation never changes a gradient."""

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import polars as pl
import torch

from ata_gym.bench.experiment import store
from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.experiment import Config
from ata_gym.bench.experiment.jobs import USUAL, Effort
from ata_gym.bench.experiment.provenance import Provenance, provenance_of
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.progress import progress_bars
from ata_gym.training.models import checkpoint
from ata_gym.training.problem import module_of
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.errors import named_failure
from ata_gym.utils.manifest import write_listed
from ata_gym.utils.sealed import load_checkpoint, save_checkpoint
from ata_gym.utils.signals import stop_requested
from ata_gym.utils.validation import whole_number

MOST_THREADS = 1024  # no machine has more processors; with too many threads, torch fails with an error of its own
EVALUATIONS = 16  # of a trajectory after round 0, unless the user says how often: log-spaced, as the pictures are
_LEAP = 10_000  # the largest number of rounds that a trainer takes at once


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
    ours = training_config(trainer, problem, training.data, every, threads)
    folder, made_by = store.open_folder(out, config | ours), made_by_problem(problem)
    try:
        with named_failure(f"the problem {problem}"), store.withdrawn_on_failure(folder):
            made = store.Made(problem, trajectory_files(folder), made_by)
            store.check_code([made], training.effort.rerun_changed)
            with progress_bars({problem: rounds}) as update, deterministic(threads):
                trajectory = train_once(
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


def train_once(
    trainer: Trainer, rounds: int, folder: Folder, progress: Callable[[int, float], None] = lambda _round, _loss: None,
    *, evaluate_every: int | None = None, save_every: float = 10.0, made_by: Provenance | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Train to the last round, from a checkpoint if there is one, or read the trajectory if it is complete.

    In the end the results folder holds the trajectory, ``training.parquet``, and the final weights, ``weights.pt``,
    which ``checkpoint.load`` reads. ``progress`` gets the number of rounds done and the last loss. ``save_every`` are
    seconds, ``evaluate_every`` rounds.

    Returns one row for each round from 0 on: ``round``, ``loss`` (null in round 0, before the first step) and the
    problem's evaluation, null where there was none. Raises what ``Trainer.step`` raises; the checkpoint stays.
    """
    whole, saved = trajectory_files(folder)
    if store.finished(whole):
        trajectory = store.read_frame(whole)
        progress(rounds, trajectory["loss"][-1])
        return trajectory
    with stop_requested() as stop:
        evaluated = sorted(evaluation_rounds(rounds, evaluate_every))
        record = _Record(trainer, set(evaluated), saved, made_by or {})
        last = perf_counter()
        while trainer.round < rounds:
            try:
                until = evaluated[bisect_right(evaluated, trainer.round)]
                losses = trainer.leap(min(_LEAP, until - trainer.round)).tolist()
            except FloatingPointError as error:
                record.save()
                kept = f"rounds 0 to {trainer.round} are kept in {record.path}"
                raise FloatingPointError(f"{error}; {kept}") from error
            record.add(losses)
            progress(trainer.round, losses[-1])
            stopped = stop()
            if stopped or perf_counter() - last >= save_every:
                record.save()
                last = perf_counter()
            if stopped:
                break
    write_listed(folder.path / "weights.pt", lambda part: checkpoint.save(part, trainer.model.state_dict()))
    trajectory = record.frame()
    store.write_frame(whole, trajectory, made_by or {})
    store.discard(saved)
    return trajectory


def evaluation_rounds(rounds: int, every: int | None = None) -> set[int]:
    """The rounds after which the model is evaluated, the last always: every so many, or a few that are log-spaced."""
    if every is not None:
        return {*range(every, rounds, every), rounds}
    return {int(k) for k in np.geomspace(1, rounds, EVALUATIONS).round()}


def trajectory_files(folder: Folder) -> tuple[Path, Path]:
    """The trajectory in a results folder, and its checkpoint."""
    return folder.path / "training.parquet", folder.path / "checkpoints" / "training.pt"


class _Record:
    """The losses and evaluations so far, and their checkpoint."""

    def __init__(self, trainer: Trainer, evaluated: Container[int], path: Path, made_by: Provenance) -> None:
        self._trainer, self._evaluated, self.path = trainer, evaluated, path
        self._losses: list[float] = []
        self._evaluations: list[dict[str, float]] = []
        tree = load_checkpoint(path, checkpoint.unpack)
        if tree is None:
            store.begin(path, made_by)
            self._evaluate()
            return
        trainer.restore(tree["trainer"])
        self._losses, self._evaluations = tree["losses"].tolist(), tree["evaluations"]

    def add(self, losses: list[float]) -> None:
        """Record the losses of the last rounds, and evaluate after them if it is time."""
        self._losses += losses
        if self._trainer.round in self._evaluated:
            self._evaluate()

    def save(self) -> None:
        """Write the checkpoint."""
        losses = torch.tensor(self._losses, dtype=torch.float64)
        tree = {"trainer": self._trainer.checkpoint(), "losses": losses, "evaluations": self._evaluations}
        save_checkpoint(self.path, checkpoint.pack(tree))

    def frame(self) -> pl.DataFrame:
        """The trajectory."""
        schema = {"round": pl.Int64, "loss": pl.Float64}
        steps = pl.DataFrame({"round": range(len(self._losses) + 1), "loss": [None, *self._losses]}, schema)
        return steps.join(pl.DataFrame(self._evaluations), on="round", how="left", maintain_order="left")

    def _evaluate(self) -> None:
        self._evaluations.append({"round": self._trainer.round, **self._trainer.evaluate()})


def with_last(frame: pl.DataFrame, figures: Mapping[str, float]) -> pl.DataFrame:
    """A frame with a column for each figure, which has it in the last row."""
    last = pl.int_range(pl.len()) == pl.len() - 1
    return frame.with_columns(pl.when(last).then(pl.lit(value)).alias(name) for name, value in figures.items())


def training_config(
    trainer: Trainer, problem: str, data: Path | None = None, evaluate_every: int | None = None, threads: int = 1
) -> Config:
    """What a trajectory depends on beside the number of rounds."""
    named = {"problem": problem, "data": None if data is None else _digest(data)}
    return trainer.config() | named | {"evaluate_every": evaluate_every, "threads": threads}


def made_by_problem(problem: str, trained_by: str = __name__) -> Provenance:
    """The provenance of what a module trains on a problem of this name."""
    return provenance_of(trained_by, module_of(problem))


def _digest(data: Path) -> str:  # a hash of the content of a file or a folder; of anything else, its name
    if data.is_file():
        with data.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if not data.exists():
        return str(data)
    parts = sorted(path for path in data.rglob("*") if path.is_file())
    whole = b"".join(path.name.encode() + bytes.fromhex(_digest(path)) for path in parts)
    return hashlib.sha256(whole).hexdigest()


@contextmanager
def deterministic(threads: int = 1) -> Iterator[None]:
    """Make torch give the same bits each time, on a CPU whatever its number of cores.

    It uses so many threads, since the order of a sum depends on their number, and deterministic algorithms; torch warns
    of an operation that has none.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic
    before, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(strict, warn_only=lenient)
