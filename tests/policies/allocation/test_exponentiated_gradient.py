"""Exponentiated gradient: rounding keeps sums and expectations, weights follow the rule, and it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.pools import shifted_exponential
from ata_policies.allocation.exponentiated_gradient import Penalties, round_randomly

POOL = shifted_exponential(np.arange(1.0, 9.0), np.arange(1.0, 9.0))
BUDGET = 7


@settings(max_examples=50)
@given(
    penalties=st.lists(st.floats(0, 1e6), min_size=1, max_size=12),
    rate=st.floats(0, 1e3),
    budget=st.integers(1, 100),
    draw=st.floats(1e-9, 1 - 1e-9),
)
def test_rounding_is_to_the_next_whole_numbers(penalties: list[float], rate: float, budget: int, draw: float) -> None:
    p = np.exp(-rate * (np.array(penalties) - min(penalties)))
    share = p / p.sum() * budget
    a = round_randomly(np.array([penalties]), np.array([rate]), budget, np.array([draw]))[0]
    assert a.sum() == budget
    assert (a >= np.floor(share - 1e-9)).all()
    assert (a <= np.ceil(share + 1e-9)).all()


def test_rounding_is_right_on_average() -> None:
    """Over an even grid of draws the mean allocation is p B."""
    draws = (np.arange(10_000) + 0.5) / 10_000
    penalties = np.array([0.0, 1.0, 0.3, 2.0, 0.1])
    a = round_randomly(np.tile(penalties, (10_000, 1)), np.full(10_000, 0.7), 9, draws)
    p = np.exp(-0.7 * penalties)
    np.testing.assert_allclose(a.mean(axis=0), 9 * p / p.sum(), atol=2e-4)


def test_only_the_slowest_is_penalised_by_its_time_per_task() -> None:
    """Worker 1 needs 3 + 4 > 6; of equal ones the lowest; without feedback nobody."""
    worker = np.array([[0, 1, 1], [0, 1, 2], [-1, -1, -1]])
    time = np.array([[6.0, 3.0, 4.0], [5.0, 2.0, 5.0], [0.0, 0.0, 0.0]])
    belief = Penalties.empty(3, 3).observe(worker, time)
    np.testing.assert_array_equal(belief.penalties, [[0, 3.5, 0], [5, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(belief.counts, [[1, 2, 0], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(belief.observe(worker, time).penalties, 2 * belief.penalties)


def test_weights_follow_the_multiplicative_rule(play: Any) -> None:
    """Along a run, the softmax of the penalties is what multiplying and normalising round by round gives."""
    rate, p = 0.05, np.full(8, 1 / 8)
    run = play("exponentiated-gradient", 100, 1, pool=POOL, budget=BUDGET, hyperparameters={"rate": rate})
    for k, (allocation, state) in enumerate(zip(run.actions[:, 0], run.states, strict=True)):
        softmax = np.exp(-rate * state.belief.penalties[0])
        np.testing.assert_allclose(p, softmax / softmax.sum(), rtol=1e-10)
        assert (abs(allocation - p * BUDGET) < 1).all()
        if k < 99:
            seen, busy = run.seen[k + 1], np.zeros(8)
            np.add.at(busy, seen["worker"][0], seen["duration"][0])
            slowest = busy.argmax()
            p[slowest] *= np.exp(-rate * busy[slowest] / allocation[slowest])
            p /= p.sum()


def test_learns(play: Any) -> None:
    """Its rounds become much shorter, but it allocates in proportion to weights and never comes to the optimum."""
    times = play("exponentiated-gradient", 1000, 16, pool=POOL, budget=BUDGET).round_times
    assert times[-300:].mean() < 0.7 * times[:10].mean()
