"""A leaderboard from beginning to end: it is set up, played and reported."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym

from ata_gym.bench.report.report import Report
from ata_gym.bench.role import Role
from ata_gym.bench.runner.jobs import USUAL, Effort, Failures
from ata_gym.bench.runner.play import play_with_bars
from ata_gym.bench.store.claim import claim
from ata_gym.bench.store.note import seen_in_training, write_note
from ata_gym.bench.studies.leaderboard.experiment import Leaderboard
from ata_gym.bench.studies.leaderboard.page import about
from ata_gym.bench.studies.leaderboard.report import heading, report
from ata_gym.bench.studies.leaderboard.sets import SETS
from ata_gym.utils.validation import whole_number
from ata_policies.registry import DEFAULTS


def set_up(
    set_name: str = "steady",
    *,
    quick: bool = False,
    policies: Sequence[str] | None = None,
    scenarios: Sequence[str] | None = None,
    prices: Sequence[float] | None = None,
    seeds: int | None = None,
    data: Path | None = None,
    out: Path | None = None,
) -> Leaderboard:
    """Return a leaderboard on a set of scenarios; what is not given is as the set has it.

    Policies of the set that cannot be made, and scenarios whose recordings are not given, are left
    out, and the leaderboard's notes say so.

    Args:
        set_name: The name of the set, one of ``SETS``.
        quick: Whether it is the short version.
        policies: The policies that play; the reference of the set always does.
        scenarios: The scenarios that are played.
        prices: What a unit of worker time costs, in units of runtime.
        seeds: The episodes of each policy in each scenario.
        data: The folder of the recordings.
        out: The results folder, by default one under ``results`` with the name of the set.

    Raises:
        ValueError: If one of ``policies`` cannot be made, or ``ScenarioSet.choose`` refuses one of
            ``scenarios``.

    Example:
        >>> board = set_up("changing", quick=True, policies=["uta"], scenarios=["spot"])
        >>> [competitor.policy for competitor in board.competitors], board.seeds
        (['dynamic-ofta', 'uta'], 4)
    """
    scenario_set = SETS[set_name]
    chosen, notes = scenario_set.choose(scenarios, data, quick)
    if quick:
        usual_prices = scenario_set.quick_prices
        usual_seeds = scenario_set.quick_seeds
    else:
        usual_prices = scenario_set.prices
        usual_seeds = scenario_set.seeds
    policy_names = scenario_set.players() if policies is None else policies
    names = dict.fromkeys([scenario_set.reference, *policy_names])
    players = [Role.of(name) for name in names]
    if prices is None:
        played_prices = usual_prices
    else:
        played_prices = prices
    episodes = whole_number("seeds", usual_seeds if seeds is None else seeds)
    if out is None:
        name = f"leaderboard-{scenario_set.name}-{scenario_set.version}"
        folder = Path("results", f"{name}-quick" if quick else name)
    else:
        folder = out
    board = Leaderboard(scenario_set, chosen, played_prices, players, episodes, folder, quick)
    unable = board.unable()
    if policies is not None and unable:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))
    notes += [f"Left out: {name} ({reason})." for name, reason in unable.items()]
    able_competitors = [
        competitor for competitor in board.competitors if competitor.policy not in unable
    ]
    drawn_experiments = [
        board.experiment(scenario, played_prices[0]) for scenario in chosen if scenario.drawn
    ]
    able_names = [competitor.policy for competitor in able_competitors]
    # Each sentence once, although several scenarios may have it.
    notes += dict.fromkeys(
        sentence
        for experiment in drawn_experiments
        for sentence in seen_in_training(experiment, able_names)
    )
    return replace(board, competitors=able_competitors, notes=notes)


def run(
    board: Leaderboard,
    effort: Effort = USUAL,
    command: Sequence[str] = (),
) -> tuple[Report | None, Failures]:
    """Play what has not finished yet, and leave tables and the picture in the board's folder.

    After a kill the same call goes on where it stopped.

    Args:
        board: The leaderboard.
        effort: How its jobs are done.
        command: The words of the command that its page shows.

    Returns:
        The report, or None if no job has finished; and what went wrong, for each job that failed.

    Raises:
        ValueError: If the board's folder holds something else, or results of other code.
    """
    claimed = claim(board.out)
    jobs = board.jobs()
    write_note(board.out, "leaderboard", command, about(board, jobs, heading(board)))
    failures = play_with_bars(
        [priced_job.job for priced_job in jobs],
        effort,
        bar_of=lambda job: job.experiment.scenario.name,
    )
    finished = [priced_job for priced_job in jobs if priced_job.job not in failures]
    board_report = None
    if finished:
        recommended = {gym.spec(env_id).name: name for env_id, name in DEFAULTS.items()}
        board_report = report(board, finished, recommended)
    del claimed  # the folder is held until here
    return board_report, failures
