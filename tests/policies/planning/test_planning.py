"""Planning: races and local searches on tables of distributions, the population of workers, and who
is worth a try.
"""

import itertools
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym import allocate, expected_round_time, optimal_allocation, scenario
from ata_gym.pools import (
    Pool,
    concatenate,
    exponential,
    gamma,
    log_normal,
    pareto,
    shifted_exponential,
)
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.simulation.rounds import race_round
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.simulated.costs import Costs, replay, simulate
from ata_gym.theory.simulated.slices import slice_means
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.planning import knowledge
from ata_policies.planning.exploration import _fill_considered, explore
from ata_policies.planning.fewer_tasks import Reduced, remove_tasks
from ata_policies.planning.knowledge import (
    Estimates,
    choose_candidates,
    learn_population,
    learn_rows,
    posterior,
)
from ata_policies.planning.local_search import local_search
from ata_policies.planning.plan import _probe, search
from ata_policies.planning.races.costs import race_costs
from ata_policies.planning.races.search import (
    EVERYTHING,
    RaceSearch,
    best_race,
    race_allocation,
    time_per_result,
)

CIFAR = scenario("icml2025-cifar100")
SCORES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=12)


@settings(max_examples=25)
@given(scores=SCORES, budget=st.integers(1, 30), spare=st.integers(0, 40), data=st.data())
def test_the_rest_is_out_and_the_others_get_what_ras_gives_them_capped(
    scores,
    budget,
    spare,
    data,
) -> None:
    s = np.array(scores)
    m = data.draw(st.integers(1, len(s)))
    race = race_allocation(s, m, budget + spare, budget)
    inside = np.argsort(s, kind="stable")[:m]
    assert race.sum() >= budget
    assert race.max() <= budget
    assert np.delete(race, inside).sum() == 0
    if (s > 0).all():
        order = np.sort(inside)
        np.testing.assert_array_equal(
            race[order],
            np.minimum(allocate(s[order], budget + spare), budget),
        )
    rows = race_allocation(
        np.stack([s, s]),
        np.array([m, len(s)]),
        np.array([EVERYTHING, budget + spare]),
        budget,
    )
    assert rows[0, inside].tolist() == [budget] * m
    assert rows[0].sum() == m * budget
    np.testing.assert_array_equal(rows[1], race_allocation(s, len(s), budget + spare, budget))


# What reference computations gave for some races in the CIFAR-100 setting.
ROUND_TIME = [564.9, 505.8, 495.0, 493.5, 493.5, 554.0, 583.0, 607.0, 630.0, 676.0]
WORKER_TIME = [3954, 6070, 7420, 9869, 25166, 3989, 3496, 3206, 2968, 2629]


def simulate_races(times: np.ndarray, races: np.ndarray, budget: int, replicates: int) -> Costs:
    """The mean costs of rounds of each race, on the task times of ``simulate``."""
    distributions, before = replay(times, np.arange(len(times)), budget, replicates)
    key = np.zeros(1, np.uint64)
    zeros = np.zeros(1, np.int64)
    keys = NoiseKeys(key, zeros, zeros, before)
    rounds = [
        race_round(distributions, keys, np.tile(race, (replicates, 1)), budget) for race in races
    ]
    return Costs(
        *np.transpose([(each.round_time.mean(), each.worker_time.mean()) for each in rounds]),
    )


@settings(max_examples=10)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_rounds_cost_what_those_of_the_simulation_cost(n: int, budget: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.gamma(2.0, 1.0, (n, 8)), axis=1)
    races = rng.integers(0, budget + 1, (3, n))
    races[:, 0] += np.maximum(budget - races.sum(axis=1), 0)
    costs = race_costs(times, races, budget, 4096)
    usual = simulate_races(times, races, budget, 4096)
    np.testing.assert_allclose(costs, usual, rtol=0.05)


@pytest.mark.parametrize("replicates", [1, 2, 37, 64, 100])
def test_each_time_and_factor_is_taken_equally_often(replicates: int) -> None:
    """One task in a round: its mean is the mean time, and the mean factor where the time is 1.

    Without noise rounds are exact: results come in after 1, 2, 2.5, 3; 1, 2, 3, 4; 1, 2.5, 5, 7.5.
    """
    costs = race_costs(np.array([[1.0], [2.5]]), np.array([[3, 2], [4, 0], [1, 4]]), 4, replicates)
    assert np.allclose(costs, [[3.0, 4.0, 7.5], [6.0, 4.0, 8.5]])
    times = np.arange(1.0, replicates + 1)[None]
    ones = np.ones((1, 1))
    once = np.array([[1]])
    np.testing.assert_allclose(race_costs(times, once, 1, replicates).round_time, times.mean())
    np.testing.assert_allclose(
        race_costs(ones, once, 1, replicates, times).round_time,
        times.mean(),
    )


