"""``ata-gym reproduce``: the published figures, from the same scenarios."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, show, show_report
from ata_gym.cli.studies.report import show_studied
from ata_gym.utils.extras import require

if TYPE_CHECKING:
    from ata_gym.bench.experiment.experiment import Experiment
    from ata_gym.bench.experiment.jobs import Effort

QUADRATIC, CIFAR100, REGRET = "icml2025-quadratic", "icml2025-cifar100", "icml2025-regret"
MIXED, PRIOR, MOTIVATION = "icml2025-mixed", "icml2025-prior", "icml2025-motivation"

QUADRATIC_ROUNDS = 300_000
"""A tenth of the published number: minutes, and the policies have begun to learn for each number of workers."""

_SIZES = {QUADRATIC: "17,51,153", MIXED: "15,45,150"}

REGRET_ROUNDS = 1_000_000
"""A quarter of the published number: minutes, and the regret has grown as ln K for more than two decades."""

REGRET_SEEDS = 32  # the slope of Thompson sampling is noisy; beside so many rows the time of a call hardly counts

NEWER = ("ata-empirical-icml", "ata-icml", "thompson-beta")
"""Drawn beside the published policies, as the default policy is: the ICML poster's constants, and a cheap learner."""

_ONLY = {
    CIFAR100: ("--train", "--data", "--device", "--loss-curve", "--published"),
    QUADRATIC: ("--sizes", "--growth"),
    **dict.fromkeys((REGRET, MIXED, PRIOR, MOTIVATION), ()),
}
"""The figures, and the options that only one has."""


_Figure = Annotated[str, typer.Argument(
    help=f"The published figure: {', '.join(_ONLY)}.",
    autocompletion=lambda incomplete: [name for name in _ONLY if name.startswith(incomplete)],
)]  # fmt: skip
_Rounds = Annotated[int | None, typer.Option(
    help=f"Rounds to play; by default the published 750,000 for {CIFAR100}, {QUADRATIC_ROUNDS:,} for "
    f"{QUADRATIC}, {REGRET_ROUNDS:,} for {REGRET}, 50,000 for {MIXED}, 100,000 for {PRIOR}, 1,000 for {MOTIVATION}."
)]  # fmt: skip
_Seeds = Annotated[int | None, typer.Option(
    help=f"Episodes, side by side, of neighbouring seeds: 8 by default, {REGRET_SEEDS} for {REGRET}."
)]  # fmt: skip
_Sizes = Annotated[
    str | None, typer.Option(help=f"{QUADRATIC}: numbers of workers, by default {_SIZES[QUADRATIC]}; also 459.")
]
_Growth = Annotated[
    str | None, typer.Option(help=f"{QUADRATIC}: how mean task times grow: linear (the default), sqrt, log or square.")
]
_Train = Annotated[bool, typer.Option("--train", help=f"{CIFAR100}: draw the loss curves, too.")]
_Data = Annotated[Path | None, typer.Option(help="With --train: the images, as of `ata-gym train --problem cifar100`.")]
_Device = Annotated[
    str | None, typer.Option(help="With --train: where the network is trained: cpu, the default, cuda or cuda:1.")
]
_Published = Annotated[Path | None, typer.Option(
    help=f"{CIFAR100}: a CSV file of the published lines (axis, policy, time, loss_above_optimum); ours on them."
)]  # fmt: skip


