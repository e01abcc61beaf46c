"""Learners that trust recent rounds: by their formulas along a run."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import allocate, proxy_loss
from ata_gym.changes import Outliers
from ata_gym.pools import gamma

MEANS = np.arange(1.0, 6.0)
POOL = gamma(25.0, MEANS / 25)


def play(
    name: str, rounds: int, changes: Any = (), **hyperparameters: Any
) -> tuple[list[np.ndarray], list[list[list[float]]]]:
    """The allocations of a single env, and after each round every worker's mean task times in a round, so far."""
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, changes=changes, budget=9)
    policy = ata_policies.make(name, env, **hyperparameters)
    observation, _ = env.reset(seed=2)
    state, allocations, samples = None, [], [[[] for _ in MEANS]]
    for _ in range(rounds):
        allocation, state = policy.predict(observation, state)
        observation = env.step(allocation)[0]
        allocations.append(allocation)
        times = [observation["duration"][observation["worker"] == i] for i in range(len(MEANS))]
        samples.append([[*old, t.mean()] if t.size else old for old, t in zip(samples[-1], times, strict=True)])
    return allocations, samples


def average(sample: list[float]) -> float:
    value = sample[0]
    for one in sample[1:]:
        value = 0.3 * one + 0.7 * value
    return value


@pytest.mark.parametrize(
    ("name", "hyperparameters", "estimate"),
    [
        ("recent-average", {"weight": 0.3}, average),
        ("recent-median", {"window": 4}, lambda sample: float(np.median(sample[-4:]))),
    ],
)
def test_allocates_by_its_estimates(name: str, hyperparameters: Any, estimate: Any) -> None:
    allocations, samples = play(name, 60, **hyperparameters)
    for allocation, sample in zip(allocations[1:], samples[1:], strict=False):
        np.testing.assert_array_equal(allocation, allocate([estimate(one) for one in sample], 9))


def test_the_median_passes_over_outliers() -> None:
    """The average drops a worker that has met one; the median does not."""
    average, median = (
        proxy_loss(np.array(play(name, 600, [Outliers(0.01, 20, 30)])[0])[-300:], MEANS).mean()
        for name in ("recent-average", "recent-median")
    )
    assert median < 0.95 * average


@pytest.mark.parametrize(("name", "bad"), [("recent-average", {"weight": 0.0}), ("recent-median", {"window": 0})])
def test_bad_hyperparameters(name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        ata_policies.make(name, gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=9), **bad)
