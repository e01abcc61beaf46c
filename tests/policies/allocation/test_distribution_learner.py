"""The learner of whole distributions, its search and its plan; and the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym import expected_round_time, optimal_allocation
from ata_gym.pools import Pool, gamma, log_normal, shifted_exponential, trace
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.simulated.slices import known_sample
from ata_policies import Setting
from ata_policies.allocation.distribution_learner import DistributionLearner
from ata_policies.allocation.oracles import Oracle
from ata_policies.allocation.search import Solution, correct, search

LEARNER = "distribution-learner"
POOL = shifted_exponential(np.arange(1.0, 13), np.arange(1.0, 13))
LONG_TAILS = log_normal(np.full(4, np.log(2.0)), 1.8) + gamma(np.full(4, 50.0), 0.3)


WORLD: dict[str, Any] = {"rows": 3, "pool": POOL, "budget": 15}


def late_cost(run: Any) -> Any:
    """Cost per round in the second half, by row."""
    return run.costs[len(run.costs) // 2 :].mean(axis=0)


@pytest.mark.parametrize("price", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("pool", [POOL, LONG_TAILS, POOL + LONG_TAILS], ids=["shifted", "long-tails", "mixed"])
def test_search_comes_close_to_the_optimum(pool: Pool, price: float) -> None:
    found = search(known_sample(pool, 256), 1.5 * np.minimum(pool.sd(), pool.mean()), 15, price)
    cost = expected_round_time(pool, found.allocation) + price * found.allocation @ pool.mean()
    assert cost <= 1.02 * optimal_allocation(pool, 15, price).cost
    assert (found.useful[found.allocation > 0] == 1.0).all()
    assert ((found.useful >= 0.0) & (found.useful <= 1.0)).all()


@pytest.mark.parametrize("price", [0.0, 0.3])
def test_useful_is_on_the_safe_side(price: float) -> None:
    """An idle worker that is as fast as said gains from a task."""
    times, spread = known_sample(POOL, 256), 1.5 * POOL.sd()
    found = search(times, spread, 15, price)
    idle = int(np.flatnonzero(found.allocation == 0)[0])
    faster = times.copy()
    faster[idle] *= 0.85 * found.useful[idle]
    speed = np.where(np.arange(12) == idle, 0.85 * found.useful[idle], 1.0)
    assert search(faster, spread * speed, 15, price).allocation[idle] > 0


@settings(max_examples=200)
@given(data=st.data(), n=st.integers(1, 6), budget=st.integers(1, 12))
def test_corrected_costs_give_the_allocation_found(data: st.DataObject, n: int, budget: int) -> None:
    mean = np.array(data.draw(st.lists(st.floats(1.0, 5.0), min_size=n, max_size=n)))
    spread = mean * data.draw(st.floats(0.0, 2.0))
    workers = data.draw(st.lists(st.integers(0, n - 1), min_size=budget, max_size=budget))
    tasks = np.bincount(workers, minlength=n)
    useful = np.where(tasks > 0, 1.0, data.draw(st.floats(0.1, 0.95)))
    factor = correct(Solution(tasks, useful), mean, spread, budget)
    np.testing.assert_array_equal(allocate_by_cost(factor * mean, factor * spread, budget), tasks)


@pytest.mark.parametrize("price", [0.0, 1.0])
def test_learns_what_the_oracle_knows(play: Any, price: float) -> None:
    best = optimal_allocation(POOL, 15, price).cost
    learned, known = (late_cost(play(name, 1200, price=price, **WORLD)).mean() for name in (LEARNER, "oracle"))
    assert learned < 1.04 * best
    np.testing.assert_allclose(known, best, rtol=0.03)


def test_learns_which_workers_have_long_tails(play: Any) -> None:
    """All means are about alike: only whole distributions tell whom to trust."""
    pool = log_normal(np.full(4, np.log(15.0) - 1.8**2 / 2), 1.8) + gamma(np.full(4, 50.0), 0.3)
    run = play(LEARNER, 1500, 3, pool=pool, budget=12)
    assert late_cost(run).mean() < 1.08 * optimal_allocation(pool, 12).round_time
    assert run.actions[750:, :, 4:].sum() > 0.85 * run.actions[750:].sum()


def test_more_workers_than_tried_and_zero_times(play: Any) -> None:
    many = shifted_exponential(np.arange(1.0, 201), np.arange(1.0, 201))
    state = play(LEARNER, 30, 2, pool=many, budget=5).states[-1]
    assert state.plan.solved.min() > 0
    assert (state.plan.factor[state.belief.untried()] == 1.0).all()
    mostly = trace([[0.0] * 40 + [1.0], [0.0, 1.0, 3.0], [2.0]])
    assert late_cost(play(LEARNER, 60, 1, pool=mostly, budget=4, price=0.5))[0] < 0.5


def test_rows_do_not_depend_on_their_batch(play: Any) -> None:
    """Across several plans, which fall due in different rounds where episodes begin at different times."""
    together = play(LEARNER, 120, price=0.1, seed=3, **WORLD).actions
    for e in range(3):
        alone = play(LEARNER, 120, price=0.1, seed=3 + e, **WORLD | {"rows": 1}).actions
        np.testing.assert_array_equal(alone[:, 0], together[:, e])


def test_what_they_need() -> None:
    setting = Setting(n=3, budget=2)
    with pytest.raises(ValueError, match="needs an env whose pool is known"):
        Oracle(setting)
    with pytest.raises(ValueError, match="weight must be"):
        DistributionLearner(setting, weight=0.0)
    assert DistributionLearner.priced
    assert Oracle.knows == "the distributions"
