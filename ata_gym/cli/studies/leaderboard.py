"""``ata-gym leaderboard``: policies on a fixed set of scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import gymnasium as gym
import typer

from ata_gym.bench.progress import progress_bars
from ata_gym.cli.console import command_line, show_report
from ata_gym.cli.options import (
    Address,
    Jobs,
    OutOrDefault,
    RerunChanged,
    SaveEvery,
    Where,
    Workers,
    checked_effort,
    policies_option,
    split_names,
)
from ata_gym.cli.studies.bench import say_failure
from ata_gym.cli.studies.report import pages
from ata_gym.utils.validation import non_negative, whole_number
from ata_policies.registry import DEFAULTS

if TYPE_CHECKING:
    import polars as pl

    from ata_gym.bench.experiment.jobs import Effort, Failures
    from ata_gym.bench.experiment.run import Job
    from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob


class SetName(StrEnum):
    """The sets of scenarios."""

    steady = "steady"
    changing = "changing"
    unseen = "unseen"
    drawn = "drawn"


def leaderboard(
    set_: Annotated[
        SetName,
        typer.Option(
            "--set",
            help="Scenarios whose workers stay as they are, scenarios that change, a check on kinds of workers that "
            "no policy was tuned on, or workers that are drawn anew for each seed.",
        ),
    ] = SetName.steady,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two minutes on two cores: few scenarios, rounds, prices and seeds.")
    ] = False,
    out: OutOrDefault = None,
    policies: Annotated[
        str | None,
        policies_option(
            help="Names separated by commas, also package.module:Class; by default those of the set: steady has all "
            "for workers that stay as they are, and some that follow changes."
        ),
    ] = None,
    scenarios: Annotated[
        str | None, typer.Option(help="Scenarios of the set, separated by commas; by default all.")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="Separated by commas; by default those of the set.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the recordings that some scenarios replay.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Paired episodes in each scenario; by default 8 for steady, 32 for drawn, else 4; quick 4, or 8."
        ),
    ] = None,
    jobs: Jobs = None,
    save_every: SaveEvery = 10.0,
    workers: Workers = Where.local,
    address: Address = None,
    rerun_changed: RerunChanged = False,
) -> None:
    r"""Rank policies by cost on a fixed set of scenarios.

    The cost is runtime + price x worker time, and a set has a version. All policies are played on the same random task
    times; every ratio is one of values on the same seeds, with its 95 % confidence interval. Learners are ranked;
    oracles, which know what these must learn, and baselines are shown beside them. Decisions are timed, too. After a
    kill the same command continues where it stopped, with the same result; policies may be added later.

    ```
    ata-gym leaderboard --quick
    ata-gym leaderboard --data recordings --out results/leaderboard
    ata-gym leaderboard --set changing --data recordings
    ata-gym leaderboard --set unseen --scenarios walk,lomax --prices 0 \
        --policies restarting-beta,distribution-learner
    ata-gym leaderboard --set drawn --quick --workers ray --address auto
    ata-gym leaderboard \
        --policies ata-icml,thompson,my_package.my_module:MyPolicy:shape=4
    ```
    """
    from ata_gym.bench.competitor import Competitor  # noqa: PLC0415
    from ata_gym.bench.experiment.claim import claim  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.leaderboard.experiment import Leaderboard  # noqa: PLC0415
    from ata_gym.bench.leaderboard.page import about  # noqa: PLC0415
    from ata_gym.bench.leaderboard.report import heading, report  # noqa: PLC0415
    from ata_gym.bench.leaderboard.sets.registry import SETS  # noqa: PLC0415
    from ata_gym.bench.page.note import write_note  # noqa: PLC0415

    effort, known = checked_effort(jobs, save_every, rerun_changed, workers, address), SETS[set_]
    chosen, notes = known.choose(None if scenarios is None else split_names(scenarios, "scenario"), data, quick)
    names = known.players() if policies is None else split_names(policies)
    usual_prices, usual_seeds = (known.quick_prices, known.quick_seeds) if quick else (known.prices, known.seeds)
    board = Leaderboard(
        known,
        chosen,
        usual_prices if prices is None else split_prices(prices),
        [Competitor.of(name) for name in dict.fromkeys([known.reference, *names])],
        whole_number("seeds", usual_seeds if seeds is None else seeds),
        Path("results", f"leaderboard-{known.name}-{known.version}{'-quick' * quick}") if out is None else out,
        quick,
    )
    unable = board.unable()
    if policies is not None and unable:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))
    notes += [f"Left out: {name} ({reason})." for name, reason in unable.items()]
    board = replace(board, competitors=[one for one in board.competitors if one.policy not in unable])
    claimed = claim(board.out)
    played = board.jobs()
    write_note(board.out, "leaderboard", command_line(), about(board, played, heading(board), notes))
    failures = _play([one.job for one in played], effort)
    finished = [one for one in played if one.job not in failures]
    if finished:
        recommended = {gym.spec(env_id).name: name for env_id, name in DEFAULTS.items()}
        made = report(board, finished, recommended, notes, _timed(board, finished))
        show_report(made._replace(files=[*made.files, *pages(board.out)]))
    for job, error in failures.items():
        say_failure(f"{job.policy} in {job.experiment.scenario.name}", error, job.folder.failure(job.policy))
    del claimed
    if failures:
        raise typer.Exit(1)


def split_prices(text: str) -> list[float]:
    """Prices separated by commas, each once; ValueError if one is no number of at least 0.

    >>> split_prices("0,0.1,0")
    [0.0, 0.1]
    """
    try:
        return [non_negative("each of --prices", float(name)) for name in split_names(text, "price")]
    except ValueError as error:
        raise ValueError(f"--prices must be numbers of at least 0, separated by commas: {error}") from error


def _timed(board: Leaderboard, finished: Sequence[PricedJob]) -> pl.DataFrame:
    """How long decisions take, with a progress bar."""
    from ata_gym.bench.leaderboard.decisions import measure  # noqa: PLC0415

    what = len({(one.competitor, one.job.experiment.scenario.name) for one in finished})
    with progress_bars({"timing": what}) as show_progress:
        return measure(board, finished, lambda done: show_progress("timing", done))


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

        return play_jobs(todo, effort, progress)
