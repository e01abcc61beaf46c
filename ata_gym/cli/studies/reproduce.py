"""``ata-gym reproduce``: the published figures, from the same scenarios."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, show, show_report
from ata_gym.cli.studies.report import show_studied
from ata_gym.utils.extras import require

if TYPE_CHECKING:
    import polars as pl

    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.runner.jobs import Effort

QUADRATIC = "icml2025-quadratic"
CIFAR100 = "icml2025-cifar100"
REGRET = "icml2025-regret"
MIXED = "icml2025-mixed"
PRIOR = "icml2025-prior"
MOTIVATION = "icml2025-motivation"

QUADRATIC_ROUNDS = 300_000
"""A tenth of the published number of rounds, which take minutes.

The policies begin to learn in them, for each number of workers.
"""

_SIZES = {QUADRATIC: "17,51,153", MIXED: "15,45,150"}
"""The numbers of workers by default."""

REGRET_ROUNDS = 1_000_000
"""A quarter of the published number of rounds, which take minutes.

The regret grows as ln K for more than two decades of them.
"""

REGRET_SEEDS = 32
"""Seeds of the figure of the regret.

The slope of Thompson sampling is noisy, and so many rows hardly take longer than a few.
"""

NEWER = ("ata-empirical-icml", "ata-icml", "thompson-beta")
"""Policies that are drawn beside the published ones, as the default policy is.

