"""Worlds in which the interface is tested, and actions to play in them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import Redraw, Spot, Switch
from ata_gym.pools import PoolDistribution, exponential, gamma, trace
from ata_gym.scenarios import Scenario

ALLOCATION, RACE, DISPATCH = IDS = ("ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0", "ata_gym/TaskDispatch-v0")
FORMS = [
    *((ALLOCATION, form) for form in ("allocation", "shares", "assign")),
    *((RACE, form) for form in ("allocation", "shares")),
    *((DISPATCH, form) for form in ("dispatch", "start")),
]
OBSERVATIONS = ("feedback", "workers", "flat")
UNITS = ("time", "first round")

_TIMES = np.random.default_rng(0).exponential(size=(2, 7)) + 0.1
WORLDS = {
    "ending": Scenario(
        trace([*_TIMES], end="truncate") + exponential([1.0, 3.0]) + gamma(2.5, 0.7), budget=4, horizon=6, price=0.3
    ),
    "drawn": Scenario(
        PoolDistribution(5, fewest=2),  # type: ignore[arg-type]
        4,
        3,
        (Redraw(PoolDistribution(5, fewest=2), price=(0.1, 2.0), among=((), (Switch(every=2),), (Spot(0.2, 0.5),))),),
    ),
}
"""In one, episodes end with a record; in the other, workers, prices and changes are drawn, and places are empty."""


def single(env_id: str, world: str | Scenario, **options: Any) -> Any:
    return gym.make(env_id, scenario=WORLDS[world] if isinstance(world, str) else world, **options).unwrapped


def vector(env_id: str, world: str | Scenario, rows: int, **options: Any) -> Any:
    scenario = WORLDS[world] if isinstance(world, str) else world
    return gym.make_vec(env_id, num_envs=rows, scenario=scenario, **options).unwrapped


class Player:
    """Draws actions of a space; those that a mask rules out it takes seldom."""

    def __init__(self, space: Any, seed: int) -> None:
        self.space, self.rng = space, np.random.default_rng(seed)
        space.seed(seed)

    def __call__(self, mask: NDArray[np.int8] | None = None) -> Any:
        if mask is not None and self.rng.random() < 0.9:
            return self.space.sample(mask)
        return self.space.sample()


def same(one: Any, other: Any) -> bool:
    """Equal bits of two observations, or parts of them."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    a, b = np.asarray(one), np.asarray(other)
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def row(observation: Any, e: int) -> Any:
    """One row of a batch of observations."""
    return {name: part[e] for name, part in observation.items()} if isinstance(observation, dict) else observation[e]
