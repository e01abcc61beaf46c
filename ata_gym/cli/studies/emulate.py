"""``ata-gym emulate``: policies on processes of this machine that are as slow as they are told to be."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.bench.progress import progress_bars
from ata_gym.cli import completion, options
from ata_gym.cli.console import show_report
from ata_gym.utils.extras import require
from ata_policies import Allocator
from ata_policies.registry import default_name

if TYPE_CHECKING:
    import polars as pl

_POLICIES = "uta,lb-bsp-ema,ata-empirical-icml:eta=0.2,default"
"""ATA-Empirical needs a bound on the spread of task times; emulated times, with a few per cent, are far below 0.2."""


def emulate(
    out: options.Out,
    speeds: Annotated[str, typer.Option(help="Relative task times of the workers, separated by commas.")] = "1,1,2,4",
    task_time: Annotated[float, typer.Option(help="Seconds that a task takes on the fastest worker.")] = 0.01,
    policies: options.Policies = _POLICIES,
    budget: Annotated[int, typer.Option(help="Tasks B of a round, of one sample each.")] = 64,
    rounds: Annotated[int, typer.Option(help="Training steps.")] = 200,
    problem: Annotated[
        str,
        typer.Option(help="digits or cifar100, or a classification of yours.", autocompletion=completion.problem),
    ] = "digits",
    problem_data: options.ProblemData = None,
    change_at: Annotated[
        int | None, typer.Option(help="The round from which on the workers have each other's speeds, in reverse.")
    ] = None,
    stall: Annotated[
        str | None, typer.Option(metavar="ROUND,WORKER,SECONDS", help="A worker hangs in a round for so long.")
    ] = None,
    away: Annotated[
        str | None, typer.Option(metavar="FIRST,LAST,WORKER", help="A worker is away in these rounds.")
    ] = None,
    seed: options.Seed = 0,
    rerun_changed: options.RerunChanged = False,
) -> None:
    r"""Train in processes of this machine, some of them slow.

    A real model is trained in real processes, some of which are emulated to be slow. They run under torchrun with gloo,
    wait where a slower worker would compute, and take no processor time while they wait. Each policy trains the same
    model on the same samples; one process alone does, too, and the losses must be equal. Shown are the median time of a
    round once a policy has settled, beside that of the first policy and that of the best split of whole tasks, and how
    many rounds it takes to follow a change.

    ```
    ata-gym emulate --out results/emulated
    ata-gym emulate --problem cifar100 --problem-data cifar100.npz \
        --out results/cifar100
    ata-gym emulate --rounds 400 --change-at 200 --stall 120,0,5 \
        --away 280,320,1 --out results/changes
    ```
    """
    require("torch", extra="cluster", purpose="Training in several processes")
    from ata_gym.bench.experiment.outdated import Made, check_code  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.experiment.provenance import merged, provenance  # noqa: PLC0415
    from ata_gym.bench.experiment.store import open_folder, read_frame, write_frame  # noqa: PLC0415
    from ata_gym.cluster.studies.comparison import ALONE, run  # noqa: PLC0415
    from ata_gym.cluster.studies.emulation import Emulation, task_times  # noqa: PLC0415
    from ata_gym.cluster.studies.rank import samples_of  # noqa: PLC0415
    from ata_gym.cluster.studies.report import report  # noqa: PLC0415
    from ata_gym.training.studies.trajectory import made_by_problem  # noqa: PLC0415

    emulation = Emulation(
        budget,
        task_times(_numbers("--speeds", speeds), task_time),
        rounds,
        change_at,
        stall=_event("--stall", stall),
        away=_event("--away", away),
    )
    default = default_name("ata_gym/TaskAllocation-v0")
    names = [default if name == "default" else name for name in options.split_names(policies)]
    for name in names:
        Allocator(len(emulation.times), budget, name, seed=seed)
    samples_of(problem, problem_data)
    folder = open_folder(out, {"study": "emulated", **asdict(emulation), "problem": problem, "seed": seed})
    here = made_by_problem(problem, run.__module__)
    made = [
        Made(one, (folder.result(one),), merged(provenance("uta" if one == ALONE else one, run.__module__), here))
        for one in (*names, ALONE)
    ]
    check_code(made, rerun_changed)
    records: dict[str, pl.DataFrame] = {}
    with progress_bars(dict.fromkeys((*names, ALONE), rounds)) as progress:
        for name, (_, (path,), made_by) in zip((*names, ALONE), made, strict=True):
            if not folder.finished(name):
                frame = run(emulation, name, problem, problem_data, seed, partial(progress, name))
                write_frame(path, frame, made_by)
            progress(name, rounds)
            records[name] = read_frame(path)
    times = ", ".join(f"{1000 * time:.3g}" for time in emulation.times)
    about = f"{problem}, B = {budget}, task times of {times} ms emulated by {len(emulation.times)} processes"
    show_report(report(emulation, records, about, Path(out)))


def _numbers(option: str, text: str) -> list[Any]:
    """Numbers as they are written: an int, or a float, which is no place in a row."""
    try:
        return [int(part) if part.strip().removeprefix("-").isdecimal() else float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be numbers separated by commas, not {text!r}") from None


def _event(option: str, text: str | None) -> Any:
    """The three numbers of an event; None if there is no event."""
    numbers = None if text is None else tuple(_numbers(option, text))
    if numbers is not None and len(numbers) != 3:
        raise ValueError(f"{option} must be three numbers separated by commas, not {text!r}")
    return numbers
