"""Methods beside policies: the same pool, problem and seed, and as many gradients."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import polars as pl

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.store.folder import Folder, finished, read_frame, write_frame
from ata_gym.bench.store.provenance import Provenance
from ata_gym.bench.studies.training.trajectory import with_last
from ata_gym.models.determinism import deterministic
from ata_gym.training.methods.method import UpdateRecord
from ata_gym.training.methods.run import MethodRun, find_method
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.files.atomic import file_name

# Kinds of learning rates: clocks are compared where the rates are of one kind.
THEORY = "that of theory"
GIVEN = "given"
TUNED = "tuned"
DEFAULT = "the problem's own"
_THEORY = "theory"


@dataclass(frozen=True)
class MethodChoice:
    """A method of a comparison, with a learning rate if the user gives one.

    Example:
        >>> MethodChoice.parse("ringmaster=0.01")
        MethodChoice(label='ringmaster=0.01', method='ringmaster', lr=0.01, kind='given')
    """

    label: str
    """The label of the method in plots, tables and files."""
    method: str
    lr: float | None = None
    """The learning rate; None for the step size of theory, and for the default."""
    kind: str | None = None
    """The kind of the learning rate; None for a rate in proportion to the policies' rate."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read NAME, NAME=RATE or NAME=theory.

        Raises:
            ValueError: If there is no such method, or the rate is not positive.
        """
        name, separator, rate = text.partition("=")
        find_method(name)
        if rate == _THEORY:
            return cls(text, name, kind=THEORY)
        try:
            if separator:
                lr = float(rate)
            else:
                lr = None
        except ValueError:
            # The check below refuses it, as it refuses "nan".
            lr = math.nan
        if lr is not None and not 0 < lr < math.inf:
            raise ValueError(
                f"a method is NAME, NAME={_THEORY}, or NAME=RATE with a positive learning rate, not"
                f" {text!r}",
            )
        return cls(text, name, lr, GIVEN if separator else None)

    def check(self, experiment: Experiment, trainer: Trainer) -> None:
        """Refuse what the method cannot run, before anything runs.

        Raises:
            ValueError: If the method does not go with the pool, the budget, the problem or the
                settings of the trainer.
        """
        # The rate does not matter yet.
        self.rate(experiment, trainer.problem, 1.0)
        scenario = experiment.scenario
        find_method(self.method)(scenario.pool, scenario.budget).check(trainer)

    def rate(
        self,
        experiment: Experiment,
        problem: Problem | Tasks,
        lr: float | None,
    ) -> float | None:
        """The learning rate of the method, or None for the problem's own.

        By default it is in proportion to the gradients of an update, so that each gradient moves
        the weights as far as a gradient of Rennala or of a policy does. The tuned rates of
        Ringmaster ASGD (ICML 2025) agree: 0.2 for one gradient, and 1 for Rennala's 6. ``"theory"``
        asks for the step sizes of theory, with the problem's L and sigma^2, and eps = sigma^2 / B.

        Args:
            experiment: It has the pool and the budget.
            problem: What is trained.
            lr: The learning rate of the policies; None for the factory's own.

        Raises:
            ValueError: If the problem does not know the constants of theory, or if workers are
                drawn anew.
        """
        if experiment.scenario.pool_distribution:
            raise ValueError(
                f"methods play one pool, and the workers of {experiment.scenario.name} are drawn"
                " anew in each episode: leave the methods out, or choose another scenario",
            )
        if self.lr is not None:
            return self.lr
        budget = experiment.scenario.budget
        method = find_method(self.method)(experiment.scenario.pool, budget)
        if self.kind is None:
            if lr is None:
                return None
            return lr * method.gradients / budget
        constants: Any = problem
        try:
            smoothness = float(constants.smoothness)
            variance = float(constants.variance)
        except AttributeError:
            raise ValueError(
                f"{self.label} needs a problem whose smoothness and variance are known, as"
                f" quadratic is: {problem.name} does not say; give a learning rate in place of"
                " theory",
            ) from None
        # Without noise any accuracy gives the same step size: 1 avoids a division by 0.
        return method.step_size(smoothness, variance, variance / budget or 1.0)


def rate_of_policies(
    lr: float | str | None,
    experiment: Experiment,
    problem: Problem | Tasks,
) -> tuple[float | None, str]:
    """The learning rate of the policies, and its kind.

    A round of the policies is an update of Rennala SGD, whose step size ``"theory"`` asks for.

    Args:
        lr: A number, also as text, ``"theory"``, or None for the problem's own rate.
        experiment: It has the pool and the budget.
        problem: What is trained.

    Raises:
        ValueError: For another text.
    """
    if lr is None:
        return None, DEFAULT
    if lr == _THEORY:
        rennala = MethodChoice(f"lr {_THEORY}", "rennala", kind=THEORY)
        return rennala.rate(experiment, problem, None), THEORY
    try:
        return float(lr), GIVEN
    except (ValueError, TypeError):
        raise ValueError(f"lr must be a positive number or {_THEORY}, not {lr!r}") from None


def rate_note(lr: float | None, kind: str) -> str:
    """The learning rate of the policies in words; empty for the problem's own."""
    if lr is None or kind == DEFAULT:
        return ""
    return f"the learning rate of the policies is {lr:.3g}, {kind}"


