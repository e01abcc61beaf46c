"""Races of fixed size, the learner that sizes its race by the price, and the oracle."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ata_policies
from ata_gym.changes import Switch
from ata_gym.pools import (
    Pool,
    concatenate,
    deterministic,
    exponential,
    log_normal,
    shifted_exponential,
)
from ata_gym.simulation.keys import stream_keys
from ata_policies import Setting
from ata_policies.beliefs.moments import Exposure
from ata_policies.planning.races.search import best_race
from ata_policies.policy import State
from ata_policies.race.fixed import RaceBackup, RaceCaps, RaceFastest
from ata_policies.race.learner import RaceLearner
from ata_policies.race.oracles import RaceOracle
from ata_policies.race.rates import Rates, learn_rates
from ata_policies.race.size import worth_their_time
from tests.policies.conftest import blank

POOL = shifted_exponential(np.arange(1.0, 13.0), np.arange(1.0, 13.0))
BUDGET = 8
SCENARIO: dict[str, Any] = {"pool": POOL, "budget": BUDGET}
EQUAL = exponential(np.linspace(1.0, 1.1, 12))
MIXED = concatenate([exponential(np.full(6, 4.0)), log_normal(np.full(6, np.log(4.0) - 2.0), 2.0)])


def raced(policy: Any, counts: list[float], busy: list[float], rows: int = 1) -> Any:
    zeros = np.zeros(rows, np.int64)
    belief = Exposure(np.tile(counts, (rows, 1)), np.tile(busy, (rows, 1)))
    return policy.allocate(State(belief, (), zeros + 5, zeros, stream_keys(0, rows, 1)))


@pytest.mark.parametrize("kind", [RaceFastest, RaceBackup, RaceCaps, RaceLearner])
def test_everybody_races_in_the_first_round(kind: type) -> None:
    assert kind(Setting(5, 3)).predict(blank(5, 3, 1))[0].tolist() == [[3] * 5]


def test_only_who_had_no_task_at_all_is_untried() -> None:
    policy = RaceFastest(Setting(4, 2), m=1)
    seen = {
        "worker": np.array([0, 1]),
        "duration": np.array([3.0, 0.0]),
        "elapsed": np.array([0.0, 0.0, 2.0, 0.0]),
    }
    _, state = policy.predict(seen, policy.first_state(1))
    assert policy.explain(state).untried.tolist() == [False, False, False, True]


def test_the_best_known_race_and_the_untried_beside_it() -> None:
    """With so much seen the draws are the means 1, 2.1, ?, 4.3 and 9: 6 + 2 tasks are shared out
    among the three.
    """
    known = [4e8, 4e8, 0.0, 4e8, 4e8], [4e8, 8.4e8, 0.0, 17.2e8, 36e8]
    assert raced(RaceCaps(Setting(5, 6), m=3, d=2), *known).tolist() == [[5, 2, 6, 1, 0]]
    assert raced(RaceFastest(Setting(5, 6)), *known).tolist() == [[6, 6, 6, 0, 0]]  # 6 / 3
    # three workers, and 14 // 5 to spare
    assert raced(RaceCaps(Setting(5, 7)), *known).tolist() == [
        [6, 2, 7, 1, 0],
    ]
    assert raced(RaceBackup(Setting(5, 7)), *known).tolist() == [[6, 2, 7, 1, 0]]


def test_a_worker_without_results_is_tried_again_ever_more_seldom() -> None:
    """Two are known to take 10.

    That a third, whose tasks were cancelled after S in all, draws less has chance
    exp(-S / 10)."""
    rows = 4000
    policy = RaceCaps(Setting(3, 5), m=1, d=0)
    for spent in (5.0, 20.0, 40.0):
        chance = math.exp(-spent / 10)
        share = (raced(policy, [1e8, 1e8, 0.0], [1e9, 1e9, spent], rows)[:, 2] > 0).mean()
        assert abs(share - chance) < 5 * math.sqrt(chance / rows)


@pytest.mark.parametrize(
    ("pool", "price", "rounds"),
    [(EQUAL, 1.0, 500), (MIXED, 0.0, 500), (MIXED, 1.0, 1000)],
)
def test_the_learner_comes_close_to_the_oracle(
    play: Any,
    pool: Pool,
    price: float,
    rounds: int,
) -> None:
    """Within 8 % of its cost from the first round on.

    In a race rare long tasks do no harm: the log-normal ones win.
    """
    learned, best = (
        play(kind, rounds, pool=pool, budget=BUDGET, price=price)
        for kind in (RaceLearner, RaceOracle)
    )
    assert learned.costs.mean() < 1.08 * best.costs.mean()
    if pool is MIXED and price > 0.0:
        state = learned.states[-1]
        assert state.belief.counts[:, 6:].sum() > 10 * state.belief.counts[:, :6].sum()


def test_the_learner_spends_less_at_a_higher_price_and_for_nothing_hardly_loses_time(
    play: Any,
) -> None:
    runs = [play(RaceLearner, 300, price=price, **SCENARIO) for price in (0.0, 0.1, 1.0)]
    took, spent = (
        [times.mean() for times in each] for each in zip(*(run[-2:] for run in runs), strict=True)
    )
    assert (took, spent) == (sorted(took), sorted(spent, reverse=True))
    all_race = play(RaceFastest, 300, hyperparameters={"m": POOL.n}, **SCENARIO)
    assert took[0] < 1.02 * all_race.round_times.mean()
    assert spent[0] < 0.8 * all_race.worker_times.mean()
    assert runs[1].costs.mean() < 1.08 * play(RaceOracle, 300, price=0.1, **SCENARIO).costs.mean()


def test_rows_choose_their_races_in_different_rounds(play: Any) -> None:
    """From the third round on, at intervals that grow; at most 128 rounds after the last choice."""
    solved = np.array(
        [
            state.plan.solved
            for state in play(RaceLearner, 200, rows=10, price=0.1, **SCENARIO).states
        ],
    )
    chosen = solved != np.concatenate([np.zeros((1, 10)), solved[:-1]])
    assert chosen[1].all()  # the simple rule, as soon as there are results
    assert chosen[2:].sum(axis=1).max() < 8
    assert (chosen[:100].sum(axis=0) > chosen[100:].sum(axis=0)).all()
    assert (200 - solved[-1]).max() <= 128


def test_with_a_price_many_workers_are_tried_little_by_little(play: Any) -> None:
    n = 500
    budget = 10
    run = play(RaceLearner, 30, rows=2, pool=exponential(np.full(n, 2.0)), budget=budget, price=1.0)
    racing = (run.actions > 0).sum(axis=2)
    assert (racing[0] == 2 * budget + 1).all()
    assert np.max(racing) < n / 4


def test_the_shapes_that_rates_rest_on_are_from_a_sixteenth_to_16() -> None:
    each = 500
    n = 3
    rng = np.random.default_rng(0)
    policy = RaceLearner(Setting(n, n * each, price=0.1))
    state = None
    rare = np.where(np.arange(each) == each // 2, 1.0, 1e-5)
    seen = blank(n, n * each, 1)
    for _ in range(8):
        _, state = policy.predict(seen, state)
        times = np.concatenate(
            [rng.gamma(400.0, 1 / 400, each), rng.exponential(size=each), 500 * rare],
        )
        seen = seen | {"worker": np.repeat(np.arange(n), each)[None], "duration": times[None]}
    assert state.plan.shape[0, [0, 2]].tolist() == [16.0, 1 / 16]
    assert 0.7 < state.plan.shape[0, 1] < 1.4


@pytest.mark.parametrize(("n", "price", "last"), [(60, 1.0, 16), (10, 1.0, 16), (10, 0.1, 39)])
def test_newcomers_are_tried_while_enough_rounds_are_left(n: int, price: float, last: int) -> None:
    """At price 1 each of 3 that were tried asks for one round more, and the try for another; at
    price 0.1, one is enough. Beyond the horizon each round counts as the last one. A row beside it
    is in round 17 of 20.
    """
    policy = RaceLearner(Setting(n, 8, price=price, horizon=20))
    rows = np.ones((2, 1), int)
    _, state = policy.predict(blank(n, 8, 2))
    seen = blank(n, 8, 2) | {"worker": rows * [0, 0, 0, 1, 1, 1, 2, 2], "duration": np.ones((2, 8))}
    _, state = policy.predict(seen, state)
    try_them = [
        policy.allocate(state._replace(round=np.array([k, 17])))[:, 3:].any(axis=1)
        for k in range(1, 40)
    ]
    assert np.transpose(try_them).tolist() == [[k <= last for k in range(1, 40)], [last > 16] * 39]


def test_who_did_nothing_in_a_race_is_out_until_it_is_back() -> None:
    """Worker 0, the fastest, is away for ten rounds: it is asked on, but the others get its tasks,
    too.
    """
    policy = RaceLearner(Setting(4, 6, price=1.0))
    state = None
    actions = []
    seen = blank(4, 6)
    for k in range(60):
        away = 40 <= k < 50
        action, state = policy.predict(seen, state)
        actions.append(action)
        work = np.array([0.0 if away else 1.0, 0.3, 0.1, 0.1]) * (action > 0)
        if not work.any():  # what nobody does is handed on
            action = work = np.array([0, 6, 0, 0])
        shares = np.minimum(action, np.ceil(6 * work / work.sum()).astype(int))
        worker = np.repeat(np.arange(4), shares)[:6]
        worker = np.sort(np.append(worker, np.full(6 - len(worker), worker[-1])))
        mean = np.array([1.0, 3.0, 10.0, 10.0])
        seen = {
            "worker": worker,
            "duration": mean[worker],
            "elapsed": np.where(work > 0, 0.5, 0.0),
        }
    assert actions[39][:2].tolist() == [6, 0]
    for action in actions[42:50]:
        assert action[0] == 6
        assert action[1:].sum() >= 6
    assert not state.plan.away.any()


def test_all_race_at_once_where_the_workers_left_out_became_the_faster_ones(play: Any) -> None:
    """Among 40 workers, a race of the former best takes some 40 times as long after the speeds are
    reversed.
    """
    pool = shifted_exponential(np.arange(1.0, 41.0), np.arange(1.0, 41.0))
    changes = [Switch(at=(120,), permutation=tuple(range(40))[::-1])]
    run = play(RaceLearner, 140, rows=6, pool=pool, budget=10, changes=changes)
    took = run.round_times
    racing = (run.actions > 0).sum(axis=2)
    assert (racing[110:121].max(axis=0) < 30).all()
    late = took[120] > 2.5 * took[100:120].mean(axis=0)
    assert late.sum() >= 4
    assert (racing[121:129, late] == 40).all()
    assert (took[121:, late].mean(axis=0) < 1.3 * took[100:120, late].mean(axis=0)).all()


def rates_by_hand(counts: list[float], busy: list[float]) -> tuple[float, float]:
    k = np.array(counts)
    s = np.array(busy)
    weight = s * k.sum() / s.sum()
    weight /= 1.0 + weight
    mean = np.average(k / s, weights=weight)
    variance = np.average((k / s - mean) ** 2 - mean / s, weights=weight)
    shape = 1.0 / np.clip(variance / mean**2, 0.5, len(k))
    return shape, shape / mean


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 100.0)), min_size=1, max_size=8),
    st.floats(0.1, 16.0),
)
def test_rates_are_shrunk_to_those_of_all_workers(
    seen: list[tuple[int, float]],
    own: float,
) -> None:
    counts = [float(k) for k, _ in seen]
    busy = [s for _, s in seen]
    rates = learn_rates(np.array([counts]), np.array([busy]), np.full((1, len(seen)), own))
    if sum(counts) > 0:
        a, b = rates_by_hand(counts, busy)
    else:
        a = 1.0
        b = 0.0
    c = (1.0 + own * np.array(counts)) / (1.0 + np.array(counts))
    np.testing.assert_allclose(rates.shape[0], a + c * counts, rtol=1e-6)
    np.testing.assert_allclose(rates.time[0], b + c * busy, rtol=1e-6)


def test_drawn_rates_and_slices_have_the_distribution() -> None:
    rows = 4000
    shapes = np.array([[0.02, 0.4, 1.0, 3.0, 200.0]])
    rates = Rates(np.tile(shapes, (rows, 1)), np.tile(2.0 * shapes, (rows, 1)))  # of mean 1/2
    drawn = 1.0 / rates.draw(stream_keys(0, rows))
    spread = 0.5 / np.sqrt(shapes[0])
    assert (np.abs(drawn.mean(axis=0) - 0.5) < 5 * spread / math.sqrt(rows)).all()
    np.testing.assert_allclose(drawn.std(axis=0)[1:], spread[1:], rtol=0.15)
    factors = rates.factors()[0]
    np.testing.assert_allclose((1.0 / factors).mean(axis=1), 1.0, rtol=1e-4)
    assert (np.diff(factors, axis=1) <= 0.0).all()


@settings(max_examples=25)
@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30), st.floats(0.001, 10.0))
def test_workers_worth_their_time_are_those_of_the_cheapest_race(
    scores: list[float],
    price: float,
) -> None:
    rates = np.sort(1.0 / np.array(scores))[::-1]
    costs = (1.0 + price * np.arange(1, len(rates) + 1)) / np.cumsum(rates)
    assert costs[worth_their_time(np.array(scores), price) - 1] <= costs.min() * (1 + 1e-9)


def test_the_oracle_plays_the_best_race(play: Any) -> None:
    """Where times are known, no more than B tasks are done, in the least time: 5 + 2 + 1 = 8
    results.
    """
    run = play(
        RaceOracle,
        5,
        rows=1,
        pool=deterministic([1.0, 2.0, 3.0]),
        budget=BUDGET,
        price=1e-6,
    )
    assert (run.round_times == 5.0).all()
    assert (run.worker_times <= 15.0).all()
    env = gym.make("ata_gym/TaskRace-v0", pool=POOL, budget=BUDGET, price=0.3)
    action, _ = ata_policies.make("race-oracle", env).predict(env.reset(seed=0)[0])
    np.testing.assert_array_equal(action, best_race(POOL, BUDGET, 0.3).allocation)
