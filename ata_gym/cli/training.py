"""``ata-gym train``: train a real model once, and see its loss on the clock of each policy."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli.benching import PUBLISHED, SaveEvery, end_with, split_names
from ata_gym.cli.console import loss_bar, progress_bars, say, say_error, say_files, show
from ata_gym.extras import require
from ata_gym.training.problems import problem_names

if TYPE_CHECKING:
    import polars as pl

    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.store import Folder
    from ata_gym.training.methods.comparison import Entry
    from ata_gym.training.trainer import Trainer

_POINTS = 500
"""Rounds at which the clocks are recorded, at most."""

ProblemName = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(problem_names())}; or one of yours: package.module:function returns a problem, "
        "torch:package.module:function a module and its data."
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(help="For a problem that reads data (cifar100: the python or binary archive, its folder, or an npz)."),
]


def train(
    scenario: Annotated[str, typer.Option(help="A named world; `ata-gym scenarios` lists them.")],
    out: Annotated[Path, typer.Option(help="The results folder.")],
    policies: Annotated[str, typer.Option(help="Names separated by commas; also package.module:Class.")] = PUBLISHED,
    methods: Annotated[
        str,
        typer.Option(
            help="Training methods to compare with, NAME or NAME=RATE separated by commas; "
            "`ata-gym methods` lists them."
        ),
    ] = "",
    problem: ProblemName = "digits",
    data: Data = None,
    rounds: Annotated[int, typer.Option(help="Optimiser steps.")] = 2000,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, momentum, adam or adamw; by default the problem's own.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; by default the problem's.")] = None,
    schedule: Annotated[
        str, typer.Option(help="Of the learning rate: constant, cosine:ROUNDS, linear:ROUNDS or warmup:ROUNDS.")
    ] = "constant",
    micro_batch: Annotated[int, typer.Option(help="Samples of a task.")] = 1,
    precision: Annotated[str, typer.Option(help="float32, or mixed with bfloat16 or float16.")] = "float32",
    compile_: Annotated[bool, typer.Option("--compile", help="Let torch.compile fuse the model.")] = False,
    graphs: Annotated[bool, typer.Option("--graphs", help="On CUDA: replay each gradient as a CUDA graph.")] = False,
    seed: Annotated[int, typer.Option(help="Of the weights, the gradients and the task times.")] = 0,
    device: Annotated[str, typer.Option(help="Where the model is trained: cpu, cuda or cuda:1.")] = "cpu",
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log to OUT/tensorboard, for `tensorboard --logdir`.")
    ] = False,
    save_every: SaveEvery = 10.0,
) -> None:
    """Train a model once, and draw its loss against the runtime and the worker time of each policy.

    The allocation decides when a gradient is there, never what it is: one trajectory serves all policies. Killed and
    started again it goes on where it was, with the same result; policies and methods may be added later.

    Methods take the same pool, problem, optimiser and seed. Each ends when it has used as many gradients as the
    policies, rounds x B. Its learning rate is --lr times the ratio of its step size in theory to Rennala's where noise
    dominates: in proportion to the gradients of an update, half that for asynchronous methods; NAME=RATE gives another.
    """
    require("torch", extra="train", purpose="The command train")
    from ata_gym.bench.experiment import Experiment  # noqa: PLC0415 - these imports take seconds
    from ata_gym.bench.processes import play_all  # noqa: PLC0415
    from ata_gym.training.problems import make_problem  # noqa: PLC0415
    from ata_gym.training.trainer import Trainer  # noqa: PLC0415

    names = split_names(policies)
    world = Experiment.on_scenario(scenario, rounds=rounds, seeds=1, seed=seed)
    if not names:
        raise ValueError("name at least one policy; `ata-gym policies` lists them")
    experiment = replace(world, points=_POINTS)
    for name in names:
        experiment.try_out(name)
    entries = _entries(methods, experiment)
    other = {"--schedule": schedule != "constant", "--micro-batch": micro_batch != 1, "--compile": compile_}
    other |= {"--precision": precision != "float32", "--graphs": graphs}
    if entries and any(other.values()):
        raise ValueError(f"--methods goes without {', '.join(option for option, given in other.items() if given)}")
    try:
        trainer = Trainer(
            make_problem(problem, data), experiment.budget, optimizer=optimizer, lr=lr, schedule=schedule,
            micro_batch=micro_batch, precision=precision, compile=compile_, graphs=graphs, device=device, seed=seed,
        )  # fmt: skip
    except MemoryError as error:
        raise ValueError(str(error)) from error
    folder, trajectory = follow(
        trainer, experiment.config(), out, problem, data, tensorboard=tensorboard, save_every=save_every
    )
    with progress_bars(dict.fromkeys(names, rounds)) as progress:
        failures = play_all(experiment, names, folder, jobs=1, save_every=save_every, progress=progress)
    finished = [name for name in names if name not in failures]
    frames, diverged = _run_methods(entries, trainer, experiment, folder)
    if finished:
        _report(experiment, finished, folder, trajectory, trainer, frames)
    for label, failure in diverged.items():
        say_error(f"{label}: {failure}; another learning rate is given as {label.partition('=')[0]}=RATE")
    end_with(failures, folder)
    if diverged:
        raise typer.Exit(1)


def _entries(methods: str, experiment: Experiment) -> list[Entry]:
    """The methods that take part, each able to run on the pool."""
    from ata_gym.training.methods.comparison import Entry  # noqa: PLC0415 - it takes seconds to import

    entries = [Entry.parse(text) for text in split_names(methods)]
    for entry in entries:
        entry.rate(experiment, 1.0)
    return entries


def _run_methods(
    entries: list[Entry], trainer: Trainer, experiment: Experiment, folder: Folder
) -> tuple[dict[Entry, pl.DataFrame], dict[str, FloatingPointError]]:
    """Run each method that has not finished yet; what it did, or why it could not go on."""
    from ata_gym.training.methods.comparison import run_once  # noqa: PLC0415 - it takes seconds to import

    frames: dict[Entry, pl.DataFrame] = {}
    diverged: dict[str, FloatingPointError] = {}
    total = experiment.rounds * experiment.budget
    with progress_bars(dict.fromkeys((entry.label for entry in entries), total)) as progress:
        for entry in entries:
            try:
                frames[entry] = run_once(entry, trainer, experiment, folder, partial(progress, entry.label))
            except FloatingPointError as error:
                diverged[entry.label] = error
    return frames, diverged


def follow(
    trainer: Trainer,
    config: dict[str, object],
    out: Path,
    problem: str,
    data: Path | None,
    *,
    tensorboard: bool = False,
    save_every: float = 10.0,
) -> tuple[Folder, pl.DataFrame]:
    """Train to the end with a progress bar, or from where a killed run stopped.

    Parameters
    ----------
    trainer
        What is trained.
    config
        What else the folder's results depend on; its ``rounds`` say how many optimiser steps there are.
    out
        The results folder.
    problem, data
        What the user named, and from where its data was read.
    tensorboard
        Whether to log into the folder for TensorBoard.
    save_every
        Seconds between checkpoints.

    Returns
    -------
    The results folder, and the trajectory.

    Raises
    ------
    ValueError
        If the folder is of another configuration, the loss is not finite, or memory is short.
    """
    from ata_gym.bench.store import open_folder  # noqa: PLC0415 - these imports take seconds
    from ata_gym.training.tensorboard import tensorboard_log  # noqa: PLC0415
    from ata_gym.training.trajectory import train_once, training_config  # noqa: PLC0415

    if not save_every >= 0:
        raise ValueError(f"save-every must be at least 0 seconds, not {save_every}")
    rounds = int(str(config["rounds"]))
    logging = tensorboard_log(out / "tensorboard", rounds) if tensorboard else nullcontext(lambda _: None)
    folder = open_folder(out, config | training_config(trainer, problem, data))
    try:
        with loss_bar(problem, rounds) as progress, logging as log:
            return folder, train_once(trainer, rounds, folder, progress, save_every=save_every, log=log)
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    except MemoryError as error:
        raise ValueError(f"{error}; the same command goes on from the last checkpoint") from error


def _report(
    experiment: Experiment,
    policies: list[str],
    folder: Folder,
    trajectory: pl.DataFrame,
    trainer: Trainer,
    frames: dict[Entry, pl.DataFrame],
) -> None:
    """Show when each policy and method reaches a low loss, and draw the loss on each clock."""
    import polars as pl  # noqa: PLC0415

    from ata_gym.bench import tables  # noqa: PLC0415
    from ata_gym.bench.summary import summarise  # noqa: PLC0415
    from ata_gym.training.curves import draw, goal, lay  # noqa: PLC0415
    from ata_gym.training.methods import comparison  # noqa: PLC0415

    problem = trainer.problem.name
    records = folder.results(policies)
    curves = lay(trajectory, records)
    low = goal(curves)
    clocks = records.filter(pl.col("round") <= low.round)
    if frames:
        methods = comparison.lay(frames, experiment)
        reached = comparison.reached(methods, low, experiment.seed)
        clocks = pl.concat([clocks, reached], how="diagonal")
        curves = pl.concat([curves, methods])
    summary = summarise(clocks)
    summary = summary.filter(~pl.col("quantity").is_in(["regret", "support"]))
    missed = " (-: not reached)" if summary["mean"].is_null().any() else ""
    title = f"{problem} to loss {low.loss:.3g}{missed}\non {experiment.title}"
    until = replace(experiment, title=title, rounds=low.round)
    show(*tables.tables(summary, until))
    if frames:
        show(comparison.table(frames, experiment, trainer.recipe.lr))
    end = trajectory.row(-1, named=True)
    figures = [f"{name.replace('_', ' ')} {end[name]:.4g}" for name in trajectory.columns[2:]]
    say(
        f"{'the policies, ' * bool(frames)}after all {experiment.rounds:,} rounds: {', '.join(figures)}, "
        f"training loss {curves.filter(pl.col('policy') == policies[0])['loss'][-1]:.4g} (mean of the last rounds)"
    )
    about = f"{problem} on {experiment.title}  (n = {experiment.pool.n}, B = {experiment.budget})"
    say_files("tables", tables.save(summary, until, folder.path))
    say_files("pictures", draw(curves, about, folder.path / "plots" / "loss"))
    say_files("trajectory and final weights", [folder.path / name for name in ("training.parquet", "weights.pt")])
    if frames:
        say_files("methods", [comparison.result(folder, entry) for entry in frames])
