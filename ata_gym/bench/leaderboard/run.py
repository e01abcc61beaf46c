"""A leaderboard from beginning to end: it is set up, played, timed and reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import polars as pl

from ata_gym.bench.decision_cost import decision_times
from ata_gym.bench.experiment.claim import claim
from ata_gym.bench.experiment.jobs import USUAL, Effort, Failures
from ata_gym.bench.experiment.provenance import in_short, provenance
from ata_gym.bench.experiment.store import read_json, write_json
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob
from ata_gym.bench.leaderboard.page import about
from ata_gym.bench.leaderboard.report import TIMINGS, heading, report
from ata_gym.bench.leaderboard.sets import SETS
from ata_gym.bench.page.note import write_note
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.headline import Competitor
from ata_gym.bench.report.report import Report
from ata_gym.bench.study import play_with_bars
from ata_gym.utils.sealed import DamagedError
from ata_gym.utils.validation import whole_number
from ata_policies.registry import DEFAULTS

TIMED_PRICE, TIMED_ROUNDS = 0.1, 1_000  # the price at which decisions are timed, and in how many rounds at most


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
    board = Leaderboard(
        known,
        chosen,
        usual_prices if prices is None else prices,
        [Competitor.of(name) for name in names],
        whole_number("seeds", usual_seeds if seeds is None else seeds),
        Path("results", f"leaderboard-{known.name}-{known.version}{'-quick' * quick}") if out is None else out,
        quick,
    )
    unable = board.unable()
    if policies is not None and unable:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in unable.items()))
    notes += [f"Left out: {name} ({reason})." for name, reason in unable.items()]
    return replace(board, competitors=[one for one in board.competitors if one.policy not in unable], notes=notes)


def run(board: Leaderboard, effort: Effort = USUAL, command: Sequence[str] = ()) -> tuple[Report | None, Failures]:
    """Play what has not finished, time decisions, and leave tables and the picture; a report if one has finished.

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
        made = report(board, finished, recommended, measure(board, finished))
    del claimed
    return made, failures


def measure(board: Leaderboard, finished: Sequence[PricedJob]) -> pl.DataFrame:
    """Time the decisions of all who have played, where that was not done before by the same code.

    Columns env, policy, scenario, mean and worst, in milliseconds, see ``decision_times``; they are kept in the folder.
    """
    path = board.out / TIMINGS / "decisions.json"
    path.parent.mkdir(exist_ok=True)
    try:
        known: dict[str, Any] = read_json(path) if path.exists() else {}
    except DamagedError:
        known = {}
    played = dict.fromkeys((one.competitor, one.job.experiment.scenario.name) for one in finished)
    scenarios, rows = {one.name: one for one in board.scenarios}, []
    with progress_bars({"timing": len(played)}) as update:
        for who, where in played:
            found = known.setdefault(who.policy, {})
            made_by = in_short(provenance(who.policy, decision_times.__module__))
            if where not in found or found[where].get("code") != made_by["code"]:
                priced = replace(scenarios[where], price=TIMED_PRICE)
                times = decision_times(who.policy, priced, min(TIMED_ROUNDS, priced.horizon or TIMED_ROUNDS))
                found[where] = made_by | {name: float(f"{value:.4g}") for name, value in times._asdict().items()}
                write_json(path, known)
            rows.append((who.env, who.policy, where, found[where]["mean"], found[where]["worst"]))
            update("timing", len(rows))
    return pl.DataFrame(rows, ["env", "policy", "scenario", "mean", "worst"], orient="row")
