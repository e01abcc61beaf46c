"""A leaderboard from beginning to end: it is set up, played and reported."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import gymnasium as gym

from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.jobs import USUAL, Effort, Failures
from ata_gym.bench.leaderboard.experiment import Leaderboard
from ata_gym.bench.leaderboard.page import about
from ata_gym.bench.leaderboard.report import heading, report
from ata_gym.bench.leaderboard.sets import SETS
from ata_gym.bench.page.note import seen_in_training, write_note
from ata_gym.bench.report.headline import Competitor
from ata_gym.bench.report.report import Report
from ata_gym.bench.study import play_with_bars
from ata_gym.utils.validation import whole_number
from ata_policies.registry import DEFAULTS


def set_up(
    set_name: str = "steady", *, quick: bool = False, policies: Sequence[str] | None = None,
    scenarios: Sequence[str] | None = None, prices: Sequence[float] | None = None, seeds: int | None = None,
    data: Path | None = None, out: Path | None = None,
) -> Leaderboard:  # fmt: skip
    """A leaderboard on a set of scenarios; what is not given is as the set has it.

    ``data`` is the folder of the recordings. Policies of the set that cannot be made, and scenarios whose recordings
    are not given, are left out, and the leaderboard's notes say so. ValueError for a policy of ``policies`` that cannot
    be made, and as of ``ScenarioSet.choose``.

    >>> board = set_up("changing", quick=True, policies=["uta"], scenarios=["spot"])
    >>> [one.policy for one in board.competitors], board.seeds
    (['dynamic-ofta', 'uta'], 4)
    """
    known = SETS[set_name]
    chosen, notes = known.choose(scenarios, data, quick)
    usual_prices, usual_seeds = (known.quick_prices, known.quick_seeds) if quick else (known.prices, known.seeds)
    names = dict.fromkeys([known.reference, *(known.players() if policies is None else policies)])
    players, at = [Competitor.of(name) for name in names], usual_prices if prices is None else prices
    episodes = whole_number("seeds", usual_seeds if seeds is None else seeds)
    folder = Path("results", f"leaderboard-{known.name}-{known.version}{'-quick' * quick}") if out is None else out
    board = Leaderboard(known, chosen, at, players, episodes, folder, quick)
    unable = board.unable()
    if policies is not None and unable:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))
    notes += [f"Left out: {name} ({reason})." for name, reason in unable.items()]
    able = [one for one in board.competitors if one.policy not in unable]
    drawn = [board.experiment(one, at[0]) for one in chosen if one.drawn]
    notes += dict.fromkeys(said for one in drawn for said in seen_in_training(one, [player.policy for player in able]))
    return replace(board, competitors=able, notes=notes)


def run(board: Leaderboard, effort: Effort = USUAL, command: Sequence[str] = ()) -> tuple[Report | None, Failures]:
    """Play what has not finished, and leave tables and the picture; a report if one has finished.

    After a kill the same call goes on where it stopped. ``command`` are the words of the command that its page shows.
    ValueError if the board's folder holds something else, or results of other code.
    """
    claimed = claim(board.out)
    jobs = board.jobs()
    write_note(board.out, "leaderboard", command, about(board, jobs, heading(board)))
    failures = play_with_bars([one.job for one in jobs], effort, bar_of=lambda job: job.experiment.scenario.name)
    finished, made = [one for one in jobs if one.job not in failures], None
    if finished:
        recommended = {gym.spec(env_id).name: name for env_id, name in DEFAULTS.items()}
        made = report(board, finished, recommended)
    del claimed
    return made, failures