def test_races_of_more_workers_are_never_longer_on_the_same_times() -> None:
    rng = np.random.default_rng(0)
    times = np.sort(rng.exponential(size=(20, 64)), axis=1)
    factors = rng.gamma(1.0, size=(20, 16))
    races = np.tril(np.full((20, 20), 7))
    assert (np.diff(race_costs(times, races, 7, 64, factors).round_time) <= 0.0).all()


def race_of(price: float, **more: Any) -> RaceSearch:
    times = slice_means(CIFAR.pool, 64)
    return RaceSearch(times, times.mean(axis=1), CIFAR.budget, price, **more)


def test_a_search_of_few_races_goes_on_where_it_ended() -> None:
    whole = race_of(0.1).search_from(51, EVERYTHING)
    choice = race_of(0.1).search_from(51, EVERYTHING, most_races=1)
    calls = 1
    while choice.stride > 0:
        choice = race_of(0.1).search_from(choice.fastest, choice.tasks, choice.stride, most_races=1)
        calls += 1
    assert calls > 3
    assert choice == whole


def test_searching_from_a_start_finds_as_good_a_race() -> None:
    for price in (0.01, 1.0):
        cold = race_of(price).search()
        for start in ((51, EVERYTHING), (10, 33), (3, 25)):
            assert race_of(price).search_from(*start).total(price) <= 1.01 * cold.total(price)
        assert race_of(price, least_workers=30, replicates=64).search().fastest >= 30


def test_the_best_race_beats_all_that_are_known_and_saves_worker_time_at_a_higher_price() -> None:
    prices = (0.0, 0.002, 0.1, 2.0)
    races = [best_race(CIFAR.pool, CIFAR.budget, price) for price in prices]
    for race, price in zip(races, prices, strict=True):
        least = (np.array(ROUND_TIME) + price * np.array(WORKER_TIME)).min()
        assert race.round_time + price * race.worker_time <= 1.002 * least
        assert race.allocation.sum() >= CIFAR.budget
    worker_time = [r.worker_time for r in races]
    round_time = [r.round_time for r in races]
    assert worker_time == sorted(worker_time, reverse=True)
    assert round_time == sorted(round_time)
    assert races[-1].allocation.tolist() == [CIFAR.budget] + [0] * 50


