"""The lower bound of the proxy regret, against Lai and Robbins' formula and brute force."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from ata_gym import pools, scenario
from ata_gym.theory import RegretLowerBound, guarantee, regret_lower_bound

MEANS = st.lists(st.floats(0.5, 8.0).map(lambda x: round(x, 2)), min_size=1, max_size=6)


def information(mean: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The Kullback-Leibler divergence of exponential times, by their means."""
    return np.log(other / mean) + mean / other - 1


@settings(max_examples=40)
@given(MEANS)
def test_with_one_task_it_is_the_bound_of_lai_and_robbins(means: list[float]) -> None:
    best = min(means)
    expected = sum((m - best) / information(m, best) for m in means if m > best)
    bound = regret_lower_bound(pools.exponential(means), 1)
    assert bound.constant == pytest.approx(expected, rel=1e-6)
    assert (bound.constant == 0) == bool(bound.reason)


def brute_force(means: np.ndarray, budget: int) -> float:
    """The program with each allocation, and alternatives from a grid of the means of all workers.

    No worker has to keep its mean, and nothing is said of which alternatives are the nearest. Where
    a mean is another one, it is so by 1 % at least, since the solver takes tiny numbers for 0.
    """
    n = means.size
    every = np.array([a for a in product(range(budget + 1), repeat=n) if sum(a) == budget])
    losses = (every * means).max(axis=1)
    least = losses.min()
    is_best = losses <= least * (1 + 1e-9)
    just_below = [least / c * (1 - 1e-7) for c in range(1, budget + 1)]
    grid = [
        [m, *(x for x in (*just_below, 0.55 * m, 0.83 * m, 1.3 * m) if abs(x / m - 1) > 0.01)]
        for m in means
    ]
    alternatives = np.array([*product(*grid)])
    losses_there = (every * alternatives[:, None]).max(axis=2)
    is_other = losses_there[:, is_best].min(axis=1) > losses_there.min(axis=1) * (1 + 1e-9)
    alternatives = alternatives[is_other]
    if not len(alternatives):
        return 0.0
    information_of_round = information(means, alternatives) @ every.T
    solution = linprog(losses - least, A_ub=-information_of_round, b_ub=-np.ones(len(alternatives)))
    assert solution.status == 0
    return float(solution.fun)


@settings(max_examples=12)
@given(st.lists(st.integers(2, 9), min_size=2, max_size=3), st.integers(1, 4))
def test_it_is_the_program_over_all_allocations_and_alternatives(
    means: list[int],
    budget: int,
) -> None:
    """Whole means, so that many losses are equal, and several tasks are missing."""
    bound = regret_lower_bound(pools.exponential(means), budget)
    expected = brute_force(np.array(means, float), budget)
    assert bound.constant == pytest.approx(expected, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(
    ("means", "budget"),
    [([2, 4, 5, 9], 2), ([1, 1, 2.5, 3], 4), ([2, 2, 4.5], 4), ([1.0, 1.7, 2.9], 2)],
)
def test_it_is_so_where_two_workers_are_tried_in_a_round(means: list[float], budget: int) -> None:
    bound = regret_lower_bound(pools.exponential(means), budget)
    assert bound.constant > 0
    assert bound.constant == pytest.approx(brute_force(np.array(means, float), budget), rel=1e-4)


def test_it_has_the_unit_of_the_times_and_the_order_of_workers_does_not_matter() -> None:
    regret = scenario("icml2025-regret")
    means = regret.pool.mean()
    bound = regret_lower_bound(regret.pool, regret.budget)
    assert bound.constant == pytest.approx(50.8197, rel=1e-5)
    for unit in (1e-150, 1e150):
        other = regret_lower_bound(pools.exponential(means[::-1] * unit), regret.budget)
        assert other.constant == pytest.approx(bound.constant * unit, rel=1e-6)


def test_it_is_below_the_bound_that_ata_keeps() -> None:
    regret = scenario("icml2025-regret")
    promise = guarantee(regret.pool, regret.budget, "icml")
    rounds = np.array([1, 10, 1e6, 1e12])
    assert (promise.lower_bound.regret(rounds) < promise.regret(rounds)).all()
    assert promise.lower_bound.regret(rounds) == pytest.approx(50.8197 * np.log(rounds), rel=1e-5)


def test_a_worker_nearly_as_fast_needs_many_tasks() -> None:
    gap = 1e-6
    bound = regret_lower_bound(pools.exponential([1, 1 + gap]), 1)
    assert bound.constant == pytest.approx(gap / (gap - math.log1p(gap)), rel=1e-6)


@pytest.mark.parametrize(
    ("pool", "budget", "reason"),
    [
        (pools.exponential([1, 2]), 3, "every worker has tasks in an allocation of least"),
        (pools.exponential(3.0), 2, "every worker has tasks"),
        (pools.exponential([1, 2]) + pools.gamma(4.0, 9.0), 2, "worker 2 are not exponential"),
        (pools.exponential([1, 9], shift=[0, 1]), 1, "worker 1 are not exponential"),
        (pools.exponential([1, 9]).with_latency(pools.deterministic([1, 1])), 1, "have a latency"),
        (pools.exponential(np.arange(1, 200)), 23, "variables, above the limit of 50,000"),
        (pools.exponential([1e-9, 1]), 10**8, "has at least 100,000,000 variables"),
        (pools.exponential([1, 1 + 1e-10]), 1, "no solution in floating point"),
    ],
)
def test_where_none_is_known_it_is_0_and_says_why(
    pool: pools.Pool,
    budget: int,
    reason: str,
) -> None:
    bound = regret_lower_bound(pool, budget)
    assert bound.constant == 0
    assert reason in bound.reason
    assert bound.statement == f"no logarithmic lower bound is known here: {bound.reason}"
    assert not bound.regret([1, 1e9]).any()


def test_means_whose_ratio_is_no_number_have_the_trivial_bound() -> None:
    bound = regret_lower_bound(pools.exponential([1e-300, 1e300]), 2)
    assert bound.constant == 0
    assert bound.reason == "its program has no solution in floating point"
    finite = regret_lower_bound(pools.exponential([1e-150, 1e150]), 2)
    np.testing.assert_allclose(finite.constant, 2e-150)


def test_a_bad_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="budget must be"):
        regret_lower_bound(pools.exponential([1, 2]), 0)


def test_the_statement_names_the_constant() -> None:
    assert RegretLowerBound(2.5, "").statement.startswith("R_K >= 2.5 ln K as K grows")
