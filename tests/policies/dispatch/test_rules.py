"""The rules of dispatch: by hand, on any state, and played on sampled times against races and reference tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym import scenario
from ata_gym.theory.simulated.slices import known_sample
from ata_policies.dispatch.margin import Workers, by_margin
from ata_policies.dispatch.remaining_time import by_remaining_time
from tests.policies.dispatch.simulated import Rule, simulate_rules

TIMES = known_sample(scenario("icml2025-cifar100").pool, 64)
WORKERS = Workers.of(TIMES, 23)


def everybody(missing: np.ndarray, running: np.ndarray, age: np.ndarray) -> np.ndarray:
    del missing, age
    return np.ones_like(running)


def margin(shadow: float) -> Rule:
    return lambda *at: by_margin(WORKERS, np.array(shadow), *at)


def test_the_remaining_time_rule_has_the_reference_costs() -> None:
    mean, reference = TIMES.mean(axis=1), ((16, 0.5, 494, 7527), (10, 0.7, 527, 4616), (7, 0.8, 580, 3467))
    rules = [
        lambda *at, m=m, kappa=kappa: by_remaining_time(mean, np.arange(m), kappa, *at) for m, kappa, *_ in reference
    ]
    costs = simulate_rules(TIMES, rules, 23, 1024)
    np.testing.assert_allclose(costs.round_time, [one[2] for one in reference], rtol=0.01)
    np.testing.assert_allclose(costs.worker_time, [one[3] for one in reference], rtol=0.025)


@pytest.mark.parametrize(
    ("price", "round_time", "worker_time"), [(0.01, 501, 6036), (0.05, 556, 3857), (0.3, 767, 2141)]
)
def test_the_margin_rule_costs_no_more_than_tuned_tables(price: float, round_time: float, worker_time: float) -> None:
    """The reference tables have a threshold for each worker; this rule has one number, near the price."""
    costs = simulate_rules(TIMES, [margin(price * factor) for factor in (0.85, 1.0, 1.2)], 23, 512)
    assert costs.total(price).min() < 1.006 * (round_time + price * worker_time)


def test_without_a_price_the_margin_rule_is_as_fast_as_everybody() -> None:
    costs = simulate_rules(TIMES, [everybody, margin(0.0), margin(0.002)], 23, 512)
    assert costs.round_time[1] < 1.001 * costs.round_time[0]
    assert costs.round_time[2] < 1.004 * costs.round_time[0]
    assert costs.worker_time[2] < 0.34 * costs.worker_time[0]


def test_a_mean_that_no_round_sees_does_not_count() -> None:
    """A worker that is hardly ever stuck for ages is as fast as it is otherwise."""
    stuck = np.full((1, 64), 2.0)
    stuck[0, -1] = 1e9
    assert 2.0 < Workers.of(stuck, 10).mean[0] < 2.5


@settings(max_examples=25)
@given(n=st.integers(1, 5), missing=st.integers(1, 6), seed=st.integers(0, 999))
def test_nothing_is_expected_of_the_absent(n: int, missing: int, seed: int) -> None:
    """The others are started as if an absent worker did not exist; it is asked to work at no less occasion."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.exponential(rng.uniform(0.5, 5.0, (n + 1, 1)), (n + 1, 8)), axis=1)
    workers, idle = Workers.of(times, missing), np.zeros(n + 1, np.int8)
    away = idle.copy()
    away[rng.integers(n + 1)] = 1
    there = np.flatnonzero(away == 0)
    at = np.array(0.1), np.array(missing)
    chosen = by_margin(workers, *at, idle, idle * 1.0, absent=away)
    without = Workers(times[there], workers.sums[there], workers.mean[there], np.argsort(workers.mean[there]), n)
    np.testing.assert_array_equal(chosen[there], by_margin(without, *at, idle[there], idle[there] * 1.0))


RATIOS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8)


@settings(max_examples=25)
@given(means=RATIOS, missing=st.integers(1, 12), shadow=st.floats(0.0, 2.0), data=st.data())
def test_the_rules_on_any_state(means: list[float], missing: int, shadow: float, data: st.DataObject) -> None:
    """Running workers go on, somebody works, and the unit of time does not matter."""
    mean = np.array(means)
    n = len(mean)
    running = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int8)
    age = running * np.array(data.draw(st.lists(st.floats(0.0, 20.0), min_size=n, max_size=n)))
    times, order = mean[:, None] * np.array([0.5, 0.8, 1.0, 1.7]), np.argsort(mean, kind="stable")
    at = np.array(missing), running
    chosen = by_margin(Workers.of(times, 12), np.array(shadow), *at, age)
    assert (chosen >= running).all()
    assert chosen.any()
    assert chosen.all() or shadow > 0.0
    scaled = by_margin(Workers.of(4.0 * times, 12), np.array(shadow), *at, 4.0 * age)
    np.testing.assert_array_equal(scaled, chosen)
    by_mean = by_remaining_time(mean, order, 0.7, *at, age)
    assert (by_mean >= running).all()
    assert by_mean.any()
    np.testing.assert_array_equal(by_remaining_time(4.0 * mean, order, 0.7, *at, 4.0 * age), by_mean)


def test_the_rest_by_hand() -> None:
    """Worker 0 has run 1 of 2 and then brings one result every 2: 3 results are in after 1, 3, 5."""
    mean, running, age = np.array([2.0, 5.0]), np.array([1, 0], np.int8), np.array([1.0, 0.0])
    assert by_remaining_time(mean, np.arange(2), 1.0, np.array(3), running, age).tolist() == [1, 1]
    assert by_remaining_time(mean, np.arange(2), 1.01, np.array(3), running, age).tolist() == [1, 0]
    alone = by_remaining_time(mean, np.arange(1), 1.0, np.array(3), running, age)
    assert alone.tolist() == [1, 0]  # not among the fastest
    for time, starts in ((4.99, 1), (5.01, 0)):  # in time for the third result, or not
        workers = Workers.of(np.repeat([[2.0], [time]], 64, axis=1), 3)
        assert by_margin(workers, np.array(0.3), np.array(3), running, age).tolist() == [1, starts]
