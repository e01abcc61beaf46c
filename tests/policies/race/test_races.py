"""Races of fixed size, the learner that sizes its race by the price, and the oracle."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Switch
from ata_gym.pools import Pool, concatenate, deterministic, exponential, log_normal, shifted_exponential
from ata_gym.simulation.keys import stream_keys
from ata_policies import Setting
from ata_policies.beliefs.moments import Exposure
from ata_policies.planning.race_search import best_race
from ata_policies.planning.races import EVERYTHING
from ata_policies.policy import State
from ata_policies.race.fixed import RaceBackup, RaceCaps, RaceFastest, RaceOracle, race_by_draws
from ata_policies.race.learner import RaceLearner
from ata_policies.race.rates import Rates, learn_rates
from ata_policies.race.size import worth_their_time

POOL = shifted_exponential(np.arange(1.0, 13.0), np.arange(1.0, 13.0))
BUDGET = 8
MIXED = concatenate([exponential(np.full(6, 4.0)), log_normal(np.full(6, np.log(4.0) - 2.0), 2.0)])


def play(kind: type, rounds: int, rows: int = 4, pool: Pool = POOL, price: float = 0.0, **more: Any) -> Any:
    """Mean round time, mean worker time, and the last state."""
    env = gym.make_vec("ata_gym/TaskRace-v0", num_envs=rows, pool=pool, budget=BUDGET, price=price)
    policy, (observation, _), state = kind(Setting.of(env), **more), env.reset(seed=0), None
    for _ in range(rounds):
        action, state = policy.predict(observation, state)
        observation, *_, info = env.step(action)
    return info["runtime"].mean() / rounds, info["total_worker_time"].mean() / rounds, state


def state_of(counts: list[float], busy: list[float], rows: int = 1) -> State:
    """A state with this belief in each row, and rows of different randomness."""
    belief = Exposure(np.tile(counts, (rows, 1)), np.tile(busy, (rows, 1)))
    zeros = np.zeros(rows, np.int64)
    return State(belief, (), zeros + 5, zeros, stream_keys(0, rows, 1))


@pytest.mark.parametrize("kind", [RaceFastest, RaceBackup, RaceCaps, RaceLearner])
def test_everybody_races_in_the_first_round(kind: type) -> None:
    action, _ = kind(Setting(5, 3)).predict({"worker": np.full(3, -1), "duration": np.zeros(3), "elapsed": np.zeros(5)})
    assert action.tolist() == [3] * 5


def test_only_who_had_no_task_at_all_is_untried() -> None:
    """A result, also one that took no time, and a cancelled task are tries: only the last worker never had one."""
    results = np.array([[0, 1]]), np.array([[3.0, 0.0]]), np.array([[0.0, 0.0, 2.0, 0.0]])
    belief = Exposure.empty(1, 4).observe(*results)
    assert belief.untried().tolist() == [[False, False, False, True]]
    assert Exposure.empty(2, 3).untried().all()
    policy = RaceFastest(Setting(4, 2), m=1)
    seen = dict(zip(("worker", "duration", "elapsed"), (part[0] for part in results), strict=True))
    action, state = policy.predict(seen, policy.first_state(1))
    assert policy.explain(state).untried.tolist() == [False, False, False, True]
    assert action[3] == 2  # at once all tasks of a round
    assert action[2] == 0 or action[0] == 0  # and of the others the one that is fastest by its draw


def test_the_best_known_race_and_the_untried_beside_it() -> None:
    """With so much seen the draws are the means 1, 2.1, ?, 4.3 and 9: 6 + 2 tasks are shared out among the three."""
    state = state_of([4e8, 4e8, 0.0, 4e8, 4e8], [4e8, 8.4e8, 0.0, 17.2e8, 36e8])
    assert race_by_draws(state, 3, 8, 1.0, 6).tolist() == [[5, 2, 6, 1, 0]]
    assert race_by_draws(state, 2, EVERYTHING, 1.0, 6).tolist() == [[6, 6, 6, 0, 0]]
    assert race_by_draws(state, 1, 6, 1.0, 6, extra=2).tolist() == [[6, 6, 6, 6, 0]]


def test_a_row_that_does_not_explore_keeps_its_caps_beside_one_that_does() -> None:
    state = state_of([4e8, 4e8, 4e8, 4e8], [4e8, 8.4e8, 17.2e8, 36e8], rows=2)
    races = race_by_draws(state, np.array([2, 2]), np.array([3, 3]), 1.0, 3, extra=np.array([0, 1]))
    assert races.tolist() == [[2, 1, 0, 0], [2, 1, 3, 0]]
    state = state_of([4e8, 4e8, 4e8, 4e8], [4e8, 40e8, 172e8, 360e8], rows=2)
    races = race_by_draws(state, np.array([2, 2]), np.array([3, 3]), 1.0, 3, extra=np.array([0, 1]))
    assert races.tolist() == [[3, 0, 0, 0], [3, 3, 3, 0]]


def test_a_worker_without_results_is_tried_again_ever_more_seldom() -> None:
    """Two are known to take 10. That a third, whose tasks were cancelled after S in all, draws less has chance
    exp(-S / 10)."""
    rows = 4000
    for spent in (5.0, 20.0, 40.0):
        races = race_by_draws(state_of([1e8, 1e8, 0.0], [1e9, 1e9, spent], rows), 1, 5, 1.0, 5)
        chance = math.exp(-spent / 10)
        share = (races[:, 2] > 0).mean()
        assert abs(share - chance) < 5 * math.sqrt(chance / rows)


def test_cancelled_tasks_keep_a_slow_worker_from_looking_fast() -> None:
    """Worker 2 finishes few tasks, and short ones; with the cancelled ones its mean is right, so it is left out."""
    pool = exponential([1.0, 1.0, 20.0])
    _, _, everybody = play(RaceFastest, 2000, pool=pool, m=3)
    np.testing.assert_allclose(
        everybody.belief.busy.sum(axis=0) / everybody.belief.counts.sum(axis=0), pool.mean(), rtol=0.1
    )
    _, _, state = play(RaceFastest, 500, pool=pool, m=2)
    assert (state.belief.busy[:, 2] < 0.05 * state.belief.busy[:, 0]).all()


@pytest.mark.parametrize(("kind", "more"), [(RaceFastest, {"m": 3}), (RaceCaps, {"m": 4, "d": 3}), (RaceBackup, {})])
def test_a_fixed_race_comes_close_to_the_same_race_with_the_means_known(kind: type, more: dict[str, int]) -> None:
    class Known(kind):  # type: ignore[misc]
        def first_belief(self, rows: int) -> Exposure:
            return Exposure(np.full((rows, POOL.n), 1e9), np.tile(1e9 * POOL.mean(), (rows, 1)))

    time, worker_time, _ = play(kind, 1500, **more)
    known_time, known_worker_time, _ = play(Known, 1500, **more)
    assert time < 1.06 * known_time
    assert worker_time < 1.06 * known_worker_time


@pytest.mark.parametrize(
    ("pool", "price"),
    [(POOL, 0.0), (POOL, 0.1), (exponential(np.linspace(1.0, 1.1, 12)), 1.0), (MIXED, 0.0), (MIXED, 1.0)],
    ids=["unequal, free", "unequal", "near-equal", "heavy tails, free", "heavy tails"],
)
def test_the_learner_comes_close_to_the_oracle(pool: Pool, price: float) -> None:
    """Within 8 % of its cost from the first round on, and far below that of the rules that ignore the price."""
    time, worker_time, _ = play(RaceLearner, 1000, pool=pool, price=price)
    best_time, best_worker_time, _ = play(RaceOracle, 1000, pool=pool, price=price)
    assert time + price * worker_time < 1.08 * (best_time + price * best_worker_time)


def test_the_learner_spends_less_at_a_higher_price() -> None:
    played = [play(RaceLearner, 400, price=price) for price in (0.0, 0.02, 0.1, 1.0)]
    assert [p[0] for p in played] == sorted(p[0] for p in played)
    assert [p[1] for p in played] == sorted((p[1] for p in played), reverse=True)


def test_for_nothing_the_learner_is_almost_as_fast_as_everybody_and_saves_work() -> None:
    time, worker_time, _ = play(RaceLearner, 1500)
    fastest, wasteful, _ = play(RaceFastest, 1500, m=POOL.n)
    assert time < 1.02 * fastest
    assert worker_time < 0.8 * wasteful


def test_the_learner_finds_the_fast_among_workers_of_equal_mean() -> None:
    """In a race rare long tasks do no harm: the log-normal workers win."""
    _, _, state = play(RaceLearner, 600, pool=MIXED, price=1.0)
    assert state.belief.counts[:, 6:].sum() > 10 * state.belief.counts[:, :6].sum()


def test_rows_choose_their_races_in_different_rounds() -> None:
    """From the third round on, at intervals that grow; at most 128 rounds after the last choice."""
    env = gym.make_vec("ata_gym/TaskRace-v0", num_envs=16, pool=POOL, budget=BUDGET, price=0.1)
    policy, (observation, _), state = RaceLearner(Setting.of(env)), env.reset(seed=0), None
    chosen = np.zeros((200, 16), np.bool_)
    for k in range(200):
        before = 0 if state is None else state.plan.solved
        action, state = policy.predict(observation, state)
        chosen[k] = state.plan.solved != before
        observation = env.step(action)[0]
    assert chosen[1].all()  # the simple rule, as soon as there are results
    assert chosen[2:].sum(axis=1).max() < 12
    assert (chosen[:100].sum(axis=0) > chosen[100:].sum(axis=0)).all()
    assert (200 - state.plan.solved).max() <= 128


@pytest.mark.parametrize("pool", [exponential(np.geomspace(1.0, 100.0, 60)), exponential(np.full(60, 2.0))])
def test_without_a_price_one_result_leaves_nobody_out(pool: Pool) -> None:
    """B = 1: a race is as short as everybody's, although most workers have shown nothing for long."""
    env = gym.make_vec("ata_gym/TaskRace-v0", num_envs=4, pool=pool, budget=1)
    runtimes = []
    for kind, more in ((RaceLearner, {}), (RaceFastest, {"m": pool.n})):
        policy, (observation, _), state = kind(Setting.of(env), **more), env.reset(seed=0), None
        for _ in range(300):
            action, state = policy.predict(observation, state)
            observation, *_, info = env.step(action)
        runtimes.append(info["runtime"].mean())
    assert runtimes[0] < 1.03 * runtimes[1]