def reproduce(
    figure: _Figure, running: options.Running, rounds: _Rounds = None, seeds: _Seeds = None, sizes: _Sizes = None,
    growth: _Growth = None, train: _Train = False, data: _Data = None, device: _Device = None,
    loss_curve: options.LossCurve = None, published: _Published = None, out: options.Out = None,
) -> None:  # fmt: skip
    r"""Run policies on a published scenario, and draw its figure.

    icml2025-cifar100 prints our end points beside the published ones; with --train it trains the paper's network and
    draws its loss and accuracy against the runtimes, also those of newer policies; a loss curve, or the published
    lines, need no training. icml2025-quadratic trains the paper's quadratic once, and draws f - f*, round times and
    regret for several numbers of workers; icml2025-mixed does so for workers of five families. icml2025-regret draws
    the proxy regret against ln K, and says whether its slope is constant. icml2025-prior sets ATA with a right and a
    wrong prior beside ATA without one, icml2025-motivation sets GTA with 1,010 workers beside an even share and the
    best allocation. All say what differs from the paper. After a kill the same command continues where it stopped.

    ```
    ata-gym reproduce icml2025-regret
    ata-gym reproduce icml2025-quadratic --sizes 17,51 --growth sqrt
    ata-gym reproduce icml2025-cifar100 --published poster.csv
    ata-gym reproduce icml2025-cifar100 --train --data cifar100.npz \
        --device cuda
    ```
    """
    from ata_gym.bench.experiment.experiment import Experiment
    from ata_gym.bench.paper import cifar100, regret, unpublished
    from ata_gym.bench.study import run
    from ata_gym.utils.validation import whole_number

    if figure not in _ONLY:
        raise ValueError(f"there is no published figure {figure!r} to reproduce; known: {', '.join(_ONLY)}")
    given = {"--sizes": sizes, "--growth": growth, "--train": train, "--data": data, "--device": device}
    given |= {"--loss-curve": loss_curve, "--published": published}
    for other, its_options in _ONLY.items():
        unused = [option for option in its_options if given[option]]
        if other != figure and unused:
            raise ValueError(f"{', '.join(unused)} only goes with {other}")
    usual = {QUADRATIC: QUADRATIC_ROUNDS, MIXED: 50_000, REGRET: REGRET_ROUNDS}
    usual |= {CIFAR100: cifar100.CIFAR100.rounds, PRIOR: 100_000, MOTIVATION: 1_000}
    count = whole_number("rounds", usual[figure] if rounds is None else rounds)
    seeds = whole_number("seeds", (REGRET_SEEDS if figure == REGRET else 8) if seeds is None else seeds)
    kind = f"{figure}-{growth or 'linear'}" if figure == QUADRATIC else figure
    where = options.results_folder(out, kind, f"{count}-rounds", f"{seeds}-seeds")
    effort = running.effort()
    if figure in _SIZES:
        _quadratic(kind, sizes or _SIZES[figure], growth or "linear", count, seeds, where, effort)
    elif figure == CIFAR100:
        if not train and (data or device):
            raise ValueError("--data and --device only go with --train")
        if train + (loss_curve is not None) + (published is not None) > 1:
            raise ValueError("give one of --train, --loss-curve and --published: each tells the loss of a round")
        network = (data, device or "cpu") if train else None
        experiment = Experiment.on_scenario(CIFAR100, rounds=count, seeds=seeds)
        _cifar100(experiment, where, effort, network, loss_curve, published)
    elif figure == REGRET:
        experiment = Experiment.on_scenario(REGRET, rounds=count, seeds=seeds)
        show_studied(run(experiment, regret.POLICIES, where, effort, regret.report, command=command_line()))
    else:
        scenario, policies, said = unpublished.PRIOR if figure == PRIOR else unpublished.MOTIVATION
        experiment = Experiment.on_scenario(scenario, rounds=count, seeds=seeds)
        if figure == PRIOR:  # other processes do not know the priors
            effort = options.Running(1, running.save_every, rerun_changed=running.rerun_changed).effort()
        with unpublished.with_priors(where) if figure == PRIOR else nullcontext():
            show_studied(run(experiment, policies, where, effort, command=command_line()))
        say(said)


def _quadratic(kind: str, sizes: str, growth: str, rounds: int, seeds: int, out: Path, effort: Effort) -> None:
    require("torch", extra="train", purpose=f"The figure {MIXED if kind == MIXED else QUADRATIC}")
    from ata_gym.scenarios.published import GROWTH, SIZES
    from ata_gym.training.studies import published

    if growth not in GROWTH:
        raise ValueError(f"--growth must be one of {', '.join(GROWTH)}, not {growth!r}")
    numbers, known = [size.strip() for size in sizes.split(",") if size.strip()], [*map(str, SIZES)]
    if kind != MIXED and (not numbers or not set(numbers) <= set(known)):
        raise ValueError(
            f"--sizes must be numbers of workers separated by commas, among {', '.join(known)}, not {sizes!r}"
        )
    policies = options.split_names(options.PUBLISHED)
    show_studied(published.reproduce(kind, [*map(int, numbers)], policies, rounds, seeds, out, effort), with_page=False)


def _cifar100(
    experiment: Experiment, out: Path, effort: Effort, network: tuple[Path | None, str] | None, losses: Path | None,
    published: Path | None,
) -> None:  # fmt: skip
    """The clocks beside the published end points, and what a network, a loss curve or the published lines tell."""
    from ata_gym.bench.paper import cifar100
    from ata_gym.bench.paper.norms import beside_norms
    from ata_gym.bench.report.losses import loss_curve
    from ata_gym.bench.report.report import report
    from ata_gym.bench.study import run
    from ata_policies.registry import default_name

    known, budget = cifar100.CIFAR100, experiment.scenario.budget
    names = [*known.end_points]
    theirs = None if published is None else cifar100.read_lines(published, known)
    by_round = losses if theirs is None else cifar100.common_curve(theirs, known.rounds)
    curve = None if by_round is None else loss_curve(by_round, experiment.record_at())
    if network is not None:
        require("torch", extra="train", purpose="--train")
        from ata_gym.training.studies import published as trainings

        data, device = network
        if data is None:
            raise ValueError(
                "--train needs the images of CIFAR-100, which do not come with this package: download them and give "
                "--data FILE, as for `ata-gym train --problem cifar100`"
            )
        names += [*NEWER, default_name("ata_gym/TaskAllocation-v0")]
        trained = trainings.train_network(out, experiment.rounds, effort, budget, data, device)
    more: dict[str, Any] = {} if curve is None else {"loss_curve": curve.to_dict(as_series=False)}
    studied = run(experiment, names, out, effort, partial(report, **more), command=command_line(), more=more)
    show_studied(studied)
    assert studied.report is not None
    comparison = cifar100.compare(known, studied.report.summary, experiment.rounds)
    show(cifar100.comparison_table(known, comparison))
    reproduced, sentence = cifar100.verdict(known, comparison, experiment.rounds)
    say(f"{sentence}\n{beside_norms(experiment.scenario)}")
    if theirs is not None and curve is not None:
        records = studied.folder.results([*known.end_points])
        show_report(cifar100.report_lines(theirs, curve, records, known.rounds, out))
    if network is not None:
        show_report(trainings.report_network(experiment, names, studied.folder, trained, known))
    if not reproduced:
        raise typer.Exit(1)
