"""The policies of TaskDispatch: their rules, what they learn, and the races that they contain."""

from __future__ import annotations

from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import Pool, deterministic, gamma, log_normal, pareto, shifted_exponential
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.censoring import censored_distributions
from ata_policies.beliefs.moments import Exposure
from ata_policies.dispatch.learner import RoundByRound
from ata_policies.dispatch.margin import by_margin
from ata_policies.dispatch.remaining_time import DispatchRest
from ata_policies.planning.race_search import best_race
from ata_policies.steps import play as steps_of
from tests.policies.conftest import Run

DISPATCH, RACE = "ata_gym/TaskDispatch-v0", "ata_gym/TaskRace-v0"
LEARNER, REST = "ata_policies.dispatch.learner:DispatchLearner", "ata_policies.dispatch.remaining_time:DispatchRest"
GTA, CAPS, ORACLE = (f"ata_policies.dispatch.oracles:Dispatch{name}" for name in ("Gta", "Caps", "Oracle"))
POOL = shifted_exponential(np.arange(1.0, 9), np.arange(1.0, 9))
WORLD: dict[str, Any] = {"pool": POOL, "budget": 10}


class KnownMeans(DispatchRest):
    """The rule of ``DispatchRest`` with the true means."""

    def first_belief(self, rows: int) -> Exposure:
        mean = self.setting.known_pool("the test").mean()
        return Exposure(np.full((rows, len(mean)), 1e9), np.tile(1e9 * mean, (rows, 1)))


def cost(run: Run, price: float) -> float:
    """Per round in the second half."""
    half = len(run.round_times) // 2
    return float((run.round_times + price * run.worker_times)[half:].mean())


@pytest.mark.parametrize(("name", "price"), [(GTA, 0.0), (CAPS, 0.0), (CAPS, 0.1), (CAPS, 1.0)])
def test_fixed_numbers_of_tasks_give_the_rounds_of_a_race(play: Any, name: str, price: float) -> None:
    allocation = np.full(8, 10) if name == GTA else best_race(POOL, 10, price).allocation
    run, env = play(name, 20, 2, price=price, **WORLD), gym.make_vec(RACE, num_envs=2, **WORLD)
    env.reset(seed=0)
    for times in zip(run.round_times, run.worker_times, strict=True):
        info = env.step(np.tile(allocation, (2, 1)))[-1]
        np.testing.assert_array_equal(times, [info["round_time"], info["worker_time"]])


@pytest.mark.parametrize("name", [LEARNER, REST])
@pytest.mark.parametrize("price", [0.0, 1.0])
def test_everybody_is_tried_at_once_and_nobody_waited_for(play: Any, name: str, price: float) -> None:
    first, everybody = play(name, 1, price=price, **WORLD), play(GTA, 1, **WORLD)
    assert first.actions[0].all()
    np.testing.assert_array_equal(first.round_times, everybody.round_times)


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
    """On paired times; without a price the worker time, too, comes well below everybody's where it can."""
    players = LEARNER, ORACLE, GTA
    learned, oracle, gta = (cost(play(name, 120, 5, pool=pool, budget=10, price=price), price) for name in players)
    assert learned < 1.05 * oracle
    assert learned < 1.02 * gta


def test_the_rest_rule_learns_the_means(play: Any) -> None:
    both = DispatchRest, KnownMeans
    learned, known = (play(kind, 200, 2, hyperparameters={"m": 5, "kappa": 0.7}, **WORLD) for kind in both)
    assert cost(learned, 0.1) < 1.05 * cost(known, 0.1)


def test_the_dearer_worker_time_the_less_is_spent_and_the_oracle_is_as_good_as_the_best_race(play: Any) -> None:
    runs = [play(ORACLE, 120, 6, price=price, **WORLD) for price in (0.0, 0.1, 0.5)]
    spent, took = [run.worker_times[60:].mean() for run in runs], [run.round_times[60:].mean() for run in runs]
    assert spent == sorted(spent, reverse=True)
    assert took == sorted(took)
    assert cost(runs[1], 0.1) < 1.005 * cost(play(CAPS, 120, 6, price=0.1, **WORLD), 0.1)


def test_an_oracle_ends_rounds_where_means_are_infinite(play: Any) -> None:
    run = play(ORACLE, 20, 2, pool=pareto(0.9, [1.0, 2.0, 30.0]), budget=10, price=0.2)
    assert np.isfinite(run.round_times).all()


def test_slow_workers_are_needed_together(play: Any) -> None:
    """Each of 95 slow workers hardly matters, all of them make rounds shorter by a fifth: at price 0 they work."""
    world = {"pool": gamma(4.0, np.repeat([0.25, 5.0], [5, 95])), "budget": 50, "rows": 3}
    everybody, oracle, learner = (play(name, 6, **world).round_times.mean() for name in (GTA, ORACLE, LEARNER))
    assert oracle < 1.01 * everybody
    assert learner < 1.03 * everybody


def test_without_a_price_half_of_the_shadow_price_counts_after_15_results_per_worker() -> None:
    env = gym.make_vec(DISPATCH, num_envs=1, pool=deterministic(np.ones(4)), budget=6)
    policy = ata_policies.make(LEARNER, env)
    *_, last = islice(steps_of(policy, env), 61)  # ten rounds of six results of four workers, and one result
    seen, plan, decided = last.observation, last.state.plan, []
    for shadow in np.linspace(0.3, 0.5, 5):
        search = plan.search._replace(level=np.log2([2.0 * shadow]), moves=np.array([1e6]))  # it moves no more
        action, _ = policy.predict(seen, last.state._replace(plan=plan._replace(search=search)))
        at = seen["missing"][:, 0], seen["running"], seen["age"]
        np.testing.assert_array_equal(action, by_margin(plan.workers, np.array([shadow]), *at, plan.factor))
        decided.append(action.sum())
    assert decided[0] > decided[-1]


def test_who_is_away_is_noticed() -> None:
    """A worker that was asked to work in this round, and is thought to be absent, is dead; and some are."""
    env = gym.make_vec(DISPATCH, num_envs=3, pool=POOL, budget=10, price=0.1, changes=(Spot(0.1, 0.2),))
    asked, dead, noticed = np.zeros((3, 8)), np.zeros((3, 8), np.bool_), 0
    for step in islice(steps_of(ata_policies.make(LEARNER, env), env), 300):  # the round is that of the last step
        inside = (step.seen["missing"] < 10) & (asked == 1)
        thought = inside & (step.state.plan.absent == 1)
        np.testing.assert_array_equal(thought, inside & dead)
        asked, dead = step.action, env.unwrapped.conditions().dies == 0.0
        noticed += thought.sum()
    assert noticed > 0


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