def test_with_a_price_many_workers_are_tried_little_by_little() -> None:
    n, budget, price = 500, 10, 1.0
    env = gym.make_vec("ata_gym/TaskRace-v0", num_envs=2, pool=exponential(np.full(n, 2.0)), budget=budget, price=price)
    policy, (observation, _), state = RaceLearner(Setting.of(env)), env.reset(seed=0), None
    racing = []
    for _ in range(30):
        action, state = policy.predict(observation, state)
        racing.append((action > 0).sum(axis=1))
        observation = env.step(action)[0]
    assert (racing[0] == 2 * budget + 1).all()
    assert np.max(racing) < n / 4


def test_more_workers_are_tried_the_longer_it_pays() -> None:
    """With the horizon known, almost all of many workers if it is long, hardly any if it is short."""
    tried = []
    for horizon in (8, 3000):
        pool = exponential(np.geomspace(1.0, 50.0, 200))
        env = gym.make_vec("ata_gym/TaskRace-v0", num_envs=2, pool=pool, budget=10, price=0.5, horizon=horizon)
        policy, (observation, _), state = RaceLearner(Setting.of(env)), env.reset(seed=0), None
        for _ in range(6):
            action, state = policy.predict(observation, state)
            observation = env.step(action)[0]
        tried.append((~state.belief.untried()).sum(axis=1).mean())
    assert tried[0] < 60
    assert tried[1] > 100


