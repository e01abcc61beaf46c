"""Certainty equivalence, alone, with uniform rounds, and with a commitment."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym import allocate
from ata_gym.pools import exponential, shifted_exponential

POOL = shifted_exponential(np.arange(1.0, 9.0), np.arange(1.0, 9.0))
BUDGET = 7


WORLD: dict[str, Any] = {"pool": POOL, "budget": BUDGET}


def split(run: Any) -> tuple[Any, Any, Any]:
    """Allocations, and counts and totals before each; (rounds, rows, n)."""
    return run.actions, *(np.array([getattr(state.belief, x) for state in run.states]) for x in ("counts", "totals"))


def test_certainty_equivalence_believes_the_means(play: Any) -> None:
    allocations, counts, totals = split(play("certainty-equivalence", 50, 8, **WORLD))
    for a, k, s in zip(allocations, counts, totals, strict=True):
        for e in range(8):
            untried = k[e] == 0
            assert (np.sort(a[e][untried])[::-1] == (np.arange(untried.sum()) < BUDGET)).all()
            if not untried.any():
                np.testing.assert_array_equal(a[e], allocate(s[e] / k[e], BUDGET))


def test_uniform_rounds_are_as_many_as_they_should_be_and_uniform(play: Any) -> None:
    """A share of n c / k in round k; 7 of 8 workers get one task then, and each is left out as often."""
    allocations, counts, totals = split(play("epsilon-uniform", 800, 16, hyperparameters={"c": 2.0}, **WORLD))
    means = np.divide(totals, counts, out=np.zeros_like(totals), where=counts > 0)
    uniform = (allocations != allocate(means, BUDGET)).any(axis=2)
    assert uniform[3:16].all()  # c n = 16
    for first, last in ((30, 100), (100, 300), (300, 800)):
        expected = (16 / np.arange(first + 1, last + 1)).mean()
        assert abs(uniform[first:last].mean() - expected) < 4 * (expected / (16 * (last - first))) ** 0.5
    left_out = (allocations[3:][uniform[3:]] == 0).mean(axis=0)
    assert (allocations[3:][uniform[3:]].max(axis=1) == 1).all()
    assert abs(left_out - 1 / 8).max() < 4 * (1 / 8 / uniform[3:].sum()) ** 0.5


@settings(max_examples=10)
@given(n=st.integers(1, 9), budget=st.integers(1, 30), tasks=st.integers(1, 6))
def test_everybody_is_tried_for_the_same_number_of_tasks(play: Any, n: int, budget: int, tasks: int) -> None:
    rounds = -(-n * tasks // budget)
    pool = exponential(np.arange(1.0, n + 1))
    run = play("explore-then-commit", rounds + 4, 2, pool=pool, budget=budget, hyperparameters={"tasks": tasks})
    allocations, counts, totals = split(run)
    tried = allocations[:rounds].sum(axis=0)
    assert tried.min() >= tasks
    assert tried.max() - tried.min() <= 1
    for e in range(2):
        best = allocate(totals[rounds, e] / counts[rounds, e], budget)
        np.testing.assert_array_equal(allocations[rounds:, e], np.tile(best, (4, 1)))
