"""``ata-gym reproduce``: the published figures, from the same scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ata_gym.cli.console import say, say_files, show, show_report
from ata_gym.cli.options import (
    PUBLISHED,
    Address,
    Jobs,
    OutOrDefault,
    RerunChanged,
    SaveEvery,
    Where,
    Workers,
    checked_effort,
)
from ata_gym.cli.studies.bench import end_with, play, run_and_report
from ata_gym.scenarios.published import GROWTH, SIZES
from ata_gym.utils.extras import require
from ata_gym.utils.validation import whole_number

if TYPE_CHECKING:
    import polars as pl

    from ata_gym.bench.experiment.experiment import Experiment
    from ata_gym.bench.experiment.jobs import Effort
    from ata_gym.bench.paper.end_points import PublishedFigure
    from ata_gym.training import Trainer

QUADRATIC, CIFAR100, REGRET = "icml2025-quadratic", "icml2025-cifar100", "icml2025-regret"

QUADRATIC_ROUNDS = 300_000
"""A tenth of the published number: minutes, and the policies have begun to learn for each number of workers."""

_SIZES = "17,51,153"

REGRET_ROUNDS = 1_000_000
"""A quarter of the published number: minutes, and the regret has grown as ln K for more than two decades."""

REGRET_SEEDS = 32
"""The slope of Thompson sampling is noisy; beside so many rows the time of a call hardly counts."""

NEWER = ("ata-empirical-icml", "ata-icml", "thompson-beta")
"""Drawn beside the published policies, as the default policy is: the ICML poster's constants, and a cheap learner."""

_ONLY = {CIFAR100: ("--train", "--data", "--device"), QUADRATIC: ("--sizes", "--growth"), REGRET: ()}
"""Options of one figure."""


class _Plan(NamedTuple):
    """What the user wants to spend, and where it goes."""

    rounds: int
    seeds: int
    out: Path
    effort: Effort

    def on(self, scenario: str) -> Experiment:
        from ata_gym.bench.experiment.experiment import Experiment  # noqa: PLC0415 - it takes a second to import

        return Experiment.on_scenario(scenario, rounds=self.rounds, seeds=self.seeds)


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            help=f"The published figure: {CIFAR100}, {QUADRATIC} or {REGRET}.",
            autocompletion=lambda incomplete: [name for name in _ONLY if name.startswith(incomplete)],
        ),
    ],
    rounds: Annotated[
        int | None,
        typer.Option(
            help=f"By default the published 750,000 for {CIFAR100}, {QUADRATIC_ROUNDS:,} for {QUADRATIC}, "
            f"{REGRET_ROUNDS:,} for {REGRET}."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help=f"Episodes, side by side, of neighbouring seeds: 8 by default, {REGRET_SEEDS} for {REGRET}."),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help=f"{QUADRATIC}: numbers of workers, by default {_SIZES}; also 459.")
    ] = None,
    growth: Annotated[
        str | None,
        typer.Option(help=f"{QUADRATIC}: how mean task times grow: linear (the default), sqrt, log or square."),
    ] = None,
    train: Annotated[bool, typer.Option("--train", help=f"{CIFAR100}: draw the loss curves, too.")] = False,
    data: Annotated[
        Path | None, typer.Option(help="With --train: the images, as for the problem cifar100 of `ata-gym train`.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="With --train: where the network is trained: cpu, the default, cuda or cuda:1.")
    ] = None,
    out: OutOrDefault = None,
    jobs: Jobs = None,
    save_every: SaveEvery = 10.0,
    workers: Workers = Where.local,
    address: Address = None,
    rerun_changed: RerunChanged = False,
) -> None:
    r"""Run policies on a published scenario, and draw its figure.

    icml2025-cifar100 prints our end points beside the published ones; with --train it trains the paper's network and
    draws its loss and accuracy against the runtimes, also those of newer policies. icml2025-quadratic trains the
    paper's quadratic once, and draws f - f*, round times and regret for several numbers of workers. icml2025-regret
    draws the proxy regret against ln K, and says whether its slope is constant. After a kill the same command continues
    where it stopped.

    ```
    ata-gym reproduce icml2025-regret
    ata-gym reproduce icml2025-quadratic --sizes 17,51 --growth sqrt
    ata-gym reproduce icml2025-cifar100 --train --data cifar100.npz \
        --device cuda
    ```
    """
    from ata_gym.bench.paper import end_points  # noqa: PLC0415 - it takes a second to import

    if figure not in _ONLY:
        raise ValueError(f"there is no published figure {figure!r} to reproduce; known: {', '.join(sorted(_ONLY))}")
    given = {"--sizes": sizes, "--growth": growth, "--train": train, "--data": data, "--device": device}
    for other, options in _ONLY.items():
        unused = [option for option in options if given[option]]
        if other != figure and unused:
            raise ValueError(f"{', '.join(unused)} only goes with {other}")
    usual = {QUADRATIC: QUADRATIC_ROUNDS, REGRET: REGRET_ROUNDS, CIFAR100: end_points.CIFAR100.rounds}[figure]
    count = whole_number("rounds", usual if rounds is None else rounds)
    seeds = whole_number("seeds", (REGRET_SEEDS if figure == REGRET else 8) if seeds is None else seeds)
    kind = f"{figure}-{growth or 'linear'}" if figure == QUADRATIC else figure
    where = Path("results", f"{kind}-{count}-rounds-{seeds}-seeds") if out is None else out
    plan = _Plan(count, seeds, where, checked_effort(jobs, save_every, rerun_changed, workers, address))
    if figure == QUADRATIC:
        _quadratic(plan, sizes or _SIZES, growth or "linear")
    elif figure == REGRET:
        _regret(plan)
    else:
        _cifar100(plan, train, data, device)


