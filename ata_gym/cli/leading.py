"""``ata-gym leaderboard``: the zoo on a fixed set of worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.checks import unknown, whole_number
from ata_gym.cli.benching import Jobs, SaveEvery, check_effort, split_names
from ata_gym.cli.console import progress_bars, say, say_error, say_files, show
from ata_policies.registry import DEFAULTS

if TYPE_CHECKING:
    from ata_gym.bench.leaderboard import Play
    from ata_gym.bench.processes import Failures, Task
    from ata_gym.scenarios import Scenario

QUICK_SEEDS, SEEDS = 4, 8


def leaderboard(
    quick: Annotated[
        bool, typer.Option("--quick", help="Two minutes on two cores: few worlds, rounds, prices and seeds.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="The results folder; by default one under results/.")] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Names separated by commas, also package.module:Class; by default all but those made for a world that "
            "changes, since none of these does."
        ),
    ] = None,
    scenarios: Annotated[
        str | None, typer.Option(help="Worlds of the set, separated by commas; by default all.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the recordings that some worlds replay.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help=f"Paired episodes in each world; by default {SEEDS}, quick {QUICK_SEEDS}.")
    ] = None,
    jobs: Jobs = None,
    save_every: SaveEvery = 10.0,
) -> None:
    r"""Rank policies by cost = runtime + price x worker time, on a fixed set of worlds with a version.

    All policies meet the same luck; every ratio is one of values on the same seeds, with its 95 % confidence
    interval. Learners are ranked; oracles, which know what these must learn, and baselines are shown beside them.
    Killed and started again it goes on where it was, with the same result; policies may be added later.

    ```
    ata-gym leaderboard --quick
    ata-gym leaderboard --data recordings --out results/leaderboard
    ata-gym leaderboard --policies ata-icml,thompson,my_package.my_module:MyPolicy:shape=4
    ```
    """
    from ata_gym.bench import worlds  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.leaderboard import REFERENCE, Entry, Leaderboard, usual_policies  # noqa: PLC0415
    from ata_gym.bench.leaderboard_report import report  # noqa: PLC0415

    check_effort(jobs, save_every)
    chosen, notes = _worlds(scenarios, data, quick)
    names = usual_policies() if policies is None else split_names(policies)
    board = Leaderboard(
        chosen,
        worlds.QUICK_PRICES if quick else worlds.PRICES,
        [Entry.of(name) for name in dict.fromkeys([REFERENCE, *names])],
        whole_number("seeds", (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds),
        Path("results", f"leaderboard-{worlds.VERSION}{'-quick' * quick}") if out is None else out,
        () if quick else worlds.FRONT_PRICES,
        quick,
    )
    unable = board.unable()
    if policies is not None and unable:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))
    notes += [f"Left out: {name} ({reason})." for name, reason in unable.items()]
    board = replace(board, entries=[entry for entry in board.entries if entry.policy not in unable])
    plays = board.plays()
    failures = _play(plays, jobs, save_every)
    finished = [play for play in plays if play.task not in failures]
    if finished:
        made = report(board, finished, _defaults(), notes)
        say(made.heading)
        for note in notes:
            say(note)
        show(*made.tables)
        say_files("tables", made.files)
        say_files("pictures", made.pictures)
    for task, error in failures.items():
        say_error(
            f"{task.policy} failed in {task.experiment.title}: {type(error).__name__}: {error} "
            f"(see {task.folder.failure(task.policy)})"
        )
    if failures:
        raise typer.Exit(1)


def _worlds(names: str | None, data: Path | None, quick: bool) -> tuple[list[Scenario], list[str]]:
    """The worlds that are asked for, and what to say of those left out."""
    from ata_gym.bench import worlds  # noqa: PLC0415

    usual = worlds.QUICK if quick else worlds.world_names()
    wanted = list(usual) if names is None else split_names(names)
    for name in wanted:
        if name not in usual:
            raise unknown("quick world" if quick else "world", name, usual)
    if not wanted:
        raise ValueError(f"name at least one world: {', '.join(usual)}")
    lacking = [] if data is not None else [name for name in wanted if name in worlds.RECORDINGS]
    if names is not None and lacking:
        raise ValueError(f"{', '.join(lacking)}: give --data, the folder of the recordings")
    notes = [f"Without the recordings {', '.join(lacking)}: give their folder as --data."] if lacking else []
    if quick:
        notes.insert(0, "A quick look: few worlds, rounds, prices and seeds, so a full run may rank otherwise.")
    chosen = [worlds.world(name, data) for name in wanted if name not in lacking]
    return ([replace(world, horizon=worlds.QUICK[world.name]) for world in chosen] if quick else chosen), notes


def _play(plays: Sequence[Play], jobs: int | None, save_every: float) -> Failures:
    """Play what has not finished, with a progress bar for each world."""
    from ata_gym.bench.processes import play_tasks  # noqa: PLC0415

    totals: Counter[str] = Counter()
    for play in plays:
        totals[play.task.experiment.title] += play.task.experiment.rounds
    played: dict[Task, int] = {}
    done: Counter[str] = Counter()
    with progress_bars(totals) as show_progress:

        def progress(task: Task, rounds: int) -> None:
            world = task.experiment.title
            done[world] += rounds - played.get(task, 0)
            played[task] = rounds
            show_progress(world, done[world])

        return play_tasks([play.task for play in plays], jobs=jobs, save_every=save_every, progress=progress)


def _defaults() -> dict[str, str]:
    """The recommended policy of each env, by its short id."""
    from ata_gym.bench.leaderboard import short_id  # noqa: PLC0415

    return {short_id(env_id): name for env_id, name in DEFAULTS.items()}
