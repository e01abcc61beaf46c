"""The policies of TaskDispatch: their rules, what they learn, and the races that they contain."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from ata_gym.theory.simulated.dispatch import Rule, simulate_dispatch
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import Pool, deterministic, gamma, log_normal, pareto, shifted_exponential
from ata_gym.theory.simulated.slices import known_sample
from ata_policies import Setting
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.beliefs.moments import Exposure
from ata_policies.dispatch.learner import RoundByRound
from ata_policies.dispatch.margin import Workers, by_margin
from ata_policies.dispatch.remaining_time import DispatchRest, by_remaining_time
from ata_policies.dispatch.shadow import ShadowSearch
from ata_policies.planning.races import race_allocation

DISPATCH, RACE = "ata_gym/TaskDispatch-v0", "ata_gym/TaskRace-v0"
LEARNER, REST = "ata_policies.dispatch.learner:DispatchLearner", "ata_policies.dispatch.remaining_time:DispatchRest"
GTA, CAPS, ORACLE = (f"ata_policies.dispatch.oracles:Dispatch{name}" for name in ("Gta", "Caps", "Oracle"))
POOL = shifted_exponential(np.arange(1.0, 9), np.arange(1.0, 9))
POOLS = {
    "spread": POOL,
    "near-equal": shifted_exponential(np.linspace(2.0, 2.2, 8), 2.0),
    "long-tails": log_normal(np.linspace(0.0, 2.0, 8), 1.2),
    "deterministic": deterministic(np.arange(1.0, 9)),
}


class KnownMeans(DispatchRest):
    """The rule of ``DispatchRest`` with the true means."""

    def first_belief(self, rows: int) -> Exposure:
        mean = self.setting.known_pool("the test").mean()
        return Exposure(np.full((rows, len(mean)), 1e9), np.tile(1e9 * mean, (rows, 1)))


def play(name: str, rounds: int, rows: int = 2, seed: int = 0, **world: Any) -> dict[str, np.ndarray]:
    """Round times and worker times, (rounds, rows); and who was started in each round, (rounds, rows, n)."""
    keywords = world.pop("keywords", {})
    env = gym.make_vec(DISPATCH, num_envs=rows, **({"pool": POOL, "budget": 10} | world))
    policy = ata_policies.make(name, env, seed=seed, **keywords)
    observation, _ = env.reset(seed=seed)
    state, told = None, []
    started = np.zeros((rounds, *observation["started"].shape))
    for k in range(rounds):
        for _ in range(policy.setting.budget):
            action, state = policy.predict(observation, state)
            observation, *_, info = env.step(action)
            started[k] = np.maximum(started[k], observation["started"])
        told.append(info)
    return {"started": started} | {name: np.array([i[name] for i in told]) for name in ("round_time", "worker_time")}


def cost(played: dict[str, np.ndarray], price: float) -> float:
    """Per round in the second half."""
    half = len(played["round_time"]) // 2
    return float((played["round_time"] + price * played["worker_time"])[half:].mean())


def assert_raced(played: dict[str, np.ndarray], allocation: np.ndarray) -> None:
    """The rounds are those of the race with this allocation."""
    env = gym.make_vec(RACE, num_envs=2, pool=POOL, budget=10)
    env.reset(seed=0)
    for times in zip(played["round_time"], played["worker_time"], strict=True):
        info = env.step(np.tile(allocation, (2, 1)))[-1]
        np.testing.assert_array_equal(times, [info["round_time"], info["worker_time"]])


@pytest.mark.parametrize(("m", "d"), [(8, 0), (5, 4), (1, 3), (8, 70)])
def test_caps_give_the_rounds_of_the_race(m: int, d: int) -> None:
    assert_raced(play(CAPS, 30, keywords={"m": m, "d": d}), race_allocation(POOL.mean(), m, 10 + d, 10))


def test_gta_is_gta() -> None:
    assert_raced(play(GTA, 30), np.full(8, 10))


@pytest.mark.parametrize("name", [LEARNER, REST])
@pytest.mark.parametrize("price", [0.0, 1.0])
def test_everybody_is_tried_at_once_and_nobody_waited_for(name: str, price: float) -> None:
    first, everybody = play(name, 1, price=price), play(GTA, 1)
    assert (first["started"] > 0).all()
    np.testing.assert_array_equal(first["round_time"], everybody["round_time"])


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("price", [0.0, 0.2])
def test_what_is_learned_comes_close_to_what_is_known(pool: Pool, price: float) -> None:
    """On paired times; without a price the worker time, too, comes well below everybody's where it can."""
    learned, oracle = (cost(play(name, 300, pool=pool, price=price, rows=8), price) for name in (LEARNER, ORACLE))
    assert learned < 1.05 * oracle
    assert learned < 1.02 * cost(play(GTA, 300, pool=pool, rows=8), price)