They are the two with the constants of the ICML poster, and a cheap learner.
"""

_ONLY = {
    CIFAR100: ("--train", "--data", "--device", "--loss-curve", "--published"),
    QUADRATIC: ("--sizes", "--growth"),
    **dict.fromkeys((REGRET, MIXED, PRIOR, MOTIVATION), ()),
}
"""The figures, and the options that only one has."""

_Figure = Annotated[
    str,
    typer.Argument(
        help=f"The published figure: {', '.join(_ONLY)}.",
        autocompletion=lambda incomplete: [name for name in _ONLY if name.startswith(incomplete)],
    ),
]
_Rounds = Annotated[
    int | None,
    typer.Option(
        help=(
            f"Rounds to play; by default the published 750,000 for {CIFAR100}, {QUADRATIC_ROUNDS:,}"
            f" for {QUADRATIC}, {REGRET_ROUNDS:,} for {REGRET}, 50,000 for {MIXED}, 100,000 for"
            f" {PRIOR}, 1,000 for {MOTIVATION}."
        ),
    ),
]
_Seeds = Annotated[
    int | None,
    typer.Option(
        help=(
            f"Episodes, side by side, of neighbouring seeds: 8 by default, {REGRET_SEEDS} for"
            f" {REGRET}."
        ),
    ),
]
_Sizes = Annotated[
    str | None,
    typer.Option(
        help=f"{QUADRATIC}: numbers of workers, by default {_SIZES[QUADRATIC]}; also 459.",
    ),
]
_Growth = Annotated[
    str | None,
    typer.Option(
        help=f"{QUADRATIC}: how mean task times grow: linear (the default), sqrt, log or square.",
    ),
]
_Train = Annotated[bool, typer.Option("--train", help=f"{CIFAR100}: draw the loss curves, too.")]
_Data = Annotated[
    Path | None,
    typer.Option(help="With --train: the images, as of `ata-gym train --problem cifar100`."),
]
_Device = Annotated[
    str | None,
    typer.Option(
        help="With --train: where the network is trained: cpu, the default, cuda or cuda:1.",
    ),
]
_Published = Annotated[
    Path | None,
    typer.Option(
        help=(
            f"{CIFAR100}: a CSV file of the published lines (axis, policy, time,"
            " loss_above_optimum); ours on them."
        ),
    ),
]


def reproduce(
    figure: _Figure,
    running: options.Running,
    rounds: _Rounds = None,
    seeds: _Seeds = None,
    sizes: _Sizes = None,
    growth: _Growth = None,
    train: _Train = False,
    data: _Data = None,
    device: _Device = None,
    loss_curve: options.LossCurve = None,
    published: _Published = None,
    out: options.Out = None,
) -> None:
    r"""Run policies on a published scenario, and draw its figure.

    icml2025-cifar100 prints our end points beside the published ones; with --train it trains the
    paper's network and draws its loss and accuracy against the runtimes, also those of newer
    policies; a loss curve, or the published lines, need no training. icml2025-quadratic trains the
    paper's quadratic once, and draws f - f*, round times and regret for several numbers of workers;
    icml2025-mixed does so for workers of five families. icml2025-regret draws the proxy regret
    against ln K, and says whether its slope is constant. icml2025-prior sets ATA with a right and a
    wrong prior beside ATA without one, icml2025-motivation sets GTA with 1,010 workers beside an
    even share and the best allocation. All say what differs from the paper. After a kill the same
    command continues where it stopped.

    ```
    ata-gym reproduce icml2025-regret
    ata-gym reproduce icml2025-quadratic --sizes 17,51 --growth sqrt
    ata-gym reproduce icml2025-cifar100 --published poster.csv
    ata-gym reproduce icml2025-cifar100 --train --data cifar100.npz \
        --device cuda
    ```
    """
    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.runner.play import run
    from ata_gym.bench.studies.paper import regret

    option_values = {
        "--sizes": sizes,
        "--growth": growth,
        "--train": train,
        "--data": data,
        "--device": device,
        "--loss-curve": loss_curve,
        "--published": published,
    }
    _check_options(figure, option_values)
    count, seeds = _size(figure, rounds, seeds)
    if figure == QUADRATIC:
        kind = f"{figure}-{growth or 'linear'}"
    else:
        kind = figure
    folder = options.results_folder(out, kind, f"{count}-rounds", f"{seeds}-seeds")
    effort = running.effort()
    if figure in _SIZES:
        _quadratic(kind, sizes or _SIZES[figure], growth or "linear", count, seeds, folder, effort)
    elif figure == CIFAR100:
        if not train and (data or device):
            raise ValueError("--data and --device only go with --train")
        if train + (loss_curve is not None) + (published is not None) > 1:
            raise ValueError(
                "give one of --train, --loss-curve and --published: each tells the loss of a round",
            )
        if train:
            network = (data, device or "cpu")
        else:
            network = None
        experiment = Experiment.on_scenario(CIFAR100, rounds=count, seeds=seeds)
        _cifar100(experiment, folder, effort, network, loss_curve, published)
    elif figure == REGRET:
        experiment = Experiment.on_scenario(REGRET, rounds=count, seeds=seeds)
        show_studied(
            run(experiment, regret.POLICIES, folder, effort, regret.report, command=command_line()),
        )
    elif figure == PRIOR:
        _prior(count, seeds, folder, running)
    else:
        _motivation(count, seeds, folder, effort)


def _check_options(figure: str, option_values: Mapping[str, object]) -> None:
    """Raise ValueError if there is no such figure, or an option belongs to another figure."""
    if figure not in _ONLY:
        raise ValueError(
            f"there is no published figure {figure!r} to reproduce; known: {', '.join(_ONLY)}",
        )
    for owner, its_options in _ONLY.items():
        unused = [option for option in its_options if option_values[option]]
        if owner != figure and unused:
            raise ValueError(f"{', '.join(unused)} only goes with {owner}")


def _size(figure: str, rounds: int | None, seeds: int | None) -> tuple[int, int]:
    """The rounds and the seeds of a figure, by default its usual ones."""
    from ata_gym.bench.studies.paper import cifar100
    from ata_gym.utils.validation import whole_number

    usual = {
        QUADRATIC: QUADRATIC_ROUNDS,
        MIXED: 50_000,
        REGRET: REGRET_ROUNDS,
        CIFAR100: cifar100.CIFAR100.rounds,
        PRIOR: 100_000,
        MOTIVATION: 1_000,
    }
    if rounds is None:
        rounds = usual[figure]
    if seeds is None and figure == REGRET:
        seeds = REGRET_SEEDS
    elif seeds is None:
        seeds = 8
    return whole_number("rounds", rounds), whole_number("seeds", seeds)


def _prior(rounds: int, seeds: int, out: Path, running: options.Running) -> None:
    """ATA with a right and a wrong prior beside ATA without one."""
    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.runner.play import run
    from ata_gym.bench.studies.paper import unpublished

    scenario, policies, remark = unpublished.PRIOR
    experiment = Experiment.on_scenario(scenario, rounds=rounds, seeds=seeds)
    # in this process, since other processes do not know the priors
    in_process = options.Running(1, running.save_every, rerun_changed=running.rerun_changed)
    effort = in_process.effort()
    with unpublished.with_priors(out):
        show_studied(run(experiment, policies, out, effort, command=command_line()))
    say(remark)


def _motivation(rounds: int, seeds: int, out: Path, effort: Effort) -> None:
    """GTA with 1,010 workers beside an even share and the best allocations."""
    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.runner.play import run
    from ata_gym.bench.studies.paper import unpublished

    scenario, policies, remark = unpublished.MOTIVATION
    experiment = Experiment.on_scenario(scenario, rounds=rounds, seeds=seeds)
    show_studied(run(experiment, policies, out, effort, command=command_line()))
    say(remark)


def _quadratic(
    kind: str,
    sizes: str,
    growth: str,
    rounds: int,
    seeds: int,
    out: Path,
    effort: Effort,
) -> None:
    """Train the paper's quadratic once, and draw it for several numbers of workers."""
    if kind == MIXED:
        figure = MIXED
    else:
        figure = QUADRATIC
    require("torch", extra="train", purpose=f"The figure {figure}")
    from ata_gym.bench.studies.training import published
    from ata_gym.scenarios.published import GROWTH, SIZES

    if growth not in GROWTH:
        raise ValueError(f"--growth must be one of {', '.join(GROWTH)}, not {growth!r}")
    numbers = [size.strip() for size in sizes.split(",") if size.strip()]
    available = [*map(str, SIZES)]
    if kind != MIXED and (not numbers or not set(numbers) <= set(available)):
        raise ValueError(
            f"--sizes must be numbers of workers separated by commas, among {', '.join(available)},"
            f" not {sizes!r}",
        )
    policies = options.split_names(options.PUBLISHED)
    show_studied(
        published.reproduce(kind, [*map(int, numbers)], policies, rounds, seeds, out, effort),
        with_page=False,
    )