@settings(max_examples=5)
@given(
    st.lists(st.floats(0.5, 5.0), min_size=2, max_size=3),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_near_the_best_of_all_races_of_a_small_pool(
    scale: list[float],
    budget: int,
    price: float,
) -> None:
    pool = shifted_exponential(np.array(scale), np.array(scale))
    times = slice_means(pool, 64)
    all_races = np.array([a for a in product(range(budget + 1), repeat=pool.n) if sum(a) >= budget])
    costs = simulate_races(times, all_races, budget, 1024).total(price)
    found = best_race(pool, budget, price)
    at = int(np.flatnonzero((all_races == found.allocation).all(axis=1))[0])
    assert costs[at] <= 1.05 * costs.min()


def test_tolerance_trades_hardly_any_round_time_for_much_worker_time() -> None:
    fastest, frugal = (
        race_of(0.0, tolerance=tolerance, replicates=512).search() for tolerance in (0.0, 0.005)
    )
    assert frugal.round_time <= 1.0051 * fastest.round_time
    assert frugal.worker_time < 0.32 * 25166


def test_a_worker_that_is_mostly_fast_is_worth_more_in_a_race() -> None:
    """Two workers of equal mean: the one whose mean is made by rare long tasks is the faster in a
    race.
    """
    pool = log_normal([0.0], 2.0) + exponential([np.exp(2.0)])
    times = slice_means(pool, 256)
    usual = time_per_result(times, np.inf)
    cut = time_per_result(times, 5.0)
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
    sample = slice_means(exponential(times), 8)
    np.testing.assert_allclose(slice_means(exponential(times * unit), 8) / unit, sample, rtol=1e-4)
    played, usual_time = (
        simulate(sample * u, np.array([[2, 2, 1]]), 5, 8).round_time for u in (unit, 1.0)
    )
    np.testing.assert_allclose(played / unit, usual_time, rtol=1e-4)
    choice, usual = (
        RaceSearch(sample * u, sample.mean(axis=1) * u, 5, 0.1).search() for u in (unit, 1.0)
    )
    assert choice[:2] == usual[:2]


SHIFTED = shifted_exponential(np.arange(1.0, 13), np.arange(1.0, 13))
LONG_TAILS = log_normal(np.full(4, np.log(2.0)), 1.8) + gamma(np.full(4, 50.0), 0.3)
NEAR_EQUAL = gamma(400.0, np.linspace(95.0, 105.0, 20) / 400)


def cost(pool: Pool, allocation: Any, price: float) -> float:
    return expected_round_time(pool, allocation) + price * float(allocation @ pool.mean())


@pytest.mark.parametrize(
    ("pool", "budget", "price"),
    [(SHIFTED, 15, 1.0), (LONG_TAILS, 15, 0.1), (NEAR_EQUAL, 23, 0.0), (CIFAR.pool, 23, 0.1)],
    ids=["shifted", "long tails", "near-equal", "cifar100"],
)
def test_comes_within_half_a_percent_of_the_optimum(pool: Pool, budget: int, price: float) -> None:
    times = slice_means(pool, 256)
    start = allocate_by_cost(pool.mean(), 1.5 * np.minimum(pool.sd(), pool.mean()), budget)
    found = local_search(times, start, price)
    assert found.allocation.sum() == budget
    assert (
        cost(pool, found.allocation, price) <= 1.005 * optimal_allocation(pool, budget, price).cost
    )
    np.testing.assert_allclose(found.cost, cost(pool, found.allocation, price), rtol=0.01)


@settings(max_examples=10)
@given(
    data=st.data(),
    n=st.integers(1, 4),
    budget=st.integers(1, 6),
    price=st.sampled_from([0.0, 0.3]),
)
def test_as_good_as_all_allocations_tried(
    data: st.DataObject,
    n: int,
    budget: int,
    price: float,
) -> None:
    times = np.array(
        [data.draw(st.lists(st.floats(0.5, 4.0), min_size=64, max_size=64)) for _ in range(n)],
    )
    start = np.bincount(
        data.draw(st.lists(st.integers(0, n - 1), min_size=budget, max_size=budget)),
        minlength=n,
    )
    found = local_search(times, start, price)
    every = np.array([a for a in product(range(budget + 1), repeat=n) if sum(a) == budget])
    costs = simulate(times, every, budget, 1024).total(price)
    own = simulate(times, found.allocation[None], budget, 1024).total(price)[0]
    assert own <= 1.02 * costs.min()


def test_with_hundreds_of_workers_no_single_move_gains() -> None:
    """Times as serverless functions have them: every worker has its own spread, and now and then a
    very slow one.
    """
    generator = np.random.default_rng(0)
    means = generator.lognormal(0.0, 0.3, 256)
    spreads = generator.uniform(0.2, 1.0, 256)
    times = np.sort(
        means[:, None] * generator.lognormal(0.0, 1.0, (256, 128)) ** spreads[:, None],
        axis=1,
    )
    found = local_search(
        times,
        allocate_by_cost(times.mean(axis=1), np.zeros(256), 128),
        moves=1000,
    )
    again = local_search(
        times,
        allocate_by_cost(times.mean(axis=1), 2.0 * times.std(axis=1), 128),
        moves=1000,
    )
    np.testing.assert_allclose(found.cost, again.cost, rtol=2e-3)
    moves = []
    for giver in np.flatnonzero(found.allocation)[:12]:
        for taker in np.argsort(times.mean(axis=1))[:40]:
            moves.append(found.allocation.copy())
            moves[-1][giver] -= 1
            moves[-1][taker] += 1
    played = simulate(times, np.array([found.allocation, *moves]), 128, 512).round_time
    assert played[0] <= 1.01 * played.min()


def test_it_goes_on_where_it_was_stopped_units_do_not_matter_and_doubt_costs() -> None:
    times = slice_means(SHIFTED, 64)
    start = np.array([15] + [0] * 11)
    plain = local_search(times, start)
    part = local_search(times, start, moves=3)
    assert part.moves == 3
    # it goes on
    np.testing.assert_allclose(
        local_search(times, part.allocation).cost,
        plain.cost,
        rtol=1e-3,
    )
    assert plain.cost < local_search(times, start, doubt=np.full(12, 0.2)).cost
    for unit in (2.0**-900, 2.0**900):
        scaled = local_search(times * unit, start)
        np.testing.assert_array_equal(scaled.allocation, plain.allocation)
        np.testing.assert_allclose(scaled.cost, plain.cost * unit)


@pytest.mark.parametrize("unit", [1e-217, 1.0, 1e100])
def test_workers_that_are_no_candidates_in_a_row_do_not_change_its_search(unit: float) -> None:
    """In a batch, rows with fewer candidates are filled up with workers of huge means."""
    times = unit * slice_means(exponential([1.0, 1.5, 4.0]), 128)
    found = local_search(times, [1, 0, 5], doubt=np.full(3, 0.2))
    filled = np.concatenate([times, np.full((1, 128), 2.0**440)])
    # as where policies search
    with np.errstate(over="ignore", invalid="ignore"):
        result = local_search(filled, [1, 0, 5, 0], doubt=np.full(4, 0.2))
    assert result.allocation.tolist() == [*found.allocation, 0]
    assert result.cost == found.cost > 0.0


def test_rounds_with_fewer_tasks_are_shorter_and_ask_more_of_newcomers() -> None:
    times = slice_means(SHIFTED, 128)
    allocation = allocate_by_cost(SHIFTED.mean(), 1.5 * SHIFTED.sd(), 15)
    shape = (times / times.mean(axis=1, keepdims=True)).mean(axis=0)
    removed, *rest = remove_tasks(times[None], shape[None], allocation[None], 0.1, 0.1)
    found = Reduced(removed, *(part[0] for part in rest))
    np.testing.assert_array_equal(found.removed, [0, 1, 2, 4, 8, 15])
    np.testing.assert_array_equal(found.allocation.sum(axis=1), 15 - found.removed)
    assert (np.diff(found.allocation, axis=0) <= 0).all()
    assert (np.diff(found.cost) < 0).all()
    assert (np.diff(found.limit) < 0).all()
    np.testing.assert_allclose(found.cost[0], cost(SHIFTED, allocation, 0.1), rtol=0.01)
    worker_time = found.allocation @ times.mean(axis=1)
    np.testing.assert_allclose(
        found.round_time.mean(axis=1) + 0.1 * worker_time,
        found.cost,
        rtol=0.02,
        atol=0.1,
    )


def tries(workers: int, results: dict[int, list[float]], budget: int, left: float) -> list[int]:
    who = np.concatenate([np.full(len(times), i) for i, times in results.items()])
    belief = DistributionBelief.empty(1, workers)
    belief = belief.observe(
        who[None],
        np.concatenate(list(results.values()))[None],
        np.zeros((1, workers)),
    )
    known = learn_rows(belief, LatencyBelief.empty(*belief.counts.shape), slice(None), 5.0)
    all_workers = np.ones((1, workers), np.bool_)
    nothing = np.zeros((1, workers), int)
    candidates = choose_candidates(known, all_workers, nothing, budget)
    found = search(candidates, nothing, budget, np.zeros(workers), np.array([0.5]))
    draws = np.linspace(0.0, 1.0, workers)[None]
    allocation, _ = explore(
        known,
        candidates,
        found,
        all_workers,
        np.zeros(workers),
        0.0,
        np.array([left]),
        draws,
    )
    return np.flatnonzero(
        (allocation > 0) & (candidates.members.scatter(found.allocation) == 0),
    ).tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6))
