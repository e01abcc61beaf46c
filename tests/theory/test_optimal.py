"""optimal_allocation against brute force, published numbers and its own certificates."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from ata_gym import (
    expected_round_time,
    optimal_allocation,
    pools,
    proxy_loss,
    proxy_optimal,
    scenario,
)
from ata_gym.pools import (
    Pool,
    concatenate,
    deterministic,
    exponential,
    gamma,
    log_normal,
    pareto,
    trace,
)

TOLERANCE = 1e-6
CIFAR = scenario("icml2025-cifar100").pool
SMALL = (
    pools.shifted_exponential([1.0, 2.0], [1.0, 2.0])
    + gamma([4.0, 9.0], [0.7, 0.2])
    + log_normal(0.5, 0.8)
)


def least(pool: Pool, budget: int, price: float = 0.0) -> float:
    places = budget + pool.n - 1
    all_bars = [[-1, *bars, places] for bars in combinations(range(places), pool.n - 1)]
    return min(
        expected_round_time(pool, a) + price * (a @ pool.mean()) for a in np.diff(all_bars) - 1
    )


def check(pool: Pool, budget: int, price: float = 0.0) -> float:
    """The allocation is legal, its round time and cost are what it says, and its gap is; returns
    the gap.
    """
    optimum = optimal_allocation(pool, budget, price)
    assert (optimum.allocation.dtype, optimum.allocation.shape) == (np.int64, (pool.n,))
    assert (optimum.allocation.min() >= 0, optimum.allocation.sum()) == (True, budget)
    assert optimum.round_time == expected_round_time(pool, optimum.allocation)
    assert optimum.cost == optimum.round_time + price * optimum.worker_time
    best = least(pool, budget, price)
    assert best - TOLERANCE * best <= optimum.cost <= best + optimum.gap + TOLERANCE * best
    assert optimum.gap >= 0
    return optimum.gap


@pytest.mark.parametrize(
    ("name", "ofta", "best"),
    [
        ("icml2025-cifar100", 780.024, 727.595),
        ("icml2025-regret", 9.327, 8.790),
        ("icml2025-mixed-n45", 368.643, 356.721),
        ("icml2025-quadratic-sqrt-n459", 424.880, 406.953),
        ("icml2025-quadratic-log-n51", 317.713, 305.684),
        ("icml2025-quadratic-square-n459", 1209.872, 1115.416),
    ],
)
def test_published_settings_are_proved(name, ofta, best):
    named = scenario(name)
    assert expected_round_time(
        named.pool,
        proxy_optimal(named.pool, named.budget),
    ) == pytest.approx(ofta, abs=1e-3)
    optimum = optimal_allocation(named.pool, named.budget)
    assert (optimum.round_time, optimum.gap) == (pytest.approx(best, abs=1e-3), 0)


# mean times about m; few shapes, so that sums are convolved once
MAKERS = [
    deterministic,
    exponential,
    pools.half_normal,
    lambda m: pools.shifted_exponential(m / 2, m / 2),
    lambda m: pools.uniform(0.5 * m, 1.5 * m),
    lambda m: gamma(0.1, 10 * m),
    lambda m: gamma(1e6, m / 1e6),
    lambda m: log_normal(np.log(m) - 2.0, 2.0),
    lambda m: pools.weibull(0.5, m / 2),
    lambda m: pareto(1.5, m / 3),
    lambda m: trace([[0.2 * m, 0.3 * m, 2.5 * m, m]], "task"),
]
WORKERS = st.builds(lambda m, make: make(round(m, 1)), st.floats(1.0, 5.0), st.sampled_from(MAKERS))


@settings(max_examples=8)
@example(
    deterministic([2.6, 3.5]) + log_normal(np.log(3.5) - 2, 2.0),
    7,
    0.0,
)  # single swaps from the proxy optimum: + 10 %
@example(SMALL, 3, 30.0)
@example(SMALL + trace([[1.0, 4.0, 2.0]]), 3, 0.1)
@given(
    st.lists(WORKERS, min_size=1, max_size=3).map(concatenate),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.1]),
)
def test_small_pools_are_solved(pool, budget, price):
    assert check(pool, budget, price) == 0


def test_gaps_shrink_with_more_nodes(monkeypatch):
    rng = np.random.default_rng(0)
    pool = (
        exponential(rng.uniform(1, 4, 8))
        + log_normal(rng.uniform(-1, 0, 8), 1.2)
        + gamma(0.5, rng.uniform(1, 8, 8))
    )
    best = optimal_allocation(pool, 24)
    optima = []
    for nodes in (0, 30):
        monkeypatch.setattr("ata_gym.theory.optimal.branch_and_bound.NODES", nodes)
        optima.append(optimal_allocation(pool, 24))
        check(SMALL, 4)
    assert optima[0].gap >= optima[1].gap > 0
    assert best.gap == 0
    assert all(
        optimum.round_time - optimum.gap <= best.round_time <= optimum.round_time
        for optimum in optima
    )


def test_workers_that_share_their_rounds():
    rng = np.random.default_rng(3)
    busy = rng.exponential(1.0, 40)  # a load that all feel
    records = [
        m + rng.uniform(0, 1, 40) + busy * b
        for m, b in ((1.0, 2.0), (1.5, 0.0), (2.0, 1.0), (3.0, 0.0))
    ]
    assert check(trace(records, "round"), 6) == 0
    check(trace(records[:2], "round") + exponential([2.0, 1.0]), 5)
    for end in ("truncate", "wrap"):
        check(trace([records[0][:7], *records[1:3]], "round", end=end), 5)


def test_workers_alike_and_of_constant_times():
    optimum = optimal_allocation(log_normal(np.zeros(20), 1.0), 23)
    assert (sorted(optimum.allocation), optimum.gap) == ([1] * 17 + [2] * 3, 0)
    pool = deterministic(np.arange(1.0, 30.0))
    optimum = optimal_allocation(pool, 23)
    assert (optimum.gap, optimum.round_time) == (
        0,
        proxy_loss(proxy_optimal(pool, 23), pool.mean()),
    )


ODD = exponential([1.0, 2.0]) + deterministic(3.0) + trace([[2.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("pool", "budget", "price", "largest_gap"),
    [
        (exponential(np.linspace(1.0, 10.0, 60)), 400, 0.0, 0.02),
        (exponential(np.linspace(1.0, 10.0, 60)), 20_000, 0.0, 0.2),
        (ODD + pools.weibull(0.7, 1.5), 10**6, 0.1, 4e-3),
        (ODD, 2**50, 0.0, 4e-3),
    ],
)
def test_large_budgets_get_a_gap(pool, budget, price, largest_gap, monkeypatch):
    monkeypatch.setattr("ata_gym.theory.optimal.branch_and_bound.NODES", 20)
    optimum = optimal_allocation(pool, budget, price)
    assert optimum.allocation.sum() == budget
    assert 0 <= optimum.gap < largest_gap * optimum.cost


def test_infinite_means_get_nothing():
    pool = pareto([1.0, 0.7], 0.01) + exponential([5.0, 3.0])
    optimum = optimal_allocation(pool, 4)
    assert (optimum.allocation[:2].tolist(), optimum.gap) == ([0, 0], 0)
    assert optimum.round_time == pytest.approx(least(exponential([5.0, 3.0]), 4), rel=TOLERANCE)
    with pytest.raises(ValueError, match="infinite mean"):
        optimal_allocation(pareto([1.0, 0.7], 1.0), 3)


@pytest.mark.parametrize(
    "bad",
    [{"budget": 0}, {"budget": 2.0}, {"budget": 2**60}, {"budget": 3, "price": -1.0}],
)
def test_bad_numbers(bad):
    with pytest.raises(ValueError, match=f"{[*bad][-1]} must be"):
        optimal_allocation(exponential([1.0, 2.0]), **bad)


@pytest.mark.parametrize("price", [1e15, 1e17, 1e100, 1e300])
@pytest.mark.parametrize(
    "pool",
    [
        pools.exponential([2.0, 1.0]),
        pools.deterministic([2.0, 1.0]),
        pools.gamma([9.0, 4.0], [0.3, 0.25]).with_latency([0.5, 0.0]),
    ],
)
def test_at_a_price_beside_which_round_times_are_nothing_the_cheapest_worker_works(pool, price):
    optimum = optimal_allocation(pool, 3, price)
    assert optimum.allocation.tolist() == [0, 3]
    assert optimum.gap == 0


def test_a_price_whose_costs_are_no_numbers_is_refused():
    with pytest.raises(ValueError, match="above the largest number: give a smaller price"):
        optimal_allocation(pools.exponential([2.0, 1.0]), 3, 1.7e308)


def test_priced_allocations_of_a_published_setting() -> None:
    """A price of 0 gives the optimum of the round time; worker time falls and round time grows with
    the price.
    """
    optima = [optimal_allocation(CIFAR, 23, price) for price in (0.0, 0.01, 0.1, 1.0)]
    assert [best.gap for best in optima] == [0.0] * 4
    np.testing.assert_allclose(
        [best.worker_time for best in optima],
        [best.allocation @ CIFAR.mean() for best in optima],
    )
    assert np.all(np.diff([best.worker_time for best in optima]) <= 0)
    assert np.all(np.diff([best.round_time for best in optima]) >= 0)
    assert optima[3].allocation[0] == 23
    endless = optimal_allocation(exponential([1.0, 2.0]) + pareto(0.9, 1.0), 4, 0.1)
    assert endless.allocation[2] == 0
