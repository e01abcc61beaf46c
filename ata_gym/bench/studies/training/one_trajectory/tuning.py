"""Learning rates that are chosen from a grid, by trials on another seed than the comparison's."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report.table import LEFT, Table, right
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.progress import Update, progress_bars
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.folder import Folder, Product
from ata_gym.bench.store.provenance import Provenance
from ata_gym.bench.studies.training.curves import LossReading
from ata_gym.bench.studies.training.methods import TUNED, MethodChoice, result, run_once
from ata_gym.bench.studies.training.trajectory import (
    Training,
    train_once,
    trajectory_files,
    weights_file,
)
from ata_gym.models.determinism import deterministic
from ata_gym.utils.errors import named_failure
from ata_gym.utils.files.atomic import file_name
from ata_gym.utils.files.json_files import fields, items
from ata_gym.utils.files.manifest import remove_listed
from ata_gym.utils.validation import real, whole_number

_SCHEMA: dict[str, Any] = {"label": pl.String, "lr": pl.Float64, "loss": pl.Float64}

POLICIES = "policies"
"""The label of the policies, which share a learning rate, among the labels of the methods."""

FACTORS = (0.04, 0.2, 1.0, 5.0, 25.0)
"""The grid, in multiples of the learning rate that is used without tuning."""

PART = 5
"""Each trial uses the gradients of the comparison divided by this number."""

_READ_PART = 10
"""A noisy loss of a trial is a mean over about the steps of it divided by this number."""

TUNING = fields(
    {"rounds": whole_number, "seed": whole_number, "grids": fields({}, other_fields=items(real))}
)
"""The rule of a tuning in a note."""


@dataclass(frozen=True)
class Tuning:
    """The trials of learning rates: for each label as many, of as many gradients, on one seed."""

    rounds: int
    """The rounds of the policies in a trial; a method uses as many gradients."""
    seed: int
    """The seed of the weights, the gradients and the task times of all trials."""
    grids: Mapping[str, Sequence[float]]
    """The learning rates of each label."""

    @classmethod
    def before(
        cls,
        experiment: Experiment,
        training: Training,
        methods: Iterable[MethodChoice],
    ) -> "Tuning":
        """Plan the trials before a comparison, for the policies and each method without a rate.

        Raises:
            ValueError: If the optimiser has no learning rate to begin from.
        """
        trainer = training.trainer
        lr = trainer.optimizer_choice.lr
        if lr is None:
            raise ValueError(
                "tune needs a learning rate to begin from, which the optimiser does not have: name"
                " the optimiser, such as sgd",
            )
        rates = {POLICIES: lr}
        for choice in methods:
            rate = choice.rate(experiment, trainer.problem, lr)
            if choice.kind is None and rate is not None:
                rates[choice.label] = rate
        grid = {}
        for label, rate in rates.items():
            # In three digits, so that what is printed is what is used.
            grid[label] = [float(f"{rate * factor:.3g}") for factor in FACTORS]
        return cls(
            max(1, experiment.rounds // PART),
            experiment.seed + experiment.seeds,
            grid,
        )

    def to_data(self) -> dict[str, Any]:
        """The tuning as plain data, for a note and a configuration."""
        grids = {label: [*grid] for label, grid in self.grids.items()}
        return {"rounds": self.rounds, "seed": self.seed, "grids": grids}

    def trials(
        self,
        experiment: Experiment,
        training: Training,
        methods: Iterable[MethodChoice],
        folder: Path,
    ) -> list["Trial"]:
        """The trials, in the order in which they are made.

        Args:
            experiment: The experiment of the comparison.
            training: What the policies train in the comparison.
            methods: The methods of the comparison.
            folder: The results folder of the comparison, which keeps the trials.
        """
        part = replace(experiment, rounds=self.rounds, seed=self.seed, seeds=1, also=())
        choices = {choice.label: choice for choice in methods}
        return [
            Trial(label, lr, trial_file(folder, label, lr), part, training, choices.get(label))
            for label, grid in self.grids.items()
            for lr in grid
        ]


@dataclass(frozen=True, eq=False)
class Trial:
    """One learning rate that is tried."""

    label: str
    lr: float
    file: Path
    """Where the result is kept, in a folder of the trial."""
    experiment: Experiment
    """The experiment of the trial, which has its rounds and its seed."""
    training: Training
    """What the policies train in the comparison."""
    method: MethodChoice | None
    """The method that is tried; None for the policies."""

    @property
    def total(self) -> int:
        """What progress counts: the rounds of the policies, or the gradients of a method."""
        if self.method is None:
            return self.experiment.rounds
        return self.experiment.rounds * self.experiment.scenario.budget

    @property
    def folder(self) -> Folder:
        """The results folder of the trial."""
        return Folder(self.file.parent)

    @property
    def files(self) -> tuple[Path, ...]:
        """The result, and what it is made of."""
        if self.method is None:
            return (self.file, *trajectory_files(self.folder))
        return (self.file, result(self.folder, self.method.label))

    def make(
        self,
        progress: Callable[[int], None],
        effort: Effort,
        made_by: Provenance,
    ) -> None:
        """Train, or go on from a checkpoint, and keep the loss; null if it is not finite."""
        if store.finished(self.file):
            progress(self.total)
            return
        config = {"trial": self.label, "lr": self.lr}
        folder = store.open_folder(
            self.file.parent,
            self.experiment.config() | self.training.config() | config,
        )
        loss: float | None
        try:
            losses = self._losses(folder, progress, effort, made_by)
            over = max(1, self.experiment.rounds // _READ_PART)
            reading = LossReading.from_problem(
                self.training.trainer.problem, self.experiment.rounds
            )
            if not reading.exact:
                reading = LossReading(over).stretched(len(losses) / self.experiment.rounds)
            loss = reading(losses).drop_nulls()[-1]
        except FloatingPointError:
            loss = None
            store.discard(trajectory_files(folder)[1])
        remove_listed(weights_file(folder))
        frame = pl.DataFrame([(self.label, self.lr, loss)], _SCHEMA, orient="row")
        store.write_frame(self.file, frame, made_by)

    def _losses(
        self,
        folder: Folder,
        progress: Callable[[int], None],
        effort: Effort,
        made_by: Provenance,
    ) -> pl.Series:
        """The losses of the rounds of the policies, or of the updates of the method."""
        training = self.training.at(self.lr, self.experiment.seed)
        if self.method is not None:
            choice = replace(self.method, lr=self.lr, kind=TUNED)
            updates = run_once(
                choice,
                training.trainer,
                self.experiment,
                folder,
                progress,
                made_by,
                training.threads,
            )
            return updates["loss"]
        rounds = self.experiment.rounds
        trajectory = train_once(
            training.trainer,
            rounds,
            folder,
            lambda done, _loss: progress(done),
            evaluate_every=rounds,
            save_every=effort.save_every,
            made_by=made_by,
        )
        return trajectory["loss"]


def tune(trials: Sequence[Trial], training: Training, folder: Folder, effort: Effort) -> None:
    """Make the trials that are not finished, with a progress bar for each label.

    Args:
        trials: What ``Tuning.trials`` returns.
        training: What the policies train in the comparison.
        folder: The results folder of the comparison.
        effort: How the work is done.

    Raises:
        ValueError: If memory is short, or other code has made what is there.
    """
    made_by = training.made_by(__name__)
    store.check_code(
        [Product(f"{trial.label} at {trial.lr:g}", trial.files, made_by) for trial in trials],
        effort.rerun_changed,
    )
    totals = Counter[str]()
    for trial in trials:
        totals[f"tuning {trial.label}"] += trial.total
    done = Counter[str]()
    try:
        with (
            named_failure(f"the problem {training.problem}"),
            store.withdrawn_on_failure(folder),
            deterministic(training.threads),
            progress_bars(totals) as update,
        ):
            for trial in trials:
                bar = f"tuning {trial.label}"
                before = done[trial.label]
                show = partial(_show, update, bar, before, f"at {trial.lr:g}")
                trial.make(show, effort, made_by)
                done[trial.label] += trial.total
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error


def _show(update: Update, bar: str, before: int, more: str, done: int) -> None:
    update(bar, before + done, more)


def trial_file(folder: Path, label: str, lr: float) -> Path:
    """The file of a trial's result in the results folder of a comparison."""
    return folder / "rates" / file_name(label) / f"{lr:g}" / "trial.parquet"


