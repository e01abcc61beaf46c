"""Our scenarios for agents that are trained: a small one, and ones with workers drawn anew.

Workers are drawn anew in each episode. The seeds of drawn scenarios are split: an agent is trained
on some, chosen on others and compared on the rest.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from ata_gym.changes import Change, OnOff, Periodic, Redraw, Switch, Walk
from ata_gym.pools import PoolDistribution, shifted_exponential
from ata_gym.scenarios.scenario import Maker, Scenario

SMALL = "five-workers"
"""The scenario of an env that is made without one."""

SPLITS: Mapping[str, range] = MappingProxyType(
    {
        "train": range(10**6),
        "validation": range(10**6, 2 * 10**6),
        "test": range(2 * 10**6, 3 * 10**6),
    },
)
"""Seeds of rows by what they are for.

Any change here, or of a drawn scenario, needs a new version of the scenario's name.
"""

FAMILIES = ("exponential", "gamma", "log-normal", "uniform", "weibull")
HEAVY_TAILED = ("log-normal", "pareto", "weibull")
_DRAWN: dict[str, tuple[PoolDistribution, int, int, tuple[tuple[Change, ...], ...], str]] = {
    "drawn-6-v1": (
        PoolDistribution(6, None, FAMILIES, (2, 20), (0.1, 1.5)),
        8,
        50,
        (),
        "6 workers, ratios 2 to 20",
    ),
    "drawn-51-v1": (
        PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)),
        23,
        200,
        (),
        "51 workers, ratios 2 to 60",
    ),
    "drawn-3-to-16-v1": (
        PoolDistribution(16, 3, FAMILIES, (1.5, 20), (0.1, 1.5)),
        32,
        100,
        (),
        "3 to 16 workers, ratios 1.5 to 20",
    ),
    "drawn-heavy-8-v1": (
        PoolDistribution(8, None, HEAVY_TAILED, (2, 20), (1, 4)),
        12,
        200,
        (),
        "8 workers with heavy tails, CVs 1 to 4, ratios 2 to 20",
    ),
    "drawn-changing-12-v2": (
        PoolDistribution(12, None, FAMILIES, (2, 20), (0.1, 1.0)),
        24,
        200,
        ((), (Switch(every=50),), (Walk(0.05, 1.0),), (OnOff(6.0, 0.01, 0.05),)),
        "12 workers, ratios 2 to 20, that stay, swap every 50 rounds, drift, or are slow in spells",
    ),
    "drawn-onoff-v1": (
        PoolDistribution(7, None, FAMILIES, (2, 20), (0.1, 1.5)),
        10,
        50,
        ((OnOff(6.0, 0.05, 0.15),),),
        "7 workers, ratios 2 to 20, 6 times slower for spells of 7 rounds, 1 round in 4",
    ),
    "drawn-periodic-v1": (
        PoolDistribution(7, None, FAMILIES, (2, 20), (0.1, 1.5)),
        10,
        50,
        ((Periodic(12.0, 0.9),),),
        "7 workers, ratios 2 to 20, under load with a period of 12 rounds",
    ),
    "drawn-racks-v1": (
        PoolDistribution(24, None, FAMILIES, (2, 10), (0.1, 1.0)),
        36,
        150,
        ((OnOff(6.0, 0.01, 0.05, rack=6),),),
        "24 workers in racks of 6, ratios 2 to 10; a rack is 6 times slower for 20 rounds, 1"
        " round in 6",
    ),
    "drawn-walk-v1": (
        PoolDistribution(12, None, FAMILIES, (2, 20), (0.1, 1.5)),
        24,
        100,
        ((Walk(0.2, float(np.log(4.0))),),),
        "12 workers, ratios 2 to 20, whose speeds walk at random up to 4 times",
    ),
}
"""The workers, the budget, the rounds, the lists of changes, and a summary of each scenario.

An episode has one of the lists of changes.
"""


def _small(name: str) -> Scenario:
    c = [1.0, 1.5, 2.0, 3.0, 6.0]
    summary = "c + Exp(c), c = 1, 1.5, 2, 3, 6: a small one to begin with"
    return Scenario(shifted_exponential(c, c), 8, 100, name=name, summary=summary, source="ours")


def _drawn(name: str) -> Scenario:
    pools, budget, rounds, changes, summary = _DRAWN[name]
    redraw = Redraw(pools, among=changes)
    summary = f"drawn anew in each episode: {summary}"
    return Scenario(
        pools.typical(),
        budget,
        rounds,
        (redraw,),
        name=name,
        summary=summary,
        source="ours",
    )


FOR_AGENTS: Mapping[str, Maker] = MappingProxyType({SMALL: _small, **dict.fromkeys(_DRAWN, _drawn)})
