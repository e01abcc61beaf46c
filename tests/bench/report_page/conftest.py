"""Pages made of synthetic records."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.experiment import group_edges
from ata_gym.bench.report.page.sections import Page
from ata_gym.bench.runner.policy_run import SCHEMA
from ata_gym.bench.studies.benchmark_report import report_on

ROUNDS = (1, 10, 100, 1000)
SEEDS = 3
WORKERS = 7
BUDGET = 5


@pytest.fixture(scope="session")
def note_of() -> Callable[..., dict[str, Any]]:
    def note(names: Sequence[str], **others: Any) -> dict[str, Any]:
        card = {
            "summary": "One sentence.",
            "facts": {"plays": "allocation"},
            "text": "",
            "command": "ata-gym bench",
        }
        kinds = ["oracle", *["learner"] * (len(names) - 1)]
        policies = [
            {
                "name": name,
                "env": "TaskAllocation",
                "kind": kind,
                "own": False,
                "card": {"name": name, **card},
            }
            for name, kind in zip(names, kinds, strict=True)
        ]
        sizes = {
            "workers": WORKERS,
            "budget": BUDGET,
            "price": 0.0,
            "rounds": ROUNDS[-1],
            "seeds": SEEDS,
        }
        about = {
            "study": "bench",
            "command": ["ata-gym", "bench", "--out", "my results"],
            "title": "a scenario",
        }
        scenario = {"name": "a scenario", **card}
        return {
            **about,
            **sizes,
            "first_seed": 0,
            "unit_costs": None,
            "loss_curve": None,
            "least_cost": None,
            "lower_bound": 0.0,
            "remarks": [],
            "scenario": scenario,
            "policies": policies,
            **others,
        }

    return note


@pytest.fixture(scope="session")
def records_of() -> Callable[..., pl.DataFrame]:
    def records(
        names: Sequence[str],
        rounds: Sequence[int] = ROUNDS,
        seeds: int = SEEDS,
    ) -> pl.DataFrame:
        rows = [
            (
                name,
                seed,
                round,
                pace * round * (1 + seed / 50),
                2 * pace * round,
                (pace - 1.0) * round,
                3,
            )
            for pace, name in enumerate(names, start=1)
            for seed in range(seeds)
            for round in rounds
        ]
        return pl.DataFrame(rows, SCHEMA, orient="row")

    return records


@pytest.fixture(scope="session")
def page_of(note_of: Callable[..., Any], records_of: Callable[..., Any]) -> Callable[..., Page]:
    def page(names: Sequence[str], **others: Any) -> Page:
        note = note_of(names, **others)
        shares = np.outer(np.ones(len(ROUNDS)), np.linspace(1, 0, len(group_edges(WORKERS)) - 1))
        tasks = {name: (list(ROUNDS), BUDGET * shares) for name in names}
        return report_on(note, records_of(names), tasks).page()

    return page