def test_the_rest_rule_learns_the_means() -> None:
    keywords = {"m": 5, "kappa": 0.7}
    known = play(f"{__name__}:KnownMeans", 600, keywords=keywords)
    assert cost(play(REST, 600, keywords=keywords), 0.1) < 1.05 * cost(known, 0.1)


@pytest.mark.parametrize("name", [ORACLE, LEARNER])
def test_the_dearer_worker_time_the_less_is_spent(name: str) -> None:
    runs = [play(name, 200, price=price) for price in (0.0, 0.1, 0.5)]
    spent = [run["worker_time"][100:].mean() for run in runs]
    took = [run["round_time"][100:].mean() for run in runs]
    assert spent == sorted(spent, reverse=True)
    assert took == sorted(took)


def test_the_oracle_is_as_good_as_the_best_race() -> None:
    race, oracle = (cost(play(name, 800, price=0.1, rows=4), 0.1) for name in (CAPS, ORACLE))
    assert oracle < 1.005 * race


def test_slow_workers_are_needed_together() -> None:
    """Each of 95 slow workers hardly matters, all of them make rounds shorter by a fifth: at price 0 they work."""
    world = {"pool": gamma(4.0, np.repeat([0.25, 5.0], [5, 95])), "budget": 50, "rows": 8}
    everybody = play(GTA, 12, **world)["round_time"].mean()
    assert play(ORACLE, 12, **world)["round_time"].mean() < 1.01 * everybody
    assert play(LEARNER, 12, **world)["round_time"].mean() < 1.03 * everybody


def test_the_search_leaves_out_who_was_forgotten_since_the_workers_were_ordered() -> None:
    workers, search = Workers.of(np.array([[[1.0, 2.0], [3.0, 4.0]]]), budget=4), ShadowSearch.start(1, 2, price=0.3)
    assert workers.order.tolist() == [[0, 1]]
    forgotten = workers._replace(mean=np.array([[np.inf, 3.5]]))
    nobody = search.go_on(forgotten._replace(useful=np.array([1])), budget=4, price=0.3)
    assert all(np.array_equal(before, after) for before, after in zip(search, nobody, strict=True))
    only_1 = forgotten._replace(order=np.array([[1, 0]]), useful=np.array([1]))
    both, one = (search.go_on(some, budget=4, price=0.3) for some in (forgotten, only_1))
    assert np.array_equal(both.totals, one.totals)
    assert both.turn == one.turn == 1


def searched(times: np.ndarray, budget: int, price: float, rounds: int = 640) -> tuple[Workers, ShadowSearch]:
    workers = Workers.of(times[None], budget)
    search = ShadowSearch.start(1, len(times), price)
    for _ in range(rounds):
        search = search.go_on(workers, budget, price)
    return workers, search


@pytest.mark.parametrize("price", [0.05, 0.3])
def test_the_search_finds_the_best_shadow_price(price: float) -> None:
    """Against the other simulation, which plays the env's own rounds."""
    times = known_sample(POOL, 32)
    workers, search = searched(times, 10, price)

    def rule(shadow: float) -> Rule:
        return lambda *at: by_margin(Workers(*(part[0] for part in workers)), np.array(shadow), *at)

    shadows = [*price * 2.0 ** np.arange(-2.0, 1.5, 0.5), *search.shadow()]
    total = simulate_dispatch(times, [rule(shadow) for shadow in shadows], 10, 256).total(price)
    assert total[-1] < 1.01 * total.min()


def test_the_search_leaves_useless_workers_out() -> None:
    slow = np.concatenate([np.full((2, 4), 1.0), np.full((30, 4), 1e6)])
    assert Workers.of(slow, 3).useful == 2
    shadows = [searched(times, 3, 0.1)[1].shadow() for times in (slow, slow[:2])]
    np.testing.assert_array_equal(*shadows)


@pytest.mark.parametrize(("price", "shadows"), [(0.2, [0.2 / np.sqrt(2.0), 0.2 * np.sqrt(2.0)]), (0.0, [0.0, 0.1 / 8])])
def test_simulated_rounds_are_those_of_the_env(price: float, shadows: list[float]) -> None:
    """Before the first move the search holds the costs of 31 rounds with each of two shadow prices."""
    times = known_sample(POOL, 32)
    workers, search = searched(times, 10, price, rounds=62)
    row = Workers(*(part[0] for part in workers))
    rules: list[Rule] = [lambda *at, c=c: by_margin(row, np.array(c), *at) for c in shadows]
    costs = simulate_dispatch(times, rules, 10, 512)
    np.testing.assert_allclose(search.totals[0, :, 0] / 31, costs.round_time, rtol=0.06)
    np.testing.assert_allclose(search.totals[0, :, 1] / 31, costs.worker_time, rtol=0.06)


