"""Methods beside the policies: the same pool, problem and seed, and as many gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import polars as pl
from rich import box
from rich.table import Table

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.store import Folder
from ata_gym.bench.tables import Titled
from ata_gym.files import write_whole
from ata_gym.training.curves import Goal, smooth
from ata_gym.training.methods.registry import find_method
from ata_gym.training.methods.run import Run
from ata_gym.training.methods.server import Record
from ata_gym.training.optimizers import OPTIMIZERS
from ata_gym.training.trainer import Trainer
from ata_gym.training.trajectory import deterministic

_NOISE = 2.0**60
"""A variance so large that only noise limits the step sizes; a power of two, so that their ratios are exact."""


@dataclass(frozen=True)
class Entry:
    """A method that takes part.

    Examples
    --------
    >>> Entry.parse("ringmaster=0.01")
    Entry(label='ringmaster=0.01', method='ringmaster', lr=0.01)
    """

    label: str
    """What plots, tables and files call it."""
    method: str
    lr: float | None = None
    """The learning rate that the user wants."""

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Read NAME or NAME=RATE.

        Raises
        ------
        ValueError
            If there is no such method, or the rate is no positive finite number.
        """
        name, given, rate = text.partition("=")
        find_method(name)
        try:
            lr = float(rate) if given else None
        except ValueError:
            lr = math.nan
        if lr is not None and not 0 < lr < math.inf:
            raise ValueError(f"a method is NAME or NAME=RATE, with a positive learning rate, not {text!r}")
        return cls(text, name, lr)

    def rate(self, experiment: Experiment, lr: float | None) -> float | None:
        """The learning rate, where the trainer of the policies has ``lr``.

        By default it is ``lr`` times the ratio of this method's step size to Rennala's in theory, where noise
        dominates: in proportion to the gradients of an update, and half that for asynchronous methods. The ratio
        depends on neither the problem nor the accuracy.

        Examples
        --------
        >>> experiment = Experiment.on_scenario("icml2025-cifar100", seeds=1)
        >>> names = ("rennala", "minibatch", "ringmaster", "ringmaster=0.1")
        >>> [Entry.parse(name).rate(experiment, 0.46) for name in names]
        [0.46, 1.02, 0.01, 0.1]
        """
        if self.lr is not None or lr is None:
            return self.lr
        step, reference = (
            find_method(name)(experiment.pool, experiment.budget).step_size(1.0, _NOISE, 1.0)
            for name in (self.method, "rennala")
        )
        return lr * (step / reference)


def run_once(
    entry: Entry,
    trainer: Trainer,
    experiment: Experiment,
    folder: Folder,
    progress: Callable[[int], None] = lambda _gradients: None,
) -> pl.DataFrame:
    """Run a method until it has used as many gradients as the policies, or read its file where it is already there.

    Parameters
    ----------
    entry
        The method.
    trainer
        Whose problem, optimiser, device and seed it takes.
    experiment
        Whose pool and budget it takes; it ends with the update at which rounds * B gradients are used.
    folder
        Where its file is, which appears whole or not at all.
    progress
        Told after every update how many gradients are used.

    Returns
    -------
    One row for each update: the fields of ``Record``, loss null for an update without gradients, and in the last row
    the problem's evaluation.

    Raises
    ------
    FloatingPointError
        If the loss is NaN or infinite.
    ValueError
        If the file is not what was written.
    """
    path, most = result(folder, entry), experiment.rounds * experiment.budget
    if path.exists():
        progress(most)
        return _read(path)
    named = trainer.recipe.name in OPTIMIZERS
    optimizer = trainer.recipe.name if named else trainer.recipe.make
    records: list[Record] = []
    with deterministic():
        run = Run(
            entry.method, experiment.pool, trainer.problem, budget=experiment.budget, seed=trainer.seed,
            optimizer=optimizer, lr=entry.rate(experiment, trainer.recipe.lr), device=trainer.device,
        )  # fmt: skip
        for record in run:
            records.append(record)
            progress(min(record.used, most))
            if record.used >= most:
                break
        evaluation = run.evaluate()
    frame = pl.DataFrame(records, list(Record._fields), orient="row").with_columns(pl.col("loss").fill_nan(None))
    last = pl.int_range(pl.len()) == pl.len() - 1
    frame = frame.with_columns(pl.when(last).then(pl.lit(value)).alias(name) for name, value in evaluation.items())
    path.parent.mkdir(exist_ok=True)
    write_whole(path, frame.write_parquet)
    return frame


def result(folder: Folder, entry: Entry) -> Path:
    """Where what a method did is kept."""
    return folder.path / "methods" / f"{quote(entry.label, safe='')}.parquet"


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ValueError(f"{path} cannot be read: delete it, and the same command makes it anew ({error})") from error


def lay(frames: Mapping[Entry, pl.DataFrame], experiment: Experiment) -> pl.DataFrame:
    """The methods' curves in the form of ``curves.lay``, at log-spaced updates; what is a round there, is an update."""
    curves = []
    for entry, frame in frames.items():
        shown = replace(experiment, rounds=len(frame)).record_at()
        curve = frame.select(
            pl.lit(entry.label).alias("policy"), pl.col("update").alias("round"), "runtime", "total_worker_time",
            smooth(frame["loss"]),
        )  # fmt: skip
        curves.append(curve[shown - 1].drop_nulls("loss"))
    return pl.concat(curves)


def reached(curves: pl.DataFrame, goal: Goal, seed: int) -> pl.DataFrame:
    """When each method reaches the goal, in the form of a policy's record of that round; null if it never does."""
    low = curves.filter(pl.col("loss") <= goal.loss).group_by("policy", maintain_order=True).first().drop("round")
    labels = curves.select(pl.col("policy").unique(maintain_order=True))
    return labels.join(low, on="policy", how="left", maintain_order="left").select(
        "policy", pl.lit(seed, pl.Int64).alias("seed"), pl.lit(goal.round, pl.Int64).alias("round"),
        "runtime", "total_worker_time",
    )  # fmt: skip


def table(frames: Mapping[Entry, pl.DataFrame], experiment: Experiment, lr: float | None) -> Titled:
    """What each method did until the end."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    made.add_column("method", no_wrap=True)
    fields = len(Record._fields)
    evaluated = next(iter(frames.values())).columns[fields:]
    titles = ["learning\nrate", "updates", "gradients\ncomputed", "\nused", "training\nloss"]
    for title in (*titles, *(name.replace("_", "\n") for name in evaluated)):
        made.add_column(title, justify="right", no_wrap=True)
    for entry, frame in frames.items():
        end, rate = frame.row(-1, named=True), entry.rate(experiment, lr)
        numbers = [f"{end[name]:,}" for name in ("update", "computed", "used")]
        figures = [smooth(frame["loss"])[-1], *(end[name] for name in evaluated)]
        rates = "its own" if rate is None else f"{rate:.3g}"
        made.add_row(entry.label, rates, *numbers, *(f"{figure:.4g}" for figure in figures))
    about = f"methods, each until it has used {experiment.rounds:,} x {experiment.budget} gradients"
    return Titled(about, made)
