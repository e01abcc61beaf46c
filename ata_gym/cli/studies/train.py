"""``ata-gym train``: train a model once, and draw its loss against each policy's runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, failures_at_the_end, show_results
from ata_gym.cli.listings import list_methods
from ata_gym.utils.extras import require


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
                "Learning rate, or theory: the step size of Rennala SGD, of which a round is an"
                " update; else the problem's."
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
                " commas; see --list-methods."
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
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help=(
                "Give the policies, and each method without a rate, the best of 0.04, 0.2, 1, 5 and"
                " 25 times their learning rate, tried on another seed."
            ),
        ),
    ] = False
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write loss, runtime and worker time by round for `tensorboard --logdir DIR`.",
        ),
    ] = None


def train(
    scenario: options.RequiredScenario,
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
    _list_methods: Annotated[
        bool,
        typer.Option(
            "--list-methods",
            callback=list_methods,
            is_eager=True,
            help="List the training methods and exit.",
        ),
    ] = False,
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
    rates are chosen alike: all given, all by theory, or all tuned. With --tune each has its best of
    a grid of five, by the loss after a fifth of the gradients, on another seed.

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
    ata-gym train --scenario icml2025-cifar100 --out results/tuned \
        --methods rennala,ringmaster --tune --tensorboard results/board
    ata-gym train --scenario five-workers --out results/devices \
        --clock device --workers cpu:1,cpu:1,cpu:2,cpu:3,cpu:6
    ```
    """
    require("torch", extra="train", purpose="The command train")
    from ata_gym import bench as studies

    effort = options.Running(1, save_every, rerun_changed=rerun_changed).effort()
    methods: list[str] = []
    if trajectory.methods:
        methods = options.split_names(trajectory.methods, "method")
    with failures_at_the_end():
        results = studies.train(
            options.split_names(policies),
            options.unrecorded(scenario, "train"),
            model.problem,
            data=model.data,
            rounds=rounds,
            seeds=trajectory.seeds,
            seed=model.seed,
            lr=model.lr,
            methods=methods,
            clock=clock,
            workers=workers,
            threads=trajectory.threads,
            evaluate_every=trajectory.evaluate_every,
            tune=trajectory.tune,
            tensorboard=trajectory.tensorboard,
            out=options.results_folder(out, scenario, "trained"),
            save_every=effort.save_every,
            rerun_changed=rerun_changed,
            command=command_line(),
            optimizer=model.optimizer,
            schedule=model.schedule,
            micro_batch=model.micro_batch,
            precision=model.precision,
            compile=model.compile_,
            graphs=model.graphs,
            device=model.device,
        )
    show_results(results)
