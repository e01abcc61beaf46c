"""Dispatch: its rules and the search for the shadow price by hand and on the same rounds; and the
policies of them.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ata_policies
from ata_gym import scenario
from ata_gym.changes import Spot
from ata_gym.pools import Pool, deterministic, gamma, log_normal, pareto, shifted_exponential
from ata_gym.simulation.dispatch import RoundState, dispatch_step
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.theory.simulated.costs import Costs, replay
from ata_gym.theory.simulated.slices import slice_means
from ata_gym.utils.trees import difference
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.beliefs.moments import Exposure
from ata_policies.dispatch.learner import RoundByRound
from ata_policies.dispatch.margin import DispatchWorkers, by_margin
from ata_policies.dispatch.remaining_time import DispatchRest, by_remaining_time
from ata_policies.dispatch.shadow import ShadowSearch
from ata_policies.planning.races.search import best_race
from ata_policies.steps import play as steps_of
from tests.policies.conftest import Run

Rule = Callable[..., np.ndarray]
"""Which workers should be working, (E, n), from the missing results (E,), who is running, and ages
(E, n).
"""

TIMES = slice_means(scenario("icml2025-cifar100").pool, 64)
CIFAR = DispatchWorkers.from_times(TIMES, 23)

N = 12
BUDGET = 10
POOL = shifted_exponential(np.arange(1.0, 9), np.arange(1.0, 9))
WORKERS = DispatchWorkers.from_times(
    np.repeat(np.arange(1.0, N + 1.0)[:, None], 8, axis=1)[None], BUDGET
)
"""Their times do not vary, so that all simulated rounds with a shadow price are alike."""


def simulate_rules(times: np.ndarray, rules: list[Rule], budget: int, replicates: int) -> Costs:
    """The mean costs of rounds with each rule, on the task times of
    ``ata_gym.theory.simulated.costs.simulate``.
    """
    n = len(times)
    costs = []
    distributions, before = replay(times, np.arange(n), budget, replicates)
    key = np.zeros(1, np.uint64)
    zeros = np.zeros(1, np.int64)
    for rule in rules:
        started = before
        state = RoundState.start(replicates, n, budget)
        age = np.zeros((replicates, n))
        for _ in range(budget):
            action = rule(state.missing, state.running, age)
            at = dispatch_step(
                distributions,
                NoiseKeys(key, zeros, zeros, started),
                state,
                action,
                budget,
            )
            started = at.started
            state = at.round_state
            age = at.age
        costs.append((at.round_time.mean(), at.worker_time.mean()))
    return Costs(*np.transpose(costs))


def all_work(missing: np.ndarray, running: np.ndarray, age: np.ndarray) -> np.ndarray:
    del missing, age
    return np.ones_like(running)


def margin(shadow: Any, workers: DispatchWorkers = CIFAR) -> Rule:
    return lambda *at: by_margin(workers, np.array(shadow), *at)


def only_row(workers: DispatchWorkers) -> DispatchWorkers:
    return DispatchWorkers(*(part[0] for part in workers))


def test_the_remaining_time_rule_has_the_reference_costs() -> None:
    mean = TIMES.mean(axis=1)
    reference = ((16, 0.5, 494, 7527), (10, 0.7, 527, 4616), (7, 0.8, 580, 3467))
    rules = [
        lambda *at, m=m, kappa=kappa: by_remaining_time(mean, np.arange(m), kappa, *at)
        for m, kappa, *_ in reference
    ]
    costs = simulate_rules(TIMES, rules, 23, 1024)
    np.testing.assert_allclose(costs.round_time, [one[2] for one in reference], rtol=0.01)
    np.testing.assert_allclose(costs.worker_time, [one[3] for one in reference], rtol=0.025)


@pytest.mark.parametrize(
    ("price", "round_time", "worker_time"),
    [(0.01, 501, 6036), (0.05, 556, 3857), (0.3, 767, 2141)],
)
def test_the_margin_rule_costs_no_more_than_tuned_tables(
    price: float,
    round_time: float,
    worker_time: float,
) -> None:
    """The reference tables have a threshold for each worker; this rule has one number, near the
    price.
    """
    costs = simulate_rules(TIMES, [margin(price * factor) for factor in (0.85, 1.0, 1.2)], 23, 512)
    assert costs.total(price).min() < 1.006 * (round_time + price * worker_time)


def test_without_a_price_the_margin_rule_is_as_fast_as_everybody() -> None:
    costs = simulate_rules(TIMES, [all_work, margin(0.0), margin(0.002)], 23, 512)
    assert costs.round_time[1] < 1.001 * costs.round_time[0]
    assert costs.round_time[2] < 1.004 * costs.round_time[0]
    assert costs.worker_time[2] < 0.34 * costs.worker_time[0]


def test_a_mean_that_no_round_sees_does_not_count() -> None:
    stuck = np.full((1, 64), 2.0)
    stuck[0, -1] = 1e9
    assert 2.0 < DispatchWorkers.from_times(stuck, 10).mean[0] < 2.5


@settings(max_examples=25)
@given(n=st.integers(1, 5), missing=st.integers(1, 6), seed=st.integers(0, 999))
def test_nothing_is_expected_of_the_absent(n: int, missing: int, seed: int) -> None:
    """The others are started as if an absent worker did not exist; it is asked to work at no less
    occasion.
    """
    rng = np.random.default_rng(seed)
    times = np.sort(rng.exponential(rng.uniform(0.5, 5.0, (n + 1, 1)), (n + 1, 8)), axis=1)
    workers = DispatchWorkers.from_times(times, missing)
    idle = np.zeros(n + 1, np.int8)
    away = idle.copy()
    away[rng.integers(n + 1)] = 1
    present = np.flatnonzero(away == 0)
    at = (np.array(0.1), np.array(missing))
    chosen = by_margin(workers, *at, idle, idle * 1.0, absent=away)
    without = DispatchWorkers(
        times[present],
        workers.sums[present],
        workers.mean[present],
        np.argsort(workers.mean[present]),
        n,
    )
    np.testing.assert_array_equal(
        chosen[present],
        by_margin(without, *at, idle[present], idle[present] * 1.0),
    )


RATIOS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8)


@settings(max_examples=25)
@given(means=RATIOS, missing=st.integers(1, 12), shadow=st.floats(0.0, 2.0), data=st.data())
def test_the_rules_on_any_state(
    means: list[float],
    missing: int,
    shadow: float,
    data: st.DataObject,
) -> None:
    mean = np.array(means)
    n = len(mean)
    running = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int8)
    age = running * np.array(data.draw(st.lists(st.floats(0.0, 20.0), min_size=n, max_size=n)))
    times = mean[:, None] * np.array([0.5, 0.8, 1.0, 1.7])
    order = np.argsort(mean, kind="stable")
    at = np.array(missing), running
    chosen = by_margin(DispatchWorkers.from_times(times, 12), np.array(shadow), *at, age)
    assert (chosen >= running).all()
    assert chosen.any()
    assert chosen.all() or shadow > 0.0
    scaled = by_margin(
        DispatchWorkers.from_times(4.0 * times, 12), np.array(shadow), *at, 4.0 * age
    )
    np.testing.assert_array_equal(scaled, chosen)
    by_mean = by_remaining_time(mean, order, 0.7, *at, age)
    assert (by_mean >= running).all()
    assert by_mean.any()
    np.testing.assert_array_equal(
        by_remaining_time(4.0 * mean, order, 0.7, *at, 4.0 * age),
        by_mean,
    )


def test_the_rest_by_hand() -> None:
    """Worker 0 has run 1 of 2 and then brings one result every 2: 3 results are in after 1, 3,
    5.
    """
    mean = np.array([2.0, 5.0])
    running = np.array([1, 0], np.int8)
    age = np.array([1.0, 0.0])
    assert by_remaining_time(mean, np.arange(2), 1.0, np.array(3), running, age).tolist() == [1, 1]
    assert by_remaining_time(mean, np.arange(2), 1.01, np.array(3), running, age).tolist() == [1, 0]
    alone = by_remaining_time(mean, np.arange(1), 1.0, np.array(3), running, age)
    assert alone.tolist() == [1, 0]  # not among the fastest
    for time, starts in ((4.99, 1), (5.01, 0)):  # in time for the third result, or not
        workers = DispatchWorkers.from_times(np.repeat([[2.0], [time]], 64, axis=1), 3)
        assert by_margin(workers, np.array(0.3), np.array(3), running, age).tolist() == [1, starts]


# --- the search for the shadow price ---


def searched(
    times: np.ndarray,
    budget: int,
    price: float,
    rounds: int = 64,
) -> tuple[DispatchWorkers, ShadowSearch]:
    workers = DispatchWorkers.from_times(times[None], budget)
    search = ShadowSearch.start(1)
    for _ in range(rounds):
        search = search.go_on(workers, budget, price)
    return workers, search


def test_the_best_of_eight_shadow_prices_is_chosen_after_each_round_with_all() -> None:
    first = ShadowSearch.start(1)
    price = 0.05
    assert first.shadow(WORKERS, price) == price
    one = first.go_on(WORKERS, BUDGET, price)
    two = one.go_on(WORKERS, BUDGET, price)
    assert (one.rounds, two.rounds) == (1, 2)
    # the rounds are alike, and the first counts .98
    np.testing.assert_allclose(
        two.totals,
        1.98 * one.totals,
    )
    assert two.chosen == (two.totals[0] @ (1.0, price)).argmin()
    assert two.shadow(WORKERS, price) == pytest.approx(price * np.sqrt(2.0) ** (two.chosen - 4))
    assert two.shadow(WORKERS, 0.0) == pytest.approx(
        0.03 / WORKERS.useful * 2.0 ** (two.chosen - 4),
    )


def test_what_it_costs_to_try_workers_counts_in_the_choice() -> None:
    """The slowest workers, drawn ten times as fast as they are, start, and cost their time for
    nothing.
    """
    draws = np.repeat([1.0, 0.1], [8, 4])
    believed, tried = (
        ShadowSearch.start(1).go_on(WORKERS, BUDGET, 0.3, factor) for factor in (1.0, draws)
    )
    assert (tried.totals[0, :, 1] > 1.05 * believed.totals[0, :, 1]).all()


@pytest.mark.parametrize("first", [0, 3, 7])
def test_who_does_nothing_for_the_rounds_is_found_from_any_shadow_price(first: int) -> None:
    """A low shadow price drops nobody, and a little more of it changes nothing: a search by small
    steps stays there.
    """
    times = np.repeat(np.repeat([1.0, 5.0], [14, 42])[:, None], 32, axis=1) * np.linspace(
        0.5,
        1.5,
        32,
    )
    workers = DispatchWorkers.from_times(times[None], 21)
    search = ShadowSearch.start(1)._replace(chosen=np.array([first]))
    for _ in range(8):
        search = search.go_on(workers, 21, 0.0)
    rules = [all_work, margin(search.shadow(workers, 0.0), only_row(workers))]
    costs = simulate_rules(times, rules, 21, 128)
    assert costs.round_time[1] < 1.003 * costs.round_time[0]
    assert costs.worker_time[1] < 0.4 * costs.worker_time[0]


def test_the_search_leaves_out_who_was_forgotten_since_the_workers_were_ordered() -> None:
    workers = DispatchWorkers.from_times(np.array([[[1.0, 2.0], [3.0, 4.0]]]), budget=4)
    search = ShadowSearch.start(1)
    assert workers.order.tolist() == [[0, 1]]
    forgotten = workers._replace(mean=np.array([[np.inf, 3.5]]))
    nobody = search.go_on(forgotten._replace(useful=np.array([1])), budget=4, price=0.3)
    assert all(np.array_equal(before, after) for before, after in zip(search, nobody, strict=True))
    only_1 = forgotten._replace(order=np.array([[1, 0]]), useful=np.array([1]))
    both, one = (search.go_on(some, budget=4, price=0.3) for some in (forgotten, only_1))
    assert np.array_equal(both.totals, one.totals)
    assert both.rounds == one.rounds == 1


def test_the_search_finds_the_best_shadow_price() -> None:
    times = slice_means(POOL, 32)
    price = 0.3
    workers, search = searched(times, 10, price)
    shadows = [*price * 2.0 ** np.arange(-2.0, 1.5, 0.5), *search.shadow(workers, price)]
    rules = [margin(shadow, only_row(workers)) for shadow in shadows]
    total = simulate_rules(times, rules, 10, 256).total(price)
    assert total[-1] < 1.01 * total.min()


def test_the_search_leaves_useless_workers_out() -> None:
    slow = np.concatenate([np.full((2, 4), 1.0), np.full((30, 4), 1e6)])
    assert DispatchWorkers.from_times(slow, 3).useful == 2
    chosen = [searched(times, 3, 0.1)[1].chosen for times in (slow, slow[:2])]
    np.testing.assert_array_equal(*chosen)


@pytest.mark.parametrize(
    ("price", "shadows"),
    [(0.2, 0.2 * 2.0 ** np.arange(-2.0, 2.0, 0.5)), (0.0, 0.03 / 8 * 2.0 ** np.arange(-4.0, 4.0))],
)
def test_simulated_rounds_are_those_of_the_env(price: float, shadows: np.ndarray) -> None:
    times = slice_means(POOL, 32)
    workers, search = searched(times, 10, price, rounds=192)
    rules = [margin(shadow, only_row(workers)) for shadow in shadows]
    costs = simulate_rules(times, rules, 10, 512)
    weight = sum(0.98**k for k in range(192))
    np.testing.assert_allclose(search.totals[0, :, 0] / weight, costs.round_time, rtol=0.06)
    np.testing.assert_allclose(search.totals[0, :, 1] / weight, costs.worker_time, rtol=0.06)


def test_without_a_finite_distribution_the_search_stays() -> None:
    workers, search = searched(np.full((2, 4), np.inf), 3, 0.1)
    np.testing.assert_allclose(search.shadow(workers, 0.1), 0.1)


DISPATCH = "ata_gym/TaskDispatch-v0"
RACE = "ata_gym/TaskRace-v0"
LEARNER = "ata_policies.dispatch.learner:DispatchLearner"
REST = "ata_policies.dispatch.remaining_time:DispatchRest"
GTA, CAPS, ORACLE = (
    f"ata_policies.dispatch.oracles:Dispatch{name}" for name in ("Gta", "Caps", "Oracle")
)
SCENARIO: dict[str, Any] = {"pool": POOL, "budget": BUDGET}


class KnownMeans(DispatchRest):
    """The rule of ``DispatchRest`` with the true means."""

    knows = "the means"

    def first_belief(self, rows: int) -> Exposure:
        mean = self.setting.known_pool("the test").mean()
        return Exposure(np.full((rows, len(mean)), 1e9), np.tile(1e9 * mean, (rows, 1)))


def cost(run: Run, price: float) -> float:
    half = len(run.round_times) // 2
    return float((run.round_times + price * run.worker_times)[half:].mean())


@pytest.mark.parametrize(("name", "price"), [(GTA, 0.0), (CAPS, 0.0), (CAPS, 0.1), (CAPS, 1.0)])
def test_fixed_numbers_of_tasks_give_the_rounds_of_a_race(
    play: Any,
    name: str,
    price: float,
) -> None:
    if name == GTA:
        allocation = np.full(8, 10)
    else:
        allocation = best_race(POOL, 10, price).allocation
    run = play(name, 20, 2, price=price, **SCENARIO)
    env = gym.make_vec(RACE, num_envs=2, **SCENARIO)
    env.reset(seed=0)
    for times in zip(run.round_times, run.worker_times, strict=True):
        info = env.step(np.tile(allocation, (2, 1)))[-1]
        np.testing.assert_array_equal(times, [info["round_time"], info["worker_time"]])


@pytest.mark.parametrize("name", [LEARNER, REST])
@pytest.mark.parametrize("price", [0.0, 1.0])
def test_everybody_is_tried_at_once_and_nobody_waited_for(
    play: Any,
    name: str,
    price: float,
) -> None:
    first = play(name, 1, price=price, **SCENARIO)
    all_work = play(GTA, 1, **SCENARIO)
    assert first.actions[0].all()
    np.testing.assert_array_equal(first.round_times, all_work.round_times)


@pytest.mark.parametrize(
    ("pool", "price"),
    [
        (POOL, 0.2),
        (shifted_exponential(np.linspace(2.0, 2.2, 8), 2.0), 0.0),
        (log_normal(np.linspace(0.0, 2.0, 8), 1.2), 0.0),
    ],
    ids=["spread", "near-equal", "long tails"],
)
def test_what_is_learned_comes_close_to_what_is_known(play: Any, pool: Pool, price: float) -> None:
    """On paired times; without a price the worker time, too, comes well below everybody's where it
    can.
    """
    names = LEARNER, ORACLE, GTA
    learned, oracle, gta = (
        cost(play(name, 120, 5, pool=pool, budget=10, price=price), price) for name in names
    )
    assert learned < 1.05 * oracle
    assert learned < 1.02 * gta


def test_the_rest_rule_learns_the_means(play: Any) -> None:
    both = DispatchRest, KnownMeans
    learned, known = (
        play(kind, 200, 2, hyperparameters={"m": 5, "kappa": 0.7}, **SCENARIO) for kind in both
    )
    assert cost(learned, 0.1) < 1.05 * cost(known, 0.1)


def test_the_dearer_worker_time_the_less_is_spent_and_the_oracle_is_as_good_as_the_best_race(
    play: Any,
) -> None:
    runs = [play(ORACLE, 120, 6, price=price, **SCENARIO) for price in (0.0, 0.1, 0.5)]
    spent = [run.worker_times[60:].mean() for run in runs]
    took = [run.round_times[60:].mean() for run in runs]
    assert (spent, took) == (sorted(spent, reverse=True), sorted(took))
    assert cost(runs[1], 0.1) < 1.005 * cost(play(CAPS, 120, 6, price=0.1, **SCENARIO), 0.1)


def test_an_oracle_ends_rounds_where_means_are_infinite(play: Any) -> None:
    run = play(ORACLE, 20, 2, pool=pareto(0.9, [1.0, 2.0, 30.0]), budget=10, price=0.2)
    assert np.isfinite(run.round_times).all()


def test_slow_workers_are_needed_together(play: Any) -> None:
    """Each of 95 slow workers hardly matters, all of them make rounds shorter by a fifth: at price
    0 they work.
    """
    options = {"pool": gamma(4.0, np.repeat([0.25, 5.0], [5, 95])), "budget": 50, "rows": 3}
    all_work, oracle, learner = (
        play(name, 6, **options).round_times.mean() for name in (GTA, ORACLE, LEARNER)
    )
    assert oracle < 1.01 * all_work
    assert learner < 1.03 * all_work


def test_without_a_price_half_of_the_shadow_price_counts_after_15_results_per_worker() -> None:
    env = gym.make_vec(DISPATCH, num_envs=1, pool=deterministic(np.ones(4)), budget=6)
    policy = ata_policies.make(LEARNER, env)
    # ten rounds of six results of four workers, and one result
    *_, last = islice(
        steps_of(policy, env),
        61,
    )
    idle = {"running": np.zeros((1, 4), np.int8), "age": np.zeros((1, 4))}
    times = np.linspace(0.5, 1.5, 32) * np.array([[1.0], [1.0], [1.0], [3.5]])
    plan = last.state.plan._replace(
        workers=DispatchWorkers.from_times(times[None], 6),
        working=idle["running"],
        absent=idle["running"],
    )
    seen = {**last.next_observation, **idle}
    decided = []
    for chosen in range(8):
        # it goes on no more
        search = plan.search._replace(
            chosen=np.array([chosen]),
            rounds=np.array([1e6]),
        )
        shadow = search.shadow(plan.workers, 0.0)[0] / 2.0
        action, _ = policy.predict(seen, last.state._replace(plan=plan._replace(search=search)))
        at = seen["missing"][:, 0], seen["running"], seen["age"]
        np.testing.assert_array_equal(
            action,
            by_margin(plan.workers, np.array([shadow]), *at, plan.factor),
        )
        decided.append(action.sum())
    assert decided[0] > decided[-1]


def test_who_is_away_is_noticed() -> None:
    """A worker that was asked to work in this round, and is thought to be absent, is dead; and some
    are.
    """
    env = gym.make_vec(
        DISPATCH,
        num_envs=3,
        pool=POOL,
        budget=10,
        price=0.1,
        changes=(Spot(0.1, 0.2),),
    )
    asked = np.zeros((3, 8))
    dead = np.zeros((3, 8), np.bool_)
    noticed = 0
    # the round of the last step
    for step in islice(
        steps_of(ata_policies.make(LEARNER, env), env),
        300,
    ):
        inside = (step.observation["missing"] < 10) & (asked == 1)
        thought = inside & (step.state.plan.absent == 1)
        np.testing.assert_array_equal(thought, inside & dead)
        asked = step.action
        dead = env.unwrapped.conditions().death_time == 0.0
        noticed += thought.sum()
    assert noticed > 0


def test_a_belief_that_waits_for_the_round_to_end_learns_the_same() -> None:
    rng = np.random.default_rng(0)
    waiting = RoundByRound.empty(2, 3, budget=4)
    at_once = DistributionBelief.empty(2, 3)
    for _ in range(5):
        worker = rng.integers(0, 3, (2, 4))
        time = rng.exponential(size=(2, 4))
        elapsed = rng.exponential(size=(2, 3))
        for b in range(4):
            waiting = waiting.observe(worker[:, [b]], time[:, [b]], np.zeros((2, 3)))
        waiting = waiting.after_round(np.array([True, True]), elapsed)
        at_once = at_once.observe(worker, time, elapsed)
    for one, other in zip(waiting.distributions, at_once, strict=True):
        np.testing.assert_array_equal(one, other)


def test_results_after_the_last_one_of_a_round_that_no_loop_has_ended_do_not_count() -> None:
    worker = np.array([[0], [1]])
    time = np.ones((2, 1))
    elapsed = np.zeros((2, 3))
    waiting = RoundByRound.empty(2, 3, budget=4)
    for _ in range(4):
        waiting = waiting.observe(worker, time, elapsed)
    assert difference(waiting.observe(worker + 1, 2.0 * time, elapsed), waiting) is None


def test_distributions_of_workers_that_are_mostly_cancelled() -> None:
    """Time per result is misled by as much as a factor of 3; a shape in common is not."""
    rng = np.random.default_rng(2)
    mean = np.array([1.0, 1.0, 1.0, 1.0, 4.0])
    belief = DistributionBelief.empty(1, 5)
    for _ in range(400):
        time = mean / 2 * (1.0 + rng.exponential(size=5))
        done = time <= 2.5
        worker = np.where(done, np.arange(5), -1)[None]
        belief = belief.observe(worker, time[None], np.where(done, 0.0, 2.5)[None])
    assert belief.mean()[0, 4] > 2.0 * mean[4]
    distributions = censored_distributions(belief, 32)
    np.testing.assert_allclose(distributions.times[0, :4].mean(axis=1), 1.0, rtol=0.1)
    np.testing.assert_allclose(
        (distributions.times[0, 4] <= 2.5).mean(),
        1.0 - np.exp(-0.25),
        atol=0.08,
    )
    assert distributions.times[0, 4].mean() < 1.6 * mean[4]


def test_with_times_that_hardly_vary_the_default_loses_nothing_to_starting_everybody():
    pool = {
        "family": "deterministic",
        "scale": [59.4, 58.9, 58.1, 53.9, 54.2, 54.1, 55.6, 53.7, 53.2, 53.5],
    }
    runtimes = []
    for policy in ("default", "dispatch-gta"):
        clock = ata_policies.Clock(
            gym.make("ata_gym/TaskDispatch-v0", pool=pool, budget=80),
            policy,
        )
        runtimes.append([clock.tick() for _ in range(30)][-1])
    assert runtimes[0] <= 1.01 * runtimes[1]
