"""Certainty equivalence, alone, with uniform rounds, and with a commitment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym import allocate, proxy_loss, proxy_optimal
from ata_gym.pools import exponential, shifted_exponential

POOL = shifted_exponential(np.arange(1.0, 9.0), np.arange(1.0, 9.0))
BUDGET = 7


def play(
    name: str, rounds: int, rows: int = 8, pool: Any = POOL, budget: int = BUDGET, **hyperparameters: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Allocations (rounds, rows, n), and the counts and totals (rounds, rows, n) before each."""
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, pool=pool, budget=budget)
    policy = ata_policies.make(name, env, **hyperparameters)
    observation, _ = env.reset(seed=0)
    state, allocations, counts, totals = None, [], [], []
    for _ in range(rounds):
        allocation, state = policy.predict(observation, state)
        counts.append(state.belief.counts)
        totals.append(state.belief.totals)
        observation = env.step(allocation)[0]
        allocations.append(allocation)
    return np.array(allocations), np.array(counts), np.array(totals)


@pytest.mark.parametrize("name", ["certainty-equivalence", "epsilon-uniform", "explore-then-commit"])
def test_learns(name: str) -> None:
    losses = proxy_loss(play(name, 400)[0], POOL.mean()) / proxy_loss(proxy_optimal(POOL, BUDGET), POOL.mean())
    assert losses[:2].mean() > 1.5
    assert losses[-100:].mean() < 1.35


def test_certainty_equivalence_believes_the_means() -> None:
    allocations, counts, totals = play("certainty-equivalence", 50)
    for a, k, s in zip(allocations, counts, totals, strict=True):
        for e in range(8):
            if k[e].all():
                np.testing.assert_array_equal(a[e], allocate(s[e] / k[e], BUDGET))
            else:
                untried = k[e] == 0
                assert a[e][untried].max() == 1
                assert a[e][untried].sum() == min(BUDGET, untried.sum())


def test_certainty_equivalence_may_be_wrong_for_good() -> None:
    """Two nearly equal workers and one task: whoever was unlucky first is not tried again."""
    allocations, _, _ = play("certainty-equivalence", 600, rows=64, pool=exponential([1.0, 1.5]), budget=1)
    stuck = allocations[-200:, :, 0].sum(axis=0) == 0
    assert 0.05 < stuck.mean() < 0.6


def uniform_rounds(allocations: np.ndarray, counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Which rounds were not allocated by the means; (rounds, rows), NaN before all were tried."""
    by_means = [
        [
            np.nan if not k.all() else not np.array_equal(a, allocate(s / k, BUDGET))
            for a, k, s in zip(*row, strict=True)
        ]
        for row in zip(allocations, counts, totals, strict=True)
    ]
    return np.array(by_means, np.float64)


def test_uniform_rounds_are_as_many_as_they_should_be() -> None:
    """A constant share; or n c / k in round k."""
    found = uniform_rounds(*play("epsilon-uniform", 400, rows=16, epsilon=0.2))
    assert abs(np.nanmean(found) - 0.2) < 4 * 0.4 / 6000**0.5
    found = uniform_rounds(*play("epsilon-uniform", 1000, rows=16, c=2.0))
    assert np.nanmean(found[:16]) == 1  # c n = 16
    for first, last in ((30, 100), (100, 300), (300, 1000)):
        expected = (16 / np.arange(first + 1, last + 1)).mean()
        assert abs(np.nanmean(found[first:last]) - expected) < 4 * (expected / (16 * (last - first))) ** 0.5


def test_uniform_rounds_are_uniform() -> None:
    """7 of 8 workers get one task, and each is left out as often; also in rows whose luck decided for the round."""
    allocations, _, _ = play("epsilon-uniform", 1000, rows=8, epsilon=0.3)
    uniform = allocations[allocations.max(axis=2) == 1]
    assert len(uniform) > 2000
    assert abs((uniform == 0).mean(axis=0) - 1 / 8).max() < 4 * (1 / 8 / len(uniform)) ** 0.5


@settings(max_examples=20)
@given(n=st.integers(1, 9), budget=st.integers(1, 30), tries=st.integers(1, 6))
def test_everybody_has_the_same_number_of_tries(n: int, budget: int, tries: int) -> None:
    rounds = -(-n * tries // budget)
    pool = exponential(np.arange(1.0, n + 1))
    allocations, counts, totals = play("explore-then-commit", rounds + 4, 2, pool, budget, tries=tries)
    tried = allocations[:rounds].sum(axis=0)
    assert tried.min() >= tries
    assert tried.max() - tried.min() <= 1
    for e in range(2):
        best = allocate(totals[rounds, e] / counts[rounds, e], budget)
        np.testing.assert_array_equal(allocations[rounds:, e], np.tile(best, (4, 1)))


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("epsilon-uniform", {"c": 0.0}, "c must be a finite number above 0"),
        ("epsilon-uniform", {"epsilon": 1.5}, "epsilon must be a finite number above 0 and at most 1"),
        ("explore-then-commit", {"tries": 0}, "tries must be a whole number from 1"),
        ("explore-then-commit", {"tries": 2.0}, "tries must be a whole number from 1"),
    ],
)
def test_bad_hyperparameters(name: str, bad: dict[str, Any], message: str) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=BUDGET)
    with pytest.raises(ValueError, match=message):
        ata_policies.make(name, env, **bad)
