"""The learner of whole distributions, its search and its plan; and the oracle."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import Scenario, optimal_allocation
from ata_gym.changes import Jump, Spot
from ata_gym.pools import exponential, gamma, log_normal, pareto, shifted_exponential, trace
from ata_gym.utils.trees import difference
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.moments import LatencyBelief
from ata_policies.planning.knowledge import Knowledge, choose_candidates, learn_rows

LEARNER = "distribution-learner"
POOL = shifted_exponential(np.arange(1.0, 13), np.arange(1.0, 13))
SCENARIO: dict[str, Any] = {"rows": 3, "pool": POOL, "budget": 15}


def late_cost(run: Any) -> Any:
    return run.costs[len(run.costs) // 2 :].mean(axis=0)


@pytest.mark.parametrize("price", [0.0, 1.0])
def test_learns_what_the_oracle_knows(play: Any, price: float) -> None:
    best = optimal_allocation(POOL, 15, price).cost
    learned, known = (
        late_cost(play(name, 600, price=price, **SCENARIO)).mean() for name in (LEARNER, "oracle")
    )
    assert learned < 1.04 * best
    np.testing.assert_allclose(known, best, rtol=0.03)


def test_learns_which_workers_have_long_tails(play: Any) -> None:
    """All means are about alike: only whole distributions tell whom to trust."""
    pool = log_normal(np.full(4, np.log(15.0) - 1.8**2 / 2), 1.8) + gamma(np.full(4, 50.0), 0.3)
    run = play(LEARNER, 1000, 3, pool=pool, budget=12)
    assert late_cost(run).mean() < 1.08 * optimal_allocation(pool, 12).round_time
    assert run.actions[500:, :, 4:].sum() > 0.85 * run.actions[500:].sum()


def test_a_worker_that_fails_is_dropped_at_once_and_probed_until_it_is_back(play: Any) -> None:
    pool = gamma(16.0, np.array([1.0, 1.0, 1.0, 3.0]) / 16)
    run = play(LEARNER, 60, 2, pool=pool, budget=9, changes=(Jump(20, (0,), 40.0, until=36),))
    tasks = run.actions[:, :, 0]
    assert (tasks[20] >= 2).all()
    assert (tasks[21:25] == 0).all()
    assert tasks[25:36].max() <= 1
    assert (tasks[21:] == 1).any(axis=0).all()
    assert (tasks[-1] >= 2).all()


def test_where_most_workers_are_slow_the_fast_ones_are_found(play: Any) -> None:
    pool = gamma(4.0, np.append(np.full(95, 20.0), np.full(5, 1.0)) / 4)
    run = play(LEARNER, 120, 4, pool=pool, budget=20, horizon=1000)
    assert run.actions[80:, :, :95].mean() < 0.02
    assert run.costs[80:].mean() < 1.05 * optimal_allocation(pool, 20).cost


def test_of_many_workers_few_are_tried_where_few_rounds_are_left(play: Any) -> None:
    """One worker is enough: those in use are good, and a stranger costs as much as it can gain."""
    pool = exponential(np.linspace(1.0, 5.0, 200))
    tried = [
        play(LEARNER, 60, 4, pool=pool, budget=1, horizon=horizon).actions.any(axis=0)
        for horizon in (60, 6000)
    ]
    few, more = (float(workers.sum(axis=1).mean()) for workers in tried)
    assert 1.5 * few < more < 60


def test_the_first_round_and_zero_times(play: Any) -> None:
    many = shifted_exponential(np.arange(1.0, 201), np.arange(1.0, 201))
    run = play(LEARNER, 30, 2, pool=many, budget=5)
    assert (run.actions[0].max(axis=1) == 1).all()
    assert (run.actions.sum(axis=2) == 5).all()
    mostly = trace([[0.0] * 40 + [1.0], [0.0, 1.0, 3.0], [2.0]])
    assert late_cost(play(LEARNER, 60, 1, pool=mostly, budget=4, price=0.5))[0] < 0.5
    seldom = trace([[0.0] * 40 + [1.0]] * 2)
    assert (play(LEARNER, 10, 1, pool=seldom, budget=3).costs == 0.0).all()


def test_workers_that_are_away_get_nothing(play: Any) -> None:
    run = play(LEARNER, 200, changes=[Spot(0.02, 0.02, deadline=100.0)], **SCENARIO)
    present = np.isfinite(run.means)
    given_in_vain = (run.actions * ~present)[50:].sum() / run.actions[50:].sum()
    assert given_in_vain < 0.5 * (~present)[50:].mean()


def test_a_worker_that_becomes_slow_is_left(play: Any) -> None:
    run = play(LEARNER, 200, changes=[Jump(at=100, workers=(0,), factor=50.0)], **SCENARIO)
    assert run.actions[:100, :, 0].mean() > 2.0
    assert run.actions[-30:, :, 0].mean() < 0.2


def known_after(results: list[int], unit: float = 1.0, spread: float = 0.5) -> Knowledge:
    worker = np.repeat(np.arange(len(results)), results)[None]
    n = len(results)
    times = np.random.default_rng(0).gamma(spread**-2, spread**2, worker.shape)
    return learn_rows(
        DistributionBelief.empty(1, n).observe(worker, unit * times, np.zeros((1, n))),
        LatencyBelief.empty(1, n),
        slice(None),
        weight=5.0,
    )


@pytest.mark.parametrize(
    ("used", "considered"),
    # at first B + 64, later 64 more than 1.5 times those in use, but at least 192
    [(0, 364), (41, 192), (101, 215), (300, 364)],
)
def test_of_many_workers_the_fastest_and_those_in_use_are_considered(
    used: int, considered: int
) -> None:
    known = known_after([1] * 400)
    fastest = np.argsort(known.next_mean()[0], kind="stable")
    last = np.zeros((1, 400), np.int64)
    # the slowest one is in use, too
    in_use = [*fastest[: max(used - 1, 0)], *fastest[400 - min(used, 1) :]]
    last[0, in_use] = 1
    members = choose_candidates(known, np.ones((1, 400), np.bool_), last, 300).members
    assert {*members.workers[members.present]} == {*fastest[:considered], *in_use}


def test_the_fewer_results_the_more_a_search_doubts_a_mean() -> None:
    known = known_after([400, 20, 2])
    all_workers = np.ones((1, 3), np.bool_)
    nobody = np.zeros((1, 3), np.int64)
    (doubt,) = choose_candidates(known, all_workers, nobody, 5).doubt
    np.testing.assert_array_equal(doubt, np.expm1(known.posterior.spread[0] ** 2))
    assert 0.0 < doubt[0] < doubt[1] < doubt[2] < 1.0
    assert (
        choose_candidates(known_after([1, 1, 1], spread=8.0), all_workers, nobody, 5).doubt.max()
        == 1.0
    )


def test_the_unit_of_time_does_not_matter(play: Any) -> None:
    usual = known_after([30, 4, 0])[3:5]
    for exponent in (40, 300, -300):
        assert difference(known_after([30, 4, 0], 2.0**exponent)[3:5], usual) is None
    pools = (pareto(2.5, unit * np.arange(1.0, 9.0)) for unit in (1.0, 2.0**40, 2.0**-80))
    one, *others = (play(LEARNER, 60, 2, pool=pool, budget=12).actions for pool in pools)
    np.testing.assert_array_equal(others, [one, one])


def test_where_workers_pay_latencies_a_row_does_not_depend_on_its_batch() -> None:
    """Rows differ in how many workers are tried, and each has the shuffles of a row alone."""
    means = np.linspace(1.0, 9.0, 8)
    world = Scenario(exponential(means).with_latency(exponential(0.4 * means)), 20)

    def decisions(rows: int, seed: int) -> np.ndarray:
        envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, scenario=world)
        policy = ata_policies.make(LEARNER, envs, seed=seed)
        observation, state, actions = envs.reset(seed=seed)[0], None, []
        for _ in range(40):
            action, state = policy.predict(observation, state)
            observation = envs.step(action)[0]
            actions.append(action)
        return np.stack(actions, axis=1)

    batch = decisions(3, 0)
    for row in range(3):
        np.testing.assert_array_equal(batch[row], decisions(1, row)[0])
