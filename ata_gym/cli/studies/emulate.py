"""``ata-gym emulate``: policies on processes of this machine of emulated speeds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ata_gym.cli import completion, options
from ata_gym.cli.console import show_report
from ata_gym.utils.extras import require
from ata_policies.registry import default_name

_POLICIES = "uta,lb-bsp-ema,ata-empirical-icml:eta=0.2,default"
"""ATA-Empirical needs a bound on the spread of task times; emulated times, with a few per cent, are far below 0.2."""


def emulate(
    out: options.Out,
    speeds: Annotated[str, typer.Option(help="Relative task times of the workers, separated by commas.")] = "1,1,2,4",
    task_time: Annotated[float, typer.Option(help="Seconds that a task takes on the fastest worker.")] = 0.01,
    policies: options.Policies = _POLICIES,
    budget: Annotated[int, typer.Option(help="Tasks B of a round, of one sample each.")] = 64,
    rounds: Annotated[int, typer.Option(help="The number of training steps.")] = 200,
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
    model on the same samples; one process alone does, too, and the losses must be equal. The report shows the median
    time of a round once a policy has settled, beside that of the first policy and that of the best split of whole
    tasks, and how many rounds it takes to follow a change.

    ```
    ata-gym emulate --out results/emulated
    ata-gym emulate --problem cifar100 --problem-data cifar100.npz \
        --out results/cifar100
    ata-gym emulate --rounds 400 --change-at 200 --stall 120,0,5 \
        --away 280,320,1 --out results/changes
    ```
    """
    require("torch", extra="cluster", purpose="Training in several processes")
    from ata_gym.cluster.studies.emulation import Emulation, Training, task_times  # noqa: PLC0415 - it takes a second
    from ata_gym.cluster.studies.study import run  # noqa: PLC0415

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
    show_report(run(emulation, names, Training(problem, problem_data, seed), out, rerun_changed))


def _numbers(option: str, text: str) -> list[Any]:
    """The numbers of a text, each an int or a float as it is written."""
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
