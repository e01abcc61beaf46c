"""Decisions for shares with a latency, against closed forms, sampling and brute force."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym import (
    allocate,
    expected_round_time,
    optimal_allocation,
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
    uniform,
    weibull,
)
from ata_gym.scenarios import Scenario
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.allocation.hindsight_split import best_split
from ata_gym.theory.guarantees import guarantee
from ata_gym.theory.round_time.expected import expected_round_times
from ata_gym.theory.round_time.worker_times import rescaled
from ata_gym.theory.simulated.costs import simulate
from ata_gym.theory.simulated.slices import slice_means
from ata_policies.card import full_scenario_card
from ata_policies.planning.races.costs import race_costs
from ata_policies.planning.races.search import best_race, time_with_latency


def with_latency(pool: Pool, latency: object) -> Pool:
    """The pool with a latency, also where it replays a trace."""
    return Pool.from_data({**pool.to_data(), "latency": latency})


def allocations(n: int, budget: int) -> Iterator[tuple[int, ...]]:
    if n == 1:
        yield (budget,)
        return
    for tasks in range(budget + 1):
        for rest in allocations(n - 1, budget - tasks):
            yield (tasks, *rest)


def sampled_shares(pool: Pool, tasks: list[int], size: int) -> np.ndarray:
    """Draw the times of shares with NumPy and SciPy alone, (workers, size)."""
    rng = np.random.default_rng(3)

    def draw(workers: Pool, i: int, number: int) -> np.ndarray:
        if "trace" in workers.families[i]:
            starts = rng.integers(0, len(workers.record(i)), size)
            rows = np.add.outer(starts, np.arange(number)) % len(workers.record(i))
            return workers.record(i)[rows].sum(axis=1)
        parts = workers.distributions
        if workers.families[i] == "deterministic":
            return np.full(size, number * (parts.shift[i] + parts.scale[i]))
        drawn = workers.standard(i).rvs((number, size), random_state=rng).sum(axis=0)
        return number * parts.shift[i] + parts.scale[i] * drawn

    return np.stack(
        [
            draw(pool, i, a) + draw(pool.latency, i, 1) if a else np.zeros(size)
            for i, a in enumerate(tasks)
        ],
    )


def test_a_constant_latency_is_a_shift():
    pool = gamma([0.7, 3.0], [2.0, 1.0])
    shifted = gamma([0.7, 3.0], [2.0, 1.0], shift=[1.5, 0.25])
    late = pool.with_latency([1.5, 0.25])
    assert expected_round_time(late, [1, 1]) == pytest.approx(
        expected_round_time(shifted, [1, 1]), rel=1e-12
    )
    alone = expected_round_time(pool.with_latency(5.0), [3, 0])
    assert alone == pytest.approx(expected_round_time(pool, [3, 0]) + 5.0, rel=1e-12)
    assert expected_round_time(pool.with_latency(5.0), [0, 0]) == 0.0


@pytest.mark.parametrize("shape", [1.0, 0.3])
def test_a_latency_of_the_family_of_the_tasks_counts_as_one_task_more(shape):
    tasks = gamma([shape] * 2, [2.0, 1.0])
    latency = gamma([shape] * 2, [2.0, 1.0])
    by_shape = gamma([3 * shape, 5 * shape], [2.0, 1.0])
    assert expected_round_time(tasks.with_latency(latency), [2, 4]) == pytest.approx(
        expected_round_time(by_shape, [1, 1]), rel=2e-10
    )


def test_shares_of_every_family_agree_with_sampling():
    tasks = concatenate(
        [
            exponential([2.0, 1.0]),
            uniform(0.0, 3.0),
            log_normal(0.0, 1.0),
            weibull(0.5, 1.0),
            pareto(4.5, 1.0),
            trace([[1.0, 2.0, 4.0], [3.0, 1.0]]),
            deterministic(2.0),
        ]
    )
    latency = concatenate(
        [
            log_normal(1.0, 0.5),
            uniform(0.0, 4.0),
            gamma(0.5, 3.0),
            weibull(0.6, 0.5),
            pareto(4.8, 0.3),
            trace([[1.0, 2.0], [0.5, 3.0, 2.5]]),
            exponential([1.0, 3.0]),
        ]
    )
    pool = with_latency(tasks, latency)
    size = 200_000
    for allocation in ([2, 3, 1, 2, 1, 2, 1, 2, 1], [0, 0, 0, 0, 0, 3, 2, 0, 0]):
        shares = sampled_shares(pool, allocation, size)
        round_time = shares.max(axis=0)
        exact = expected_round_time(pool, allocation)
        assert abs(exact - round_time.mean()) < 4.5 * round_time.std() / size**0.5
        several = expected_round_times(pool, np.array([allocation, allocation[::-1]]))
        assert several[0] == pytest.approx(exact, rel=1e-6)
        for i in np.flatnonzero(allocation):
            alone = np.where(np.arange(pool.n) == i, allocation, 0)
            mean = alone[i] * pool.mean()[i] + pool.latency.mean()[i]
            assert expected_round_time(pool, alone) == pytest.approx(mean, rel=1e-9)


def test_times_that_are_replayed_by_round_are_taken_together():
    records = np.array([[1.0, 2.0, 4.0], [3.0, 1.0, 2.0]])
    delays = np.array([[0.5, 0.0, 1.0], [0.0, 2.0, 0.5]])
    replayed = with_latency(trace(records, replay="round"), trace(delays, replay="round"))
    exact = (np.array([[1], [2]]) * records + delays).max(axis=0).mean()
    assert expected_round_time(replayed, [1, 2]) == pytest.approx(exact, rel=1e-12)
    # a random latency beside replayed tasks: each round on its own
    late = with_latency(trace(records, replay="round"), exponential([1.0, 2.0]))
    rounds = [
        expected_round_time(deterministic(column).with_latency(exponential([1.0, 2.0])), [1, 1])
        for column in records.T
    ]
    assert expected_round_time(late, [1, 1]) == pytest.approx(np.mean(rounds), rel=1e-10)
    # and the other way round
    swapped = with_latency(exponential([1.0, 2.0]), trace(records, replay="round"))
    assert expected_round_time(swapped, [1, 1]) == pytest.approx(np.mean(rounds), rel=1e-10)
    long = with_latency(trace([np.arange(1.0, 5000.0)], replay="round"), exponential([1.0]))
    with pytest.raises(ValueError, match="4,096 rounds"):
        expected_round_time(long, [1])


def test_long_records_beside_a_random_latency_are_reduced_with_a_small_error():
    record = np.random.default_rng(1).exponential(2.0, 3000)
    pool = with_latency(trace([record, record]), exponential([1.0, 1.0]))
    exact = record.mean() + 1.0
    assert expected_round_time(pool, [1, 0]) == pytest.approx(exact, rel=1e-9)
    # the maximum of two, by their distributions on a grid
    t = np.linspace(0.0, 60.0, 20_001)
    early = np.zeros_like(t)
    for time in record:
        early += -np.expm1(-np.maximum(t - time, 0.0)) / len(record)
    assert expected_round_time(pool, [1, 1]) == pytest.approx(
        np.trapezoid(1 - early**2, t), rel=5e-5
    )


@pytest.mark.parametrize("unit", [2.0**-600, 2.0**600])
def test_latencies_are_rescaled_with_the_times(unit):
    pool = gamma([2.0, 1.0], [1.0, 3.0]).with_latency(log_normal([0.0, 0.5], 0.5))
    tiny = gamma([2.0, 1.0], np.array([1.0, 3.0]) * unit)
    parts = pool.latency.distributions
    latency = Pool("log-normal", scale=parts.scale * unit, shape=parts.shape)
    far = tiny.with_latency(latency)
    new, factor = rescaled(far, float(far.mean().max()))
    np.testing.assert_allclose(new.latency.mean() * factor, far.latency.mean(), rtol=1e-12)
    assert expected_round_time(far, [2, 1]) / unit == pytest.approx(
        expected_round_time(pool, [2, 1]), rel=1e-9
    )
    assert rescaled(far.with_latency(0.0), 1.0)[0].latency.mean().tolist() == [0.0, 0.0]


whole = st.integers(1, 9).map(float)
real = st.floats(1e-6, 1e6)
late_whole = st.integers(0, 20).map(float)
late_real = st.floats(0.0, 1e9)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.lists(st.tuples(whole, late_whole, whole), min_size=1, max_size=6),
        st.lists(st.tuples(real, late_real, real), min_size=1, max_size=6),
    ),
    st.integers(1, 40),
)
def test_each_task_goes_to_the_worker_of_least_cost(workers, budget):
    scores, latency, spread = np.array(workers).T
    tasks = np.zeros(len(workers))
    by_cost = np.zeros(len(workers))
    for _ in range(budget):
        tasks[np.argmin(latency + (tasks + 1) * scores)] += 1
        j = by_cost + 1
        by_cost[np.argmin(latency + (scores * j + spread * np.sqrt(j)))] += 1
    assert allocate(scores, budget, latency=latency).tolist() == tasks.tolist()
    np.testing.assert_array_equal(
        allocate(scores, budget, latency=np.zeros_like(scores)), allocate(scores, budget)
    )
    # units of a power of two keep ties; other units do not keep the last bit of a cost
    if np.array_equal(scores, np.round(scores)):
        found = allocate_by_cost(scores, spread, budget, latency=latency)
        assert found.tolist() == by_cost.tolist()


def test_an_allocation_with_latencies_minimises_the_largest_share():
    rng = np.random.default_rng(0)
    for _ in range(30):
        scores = rng.exponential(2.0, 3)
        latency = rng.exponential(5.0, 3)
        least = min(float(proxy_loss(a, scores, latency)) for a in allocations(3, 7))
        assert proxy_loss(allocate(scores, 7, latency=latency), scores, latency) == least
        pool = exponential(scores).with_latency(latency)
        assert proxy_loss(proxy_optimal(pool, 7), scores, latency) == least


def test_large_budgets_and_extreme_latencies_need_no_loop_over_tasks():
    rng = np.random.default_rng(0)
    scores = rng.exponential(1.0, 500)
    latency = rng.exponential(1e4, 500)
    budget = 2**50
    tasks = allocate(scores, budget, latency=latency)
    assert tasks.sum() == budget
    level = (latency + tasks * scores)[tasks > 0].max()
    assert (latency + (tasks + 1) * scores >= level * (1 - 1e-12)).all()
    by_cost = allocate_by_cost(scores, np.zeros(500), 10**7, latency=latency)
    np.testing.assert_array_equal(by_cost, allocate(scores, 10**7, latency=latency))
    # scores that are lost in their latencies: all tasks cost the same, so the first worker has them
    assert allocate([1e-300, 1.0], budget, latency=[1e300, 1e301]).tolist() == [budget, 0]
    assert allocate([1e308, 1e308], 3, latency=[1e308, 0.0]).tolist() == [1, 2]


def test_scores_of_zero_with_latencies():
    # any number of tasks of workers 0 and 1 costs 4; worker 2 has three tasks that cost less
    assert allocate([0.0, 0.0, 1.0, 9.0], 9, latency=[4.0, 4.0, 0.0, 0.0]).tolist() == [3, 3, 3, 0]
    untried = [True, False, False, False]
    assert allocate(
        [0.0, 0.0, 1.0, 9.0], 9, untried=untried, latency=[4.0, 4.0, 0.0, 0.0]
    ).tolist() == [1, 5, 3, 0]
    assert allocate([0.0, 0.0], 5, untried=[True, True], latency=[4.0, 1.0]).tolist() == [3, 2]
    keys = np.arange(64, dtype=np.uint64)
    chosen = allocate(np.zeros((64, 3)), 1, keys=keys, latency=[2.0, 2.0, 9.0])
    assert (chosen.sum(axis=0) > [10, 10, -1]).all()
    assert chosen[:, 2].sum() == 0
    available = [False, True]
    assert allocate([1.0, 5.0], 3, available=available, latency=[0.0, 9.0]).tolist() == [0, 3]


@pytest.mark.parametrize("latency", [-1.0, np.nan, np.inf, [1.0, 2.0, 3.0]])
def test_latencies_of_an_allocation_are_checked(latency):
    with pytest.raises(ValueError, match="latency must"):
        allocate([1.0, 2.0], 3, latency=latency)


POOLS = {
    "constant": lambda mean, late: exponential(mean).with_latency(late),
    "gamma": lambda mean, late: gamma(2.0, mean / 2).with_latency(exponential(late)),
    "log-normal": lambda mean, late: uniform(0 * mean, 2 * mean).with_latency(
        log_normal(np.log(late), 0.8)
    ),
    "by round": lambda mean, late: with_latency(
        trace([[m, 3 * m] for m in mean], replay="round"), late
    ),
}


@pytest.mark.parametrize("price", [0.0, 0.1])
@pytest.mark.parametrize("kind", POOLS)
def test_the_optimal_allocation_is_the_best_of_all(kind, price):
    rng = np.random.default_rng(5)
    pool = POOLS[kind](rng.uniform(0.5, 4.0, 3), rng.uniform(0.5, 8.0, 3))
    unit_costs = np.array([1.0, 0.5, 2.0])

    def cost(allocation):
        tasks = np.array(allocation)
        work = unit_costs @ (tasks * pool.mean() + (tasks > 0) * pool.latency.mean())
        return expected_round_time(pool, tasks) + price * work

    costs = {allocation: cost(allocation) for allocation in allocations(3, 6)}
    best = optimal_allocation(pool, 6, price, unit_costs)
    assert best.gap == 0.0
    assert best.cost == pytest.approx(min(costs.values()), rel=1e-9)
    assert best.cost == pytest.approx(costs[tuple(best.allocation.tolist())], rel=1e-12)
    work = (best.cost - best.round_time) / price if price else best.worker_time
    assert best.worker_time == pytest.approx(work)


def test_a_gap_is_valid_where_rounds_are_replayed_and_latencies_are_drawn():
    pool = with_latency(
        trace([[1.0, 3.0], [2.0, 5.0, 1.0], [4.0]], replay="round"), exponential([3.0, 1.0, 2.0])
    )
    costs = [expected_round_time(pool, allocation) for allocation in allocations(3, 4)]
    best = optimal_allocation(pool, 4)
    assert best.cost - best.gap <= min(costs) <= best.cost


def test_simulated_rounds_pay_the_latency_of_workers_with_tasks():
    pool = gamma([2.0, 0.8, 1.0], [1.0, 3.0, 2.0]).with_latency(log_normal([1.0, 0.0, 2.0], 0.5))
    times = slice_means(pool, 256)
    latency = slice_means(pool.latency, 256)
    several = np.array([[3, 1, 1], [2, 0, 3], [5, 0, 0]])
    costs = simulate(times, several, 5, 4096, latency)
    exact = expected_round_times(pool, several)
    np.testing.assert_allclose(costs.round_time, exact, rtol=0.02)
    work = several @ pool.mean() + (several > 0) @ pool.latency.mean()
    np.testing.assert_allclose(costs.worker_time, work, rtol=1e-3)
    shifted = simulate(times, several, 5, 256, np.full((3, 1), 100.0))
    plain = simulate(times, several, 5, 256)
    np.testing.assert_allclose(shifted.round_time, plain.round_time + 100.0)
    # a race in which nothing is cancelled is an allocation, and a cancelled worker has paid
    races = race_costs(times, several, 5, 4096, latency=latency)
    np.testing.assert_allclose(races.round_time, exact, rtol=0.02)
    np.testing.assert_allclose(races.worker_time, work, rtol=0.02)
    race = race_costs(
        np.array([[1.0], [1.0]]),
        np.array([[2, 2], [2, 0]]),
        2,
        4,
        latency=np.array([[0.5], [9.0]]),
    )
    assert race.round_time.tolist() == [2.5, 2.5]
    assert race.worker_time.tolist() == [5.0, 2.5]


def test_the_best_fixed_split_of_a_log_with_latencies():
    rng = np.random.default_rng(2)
    for shape in ((1, 3), (8, 3)):
        times = rng.exponential(1.0, (8, 3)) + 0.2
        latency = rng.exponential(3.0, shape)

        def total(split, times=times, latency=latency):
            tasks = np.array(split)
            return (tasks * times + (tasks > 0) * latency).max(axis=1).sum()

        split = best_split(times, 7, latency)
        for giver in np.flatnonzero(split):
            for taker in range(3):
                moved = split.copy()
                moved[giver] -= 1
                moved[taker] += 1
                assert total(moved) >= total(split) * (1 - 1e-9)
        assert total(split) <= total(best_split(times, 7))
    np.testing.assert_array_equal(best_split(times, 7), best_split(times, 7, np.zeros((1, 3))))


def test_the_theorems_say_nothing_of_a_pool_with_a_latency():
    pool = scenario("icml2025-regret").pool
    with pytest.raises(ValueError, match=r"with_latency\(None\)"):
        guarantee(pool.with_latency(1.0), 5)


def test_what_ways_of_taking_part_cost_in_a_race_is_measured_from_the_rounds_start():
    scores = np.array([1.0, 2.0, np.inf])
    ranking = time_with_latency(scores, np.array([6.0, 0.0, 0.0]), 10.0)
    assert ranking.tolist() == [2.5, 2.0, np.inf]
    # a latency as long as the round: behind all others
    assert time_with_latency(scores, np.array([10.0, 0.0, 0.0]), 10.0).argmin() == 1
    pool = deterministic([1.0, 2.0, 2.0]).with_latency([50.0, 0.0, 0.0])
    race = best_race(pool, 4, price=0.1)
    assert race.allocation.tolist() == [0, 2, 2]
    assert (race.round_time, race.worker_time) == (4.0, 8.0)
    late = best_race(deterministic([1.0]).with_latency(3.0), 2, price=0.1)
    assert (late.round_time, late.worker_time) == (5.0, 5.0)


def test_the_card_of_a_scenario_shows_its_latency_and_that_the_theorems_do_not_hold():
    pool = exponential([1.0, 2.0]).with_latency(exponential([3.0, 5.0]))
    facts = full_scenario_card(Scenario(pool, 4)).facts
    assert facts["latency"].startswith("exponential, means 3 to 5 a round")
    assert facts["ATA's guarantee"] == "none: the theorems hold for rounds without latency"
    assert "uniform phase" not in facts
    assert "latency" not in full_scenario_card(Scenario(exponential([1.0, 2.0]), 4)).facts