def read_trials(folder: Path, tuning: Mapping[str, Any]) -> pl.DataFrame:
    """Read the results of trials, of each label whose trials are finished.

    Args:
        folder: The results folder of the comparison.
        tuning: The tuning as plain data.

    Returns:
        Columns label, lr, loss (null where it was not finite) and chosen: whether it is the best
        of its label, the lowest loss, which may be none.

    Raises:
        DamagedError: If a file is not what was written.
    """
    frames = list[pl.DataFrame]()
    for label, grid in tuning["grids"].items():
        files = [trial_file(folder, label, lr) for lr in grid]
        # A method may have been added whose trials were stopped.
        if all(map(store.finished, files)):
            frames += map(store.read_frame, files)
    trials = pl.concat(frames)
    is_best = (pl.col("loss") == pl.col("loss").min().over("label")).fill_null(value=False)
    # Of rates that are as good the lowest is chosen.
    return trials.with_columns(best=is_best).select(
        pl.exclude("best"),
        chosen=pl.col("best") & (pl.col("best").cum_sum().over("label") == 1),
    )


def chosen_rates(trials: pl.DataFrame) -> dict[str, float]:
    """The learning rate that is chosen for each label.

    Raises:
        ValueError: If at no learning rate of a grid the loss stays finite.
    """
    rates = dict(trials.filter("chosen").select("label", "lr").iter_rows())
    hopeless = [
        label for label in trials["label"].unique(maintain_order=True) if label not in rates
    ]
    if hopeless:
        raise ValueError(
            f"no learning rate of the grid trains {', '.join(hopeless)}: the loss is finite at none"
            " of them; give a learning rate in place of tuning",
        )
    return rates


