"""A training on the clocks of policies, as by the command ``train``."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import Effort
from ata_gym.bench.runner.policies import Policies, by_name
from ata_gym.bench.runner.results import Results
from ata_gym.bench.runner.study import Study, play
from ata_gym.bench.studies.training.methods import MethodChoice, rate_of_policies
from ata_gym.bench.studies.training.one_trajectory.study import LossStudy
from ata_gym.bench.studies.training.one_trajectory.tuning import Tuning
from ata_gym.bench.studies.training.separate.study import SeparateTrainings
from ata_gym.bench.studies.training.tensorboard import check_tensorboard, write_events
from ata_gym.bench.studies.training.trajectory import Training
from ata_gym.scenarios import Scenario
from ata_gym.training.problem import HeterogeneousProblem, make_problem
from ata_gym.training.trainer.settings import TrainingSettings
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.utils.errors import named_failure
from ata_gym.utils.validation import unknown
from ata_policies.registry import RegisteredPolicy

_POINTS = 500
"""The largest number of rounds at which the clocks are recorded."""

_SETTINGS = (
    "optimizer",
    "schedule",
    "micro_batch",
    "precision",
    "compile",
    "graphs",
    "device",
    "clip_norm",
    "ema",
    "chunk",
)
"""The fields of ``TrainingSettings`` that a training takes."""

_NOT_WITH_METHODS = ("schedule", "micro_batch", "compile", "precision", "graphs")
"""The settings that no method takes."""


def train(
    policies: Policies,
    scenario: str | Scenario,
    problem: str = "digits",
    *,
    data: str | os.PathLike[str] | None = None,
    rounds: int = 2000,
    seeds: int = 1,
    seed: int = 0,
    lr: float | str | None = None,
    methods: str | Sequence[str] = (),
    clock: str = "pool",
    workers: str = "",
    threads: int = 1,
    evaluate_every: int | None = None,
    tune: bool = False,
    tensorboard: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    command: Sequence[str] = (),
    **settings: Any,
) -> Results:
    """Train a model, and compare policies by the time until its loss is low.

    The allocation decides when a gradient is there, never what it is: one trajectory serves all
    policies. Where the data differ by worker, or with real workers, each policy trains a model of
    its own, from the same weights.

    Args:
        policies: The policies, as for ``run``.
        scenario: A scenario or its name.
        problem: The name of a problem, as ``ata_gym.training.make_problem`` takes it.
        data: A file or folder for the problems that read one.
        rounds: The number of optimiser steps.
        seeds: The number of episodes of which the clocks are the mean; the training is one.
        seed: The seed of the weights, the gradients and the task times.
        lr: The learning rate, or ``"theory"`` for the step size of Rennala SGD, of which a round is
            an update; by default the problem's.
        methods: Training methods to compare with, such as ``"ringmaster"``, ``"ringmaster=0.01"``
            with a learning rate, or ``"ringmaster=theory"``; a text may hold several, separated by
            commas. Each ends when it has used as many
            gradients as the policies, rounds times B. Its learning rate is by default the policies'
            in proportion to the gradients of an update.
        clock: ``"pool"``: the task times of the scenario. ``"device"``: the times of tasks that are
            really run on ``workers``, which are measured, and not the same the next time.
        workers: With ``clock="device"`` the devices, such as ``"cuda:0,cuda:1,cpu:2"``.
        threads: The number of torch's threads on the CPU; the bits of a result depend on it.
        evaluate_every: The rounds between evaluations on held-out data; by default at most 16,
            log-spaced.
        tune: Whether the learning rate of the policies, and of each method without one, is the best
            of a grid: ``tuning.FACTORS`` times the rate that it has otherwise. The trials have a
            fifth of the gradients, and the first seed after the seeds of the comparison; the trial
            with the lowest loss counts.
        tensorboard: A folder for the loss, the runtime and the worker time of each policy and
            method by round, as scalars that ``tensorboard --logdir`` shows. In place of the wall
            clock they have the runtime, so that the horizontal axis "relative" is the runtime.
        out: A folder that keeps tables, pictures, the trajectory and a page. Killed or called
            again, the same call goes on where it was; policies and methods may be added. Without it
            nothing is left on the disk.
        save_every: Seconds between checkpoints.
        rerun_changed: Whether to make anew what other code has made, which is refused otherwise.
        command: The words by which the page says how to repeat this; by default this call.
        settings: Fields of ``ata_gym.training.TrainingSettings``: optimizer, schedule, micro_batch,
            precision, compile, graphs, device, clip_norm, ema and chunk.

    Returns:
        Results whose ``compare`` is about the time until the loss is a hundredth of the first, or
        the lowest where that is not reached.

    Raises:
        ValueError: If something cannot be trained or played, the loss is not finite, the folder
            holds other results, or ``out`` is given for a policy whose source cannot be had.
        MissingExtraError: If a package is not installed, such as TensorBoard.

    Example:
        >>> from ata_gym import bench
        >>> results = bench.train("ofta,uta", "five-workers", "quadratic", rounds=50)
        >>> print(results.compare("ofta", "uta").sentence.partition(",")[0])
        ofta compared with uta: 56 % less runtime
    """
    policies_by_name = by_name(policies)
    if tensorboard is not None:
        check_tensorboard(tensorboard)
    size: dict[str, Any] = {"rounds": rounds, "seeds": seeds, "seed": seed}
    experiment = replace(Experiment.on_scenario(scenario, **size), points=_POINTS)
    if isinstance(methods, str):
        method_names = [name.strip() for name in methods.split(",") if name.strip()]
    else:
        method_names = [*methods]
    choices = [*map(MethodChoice.parse, dict.fromkeys(method_names))]
    training, kind = _training(problem, data, experiment, lr, threads, evaluate_every, settings)
    if clock not in {"pool", "device"}:
        raise ValueError(f"clock must be pool or device, not {clock!r}")
    if (clock == "device") != bool(workers):
        raise ValueError("clock device and workers go together: give both, or neither")
    changed = {
        "methods": bool(choices),
        "seeds": seeds != 1,
        "threads": threads != 1,
        "evaluate_every": evaluate_every is not None,
        "tune": tune,
        "lr": lr is not None,
        **{name: value != getattr(TrainingSettings, name) for name, value in settings.items()},
    }
    study = _study(policies_by_name, experiment, training, kind, choices, workers, changed)
    data_text = None
    if data is not None:
        data_text = os.fspath(data)
    options = {
        "data": data_text,
        **size,
        "lr": lr,
        "methods": method_names or None,
        "threads": threads,
        "evaluate_every": evaluate_every,
        "tune": tune or None,
        "workers": workers or None,
    }
    if workers:
        options["clock"] = clock
    page_command = command or _call(policies_by_name, experiment, problem, options | settings)
    results = play(study, out, Effort(None, save_every, rerun_changed), page_command)
    if tensorboard is not None and results.finished:
        write_events(results.records, Path(tensorboard))
    return results


def _training(
    name: str,
    data: str | os.PathLike[str] | None,
    experiment: Experiment,
    lr: float | str | None,
    threads: int,
    evaluate_every: int | None,
    settings: Mapping[str, Any],
) -> tuple[Training, str]:
    """What is trained, with the budget of an experiment, and how the learning rate was chosen."""
    for setting in settings:
        if setting not in _SETTINGS:
            raise unknown("setting of a training", setting, _SETTINGS)
    path = None if data is None else Path(data)
    with named_failure(f"the problem {name}"):
        problem = make_problem(name, path)
        rate, kind = rate_of_policies(lr, experiment, problem)
        budget = experiment.scenario.budget
        trainer = Trainer(problem, budget, lr=rate, seed=experiment.seed, **settings)
    return Training(name, trainer, path, threads, evaluate_every), kind


def _study(
    policies: Mapping[str, RegisteredPolicy | None],
    experiment: Experiment,
    training: Training,
    kind: str,
    methods: Sequence[MethodChoice],
    workers: str,
    changed: Mapping[str, bool],
) -> Study:
    """The study of a training.

    Args:
        policies: The policies by name.
        experiment: What they play.
        training: What is trained.
        kind: How the learning rate of the policies was chosen.
        methods: The methods that they are compared with.
        workers: The devices that run tasks; empty for the scenario's workers.
        changed: Which options are not at their defaults.

    Raises:
        ValueError: If options do not go together.
    """
    if methods:
        _refuse("methods", ["seeds", *_NOT_WITH_METHODS], changed)
    if changed["tune"]:
        _refuse("tune", ["lr"], changed)
    if workers:
        names = ["methods", "seeds", "threads", "evaluate_every", "tune"]
        _refuse("clock device", names, changed)
        return SeparateTrainings(policies, experiment, training, workers)
    if isinstance(training.trainer.problem, HeterogeneousProblem):
        _refuse("data that differ by worker", ["seeds", "evaluate_every", "tune"], changed)
        return SeparateTrainings(policies, experiment, training, methods=methods)
    if changed["tune"]:
        tuning = Tuning.before(experiment, training, methods)
    else:
        tuning = None
    return LossStudy(policies, experiment, training, kind, methods, tuning)


def _refuse(subject: str, names: Sequence[str], changed: Mapping[str, bool]) -> None:
    """Refuse options that do not go with a choice, if they are not at their defaults."""
    unfit = [name.replace("_", "-") for name in names if changed.get(name)]
    if unfit:
        raise ValueError(f"{subject} goes without {', '.join(unfit)}")


def _call(
    policies: Mapping[str, Any],
    experiment: Experiment,
    problem: str,
    options: Mapping[str, Any],
) -> list[str]:
    """The words of a command that repeats a call of ``train``."""
    given = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
    scenario = experiment.sizes.title
    call = f"bench.train({[*policies]}, {scenario!r}, {problem!r}{given}, out='results/train')"
    return ["python", "-c", f"from ata_gym import bench; {call}"]
