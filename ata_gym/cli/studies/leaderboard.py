"""``ata-gym leaderboard``: policies on a fixed set of scenarios."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line
from ata_gym.cli.studies.report import say_failure, show_with_page
from ata_gym.utils.validation import non_negative


class SetName(StrEnum):
    """The sets of scenarios."""

    steady = "steady"
    changing = "changing"
    unseen = "unseen"
    drawn = "drawn"


def leaderboard(
    running: options.Running,
    set_: Annotated[
        SetName,
        typer.Option(
            "--set",
            help="Scenarios whose workers stay as they are, scenarios that change, a check on kinds of workers that "
            "no policy was tuned on, or workers that are drawn anew for each seed.",
        ),
    ] = SetName.steady,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take a quick look of two minutes: few scenarios, rounds, prices and seeds.")
    ] = False,
    out: options.OutOrDefault = None,
    policies: Annotated[
        str | None,
        options.policies_option(
            help="Names separated by commas, also package.module:Class; by default those of the set: steady has all "
            "for workers that stay as they are, and some that follow changes."
        ),
    ] = None,
    scenarios: Annotated[
        str | None, typer.Option(help="Scenarios of the set, separated by commas; by default all.")
    ] = None,
    prices: Annotated[
        str | None, typer.Option(help="Prices, separated by commas; by default those of the set.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder of the recordings that some scenarios replay.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Paired episodes in each scenario; by default 8 for steady, 32 for drawn, else 4; quick 4, or 8."
        ),
    ] = None,
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
    from ata_gym.bench.leaderboard.run import run, set_up  # noqa: PLC0415 - these imports take a second

    effort = running.effort()
    board = set_up(
        set_,
        quick=quick,
        policies=None if policies is None else options.split_names(policies),
        scenarios=None if scenarios is None else options.split_names(scenarios, "scenario"),
        prices=None if prices is None else split_prices(prices),
        seeds=seeds,
        data=data,
        out=out,
    )
    ranked = run(board, effort, command_line())
    show_with_page(ranked.report, board.out)
    for job, error in ranked.failures.items():
        say_failure(f"{job.policy} in {job.experiment.scenario.name}", error, job.folder.failure(job.policy))
    if ranked.failures:
        raise typer.Exit(1)


def split_prices(text: str) -> list[float]:
    """Prices separated by commas, each once; ValueError if one is no number of at least 0.

    >>> split_prices("0,0.1,0")
    [0.0, 0.1]
    """
    try:
        return [non_negative("each of --prices", float(name)) for name in options.split_names(text, "price")]
    except ValueError as error:
        raise ValueError(f"--prices must be numbers of at least 0, separated by commas: {error}") from error
