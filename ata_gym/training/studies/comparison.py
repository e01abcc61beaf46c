"""Methods compared with policies: the same pool, problem and seed, and as many gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import polars as pl

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.provenance import Provenance
from ata_gym.bench.experiment.store import Folder, finished, read_frame, write_frame
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.training.methods.method import UpdateRecord
from ata_gym.training.methods.run import MethodRun, find_method
from ata_gym.training.studies.curves import Goal, smooth
from ata_gym.training.studies.trajectory import deterministic
from ata_gym.training.trainer import Trainer

_NOISE = 2.0**60
"""A variance so large that only noise limits the step sizes; a power of two, so that their ratios are exact."""


@dataclass(frozen=True)
class MethodChoice:
    """A method of a comparison, with a learning rate if the user gives one, and its label in plots, tables and files.

    >>> MethodChoice.parse("ringmaster=0.01")
    MethodChoice(label='ringmaster=0.01', method='ringmaster', lr=0.01)
    """

    label: str
    method: str
    lr: float | None = None

    @classmethod
    def parse(cls, text: str) -> MethodChoice:
        """Read NAME or NAME=RATE; ValueError if there is no such method, or the rate is no positive number."""
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
        """The learning rate beside a trainer of the policies with learning rate ``lr``.

        By default it is ``lr`` times the ratio of this method's step size to Rennala's in theory, where noise
        dominates: in proportion to the gradients of an update, and half that for asynchronous methods. The ratio
        depends on neither the problem nor the accuracy.

        >>> experiment = Experiment.on_scenario("icml2025-cifar100", seeds=1)
        >>> names = ("rennala", "minibatch", "ringmaster", "ringmaster=0.1")
        >>> [MethodChoice.parse(name).rate(experiment, 0.46) for name in names]
        [0.46, 1.02, 0.01, 0.1]
        """
        if self.lr is not None or lr is None:
            return self.lr
        step, reference = (
            find_method(name)(experiment.scenario.pool, experiment.scenario.budget).step_size(1.0, _NOISE, 1.0)
            for name in (self.method, "rennala")
        )
        return lr * (step / reference)


def run_once(
    choice: MethodChoice,
    trainer: Trainer,
    experiment: Experiment,
    folder: Folder,
    progress: Callable[[int], None] = lambda _gradients: None,
    made_by: Provenance | None = None,
) -> pl.DataFrame:
    """Run a method until it has used rounds * B gradients, as the policies do, or read its file if there is one.

    Trainer and experiment are those of the policies: the method has the same problem, settings, pool and budget B.
    After every update ``progress`` is called with the number of gradients used; ``made_by`` is kept beside the file.

    Returns
    -------
    One row for each update: the fields of ``UpdateRecord``, loss null for an update without gradients, and in the last
    row the problem's evaluation.

    Raises
    ------
    FloatingPointError, ValueError
        If the loss is NaN or infinite; if the file is not what was written.
    """
    scenario, path = experiment.scenario, result(folder, choice)
    most = experiment.rounds * scenario.budget
    if finished(path):
        progress(most)
        return read_frame(path)
    settings = replace(
        trainer.settings,
        optimizer=trainer.settings.optimizer or trainer.optimizer_choice.name,
        lr=choice.rate(experiment, trainer.optimizer_choice.lr),
    )
    records: list[UpdateRecord] = []
    with deterministic():
        run = MethodRun(choice.method, scenario.pool, trainer.problem, budget=scenario.budget, **vars(settings))
        for record in run:
            records.append(record)
            progress(min(record.used, most))
            if record.used >= most:
                break
        evaluation = run.evaluate()
    frame = pl.DataFrame(records, list(UpdateRecord._fields), orient="row").with_columns(pl.col("loss").fill_nan(None))
    last = pl.int_range(pl.len()) == pl.len() - 1
    frame = frame.with_columns(pl.when(last).then(pl.lit(value)).alias(name) for name, value in evaluation.items())
    path.parent.mkdir(exist_ok=True)
    write_frame(path, frame, made_by or {})
    return frame


def result(folder: Folder, choice: MethodChoice) -> Path:
    """The file of a method's updates."""
    return folder.path / "methods" / f"{quote(choice.label, safe='')}.parquet"


def lay(frames: Mapping[MethodChoice, pl.DataFrame], experiment: Experiment) -> pl.DataFrame:
    """The methods' curves in the form of ``curves.lay``, at log-spaced updates; its rounds are updates here."""
    curves = []
    for choice, frame in frames.items():
        shown = replace(experiment, rounds=len(frame)).record_at()
        curve = frame.select(
            pl.lit(choice.label).alias("policy"), pl.col("update").alias("round"), "runtime", "total_worker_time",
            smooth(frame["loss"]),
        )  # fmt: skip
        curves.append(curve[shown - 1].drop_nulls("loss"))
    return pl.concat(curves)


def reached(curves: pl.DataFrame, goal: Goal, seed: int) -> pl.DataFrame:
    """When each method reaches the goal, in the form of a policy's record of that round; null if it does not."""
    low = curves.filter(pl.col("loss") <= goal.loss).group_by("policy", maintain_order=True).first().drop("round")
    labels = curves.select(pl.col("policy").unique(maintain_order=True))
    return labels.join(low, on="policy", how="left", maintain_order="left").select(
        "policy", pl.lit(seed, pl.Int64).alias("seed"), pl.lit(goal.round, pl.Int64).alias("round"),
        "runtime", "total_worker_time",
    )  # fmt: skip


def table(frames: Mapping[MethodChoice, pl.DataFrame], experiment: Experiment, lr: float | None) -> Table:
    """A table of the methods' learning rates, updates, gradients and final figures."""
    evaluated = next(iter(frames.values())).columns[len(UpdateRecord._fields) :]
    titles = ["learning\nrate", "updates", "gradients\ncomputed", "\nused", "training\nloss"]
    columns = {"method": LEFT, **right((*titles, *(name.replace("_", "\n") for name in evaluated)))}
    rows = []
    for choice, frame in frames.items():
        end, rate = frame.row(-1, named=True), choice.rate(experiment, lr)
        numbers = [f"{end[name]:,}" for name in ("update", "computed", "used")]
        figures = [smooth(frame["loss"])[-1], *(end[name] for name in evaluated)]
        rates = "its own" if rate is None else f"{rate:.3g}"
        rows.append((choice.label, rates, *numbers, *(f"{figure:.4g}" for figure in figures)))
    about = f"methods, each until it has used {experiment.rounds:,} x {experiment.scenario.budget} gradients"
    return Table(about, columns, rows)