def test_the_shapes_that_rates_rest_on_are_from_a_sixteenth_to_16() -> None:
    """Of coefficients of variation of 0.05, 1 and 8."""
    each, n = 500, 3
    rng, policy, state = np.random.default_rng(0), RaceLearner(Setting(n, n * each, price=0.1)), None
    rare = np.where(np.arange(each) == each // 2, 1.0, 1e-5)
    seen = {"worker": np.full(n * each, -1), "duration": np.zeros(n * each), "elapsed": np.zeros(n)}
    for _ in range(8):
        _, state = policy.predict(seen, state)
        times = np.concatenate([rng.gamma(400.0, 1 / 400, each), rng.exponential(size=each), 500 * rare])
        seen = seen | {"worker": np.repeat(np.arange(n), each), "duration": times}
    assert state.plan.shape[0, [0, 2]].tolist() == [16.0, 1 / 16]
    assert 0.7 < state.plan.shape[0, 1] < 1.4


@pytest.mark.parametrize(("n", "price", "last"), [(60, 1.0, 16), (10, 1.0, 16), (10, 0.1, 39)])
def test_newcomers_are_tried_while_enough_rounds_are_left(n: int, price: float, last: int) -> None:
    """At price 1 each of 3 that were tried asks for one round more, and the try for another; at price 0.1, one is
    enough. Beyond the horizon each round counts as the last one. A row beside it is in round 17 of 20."""
    policy, rows = RaceLearner(Setting(n, 8, price=price, horizon=20)), np.ones((2, 1), int)
    seen = {"worker": np.full((2, 8), -1), "duration": np.zeros((2, 8)), "elapsed": np.zeros((2, n))}
    _, state = policy.predict(seen)
    seen = seen | {"worker": rows * [0, 0, 0, 1, 1, 1, 2, 2], "duration": np.ones((2, 8))}
    _, state = policy.predict(seen, state)
    try_them = [policy.allocate(state._replace(round=np.array([k, 17])))[:, 3:].any(axis=1) for k in range(1, 40)]
    assert np.transpose(try_them).tolist() == [[k <= last for k in range(1, 40)], [last > 16] * 39]


def test_who_did_nothing_in_a_race_is_out_until_it_is_back() -> None:
    """Worker 0, the fastest, is away for ten rounds: it is asked on, but the others get its tasks, too."""
    policy, state, actions = RaceLearner(Setting(4, 6, price=1.0)), None, []
    seen = {"worker": np.full(6, -1), "duration": np.zeros(6), "elapsed": np.zeros(4)}
    for k in range(60):
        away = 40 <= k < 50
        action, state = policy.predict(seen, state)
        actions.append(action)
        there = np.array([0.0 if away else 1.0, 0.3, 0.1, 0.1]) * (action > 0)
        if not there.any():  # what nobody does is handed on
            action = there = np.array([0, 6, 0, 0])
        shares = np.minimum(action, np.ceil(6 * there / there.sum()).astype(int))
        worker = np.repeat(np.arange(4), shares)[:6]
        worker = np.sort(np.append(worker, np.full(6 - len(worker), worker[-1])))
        mean = np.array([1.0, 3.0, 10.0, 10.0])
        seen = {"worker": worker, "duration": mean[worker], "elapsed": np.where(there > 0, 0.5, 0.0)}
    assert actions[39][0] == 6
    assert actions[39][1] == 0
    for action in actions[42:50]:
        assert action[0] == 6
        assert action[1:].sum() >= 6
    assert not state.plan.away.any()


def test_all_race_at_once_where_the_workers_left_out_became_the_faster_ones() -> None:
    """Among 40 workers, a race of the former best takes some 40 times as long after the speeds are reversed."""
    pool = shifted_exponential(np.arange(1.0, 41.0), np.arange(1.0, 41.0))
    changes = [Switch(at=(120,), permutation=tuple(range(40))[::-1])]
    env = gym.make_vec("ata_gym/TaskRace-v0", num_envs=6, pool=pool, budget=10, changes=changes)
    policy, (observation, _), state = RaceLearner(Setting.of(env)), env.reset(seed=0), None
    took, racing = np.empty((140, 6)), np.empty((140, 6))
    for k in range(140):
        action, state = policy.predict(observation, state)
        observation, *_, info = env.step(action)
        took[k], racing[k] = info["round_time"], (action > 0).sum(axis=1)
    assert (racing[110:121].max(axis=0) < 30).all()
    late = took[120] > 2.5 * took[100:120].mean(axis=0)
    assert late.sum() >= 4
    assert (racing[121:129, late] == 40).all()
    assert (took[121:, late].mean(axis=0) < 1.3 * took[100:120, late].mean(axis=0)).all()


def rates_by_hand(counts: list[float], busy: list[float]) -> tuple[float, float]:
    """The gamma distribution that fits the rates of the workers with some time."""
    k, s = np.array(counts), np.array(busy)
    weight = s * k.sum() / s.sum()
    weight /= 1.0 + weight
    mean = np.average(k / s, weights=weight)
    variance = np.average((k / s - mean) ** 2 - mean / s, weights=weight)
    shape = 1.0 / np.clip(variance / mean**2, 0.5, len(k))
    return shape, shape / mean


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 100.0)), min_size=1, max_size=8),
    st.floats(0.1, 16.0),
)
def test_rates_are_shrunk_to_those_of_all_workers(seen: list[tuple[int, float]], own: float) -> None:
    counts, busy = [float(k) for k, _ in seen], [s for _, s in seen]
    rates = learn_rates(np.array([counts]), np.array([busy]), np.full((1, len(seen)), own))
    a, b = rates_by_hand(counts, busy) if sum(counts) > 0 else (1.0, 0.0)
    c = (1.0 + own * np.array(counts)) / (1.0 + np.array(counts))
    np.testing.assert_allclose(rates.shape[0], a + c * counts, rtol=1e-6)
    np.testing.assert_allclose(rates.time[0], b + c * busy, rtol=1e-6)


