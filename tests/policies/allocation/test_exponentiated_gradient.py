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


@settings(max_examples=25)
@given(
    penalties=st.lists(st.floats(0, 1e6), min_size=1, max_size=12), rate=st.floats(0, 1e3), budget=st.integers(1, 99)
)
def test_rounding_is_to_the_next_whole_numbers_and_right_on_average(
    penalties: list[float], rate: float, budget: int
) -> None:
    """Over an even grid of draws the mean allocation is p B."""
    p = np.exp(-rate * (np.array(penalties) - min(penalties)))
    share, draws = p / p.sum() * budget, (np.arange(1000) + 0.5) / 1000
    a = round_randomly(np.tile(penalties, (1000, 1)), np.full(1000, rate), budget, draws)
    assert (a.sum(axis=1) == budget).all()
    assert (abs(a - share) < 1 + 1e-9).all()
    np.testing.assert_allclose(a.mean(axis=0), share, atol=2e-3)


def test_only_the_slowest_is_penalised_by_its_time_per_task() -> None:
    """Worker 1 needs 3 + 4 > 6; of equal ones the lowest; without feedback nobody."""
    worker = np.array([[0, 1, 1], [0, 1, 2], [-1, -1, -1]])
    time = np.array([[6.0, 3.0, 4.0], [5.0, 2.0, 5.0], [0.0, 0.0, 0.0]])
    belief = Penalties.empty(3, 3).observe(worker, time)
    np.testing.assert_array_equal(belief.penalties, [[0, 3.5, 0], [5, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(belief.counts, [[1, 2, 0], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_array_equal(belief.observe(worker, time).penalties, 2 * belief.penalties)


def test_weights_follow_the_multiplicative_rule(play: Any) -> None:
    """Along a run, the softmax of the penalties is what multiplying and normalising round by round gives.

    Rounds become much shorter; but it allocates in proportion to weights, and never comes to the optimum.
    """
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
    times = play("exponentiated-gradient", 1000, 4, pool=POOL, budget=BUDGET).round_times
    assert times[-300:].mean() < 0.7 * times[:10].mean()
