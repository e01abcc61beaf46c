"""The sets "changing", workers that change, and "drawn", workers drawn anew for each seed.

Any change of one of them needs a new version.
"""

from __future__ import annotations

import numpy as np

from ata_gym.bench.leaderboard.sets.scenario_set import ScenarioSet, for_changing_workers, on
from ata_gym.changes import Change, Correlated, Crash, Jump, Load, OnOff, Outliers, Periodic, Spot, Switch, Walk
from ata_gym.pools import gamma, shifted_exponential
from ata_gym.scenarios import scenario
from ata_gym.scenarios.for_agents import FOR_AGENTS, SMALL, SPLITS
from ata_gym.scenarios.scenario import Maker


def _many(summary: str, *changes: Change, rounds: int = 1_000) -> Maker:
    """On 51 workers of which few are used."""
    return on(
        lambda: scenario("icml2025-quadratic-linear-n51").pool, 23, rounds,
        f"c + Exp(c), c = 29 i, i = 1..51; {summary}", *changes,
    )  # fmt: skip


def _some(summary: str, *changes: Change, rounds: int = 800) -> Maker:
    """On 24 workers whose times vary little."""
    return on(
        lambda: gamma(25.0, np.geomspace(20.0, 200.0, 24) / 25), 20, rounds,
        f"24 workers, gamma times of CV .2, means 20 to 200; {summary}", *changes,
    )  # fmt: skip


_QUARTER = float(np.log(4.0))

CHANGING = ScenarioSet(
    name="changing",
    version="2",
    built={
        "switch": _many("all speeds permuted every 400 rounds", Switch(every=400), rounds=1_200),
        "switch-200": on(
            lambda: shifted_exponential(3.0 * np.arange(1.0, 201), 3.0 * np.arange(1.0, 201)), 20, 800,
            "c + Exp(c), c = 3 i, i = 1..200; all speeds permuted at round 400", Switch(at=(400,)),
        ),
        "sleeper": _many(
            "the slowest becomes twice as fast as the fastest at round 400",
            Jump(at=400, workers=(50,), factor=1 / 102), rounds=1_200,
        ),
        "walk": _many("speeds walk at random up to 4 times", Walk(0.02, _QUARTER)),
        "walk-fast": _some("speeds walk at random up to 4 times", Walk(0.06, _QUARTER)),
        "periodic": _some("load with a period of 300 rounds", Periodic(300, 0.5)),
        "stragglers": _many("10 times slower for spells of 50 rounds, 1 round in 11", OnOff(10, 0.002, 0.02)),
        "stragglers-groups": on(
            lambda: gamma(100.0, 10.0 * np.repeat([1.0, 2.0, 3.0, 4.0], 4) / 100), 64, 400,
            "16 workers in four groups, gamma times of CV .1; 5 times slower for 20 rounds", OnOff(5, 0.005, 0.05),
        ),
        "spot": _many(
            "away for spells of 50 rounds, 1 round in 11", Spot(leaves=0.002, returns=0.02, deadline=1_000)
        ),
        "crash": _many(
            "die in mid-round every 500 rounds or so, for 50 rounds",
            Crash(probability=0.002, within=800, away=50, deadline=1_000),
        ),
        "correlated": _many("half of the noise is shared in a round and lasts for some 10", Correlated(0.5, 0.9)),
        "load-hidden": _some("load that no signal shows lasts for some 50 rounds", Load(0, 0, 0.4, 0.98)),
        "outliers": _some("0.5 % of the tasks take 10 to 40 times the median", Outliers(0.005, 10, 40)),
        "slow-switch": _some(
            "load with a period of 500 rounds, and all speeds permuted at round 500", Periodic(500, 0.3),
            Switch(at=(500,)), rounds=1_000,
        ),
    },
    prices=(0.0, 0.01, 0.1, 1.0),
    quick={"switch": 500, "spot": 200, "walk-fast": 200},
    quick_prices=(0.0, 0.1),
    players=for_changing_workers,
    reference="dynamic-ofta",
    front="switch",
    recorded=("alibaba-1", "alibaba-4", "alibaba-4-jump", "mlperf", "phones-spot"),
    seeds=4,
)  # fmt: skip

DRAWN = ScenarioSet(
    name="drawn",
    version="2",
    built={name: scenario for name in FOR_AGENTS if name != SMALL},
    prices=(0.0, 0.1, 1.0),
    quick={"drawn-6-v1": 25, "drawn-3-to-16-v1": 50, "drawn-heavy-8-v1": 50},
    quick_prices=(0.0, 0.1),
    players=for_changing_workers,
    reference="dynamic-ofta",
    front="drawn-6-v1",
    seeds=32,
    quick_seeds=8,
    first_seed=SPLITS["test"][0],
)
"""For policies that were trained: the seeds are the first of ``SPLITS["test"]``, so that no policy that was trained on
those of "train" and chosen on those of "validation" has met these workers. Intervals are over seeds, and so over
workers."""