def test_drawn_rates_and_slices_have_the_distribution() -> None:
    shapes = np.array([[0.02, 0.4, 1.0, 3.0, 200.0]])
    rates = Rates(shapes, 2.0 * shapes)  # of mean 1/2
    drawn = 1.0 / np.concatenate([rates.draw(stream_keys(k)) for k in range(4000)])
    spread = 0.5 / np.sqrt(shapes[0])
    assert (np.abs(drawn.mean(axis=0) - 0.5) < 5 * spread / math.sqrt(4000)).all()
    np.testing.assert_allclose(drawn.std(axis=0)[1:], spread[1:], rtol=0.15)
    np.testing.assert_allclose((1.0 / rates.factors()).mean(axis=2), 1.0, rtol=1e-4)
    assert (np.diff(rates.factors(), axis=2) <= 0.0).all()


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30), st.floats(0.001, 10.0))
def test_workers_worth_their_time_are_those_of_the_cheapest_race(scores: list[float], price: float) -> None:
    rates = np.sort(1.0 / np.array(scores))[::-1]
    costs = (1.0 + price * np.arange(1, len(rates) + 1)) / np.cumsum(rates)
    assert costs[worth_their_time(np.array(scores), price) - 1] <= costs.min() * (1 + 1e-9)


def test_without_noise_nothing_is_wasted() -> None:
    """Times are known after one round: as soon as a plan is made, no more than B tasks are done, in the least time."""
    pool = deterministic([1.0, 2.0, 3.0])
    time, worker_time, _ = play(RaceOracle, 5, rows=1, pool=pool, price=1e-6)
    assert time == 5.0  # 5 + 2 + 1 = 8 results
    assert worker_time <= 15.0


