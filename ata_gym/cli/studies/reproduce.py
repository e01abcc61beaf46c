"""``ata-gym reproduce``: the published figures, from the same scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ata_gym.bench.studies.paper.figures import (
    CIFAR100,
    FIGURES,
    QUADRATIC,
    REGRET,
    SIZES,
)
from ata_gym.cli import options
from ata_gym.cli.console import command_line, failures_at_the_end, show_results

_USUAL_SIZES = ",".join(map(str, SIZES[QUADRATIC]))

_Figure = Annotated[
    str,
    typer.Argument(
        help=f"The published figure: {', '.join(FIGURES)}.",
        autocompletion=lambda incomplete: [name for name in FIGURES if name.startswith(incomplete)],
    ),
]
_Rounds = Annotated[
    int | None,
    typer.Option(
        help=(
            "Rounds to play; by default "
            + ", ".join(f"{usual.rounds:,} for {name}" for name, usual in FIGURES.items())
            + "."
        ),
    ),
]
_Seeds = Annotated[
    int | None,
    typer.Option(
        help=(
            "Episodes, side by side, of consecutive seeds: 8 by default,"
            f" {FIGURES[REGRET].seeds} for {REGRET}."
        ),
    ),
]
_Sizes = Annotated[
    str | None,
    typer.Option(
        help=f"{QUADRATIC}: numbers of workers, by default {_USUAL_SIZES}; also 459.",
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
    typer.Option(help="With --train: the images, as for `ata-gym train --problem cifar100`."),
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
    paper's network and draws its loss and accuracy against the runtimes, also for newer policies; a
    loss curve, or the published lines, need no training. icml2025-quadratic trains the paper's
    quadratic once, and draws f - f*, round times and regret for several numbers of workers;
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
    from ata_gym import bench as studies

    numbers = None
    if sizes is not None:
        numbers = [size.strip() for size in sizes.split(",") if size.strip()]
    with failures_at_the_end():
        results = studies.reproduce(
            figure,
            rounds=rounds,
            seeds=seeds,
            sizes=numbers,
            growth=growth,
            train=train,
            data=data,
            device=device,
            loss_curve=loss_curve,
            published=published,
            out=_folder(out, figure, rounds, seeds, growth),
            command=command_line(),
            **running.effort()._asdict(),
        )
    show_results(results)


def _folder(
    out: Path | None,
    figure: str,
    rounds: int | None,
    seeds: int | None,
    growth: str | None,
) -> Path:
    """The folder that was given, or one that is named after the figure and its sizes."""
    usual = FIGURES.get(figure)
    if out is not None or usual is None:
        # A figure that there is not is refused before its folder is touched.
        return options.results_folder(out, figure)
    kind = figure
    if figure == QUADRATIC:
        kind = f"{figure}-{growth or 'linear'}"
    if rounds is None:
        rounds = usual.rounds
    if seeds is None:
        seeds = usual.seeds
    return options.results_folder(None, kind, f"{rounds}-rounds", f"{seeds}-seeds")
