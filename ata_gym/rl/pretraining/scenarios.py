"""The scenarios of the training of learned policies: workers of many kinds, drawn anew."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Change, Crash, Jump, OnOff, Periodic, Redraw, Spot, Switch, Walk
from ata_gym.pools import Pool, PoolDistribution, shifted_exponential
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.for_agents import FAMILIES, HEAVY_TAILED

Changes = tuple[tuple[Change, ...], ...]
"""Lists of changes, of which an episode has one."""
_SPELLS: Changes = tuple(
    (OnOff(*arguments),)
    for arguments in ((4, 0.1, 0.2), (6, 0.05, 0.15), (10, 0.03, 0.1), (6, 0.02, 0.04))
)
_WAVES: Changes = tuple(
    (Periodic(*arguments),) for arguments in ((8, 0.8), (12, 0.9), (18, 0.9), (30, 0.7))
)
_RACKS: Changes = tuple((OnOff(6.0, 0.01, 0.05, rack=rack),) for rack in (4, 6, 8))
_WALKS: Changes = tuple((Walk(step, 1.4),) for step in (0.05, 0.1, 0.2, 0.4))
_JUMP = Jump(at=50, workers=(0, 1), factor=20.0, until=100)
_CHANGING: Changes = (
    (),
    (),
    (Switch(every=50),),
    (Walk(0.05, 1.0),),
    (OnOff(6.0, 0.01, 0.05),),
    (_JUMP,),
)
_ABSENT: Changes = (
    *((Spot(*arguments),) for arguments in ((0.01, 0.05, 30), (0.03, 0.15, 60), (0.002, 0.02, 60))),
    (Crash(0.01, 20.0, 20, 40.0),),
)
_ORDER = np.random.default_rng(0).permutation(51)
"""An order of the places of published scenarios, so that the first are not the fastest."""


def _scenario(
    pools: PoolDistribution,
    budget: int,
    horizon: int,
    price: float = 0.0,
    changes: Changes = (),
) -> Scenario:
    """A scenario whose pool, and whose list of changes, are drawn anew in each episode."""
    return Scenario(pools.typical(), budget, horizon, (Redraw(pools, among=changes),), price)


def _growing(place: NDArray[np.floating[Any]], power: float) -> Pool:
    """Shifted exponential times whose means grow with a power of the worker's place.

    Published scenarios have such workers.
    """
    return shifted_exponential(place**power, place**power)


SCENARIOS: tuple[Scenario, ...] = (
    _scenario(PoolDistribution(6, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 8, 50),
    _scenario(PoolDistribution(6, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 8, 50, price=0.1),
    _scenario(PoolDistribution(4, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 16, 100, price=0.02),
    _scenario(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 24, 100, price=0.01),
    _scenario(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 12, 100, price=0.3),
    _scenario(PoolDistribution(16, 3, FAMILIES, (1.5, 30), (0.1, 1.5)), 32, 100),
    _scenario(PoolDistribution(30, None, FAMILIES, (2, 60), (0.1, 1.5)), 20, 100),
    _scenario(PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)), 23, 150),
    _scenario(PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)), 23, 100, price=0.1),
    _scenario(PoolDistribution(8, None, HEAVY_TAILED, (2, 20), (1, 4)), 12, 150),
    _scenario(
        PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.0)), 24, 150, changes=_CHANGING
    ),
    _scenario(PoolDistribution(10, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 60, 80, price=0.03),
    _scenario(PoolDistribution(20, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 64, 80),
    _scenario(PoolDistribution(24, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 10, 100, price=1.0),
    _scenario(PoolDistribution(7, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 10, 60, changes=_SPELLS),
    _scenario(PoolDistribution(7, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 10, 60, changes=_WAVES),
    _scenario(
        PoolDistribution(16, None, FAMILIES, (1.5, 20), (0.1, 1.0)),
        32,
        100,
        changes=_SPELLS + _WAVES,
    ),
    _scenario(PoolDistribution(24, None, FAMILIES, (1.5, 15), (0.1, 1.0)), 36, 150, changes=_RACKS),
    _scenario(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 24, 100, changes=_WALKS),
    _scenario(
        PoolDistribution(9, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 16, 400, changes=_CHANGING
    ),
    _scenario(
        PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 24, 120, changes=_ABSENT
    ),
    _scenario(PoolDistribution(30, None, FAMILIES, (2, 60), (0.1, 1.5)), 20, 150, changes=_ABSENT),
    *(Scenario(_growing(_ORDER + 1.0, power), 23, 150) for power in (1.0, 0.5)),
    Scenario(_growing(_ORDER[_ORDER < 17] + 1.0, 1.0), 23, 100),
    Scenario(_growing(np.where(_ORDER[_ORDER < 36] < 4, 1.0, 12.0), 1.0), 18, 150),
)
"""Scenarios with pools of many kinds, drawn anew in each episode.

Each has a budget, a number of rounds and a price. The last ones are fixed pools where one or a few
workers get a large share of the best allocation.
"""


_PRICES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
_PRICE_CHANCE = 0.3  # the probability of another price


def with_random_price(rng: np.random.Generator, scenario: Scenario) -> Scenario:
    """Return the scenario, with another price in three of ten cases."""
    if rng.random() < _PRICE_CHANCE:
        return replace(scenario, price=float(rng.choice(_PRICES)))
    return scenario