def _quadratic(plan: _Plan, sizes: str, growth: str) -> None:
    """One trajectory on the clocks of all pools; each pool has a results folder of its own."""
    require("torch", extra="train", purpose=f"The figure {QUADRATIC}")
    from ata_gym.training.problems.quadratic import Quadratic  # noqa: PLC0415 - these imports take seconds
    from ata_gym.training.studies import quadratic_figure  # noqa: PLC0415
    from ata_gym.training.studies.compiled_quadratic import CompiledQuadratic  # noqa: PLC0415

    if growth not in GROWTH:
        raise ValueError(f"--growth must be one of {', '.join(GROWTH)}, not {growth!r}")
    numbers, known = [size.strip() for size in sizes.split(",") if size.strip()], [*map(str, SIZES)]
    if not numbers or not set(numbers) <= set(known):
        raise ValueError(
            f"--sizes must be numbers of workers separated by commas, among {', '.join(known)}, not {sizes!r}"
        )
    experiments = {n: plan.on(f"{QUADRATIC}-{growth}-n{n}") for n in map(int, numbers)}
    first = next(iter(experiments.values()))
    trajectory = _train(CompiledQuadratic(Quadratic(), first.scenario.budget), plan, "quadratic")
    records = {}
    for n, experiment in experiments.items():
        say(f"{experiment.scenario.name} ...")
        where = plan.out / f"{growth}-n{n}"
        folder, finished, failures = play(experiment, PUBLISHED, where, plan.effort)
        end_with(failures, folder)
        records[n] = folder.results(finished)
    about = f"B = {first.scenario.budget}, {first.length}"
    say()
    show_report(quadratic_figure.report(trajectory, records, growth, about, plan.out))


