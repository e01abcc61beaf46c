"""``ata-gym train``: train a real model once, and draw its loss against the runtime of each policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli import completion
from ata_gym.cli.console import command_line, named_failure, progress_bars, say_error, say_files, show_report
from ata_gym.cli.options import (
    PUBLISHED,
    Effort,
    OneScenario,
    Out,
    Policies,
    ProblemData,
    RerunChanged,
    SaveEvery,
    split_names,
    unrecorded,
)
from ata_gym.cli.studies.bench import end_with
from ata_gym.cli.studies.report import pages
from ata_gym.cli.training.trajectory import TrainingOptions, train_with_progress
from ata_gym.training.problem import problem_names
from ata_gym.utils.extras import require

if TYPE_CHECKING:
    import polars as pl

    from ata_gym.bench.experiment.experiment import Experiment
    from ata_gym.bench.experiment.provenance import Provenance
    from ata_gym.bench.experiment.store import Folder
    from ata_gym.training.studies.comparison import MethodChoice
    from ata_gym.training.trainer.trainer import Trainer

_POINTS = 500
"""Rounds at which the clocks are recorded, at most."""

ProblemName = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(problem_names())}; or one of yours: package.module:function returns a problem, "
        "torch:package.module:function a module and its data.",
        autocompletion=completion.problem,
    ),
]

Threads = Annotated[int, typer.Option(help="Threads of torch on the CPU; the bits of a result depend on their number.")]
EvaluateEvery = Annotated[
    int | None,
    typer.Option(help="Rounds between evaluations on held-out data; by default at most 16 evaluations, log-spaced."),
]


def train(
    scenario: OneScenario,
    out: Out,
    policies: Policies = PUBLISHED,
    methods: Annotated[
        str,
        typer.Option(
            help="Training methods to compare with, NAME, NAME=RATE or NAME=theory separated by commas; "
            "`ata-gym methods` lists them."
        ),
    ] = "",
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Give policies and methods without a rate the best of 5^-5, ..., 5^4, and run them all."
        ),
    ] = False,
    problem: ProblemName = "digits",
    data: ProblemData = None,
    clock: Annotated[
        str, typer.Option(help="pool: task times of the scenario; device: of tasks that are really run on --workers.")
    ] = "pool",
    workers: Annotated[
        str, typer.Option(help='With --clock device: DEVICE or DEVICE:WORK, such as "cuda:0,cuda:1,cpu:2".')
    ] = "",
    rounds: Annotated[int, typer.Option(help="Optimiser steps.")] = 2000,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, momentum, adam or adamw; by default the problem's own.")
    ] = None,
    lr: Annotated[
        str | None,
        typer.Option(
            help="Learning rate, or theory: that of Rennala SGD, of which a round is an update; else the problem's."
        ),
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="Of the learning rate: constant, cosine:ROUNDS, linear:ROUNDS or warmup:ROUNDS.")
    ] = "constant",
    micro_batch: Annotated[int, typer.Option(help="Samples of a task.")] = 1,
    precision: Annotated[str, typer.Option(help="float32, or mixed with bfloat16 or float16.")] = "float32",
    compile_: Annotated[bool, typer.Option("--compile", help="Let torch.compile fuse the model.")] = False,
    graphs: Annotated[bool, typer.Option("--graphs", help="On CUDA: replay each gradient as a CUDA graph.")] = False,
    seed: Annotated[int, typer.Option(help="Of the weights, the gradients and the task times.")] = 0,
    threads: Threads = 1,
    evaluate_every: EvaluateEvery = None,
    device: Annotated[str, typer.Option(help="Where the model is trained: cpu, cuda or cuda:1.")] = "cpu",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log to OUT, for `tensorboard --logdir OUT`.")
    ] = False,
    save_every: SaveEvery = 10.0,
    rerun_changed: RerunChanged = False,
) -> None:
    r"""Train a model once, and draw its loss for each policy.

    The loss is drawn against the runtime and the worker time. The allocation decides when a gradient is there, never
    what it is: one trajectory serves all policies. After a kill the same command continues where it stopped, with the
    same result; policies and methods may be added later.

    Methods take the same pool, problem, optimiser and seed. Each ends when it has used as many gradients as the
    policies, rounds x B. Its learning rate is --lr in proportion to the gradients of an update; NAME=RATE gives
    another, NAME=theory that of its paper, where the problem's constants are known, and --tune the one among those of
    the published experiments with which it reaches the loss first. Without --lr, --tune chooses the policies' rate in
    the same way, and OUT/rates keeps the trajectory of each. Ratios to policies are shown where the rates are chosen
    alike: all tuned, or, with --lr theory, all by theory.

    With --clock device each policy trains anew, on the B of the scenario, and its tasks are run one by one on real
    devices: `--clock device --workers cuda:0,cuda:1,cpu:2`. Its times are measured, and not the same the next time.

    ```
    ata-gym train --scenario icml2025-cifar100 --out results/digits
    ata-gym train --scenario icml2025-cifar100 --out results/digits \
        --problem quadratic --lr theory --methods rennala,ringmaster=theory
    ata-gym train --scenario icml2025-cifar100 --out results/tuned \
        --tune --methods rennala,ringmaster
    ata-gym train --scenario five-workers --out results/devices \
        --clock device --workers cpu:1,cpu:1,cpu:2,cpu:3,cpu:6
    ```
    """
    require("torch", extra="train", purpose="The command train")
    from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - these imports take seconds
    from ata_gym.bench.experiment.jobs import play_all  # noqa: PLC0415
    from ata_gym.bench.page.note import write_note  # noqa: PLC0415
    from ata_gym.training.page import about  # noqa: PLC0415
    from ata_gym.training.problem import make_problem  # noqa: PLC0415
    from ata_gym.training.studies.comparison import TUNED, MethodChoice, best, rate_of_policies, result  # noqa: PLC0415
    from ata_gym.training.studies.curves import LossReading, goal  # noqa: PLC0415
    from ata_gym.training.studies.loss_report import report  # noqa: PLC0415
    from ata_gym.training.studies.trajectory import made_by_problem  # noqa: PLC0415
    from ata_gym.training.trainer.trainer import Trainer  # noqa: PLC0415

    effort, options = Effort.checked(1, save_every, rerun_changed), TrainingOptions.checked(threads, evaluate_every)
    names = split_names(policies)
    unrecorded(scenario, "train")
    experiment = replace(Experiment.on_scenario(scenario, rounds=rounds, seeds=1, seed=seed), points=_POINTS)
    for name in names:
        experiment.try_out(name)
    entries = [MethodChoice.parse(text) for text in (split_names(methods, "method") if methods else ())]
    if tune and lr is not None and all(entry.lr is not None for entry in entries):
        raise ValueError("--tune has nothing to tune where --lr and each method give a rate: leave --tune or --lr out")
    other = {"--schedule": schedule != "constant", "--micro-batch": micro_batch != 1, "--compile": compile_}
    other |= {"--precision": precision != "float32", "--graphs": graphs}
    if entries and any(other.values()):
        raise ValueError(f"--methods goes without {', '.join(option for option, given in other.items() if given)}")
    with named_failure(f"the problem {problem}"):
        found = make_problem(problem, data)
        rate, kind = rate_of_policies(lr, experiment, found, tune)
        trainer = Trainer(
            found, experiment.scenario.budget, optimizer=optimizer, lr=rate, schedule=schedule,
            micro_batch=micro_batch, precision=precision, compile=compile_, graphs=graphs, device=device, seed=seed,
        )  # fmt: skip
    alone = {"--methods": bool(methods), "--tensorboard": tensorboard, "--tune": tune}
    alone |= {"--threads": threads != 1, "--evaluate-every": evaluate_every is not None}
    if _on_devices(clock, workers, alone):
        from ata_gym.training.studies.device_training import DeviceStudy  # noqa: PLC0415

        with named_failure(f"the problem {problem}"), progress_bars(dict.fromkeys(names, rounds)) as progress:
            price = experiment.scenario.price
            study = DeviceStudy(workers, names, rounds, problem, data, price, save_every, rerun_changed)
            measured = study.run(trainer, out, progress)
        show_report(measured)
        return
    for entry in entries:
        entry.rate(experiment, trainer.problem, 1.0)  # refuses those that cannot run on the pool, or on the problem
    folder, trajectory, trainer, where = train_with_progress(
        trainer, experiment.config(), out, problem, data,
        tune=kind == TUNED, tensorboard=tensorboard, effort=effort, options=options,
    )  # fmt: skip
    reading = LossReading.of(trainer.problem, rounds)
    low = goal(trajectory, reading)
    experiment = replace(experiment, also=(low.round,))
    with progress_bars(dict.fromkeys(names, rounds)) as progress:
        failures = play_all(
            experiment, names, folder,
            processes=1, save_every=save_every, progress=progress, rerun_changed=rerun_changed,
        )  # fmt: skip
    finished = [name for name in names if name not in failures]
    tried = [entry.at_each_rate() if tune else [entry] for entry in entries]
    made, by = [choice for choices in tried for choice in choices], made_by_problem(problem, best.__module__)
    done, diverged = _run_methods(made, trainer, experiment, folder, by, rerun_changed, options.threads)
    frames = {}
    for choices in tried:
        those = {choice: done[choice] for choice in choices if choice in done}
        if those:
            chosen = best(those, low, experiment, reading)
            frames[chosen] = those[chosen]
            diverged = {
                label: why for label, why in diverged.items() if label not in [choice.label for choice in choices]
            }
    if finished:
        note = about(experiment, names, list(frames), trainer, kind, where.relative_to(folder.path))
        write_note(folder.path, "train", command_line(), note)
        made_report = report(experiment, finished, folder, trajectory, trainer, frames, kind)
        show_report(made_report._replace(files=[*made_report.files, *pages(folder.path)]))
        say_files("trajectory and final weights", [where / name for name in ("training.parquet", "weights.pt")])
        if frames:
            say_files("methods", [result(folder, entry) for entry in frames])
    for label, failure in diverged.items():
        say_error(f"{label}: {failure}; another learning rate is given as {label.partition('=')[0]}=RATE")
    end_with(failures, folder)
    if diverged:
        raise typer.Exit(1)


def _on_devices(clock: str, workers: str, others: dict[str, bool]) -> bool:
    """Whether tasks are run on real workers; ValueError if the options do not fit together."""
    if clock not in {"pool", "device"}:
        raise ValueError(f"--clock must be pool or device, not {clock!r}")
    if (clock == "device") != bool(workers):
        raise ValueError("--clock device and --workers go together: give both, or neither")
    if clock == "device" and any(others.values()):
        raise ValueError(f"--clock device goes without {', '.join(name for name, given in others.items() if given)}")
    return clock == "device"


def _run_methods(
    entries: list[MethodChoice],
    trainer: Trainer,
    experiment: Experiment,
    folder: Folder,
    made_by: Provenance,
    rerun_changed: bool,
    threads: int,
) -> tuple[dict[MethodChoice, pl.DataFrame], dict[str, FloatingPointError]]:
    """Run each method that has not finished yet; what it did, or why it could not continue."""
    from ata_gym.bench.experiment.outdated import Made, check_code  # noqa: PLC0415 - these imports take seconds
    from ata_gym.training.studies.comparison import result, run_once  # noqa: PLC0415

    check_code([Made(entry.label, (result(folder, entry),), made_by) for entry in entries], rerun_changed)

    frames: dict[MethodChoice, pl.DataFrame] = {}
    diverged: dict[str, FloatingPointError] = {}
    total = experiment.rounds * experiment.scenario.budget
    with progress_bars(dict.fromkeys((entry.label for entry in entries), total)) as progress:
        for entry in entries:
            try:
                frames[entry] = run_once(
                    entry, trainer, experiment, folder, partial(progress, entry.label), made_by, threads
                )
            except FloatingPointError as error:
                diverged[entry.label] = error
    return frames, diverged