def tuning_table(trials: pl.DataFrame, tuning: Mapping[str, Any], budget: int) -> Table:
    """The table of the grids: the loss at each learning rate, and which one is chosen."""
    rows: list[tuple[str, ...]] = []
    for (label,), grid in trials.group_by("label", maintain_order=True):
        # An empty row stands above the rows of each label.
        rows.append(())
        for row in grid.to_dicts():
            if row["loss"] is None:
                loss = "not finite"
            else:
                loss = f"{row['loss']:.4g}"
            if row["chosen"]:
                note = "chosen"
            else:
                note = ""
            rows.append((str(label), f"{row['lr']:g}", loss, note))
    title = (
        f"learning rates: the loss after {plural(tuning['rounds'], 'round')}, or {budget} times as"
        f" many gradients, on seed {tuning['seed']}\n"
        "policies and methods are compared at the best of each"
    )
    return Table(title, {"": LEFT, **right(("learning rate", "loss")), " ": LEFT}, rows[1:])


def at_the_end(trials: pl.DataFrame) -> str:
    """A sentence on the labels whose best learning rate is an end of the grid; may be empty."""
    ends = []
    for (label,), grid in trials.group_by("label", maintain_order=True):
        (best,) = grid.filter("chosen")["lr"]
        if best in (grid["lr"].min(), grid["lr"].max()):
            ends.append(f"{label} ({best:g})")
    if not ends:
        return ""
    return (
        f"The best learning rate is an end of the grid, so that a better one may lie beyond, for"
        f" {', '.join(ends)}."
    )