def test_the_oracle_plays_the_best_race() -> None:
    env = gym.make("ata_gym/TaskRace-v0", pool=POOL, budget=BUDGET, price=0.3)
    action, _ = ata_policies.make("ata_policies.race.fixed:RaceOracle", env).predict(env.reset(seed=0)[0])
    np.testing.assert_array_equal(action, best_race(POOL, BUDGET, 0.3).allocation)
    with pytest.raises(ValueError, match="needs an env whose pool is known"):
        RaceOracle(Setting(3, 2))


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        (RaceFastest, {"m": 0}, "m must be"),
        (RaceFastest, {"m": 13}, "m must be at most the number of workers, 12, not 13"),
        (RaceCaps, {"d": -1}, "d must be"),
        (RaceCaps, {"m": 1.5}, "m must be"),
        (RaceBackup, {"shape": 0.0}, "shape must be"),
        (RaceLearner, {"tolerance": -0.1}, "tolerance must be a finite number of at least 0, not -0.1"),
        (RaceLearner, {"explore": math.inf}, "explore must be"),
        (RaceLearner, {"replicates": 0}, "replicates must be"),
        (RaceLearner, {"work": 0}, "work must be"),
        (RaceOracle, {"tolerance": math.nan}, "tolerance must be"),
    ],
)
def test_bad_hyperparameters(kind: type, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(Setting(12, BUDGET, pool=POOL), **more)