def other_kinds(kinds: Mapping[str, str | None], kind: str) -> dict[str, str]:
    """The methods whose learning rates are not of the kind of the policies' rate.

    Args:
        kinds: The kind of the learning rate of each method, by label. A rate in proportion, None,
            is of the same kind.
        kind: The kind of the policies' learning rate.

    Returns:
        Their kinds, by the label of the method.
    """
    return {
        label: method_kind
        for label, method_kind in kinds.items()
        if method_kind is not None and method_kind != kind
    }


def no_ratio_note(kinds: Mapping[str, str], kind: str) -> str:
    """Why some methods have no ratios; an empty text if all have them."""
    if not kinds:
        return ""
    labels = ", ".join(f"{label} ({method_kind})" for label, method_kind in kinds.items())
    return (
        f"no ratios for {labels}: the learning rate of the policies is {kind}, and a time to a loss"
        " is compared only where the learning rates are chosen alike"
    )


def run_once(
    choice: MethodChoice,
    trainer: Trainer,
    experiment: Experiment,
    folder: Folder,
    progress: Callable[[int], None] = lambda _gradients: None,
    made_by: Provenance | None = None,
    threads: int = 1,
) -> pl.DataFrame:
    """Run a method until it has used rounds * B gradients, or read its file if there is one.

    The policies use as many. The method has the problem, settings, pool and budget of the policies.

    Args:
        choice: The method.
        trainer: The trainer of the policies, before its first round.
        experiment: It has the rounds, the pool and the budget B.
        folder: Where the file is.
        progress: Called with the number of gradients used.
        made_by: The provenance that the file gets.
        threads: The number of torch's threads.

    Returns:
        A row for each update: the fields of ``UpdateRecord``, loss null for an update without
        gradients, and in the last row the problem's evaluation.

    Raises:
        FloatingPointError: If the loss is NaN or infinite.
    """
    scenario = experiment.scenario
    path = result(folder, choice.label)
    total = experiment.rounds * scenario.budget
    if finished(path):
        progress(total)
        return read_frame(path)
    settings = replace(
        trainer.settings,
        optimizer=trainer.settings.optimizer or trainer.optimizer_choice.name,
        lr=choice.rate(experiment, trainer.problem, trainer.optimizer_choice.lr),
    )
    records: list[UpdateRecord] = []
    with deterministic(threads):
        run = MethodRun(
            choice.method,
            scenario.pool,
            trainer.problem,
            budget=scenario.budget,
            **vars(settings),
        )
        for record in run:
            records.append(record)
            progress(min(record.used, total))
            if record.used >= total:
                break
        evaluation = run.evaluate()
    frame = pl.DataFrame(records, list(UpdateRecord._fields), orient="row").with_columns(
        pl.col("loss").fill_nan(None),
    )
    frame = with_last(frame, evaluation)
    write_frame(path, frame, made_by or {})
    return frame


def result(folder: Folder, method: str) -> Path:
    """The file of a method's updates.

    Args:
        folder: The results folder.
        method: The label of the method.
    """
    return folder.path / "methods" / f"{file_name(method)}.parquet"
