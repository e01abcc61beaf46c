"""``ata-gym leaderboard``: all policies on a fixed set of scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import gymnasium as gym
import typer

from ata_gym.cli.console import progress_bars, show_report
from ata_gym.cli.options import Effort, Jobs, OutOrDefault, RerunChanged, SaveEvery, split_names
from ata_gym.cli.studies.bench import say_failure
from ata_gym.utils.validation import whole_number
from ata_policies.registry import DEFAULTS

if TYPE_CHECKING:
    from ata_gym.bench.experiment.jobs import Failures, Job

QUICK_SEEDS, SEEDS = 4, 8


def leaderboard(
    quick: Annotated[
        bool, typer.Option("--quick", help="Two minutes on two cores: few scenarios, rounds, prices and seeds.")
    ] = False,
    out: OutOrDefault = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Names separated by commas, also package.module:Class; by default all but those for non-stationary "
            "scenarios, since none of these is."
        ),
    ] = None,
    scenarios: Annotated[
        str | None, typer.Option(help="Scenarios of the set, separated by commas; by default all.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the recordings that some scenarios replay.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help=f"Paired episodes in each scenario; by default {SEEDS}, quick {QUICK_SEEDS}.")
    ] = None,
    jobs: Jobs = None,
    save_every: SaveEvery = 10.0,
    rerun_changed: RerunChanged = False,
) -> None:
    r"""Rank policies by cost = runtime + price x worker time, on a fixed set of scenarios with a version.

    All policies are played on the same random task times; every ratio is one of values on the same seeds, with its 95 %
    confidence interval. Learners are ranked; oracles, which know what these must learn, and baselines are shown beside
    them. After a kill the same command continues where it stopped, with the same result; policies may be added later.

    ```
    ata-gym leaderboard --quick
    ata-gym leaderboard --data recordings --out results/leaderboard
    ata-gym leaderboard --policies ata-icml,thompson,my_package.my_module:MyPolicy:shape=4
    ```
    """
    from ata_gym.bench.experiment.claim import claim  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.leaderboard import scenarios as known  # noqa: PLC0415
    from ata_gym.bench.leaderboard.experiment import REFERENCE, Competitor, Leaderboard, usual_policies  # noqa: PLC0415
    from ata_gym.bench.leaderboard.report import report  # noqa: PLC0415

    effort = Effort.checked(jobs, save_every, rerun_changed)
    chosen, notes = known.choose(None if scenarios is None else split_names(scenarios, "scenario"), data, quick)
    names = usual_policies() if policies is None else split_names(policies)
    board = Leaderboard(
        chosen,
        known.QUICK_PRICES if quick else known.PRICES,
        [Competitor.of(name) for name in dict.fromkeys([REFERENCE, *names])],
        whole_number("seeds", (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds),
        Path("results", f"leaderboard-{known.VERSION}{'-quick' * quick}") if out is None else out,
        () if quick else known.FRONT_PRICES,
        quick,
    )
    unable = board.unable()
    if policies is not None and unable:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))
    notes += [f"Left out: {name} ({reason})." for name, reason in unable.items()]
    board = replace(board, competitors=[one for one in board.competitors if one.policy not in unable])
    claimed = claim(board.out)
    played = board.jobs()
    failures = _play([one.job for one in played], effort)
    finished = [one for one in played if one.job not in failures]
    if finished:
        defaults = {gym.spec(env_id).name: name for env_id, name in DEFAULTS.items()}
        show_report(report(board, finished, defaults, notes))
    for job, error in failures.items():
        say_failure(f"{job.policy} in {job.experiment.scenario.name}", error, job.folder.failure(job.policy))
    del claimed
    if failures:
        raise typer.Exit(1)


def _play(todo: Sequence[Job], effort: Effort) -> Failures:
    """Play what has not finished, with a progress bar for each scenario."""
    from ata_gym.bench.experiment.jobs import play_jobs  # noqa: PLC0415

    totals: Counter[str] = Counter()
    for job in todo:
        totals[job.experiment.scenario.name] += job.experiment.rounds
    played: Counter[Job] = Counter()
    done: Counter[str] = Counter()
    with progress_bars(totals) as show_progress:

        def progress(job: Job, rounds: int) -> None:
            scenario = job.experiment.scenario.name
            done[scenario] += rounds - played[job]
            played[job] = rounds
            show_progress(scenario, done[scenario])

        return play_jobs(todo, effort.jobs, effort.save_every, progress, effort.rerun_changed)
