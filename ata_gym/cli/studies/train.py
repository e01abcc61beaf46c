"""``ata-gym train``: train a model once, and draw its loss against each policy's runtime."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say_error, say_files, show_report
from ata_gym.cli.studies.report import end_with, show_with_page
from ata_gym.utils.extras import require

if TYPE_CHECKING:
    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.studies.training.comparison import MethodChoice
    from ata_gym.bench.studies.training.loss_study import Outcome
    from ata_gym.training.problem import Problem
    from ata_gym.training.trainer.trainer import Trainer

_POINTS = 500
"""The largest number of rounds at which the clocks are recorded."""


@dataclass(frozen=True)
class Model:
    """The options that say what is trained, and how."""

    problem: options.ProblemName = "digits"
    data: options.ProblemData = None
    optimizer: Annotated[
        str | None,
        typer.Option(help="sgd, momentum, adam, adamw; by default the problem's."),
    ] = None
    lr: Annotated[
        str | None,
        typer.Option(
            help=(
                "Learning rate, or theory: that of Rennala SGD, of which a round is an update; else"
                " the problem's."
            ),
        ),
    ] = None
    schedule: Annotated[
        str,
        typer.Option(
            help=(
                "How the learning rate changes: constant, cosine:ROUNDS, linear:ROUNDS or"
                " warmup:ROUNDS."
            ),
        ),
    ] = "constant"
    micro_batch: Annotated[int, typer.Option(help="Samples in each task.")] = 1
    precision: Annotated[
        str,
        typer.Option(help="float32, or mixed with bfloat16 or float16."),
    ] = "float32"
    compile_: Annotated[
        bool,
        typer.Option("--compile", help="Let torch.compile fuse the model."),
    ] = False
    graphs: Annotated[
        bool,
        typer.Option("--graphs", help="On CUDA: replay each gradient as a CUDA graph."),
    ] = False
    seed: Annotated[
        int,
        typer.Option(help="The seed of the weights, the gradients and the task times."),
    ] = 0
    device: Annotated[
        str,
        typer.Option(help="Where the model is trained: cpu, cuda or cuda:1."),
    ] = "cpu"


@dataclass(frozen=True)
class Trajectory:
    """The options of one trajectory that serves all policies, on the task times of a pool."""

    methods: Annotated[
        str,
        typer.Option(
            help=(
                "Training methods to compare with, NAME, NAME=RATE or NAME=theory separated by"
                " commas; `ata-gym methods` lists them."
            ),
        ),
    ] = ""
    seeds: Annotated[
        int,
        typer.Option(help="Episodes of which the clocks are the mean; the training is one."),
    ] = 1
    threads: Annotated[
        int,
        typer.Option(
            help="Threads of torch on the CPU; the bits of a result depend on their number.",
        ),
    ] = 1
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            help="Rounds between evaluations on held-out data; by default at most 16, log-spaced.",
        ),
    ] = None


def train(
    scenario: options.OneScenario,
    model: Model,
    trajectory: Trajectory,
    out: options.Out = None,
    policies: options.Policies = options.COMPARED,
    clock: Annotated[
        str,
        typer.Option(
            help=(
                "pool: task times of the scenario; device: of tasks that are really run on"
                " --workers."
            ),
        ),
    ] = "pool",
    workers: Annotated[
        str,
        typer.Option(
            help='With --clock device: DEVICE or DEVICE:WORK, such as "cuda:0,cuda:1,cpu:2".',
        ),
    ] = "",
    rounds: Annotated[int, typer.Option(help="The number of optimiser steps.")] = 2000,
    save_every: options.SaveEvery = 10.0,
    rerun_changed: options.RerunChanged = False,
) -> None:
    r"""Train a model once, and draw its loss for each policy.

    The loss is drawn against the runtime and the worker time. The allocation decides when a
    gradient is there, never what it is: one trajectory serves all policies. After a kill the same
    command continues where it stopped, with the same result; policies and methods may be added
    later.

    Methods take the same pool, problem, optimiser and seed. Each ends when it has used as many
    gradients as the policies, rounds x B. Its learning rate is --lr in proportion to the gradients
    of an update; NAME=RATE gives another, several of one method if you like, and NAME=theory that
    of its paper, where the problem's constants are known. Ratios to policies are shown where the
    rates are chosen alike: all given, or all by theory.

    Where the data differ by worker (--problem heterogeneous), each policy and method has losses of
    its own, and the table says where it ends.

    With --clock device each policy trains anew, on the B of the scenario, and its tasks are run one
    by one on real devices: `--clock device --workers cuda:0,cuda:1,cpu:2`. Its times are measured,
    and not the same the next time.

    ```
    ata-gym train --scenario icml2025-cifar100 --out results/digits
    ata-gym train --scenario icml2025-cifar100 --out results/digits \
        --problem quadratic --lr theory --methods rennala,ringmaster=theory
    ata-gym train --scenario icml2025-cifar100 --out results/rates \
        --methods ringmaster=0.04,ringmaster=0.2,ringmaster=1
    ata-gym train --scenario five-workers --out results/devices \
        --clock device --workers cpu:1,cpu:1,cpu:2,cpu:3,cpu:6
    ```
    """
    require("torch", extra="train", purpose="The command train")
    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.studies.training.device_training import train_each
    from ata_gym.bench.studies.training.loss_study import LossStudy
    from ata_gym.bench.studies.training.trajectory import Training
    from ata_gym.models.determinism import deterministic
    from ata_gym.training.problem import HeterogeneousProblem

    effort = options.Running(1, save_every, rerun_changed=rerun_changed).effort()
    out = options.results_folder(out, scenario, "trained")
    names = options.policy_names(policies)
    size = {"rounds": rounds, "seeds": trajectory.seeds, "seed": model.seed}
    experiment = replace(
        Experiment.on_scenario(options.unrecorded(scenario, "train"), **size),
        points=_POINTS,
    )
    for name in names:
        experiment.try_out(name)
    choices = _chosen_methods(model, trajectory)
    problem, trainer, kind = _trainer(model, experiment)
    training = Training(
        model.problem,
        model.data,
        trajectory.threads,
        trajectory.evaluate_every,
        effort,
    )
    if clock not in {"pool", "device"}:
        raise ValueError(f"--clock must be pool or device, not {clock!r}")
    if (clock == "device") != bool(workers):
        raise ValueError("--clock device and --workers go together: give both, or neither")
    if clock == "device":
        _refuse("--clock device", trajectory, [field.name for field in fields(trajectory)])
        show_report(train_each(workers, names, trainer, experiment, training, out))
        return
    if isinstance(problem, HeterogeneousProblem):
        _refuse("data that differ by worker", trajectory, ["evaluate_every", "seeds"])
        with deterministic(training.threads):
            show_report(train_each("", names, trainer, experiment, training, out, choices))
        return
    _show(LossStudy(experiment, names, trainer, training, kind, choices).run(out, command_line()))


def _chosen_methods(model: Model, trajectory: Trajectory) -> list[MethodChoice]:
    """The training methods that policies are compared with.

    Raises:
        ValueError: If there is no such method, or an option is given that methods do not take.
    """
    from ata_gym.bench.studies.training.comparison import MethodChoice

    if not trajectory.methods:
        return []
    choices = [*map(MethodChoice.parse, options.split_names(trajectory.methods, "method"))]
    _refuse("--methods", trajectory, ["seeds"])
    _refuse("--methods", model, ("schedule", "micro_batch", "compile_", "precision", "graphs"))
    return choices


def _trainer(model: Model, experiment: Experiment) -> tuple[Problem, Trainer, str]:
    """The problem, its trainer with the budget of an experiment, and how the rate was chosen."""
    from ata_gym.bench.studies.training.comparison import rate_of_policies
    from ata_gym.training.problem import make_problem
    from ata_gym.training.trainer.trainer import Trainer
    from ata_gym.utils.errors import named_failure

    with named_failure(f"the problem {model.problem}"):
        problem = make_problem(model.problem, model.data)
        rate, kind = rate_of_policies(model.lr, experiment, problem)
        trainer = Trainer(
            problem,
            experiment.scenario.budget,
            optimizer=model.optimizer,
            lr=rate,
            schedule=model.schedule,
            micro_batch=model.micro_batch,
            precision=model.precision,
            compile=model.compile_,
            graphs=model.graphs,
            device=model.device,
            seed=model.seed,
        )
    return problem, trainer, kind


def _refuse(option: str, group: Model | Trajectory, names: Iterable[str]) -> None:
    """Raise ValueError if one of the options of a group is not at its default."""
    changed = [name for name in names if getattr(group, name) != getattr(type(group), name)]
    if changed:
        flags = (f"--{name.strip('_').replace('_', '-')}" for name in changed)
        raise ValueError(f"{option} goes without {', '.join(flags)}")


def _show(outcome: Outcome) -> None:
    """Show what a study leaves; exit with code 1 if a policy or a method failed."""
    folder = outcome.trained.folder
    show_with_page(outcome.report, folder.path)
    if outcome.report is not None:
        say_files(
            "trajectory and final weights",
            [folder.path / name for name in ("training.parquet", "weights.pt")],
        )
        if outcome.methods:
            say_files("methods", outcome.methods)
    for label, failure in outcome.diverged.items():
        say_error(
            f"{label}: {failure}; another learning rate is given as {label.partition('=')[0]}=RATE",
        )
    end_with(outcome.failures, folder)
    if outcome.diverged:
        raise typer.Exit(1)