def test_the_most_optimistic_are_considered_and_of_equal_ones_those_of_least_draws(
    n: int, most: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    considered = rng.random((1, n)) < 0.7
    location = rng.integers(0, 4, (1, n)).astype(float)
    spread = rng.integers(0, 2, (1, n)).astype(float)
    others = rng.random((5, 1, n))
    workers = np.empty((1, most), np.int64)
    number, *parts = _fill_considered(considered, location, spread, *others, workers)
    order = np.lexsort((others[-1, 0], location[0] - 2.0 * spread[0]))
    expected = order[considered[0, order]][:most]
    assert sorted(workers[0, : number[0]]) == sorted(expected)
    for part, values in zip(parts, others[:-1], strict=True):
        np.testing.assert_array_equal(part[0], values[0, workers[0]])


def test_one_task_tells_little_of_workers_as_alike_as_their_times_are_not() -> None:
    """Ten of twenty are tried at once while many rounds are left to gain by it, and nobody in the
    last ones.
    """
    results = dict(enumerate(np.random.default_rng(0).exponential(size=(20, 30)).tolist()))
    tried = [tries(40, results, 10, left) for left in (1.0, 5.0, 1000.0)]
    assert [len(one) for one in tried] == [0, 0, 10]


def test_two_unlucky_results_lock_no_worker_out() -> None:
    generator = np.random.default_rng(0)
    results = {
        i: (2.0 * (i + 1.0) * generator.exponential(size=300 if i < 4 else 20)).tolist()
        for i in range(20)
    }
    results[1] = [12.0, 11.0]
    assert 1 in tries(20, results, 5, left=9000.0)
    assert tries(20, results, 5, left=1.0) == []


def test_the_few_fast_ones_of_many_are_looked_for() -> None:
    generator = np.random.default_rng(0)
    results = {i: (88.0 * generator.exponential(size=5)).tolist() for i in range(2, 150)}
    results |= {i: (11.0 * generator.exponential(size=50)).tolist() for i in range(2)}
    assert max(tries(300, results, 16, left=120.0)) >= 150
    assert tries(300, results, 16, left=1.0) == []


def test_after_many_alike_another_kind_stays_possible() -> None:
    fast = [learn_population(Estimates(np.zeros((1, m)), np.full((1, m), 1000.0))) for m in (5, 50)]
    chance = [float(one.share[one.place < -1.0].sum()) for one in fast]
    assert chance[0] > 4.0 * chance[1] > 0.0


def estimate(counts: np.ndarray, totals: np.ndarray, shapes: np.ndarray) -> tuple[Estimates, float]:
    """What the times of the workers of a row say, and the unit of the means."""
    no = np.zeros((1, len(counts)))
    # as in ``predict``
    with np.errstate(over="ignore"):
        estimates, exponent = knowledge.estimate_means(
            counts[None], totals[None], shapes[None], no > 0.0, no
        )
    return estimates, float(np.ldexp(1.0, exponent[0, 0]))


def test_a_single_short_time_is_not_believed_where_all_are_slow() -> None:
    times = np.append(20.0 * np.random.default_rng(1).exponential(size=200), 1.0)
    once, unit = estimate(np.ones(201), times, np.ones(201))
    known = posterior(learn_population(once), once)
    assert unit * known.mean[0, -1] > 5.0
    often = once._replace(evidence=np.append(np.ones(200), 100.0)[None])
    np.testing.assert_allclose(
        unit * posterior(learn_population(often), often).mean[0, -1],
        1.0,
        rtol=0.1,
    )


def test_what_was_seen_often_stays_and_workers_never_tried_are_as_the_population() -> None:
    seen = Estimates(np.array([[0.3, 2.0, 0.0]]), np.array([[1e6, 1e6, 0.0]]))
    population = learn_population(seen)
    (location,), (spread,), _ = posterior(population, seen)
    np.testing.assert_allclose(location[:2], seen.location[0, :2], atol=1e-3)
    np.testing.assert_allclose(location[2], population.place[0] @ population.share[0])
    assert spread[2] > 100.0 * spread[0]


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("limit", [0.5, 1.0, 1.35, 3.0])
def test_the_value_of_trying_by_sampling(limit: float, idle: bool) -> None:
    generator = np.random.default_rng(0)
    place = np.linspace(-2.0, 2.0, 48)
    share = generator.dirichlet(np.ones(48))
    width = place[1] - place[0]
    half = 0.5
    seen = Estimates(np.array([-1.0, 0.3, 0.3, 0.0]), np.array([2.0, 30.0, 1000.0, 0.0]))
    (got,) = knowledge.value_of_trying(
        knowledge.Population(place, share, share),
        seen,
        np.full((1, 4), limit),
        np.full(4, idle),
    )
    for location, evidence, value in zip(*seen, got, strict=True):
        a = evidence / (1.0 + evidence * width**2)
        chance = share * np.exp(-a * (place - location + np.exp(location - place) - 1.0))
        g = generator.choice(48, 100_000, p=chance / chance.sum())
        own = evidence * width**2 / (1.0 + evidence * width**2)
        left = width**2 / (1.0 + evidence * width**2)
        log_mean = place[g] + own * (location - place[g]) + 0.5 * left * (1.0 - half)
        mean = np.exp(log_mean + np.sqrt(left * half) * generator.standard_normal(g.size))
        wanted = np.maximum(1.0 - mean / limit, 0.0).mean()
        # a worker that is in use gains what it is expected to gain without a trial
        if not idle:
            wanted -= max(1.0 - mean.mean() / limit, 0.0)
        np.testing.assert_allclose(value, wanted, rtol=0.05, atol=2e-3)


def test_extreme_times() -> None:
    counts = np.array([1.0, 5.0, 0.0, 2.0])
    seen, _ = estimate(counts, np.array([1e-300, 1e300, 0.0, 0.0]), np.full(4, 1e-6))
    population = learn_population(seen)
    known = posterior(population, seen)
    assert np.isfinite(known.location).all()
    idle = np.zeros((1, 4), bool)
    assert (knowledge.value_of_trying(population, seen, np.ones((1, 1, 4)), idle) >= 0.0).all()


@settings(max_examples=50)
@given(st.data())
def test_a_probe_takes_its_task_from_who_would_take_the_longest(data) -> None:
    n = data.draw(st.integers(2, 7))
    tasks = data.draw(
        st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(
            lambda each: 0 in each and any(each),
        ),
    )
    mean = np.array(
        data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 7.0]), min_size=n, max_size=n)),
    )
    allocation = np.array(tasks)
    expected = list(tasks)
    probed = np.flatnonzero(allocation == 0)[: (allocation.sum() + 1) // 2]
    for worker in probed:
        busy = [i for i in range(n) if expected[i] > 0 and i not in probed]
        slowest = max(busy, key=lambda i: (expected[i] * mean[i], -i))
        expected[slowest] -= 1
        expected[worker] += 1
    _probe(allocation, mean, np.zeros(len(mean)), probed)
    assert allocation.tolist() == expected


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_search_counts_latencies_as_a_simulation_does(seed: int) -> None:
    """The search gives the cost of simulated rounds, and no neighbour is better."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    budget = int(rng.integers(1, 7))
    price = float(rng.choice([0.0, 0.3]))
    times = rng.exponential(rng.uniform(0.5, 3.0, n)[:, None], (n, 128))
    latency = rng.gamma(4.0, rng.uniform(0.0, 1.5, n)[:, None], (n, 128))
    found = local_search(times, even_start(n, budget), price, latency=latency)

    def cost(allocation: np.ndarray) -> float:
        draws = np.random.default_rng(1)
        longest = np.zeros(20_000)
        work = 0.0
        for i in np.flatnonzero(allocation):
            size = (20_000, allocation[i])
            share = draws.choice(latency[i], 20_000) + draws.choice(times[i], size).sum(axis=1)
            longest = np.maximum(longest, share)
            work += latency[i].mean() + allocation[i] * times[i].mean()
        return float(longest.mean() + price * work)

    least = cost(found.allocation)
    np.testing.assert_allclose(found.cost, least, rtol=0.06)
    for giver, taker in itertools.permutations(range(n), 2):
        if found.allocation[giver] > 0:
            moved = found.allocation.copy()
            moved[giver] -= 1
            moved[taker] += 1
            assert cost(moved) > 0.97 * least


def even_start(n: int, budget: int) -> np.ndarray:
    return np.bincount(np.arange(budget) % n, minlength=n)


def test_what_a_newcomer_may_take_is_less_by_its_latency() -> None:
    times = np.ones((1, 2, 4)) * np.array([1.0, 4.0])[None, :, None]
    arguments = times, np.ones((1, 4)), np.array([[4, 1]]), 0.0, 0.0
    without = remove_tasks(*arguments)
    late = remove_tasks(*arguments, newcomer_latency=np.full((1, 1, 4), 1.5))
    np.testing.assert_allclose(without.limit[0, 1, 0], 4.0, rtol=0.02)
    np.testing.assert_allclose(late.limit[0, 1, 0], 2.5, rtol=0.02)
    # the one that pays a latency of its own is the first to be relieved
    own = remove_tasks(*arguments, latency=np.array([[[0.0] * 4, [3.0] * 4]]))
    assert own.allocation[0, 1].tolist() == [4, 0]
    np.testing.assert_allclose(own.cost[0, 0], 7.0, rtol=0.02)
