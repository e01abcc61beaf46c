"""How long the policies of a leaderboard take to decide: kept apart from the results, as no clock repeats itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from ata_gym.bench.decision_cost import decision_times
from ata_gym.bench.experiment.provenance import in_short, provenance
from ata_gym.bench.experiment.store import read_json, write_json
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob
from ata_gym.scenarios import Scenario
from ata_gym.utils.sealed import DamagedError

PRICE = 0.1  # the price at which decisions are timed

ROUNDS = 1_000  # the largest number of rounds that are timed in a scenario

FOLDER = "timings"
_FILE = "decisions.json"


def measure(
    board: Leaderboard, finished: Sequence[PricedJob], progress: Callable[[int], None] = lambda _: None
) -> pl.DataFrame:
    """Time the decisions of all who have played, where that was not done before by the same code.

    Columns env, policy, scenario, mean and worst: milliseconds of processor time for one row, see ``decision_times``.
    The figures are kept in the board's folder. ``progress`` is called with the number of policies and scenarios done.
    """
    path = board.out / FOLDER / _FILE
    path.parent.mkdir(exist_ok=True)
    try:
        known: dict[str, Any] = read_json(path) if path.exists() else {}
    except DamagedError:
        known = {}
    played = dict.fromkeys((one.competitor, one.job.experiment.scenario.name) for one in finished)
    scenarios, rows = {one.name: one for one in board.scenarios}, []
    for done, (who, where) in enumerate(played, 1):
        found, made_by = known.setdefault(who.policy, {}), in_short(provenance(who.policy, _timed.__module__))
        if where not in found or found[where].get("code") != made_by["code"]:
            found[where] = made_by | _timed(who.policy, scenarios[where])
            write_json(path, known)
        rows.append((who.env, who.policy, where, found[where]["mean"], found[where]["worst"]))
        progress(done)
    return pl.DataFrame(rows, ["env", "policy", "scenario", "mean", "worst"], orient="row")


def _timed(policy: str, scenario: Scenario) -> dict[str, Any]:
    assert scenario.horizon is not None
    times = decision_times(policy, replace(scenario, price=PRICE), min(ROUNDS, scenario.horizon))
    return {name: float(f"{value:.4g}") for name, value in times._asdict().items()}