def _cifar100(
    experiment: Experiment,
    out: Path,
    effort: Effort,
    network: tuple[Path | None, str] | None,
    losses: Path | None,
    published: Path | None,
) -> None:
    """The clocks beside the published end points, and the losses that are known.

    Losses come from a network that is trained, from a loss curve, or from the published lines.
    """
    from ata_gym.bench.report.losses import loss_curve
    from ata_gym.bench.report.report import report
    from ata_gym.bench.runner.play import run
    from ata_gym.bench.studies.paper import cifar100
    from ata_gym.bench.studies.paper.norms import beside_norms
    from ata_policies.registry import default_name

    figure = cifar100.CIFAR100
    budget = experiment.scenario.budget
    names = [*figure.end_points]
    if published is None:
        published_lines = None
    else:
        published_lines = cifar100.read_lines(published, figure)
    loss_by_round: Path | pl.DataFrame | None
    if published_lines is None:
        loss_by_round = losses
    else:
        loss_by_round = cifar100.common_curve(published_lines, figure.rounds)
    if loss_by_round is None:
        curve = None
    else:
        curve = loss_curve(loss_by_round, experiment.record_at())
    if network is not None:
        require("torch", extra="train", purpose="--train")
        from ata_gym.bench.studies.training import published as trainings

        data, device = network
        if data is None:
            raise ValueError(
                "--train needs the images of CIFAR-100, which do not come with this package:"
                " download them and give --data FILE, as for `ata-gym train --problem cifar100`",
            )
        names += [*NEWER, default_name("ata_gym/TaskAllocation-v0")]
        trained = trainings.train_network(out, experiment.rounds, effort, budget, data, device)
    loss_options: dict[str, Any]
    if curve is None:
        loss_options = {}
    else:
        loss_options = {"loss_curve": curve.to_dict(as_series=False)}
    studied = run(
        experiment,
        names,
        out,
        effort,
        partial(report, **loss_options),
        command=command_line(),
        more=loss_options,
    )
    show_studied(studied)
    assert studied.report is not None
    comparison = cifar100.compare(figure, studied.report.summary, experiment.rounds)
    show(cifar100.comparison_table(figure, comparison))
    reproduced, sentence = cifar100.verdict(figure, comparison, experiment.rounds)
    say(f"{sentence}\n{beside_norms(experiment.scenario)}")
    if published_lines is not None and curve is not None:
        records = studied.folder.results([*figure.end_points])
        show_report(cifar100.report_lines(published_lines, curve, records, figure.rounds, out))
    if network is not None:
        show_report(trainings.report_network(experiment, names, studied.folder, trained, figure))
    if not reproduced:
        raise typer.Exit(1)
