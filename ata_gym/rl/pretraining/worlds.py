"""The workers that learned policies are trained on: drawn anew in each episode, or with means that grow steadily."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Change, OnOff, Redraw, Switch, Walk
from ata_gym.pools import Pool, PoolDistribution, shifted_exponential
from ata_gym.scenarios import SPLITS, Scenario
from ata_gym.scenarios.for_agents import FAMILIES, HEAVY_TAILED

_CHANGING: tuple[tuple[Change, ...], ...] = (
    (), (), (Switch(every=50),), (Walk(0.05, 1.0),), (OnOff(6.0, 0.01, 0.05),)
)  # fmt: skip
_ORDER = np.random.default_rng(0).permutation(51)
"""The order of workers whose means grow with their place, so that the first ones are not the fastest."""
_PRICES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)


def _world(
    pools: PoolDistribution, budget: int, horizon: int, price: float = 0.0, changes: tuple[tuple[Change, ...], ...] = ()
) -> Scenario:
    return Scenario(pools.typical(), budget, horizon, (Redraw(pools, among=changes),), price)


def _growing(place: NDArray[np.floating[Any]], power: float) -> Pool:
    """Shifted exponential times whose means grow with a power of the worker's place, as in published scenarios."""
    return shifted_exponential(place**power, place**power)


DRAWN: tuple[Scenario, ...] = (
    _world(PoolDistribution(6, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 8, 50),
    _world(PoolDistribution(6, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 8, 50, price=0.1),
    _world(PoolDistribution(4, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 16, 100, price=0.02),
    _world(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 24, 100, price=0.01),
    _world(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 12, 100, price=0.3),
    _world(PoolDistribution(16, 3, FAMILIES, (1.5, 30), (0.1, 1.5)), 32, 100),
    _world(PoolDistribution(30, None, FAMILIES, (2, 60), (0.1, 1.5)), 20, 100),
    _world(PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)), 23, 150),
    _world(PoolDistribution(51, None, FAMILIES, (2, 60), (0.1, 1.5)), 23, 100, price=0.1),
    _world(PoolDistribution(8, None, HEAVY_TAILED, (2, 20), (1, 4)), 12, 150),
    _world(PoolDistribution(12, None, FAMILIES, (1.5, 30), (0.1, 1.0)), 24, 150, changes=_CHANGING),
    _world(PoolDistribution(10, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 60, 80, price=0.03),
    _world(PoolDistribution(20, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 64, 80),
    _world(PoolDistribution(24, None, FAMILIES, (1.5, 30), (0.1, 1.5)), 10, 100, price=1.0),
)
"""Pools of many kinds, drawn anew in each episode: each with a budget, a number of rounds and a price."""

WORLDS: tuple[Scenario, ...] = (
    *DRAWN,
    *(Scenario(_growing(_ORDER + 1.0, power), 23, 150) for power in (1.0, 0.5)),
    Scenario(_growing(_ORDER[_ORDER < 17] + 1.0, 1.0), 23, 100),
    Scenario(_growing(np.where(_ORDER[_ORDER < 36] < 4, 1.0, 12.0), 1.0), 18, 150),
)
"""Those of ``DRAWN``, and pools where one or a few workers get a large share of the best allocation."""


def some_worlds(
    rng: np.random.Generator, worlds: Sequence[Scenario], count: int, any_price: float
) -> Iterator[Scenario]:
    """Some worlds in random order, each with another price with probability ``any_price``."""
    for k in rng.permutation(len(worlds))[:count].tolist():
        other = rng.random() < any_price
        yield replace(worlds[k], price=float(rng.choice(_PRICES))) if other else worlds[k]


def training_seed(rng: np.random.Generator, rows: int) -> int:
    """The first seed of some rows, all of the split "train"."""
    seeds = SPLITS["train"]
    return int(rng.integers(seeds.start, seeds.stop - rows))
