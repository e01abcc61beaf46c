"""Rules of dispatch played on sampled times: against races, by hand, and against the reference table."""

from __future__ import annotations

import numpy as np
import pytest
from ata_gym.theory.simulated.dispatch import Rule, simulate_dispatch
from ata_policies.dispatch.rules import Workers, by_margin, by_remaining_time
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym import scenario
from ata_gym.theory.simulated.costs import simulate
from ata_gym.theory.simulated.slices import known_sample

TIMES = known_sample(scenario("icml2025-cifar100").pool, 64)
MEAN = TIMES.mean(axis=1)
WORKERS = Workers.of(TIMES, 23)
ORDER = np.arange(51)


def everybody(missing: np.ndarray, running: np.ndarray, age: np.ndarray) -> np.ndarray:
    del missing, age
    return np.ones_like(running)


def rest(m: int, kappa: float) -> Rule:
    return lambda *at: by_remaining_time(MEAN, ORDER[:m], kappa, *at)


def margin(shadow: float) -> Rule:
    return lambda *at: by_margin(WORKERS, np.array(shadow), *at)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 6), size=st.integers(1, 5), budget=st.integers(1, 8), seed=st.integers(0, 99))
def test_everybody_always_working_is_the_race_for_everything(n: int, size: int, budget: int, seed: int) -> None:
    times = np.random.default_rng(seed).exponential(size=(n, size))
    dispatched = simulate_dispatch(times, [everybody], budget, 2 * size)
    raced = simulate(times, np.full((1, n), budget), budget, 2 * size, race=True)
    assert dispatched.round_time[0] == raced.round_time[0]
    np.testing.assert_allclose(dispatched.worker_time, raced.worker_time, rtol=1e-12)


def test_a_rule_that_starts_nobody_starts_everybody() -> None:
    nobody: Rule = lambda *at: np.zeros_like(at[1])  # noqa: E731
    # both start at 0; at 2 worker 1 still runs, so worker 0 waits
    assert simulate_dispatch([[2.0], [3.0]], [nobody], budget=2).round_time == [3.0]


@pytest.mark.parametrize(
    ("m", "kappa", "round_time", "worker_time"),
    [(16, 0.5, 494, 7527), (14, 0.6, 498, 6472), (10, 0.7, 527, 4616), (8, 0.8, 562, 3763), (7, 0.8, 580, 3467)],
)
def test_the_rest_rule_has_the_reference_round_and_worker_times(
    m: int, kappa: float, round_time: float, worker_time: float
) -> None:
    costs = simulate_dispatch(TIMES, [rest(m, kappa)], 23, 1024)
    np.testing.assert_allclose(costs.round_time, round_time, rtol=0.01)
    np.testing.assert_allclose(costs.worker_time, worker_time, rtol=0.025)


@pytest.mark.parametrize(
    ("price", "round_time", "worker_time"),
    [(0.01, 501, 6036), (0.02, 515, 5102), (0.05, 556, 3857), (0.09, 604, 3150), (0.15, 654, 2714), (0.3, 767, 2141)],
)
def test_the_margin_rule_costs_no_more_than_tuned_tables(price: float, round_time: float, worker_time: float) -> None:
    """The reference tables have a threshold for each worker; this rule has one number, near the price."""
    costs = simulate_dispatch(TIMES, [margin(price * factor) for factor in (0.85, 1.0, 1.2)], 23, 1024)
    assert costs.total(price).min() < 1.006 * (round_time + price * worker_time)


def test_without_a_price_the_margin_rule_is_as_fast_as_everybody() -> None:
    costs = simulate_dispatch(TIMES, [everybody, margin(0.0), margin(0.002)], 23, 512)
    assert costs.round_time[1] < 1.001 * costs.round_time[0]
    assert costs.round_time[2] < 1.004 * costs.round_time[0]
    assert costs.worker_time[2] < 0.34 * costs.worker_time[0]


@pytest.mark.parametrize("times", [[1.0, 2.0], [[]], [[1.0, np.nan]], [[np.inf]], [[-1.0]]])
def test_bad_times(times: list[float]) -> None:
    with pytest.raises(ValueError, match="times must"):
        simulate_dispatch(times, [everybody], 2)