def test_who_is_away_is_noticed() -> None:
    """A worker that was asked to work in this round, and is thought to be absent, is dead; and some are."""
    env = gym.make_vec(DISPATCH, num_envs=3, pool=POOL, budget=10, price=0.1, changes=(Spot(0.1, 0.2),))
    policy = ata_policies.make(LEARNER, env)
    observation, _ = env.reset(seed=0)
    action, state = policy.predict(observation)
    noticed = 0
    for _ in range(400):
        asked = action
        observation, *_ = env.step(action)
        action, state = policy.predict(observation, state)
        inside = observation["missing"] < 10
        thought = inside & (asked == 1) & (state.plan.absent == 1)
        dead = env.unwrapped.conditions().dies == 0.0
        assert (dead | ~thought).all()
        assert (thought | ~(inside & (asked == 1) & dead)).all()
        noticed += thought.sum()
    assert noticed > 0


def test_without_a_finite_distribution_the_search_stays() -> None:
    """Such estimates come of times that differ by hundreds of orders of magnitude."""
    _, search = searched(np.full((2, 4), np.inf), 3, 0.1, rounds=100)
    np.testing.assert_allclose(search.shadow(), 0.1)


def test_a_mean_that_no_round_sees_does_not_count() -> None:
    """A worker that is hardly ever stuck for ages is as fast as it is otherwise."""
    stuck = np.full((1, 64), 2.0)
    stuck[0, -1] = 1e9
    assert 2.0 < Workers.of(stuck, 10).mean[0] < 2.5
    played = play(ORACLE, 50, pool=pareto(0.9, [1.0, 2.0, 30.0]), price=0.2)
    assert np.isfinite(played["round_time"]).all()


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=60, deadline=None)
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


def test_a_belief_that_waits_for_the_round_to_end_learns_the_same() -> None:
    rng = np.random.default_rng(0)
    waiting, at_once = RoundByRound.empty(2, 3, budget=4), DistributionBelief.empty(2, 3)
    for _ in range(5):
        worker, time, elapsed = rng.integers(0, 3, (2, 4)), rng.exponential(size=(2, 4)), rng.exponential(size=(2, 3))
        for b in range(4):
            waiting = waiting.observe(worker[:, [b]], time[:, [b]], elapsed * (b == 3))
        at_once = at_once.observe(worker, time, elapsed)
    for one, other in zip(waiting.distributions, at_once, strict=True):
        np.testing.assert_array_equal(one, other)


def test_distributions_without_cancelled_tasks_have_the_means_of_the_results() -> None:
    rng = np.random.default_rng(1)
    worker, time = rng.integers(0, 3, (1, 60)), rng.exponential(2.0, (1, 60))
    belief = DistributionBelief.empty(1, 4).observe(worker, time, np.zeros((1, 4)))
    distributions = censored_distributions(belief, 32)
    np.testing.assert_allclose(distributions.times[0, :3].mean(axis=1), belief.mean()[0, :3], rtol=1e-9)
    assert np.isnan(distributions.times[0, 3]).all()


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
    np.testing.assert_allclose((distributions.times[0, 4] <= 2.5).mean(), 1.0 - np.exp(-0.25), atol=0.08)
    assert distributions.times[0, 4].mean() < 1.6 * mean[4]


@pytest.mark.parametrize(
    ("name", "keywords", "match"),
    [
        (REST, {"m": 0}, "m must be a whole number"),
        (REST, {"kappa": -1.0}, "kappa must be"),
        (REST, {"kappa": float("nan")}, "kappa must be"),
        (CAPS, {"m": 2.0}, "m must be a whole number"),
        (CAPS, {"d": -1}, "d must be a whole number"),
        (LEARNER, {"kappa": 1.0}, "does not take"),
    ],
)
def test_bad_hyperparameters(name: str, keywords: dict[str, Any], match: str) -> None:
    env = gym.make(DISPATCH, pool=POOL, budget=10)
    with pytest.raises(ValueError, match=match):
        ata_policies.make(name, env, **keywords)


@pytest.mark.parametrize("name", [ORACLE, CAPS])
def test_oracles_without_a_pool(name: str) -> None:
    with pytest.raises(ValueError, match="needs an env whose pool is known"):
        ata_policies.load(name)(Setting(n=3, budget=2))