def _cifar100(plan: _Plan, train: bool, data: Path | None, device: str | None) -> None:
    """The clocks beside the published end points, and the loss on them."""
    from ata_gym.bench.paper import end_points as published  # noqa: PLC0415
    from ata_policies.registry import default_name  # noqa: PLC0415

    known = published.CIFAR100
    experiment = plan.on(known.scenario)
    if not train and (data or device):
        raise ValueError("--data and --device only go with --train")
    if train:
        trainer, images = _network(experiment.scenario.budget, data, device)
        losses = _train(trainer, plan, "cifar100", data)
    names = [*known.end_points, *((*NEWER, default_name("ata_gym/TaskAllocation-v0")) if train else ())]
    made = run_and_report(experiment, ",".join(names), plan.out, plan.effort)
    comparison = published.compare(known, made.summary, experiment.rounds)
    show(published.table(known, comparison))
    reproduced, sentence = published.verdict(known, comparison, experiment.rounds)
    say(sentence)
    if train:
        _draw_losses(experiment, known, names, losses, trainer, images, plan.out)
    if not reproduced:
        raise typer.Exit(1)


def _regret(plan: _Plan) -> None:
    """The proxy regret against ln K."""
    from ata_gym.bench.paper import regret as regret_figure  # noqa: PLC0415 - it takes a second to import

    experiment, names = plan.on(REGRET), ",".join(regret_figure.POLICIES)
    run_and_report(experiment, names, plan.out, plan.effort, report_on=regret_figure.report)


def _network(budget: int, data: Path | None, device: str | None) -> tuple[Trainer, int]:
    """The paper's network and optimiser on the user's images, and how many there are to train on."""
    require("torch", extra="train", purpose="--train")
    if data is None:
        raise ValueError(
            "--train needs the images of CIFAR-100, which do not come with this package: download them and give "
            "--data FILE, as for `ata-gym train --problem cifar100`"
        )
    from ata_gym.training import Trainer  # noqa: PLC0415
    from ata_gym.training.problems.cifar100 import cifar100  # noqa: PLC0415

    problem = cifar100(data)
    return Trainer(problem, budget, optimizer="adam", lr=8e-5, device=device or "cpu"), problem.size


def _draw_losses(
    experiment: Experiment,
    known: PublishedFigure,
    names: list[str],
    trajectory: pl.DataFrame,
    trainer: Trainer,
    images: int,
    out: Path,
) -> None:
    """Draw loss and accuracy on the mean clock of each policy, and say what is not as published."""
    from ata_gym.bench.experiment.experiment import plural  # noqa: PLC0415
    from ata_gym.bench.experiment.store import Folder  # noqa: PLC0415
    from ata_gym.training.studies.curves import LossReading, draw, lay, lay_evaluations, on_each_other  # noqa: PLC0415

    records, reading = Folder(out).results(names), LossReading.of(trainer.problem, experiment.rounds)
    curves, evaluations = lay(trajectory, records, reading), lay_evaluations(trajectory, records)
    label, note = reading.label(), on_each_other(records)
    say(
        f"\nThe paper's network, with Adam at 8e-5: {label.replace(chr(10), ' ')}: {curves['loss'][0]:.4g} in the "
        f"first round, {curves['loss'][-1]:.4g} at the end; on the held-out images: loss "
        f"{trajectory['test_loss'][-1]:.4g}, accuracy {trajectory['accuracy'][-1]:.3g}."
    )
    different = [f"{experiment.rounds:,} rounds (there {known.rounds:,})"] * (experiment.rounds != known.rounds)
    different += [f"{images:,} training images (there 50,000)"] * (images != 50_000)
    if different:
        say(f"Other than in the paper: {' and '.join(different)}.")
    if note:
        say(note)
    title = f"{experiment.about}, {plural(experiment.seeds, 'seed')}"
    say_files("loss curves", draw(curves, evaluations, label, title, out / "plots" / "loss", note))


def _train(trainer: Trainer, plan: _Plan, problem: str, data: Path | None = None) -> pl.DataFrame:
    """The trajectory of a trainer, kept in a folder of its own beside the clocks."""
    from ata_gym.bench.experiment.claim import claim  # noqa: PLC0415 - these imports take seconds
    from ata_gym.training.studies.kept_trajectory import Training, keep_trajectory  # noqa: PLC0415

    _claimed, training = claim(plan.out), Training(problem, data, effort=plan.effort)
    return keep_trajectory(training, trainer, {"rounds": plan.rounds}, plan.out / "training").trajectory
