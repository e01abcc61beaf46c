"""Races: who starts how much, and the best race for a price."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym import allocate, scenario
from ata_gym.pools import concatenate, exponential, log_normal, pareto, shifted_exponential
from ata_gym.theory.simulated.costs import simulate
from ata_gym.theory.simulated.slices import known_sample
from ata_policies.planning.race_costs import race_costs
from ata_policies.planning.race_search import EVERYTHING, RaceSearch, best_race, race_allocation, time_per_result

CIFAR = scenario("icml2025-cifar100")
SCORES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=12)


@settings(max_examples=25)
@given(scores=SCORES, budget=st.integers(1, 30), spare=st.integers(0, 40), data=st.data())
def test_the_rest_is_out_and_the_others_get_what_ras_gives_them_capped(scores, budget, spare, data) -> None:
    s = np.array(scores)
    m = data.draw(st.integers(1, len(s)))
    race = race_allocation(s, m, budget + spare, budget)
    inside = np.argsort(s, kind="stable")[:m]
    assert race.sum() >= budget
    assert race.max() <= budget
    assert np.delete(race, inside).sum() == 0
    if (s > 0).all():
        order = np.sort(inside)
        np.testing.assert_array_equal(race[order], np.minimum(allocate(s[order], budget + spare), budget))
    rows = race_allocation(np.stack([s, s]), np.array([m, len(s)]), np.array([EVERYTHING, budget + spare]), budget)
    assert rows[0, inside].tolist() == [budget] * m
    assert rows[0].sum() == m * budget
    np.testing.assert_array_equal(rows[1], race_allocation(s, len(s), budget + spare, budget))


# What reference computations gave for some races in the CIFAR-100 setting.
ROUND_TIME = [564.9, 505.8, 495.0, 493.5, 493.5, 554.0, 583.0, 607.0, 630.0, 676.0]
WORKER_TIME = [3954, 6070, 7420, 9869, 25166, 3989, 3496, 3206, 2968, 2629]


@settings(max_examples=10)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_rounds_cost_what_those_of_the_simulation_cost(n: int, budget: int, seed: int) -> None:
    """On the same distributions, with another order of the task times."""
    rng = np.random.default_rng(seed)
    times, races = np.sort(rng.gamma(2.0, 1.0, (n, 8)), axis=1), rng.integers(0, budget + 1, (3, n))
    races[:, 0] += np.maximum(budget - races.sum(axis=1), 0)
    costs, usual = race_costs(times, races, budget, 4096), simulate(times, races, budget, 4096, race=True)
    np.testing.assert_allclose(costs, usual, rtol=0.05)


@pytest.mark.parametrize("replicates", [1, 2, 37, 64, 100])
def test_each_time_and_factor_is_taken_equally_often(replicates: int) -> None:
    """One task in a round: its mean is that of the times, and of the factors where the time is 1.

    Without noise rounds are exact: results come in after 1, 2, 2.5, 3; 1, 2, 3, 4; 1, 2.5, 5, 7.5.
    """
    costs = race_costs(np.array([[1.0], [2.5]]), np.array([[3, 2], [4, 0], [1, 4]]), 4, replicates)
    assert np.allclose(costs, [[3.0, 4.0, 7.5], [6.0, 4.0, 8.5]])
    times, ones = np.arange(1.0, replicates + 1)[None], np.ones((1, 1))
    once = np.array([[1]])
    np.testing.assert_allclose(race_costs(times, once, 1, replicates).round_time, times.mean())
    np.testing.assert_allclose(race_costs(ones, once, 1, replicates, times).round_time, times.mean())


def test_races_of_more_workers_are_never_longer_on_the_same_times() -> None:
    rng = np.random.default_rng(0)
    times, factors = np.sort(rng.exponential(size=(20, 64)), axis=1), rng.gamma(1.0, size=(20, 16))
    races = np.tril(np.full((20, 20), 7))
    assert (np.diff(race_costs(times, races, 7, 64, factors).round_time) <= 0.0).all()


def search(price: float, **more: Any) -> RaceSearch:
    times = known_sample(CIFAR.pool, 64)
    return RaceSearch(times, times.mean(axis=1), CIFAR.budget, price, **more)


def test_a_search_of_few_races_goes_on_where_it_ended() -> None:
    whole = search(0.1).search_from(51, EVERYTHING)
    choice, calls = search(0.1).search_from(51, EVERYTHING, most=1), 1
    while choice.stride > 0:
        choice = search(0.1).search_from(choice.fastest, choice.tasks, choice.stride, most=1)
        calls += 1
    assert calls > 3
    assert choice == whole


def test_searching_from_a_start_finds_as_good_a_race() -> None:
    for price in (0.01, 1.0):
        cold = search(price).search()
        for start in ((51, EVERYTHING), (10, 33), (3, 25)):
            assert search(price).search_from(*start).total(price) <= 1.01 * cold.total(price)
        assert search(price, least=30, replicates=64).search().fastest >= 30


def test_the_best_race_beats_all_that_are_known_and_saves_worker_time_at_a_higher_price() -> None:
    prices = (0.0, 0.002, 0.1, 2.0)
    races = [best_race(CIFAR.pool, CIFAR.budget, price) for price in prices]
    for race, price in zip(races, prices, strict=True):
        least = (np.array(ROUND_TIME) + price * np.array(WORKER_TIME)).min()
        assert race.round_time + price * race.worker_time <= 1.002 * least
        assert race.allocation.sum() >= CIFAR.budget
    worker_time, round_time = [r.worker_time for r in races], [r.round_time for r in races]
    assert worker_time == sorted(worker_time, reverse=True)
    assert round_time == sorted(round_time)
    assert races[-1].allocation.tolist() == [CIFAR.budget] + [0] * 50


@settings(max_examples=5)
@given(st.lists(st.floats(0.5, 5.0), min_size=2, max_size=3), st.integers(1, 4), st.sampled_from([0.0, 0.1, 1.0]))
def test_near_the_best_of_all_races_of_a_small_pool(scale: list[float], budget: int, price: float) -> None:
    """All races of up to B tasks each, by brute force on the same sampled times."""
    pool = shifted_exponential(np.array(scale), np.array(scale))
    times = known_sample(pool, 64)
    all_races = np.array([a for a in itertools.product(range(budget + 1), repeat=pool.n) if sum(a) >= budget])
    costs = simulate(times, all_races, budget, 1024, race=True).total(price)
    found = best_race(pool, budget, price)
    at = int(np.flatnonzero((all_races == found.allocation).all(axis=1))[0])
    assert costs[at] <= 1.05 * costs.min()


def test_tolerance_trades_hardly_any_round_time_for_much_worker_time() -> None:
    fastest, frugal = (search(0.0, tolerance=tolerance, replicates=512).search() for tolerance in (0.0, 0.005))
    assert frugal.round_time <= 1.0051 * fastest.round_time
    assert frugal.worker_time < 0.32 * 25166


def test_a_worker_that_is_mostly_fast_is_worth_more_in_a_race() -> None:
    """Two workers of equal mean: the one whose mean is made by rare long tasks is the faster in a race."""
    pool = log_normal([0.0], 2.0) + exponential([np.exp(2.0)])
    times = known_sample(pool, 256)
    usual, cut = time_per_result(times, np.inf), time_per_result(times, 5.0)
    np.testing.assert_allclose(usual, pool.mean(), rtol=1e-9)
    assert cut[0] < 0.5 * cut[1]
    many = concatenate([pool] * 5)
    assert best_race(many, 8, 1.0).allocation[1::2].sum() == 0
    assert time_per_result([[2.0, 3.0]], 1.0).tolist() == [np.inf]
    race = best_race(pareto([0.8, 1.5, 0.9], scale=[1.0, 1.0, 2.0]), 4, 0.1)  # of infinite means
    assert np.isfinite([race.round_time, race.worker_time]).all()
    assert race.allocation.sum() >= 4


def test_refuses_bad_numbers() -> None:
    for budget, price, said in (
        (23, -1.0, "price must be"),
        (0, 0.1, "budget must be"),
        (10**9, 0.1, "smaller budget"),
    ):
        with pytest.raises(ValueError, match=said):
            best_race(CIFAR.pool, budget, price)


@pytest.mark.parametrize("unit", [5e-324 * 2**20, 2.0**1015])
def test_extreme_units_of_time_change_nothing(unit: float) -> None:
    times = np.array([1.0, 2.0, 5.0])
    one, race = (best_race(exponential(times * u), 5, 0.1, replicates=64) for u in (1.0, unit))
    assert race.allocation.tolist() == one.allocation.tolist()
    np.testing.assert_allclose(race[1] / unit, one[1], rtol=1e-6)
    sample = known_sample(exponential(times), 8)
    np.testing.assert_allclose(known_sample(exponential(times * unit), 8) / unit, sample, rtol=1e-4)
    played, usual_time = (simulate(sample * u, [[2, 2, 1]], 5, 8).round_time for u in (unit, 1.0))
    np.testing.assert_allclose(played / unit, usual_time, rtol=1e-4)
    choice, usual = (RaceSearch(sample * u, sample.mean(axis=1) * u, 5, 0.1).search() for u in (unit, 1.0))
    assert choice[:2] == usual[:2]
