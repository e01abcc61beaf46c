"""Races and dispatch where the distributions of each round are known."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Outliers, Periodic, Redraw, Spot, Switch
from ata_gym.pools import PoolDistribution, exponential, trace
from ata_gym.scenarios import Scenario
from ata_policies.policy import DispatchPolicy
from ata_policies.steps import decide
from ata_policies.steps import play as play_on_env

MEANS = np.arange(1.0, 9.0)
BUDGET = 6
RACE, DISPATCH = "race-dynamic-oracle", "dispatch-dynamic-oracle"


class Played(NamedTuple):
    """Arrays by step, of E rows."""

    actions: Any
    means: Any
    cost: Any
    """Of all rounds, (E,)."""


def play(name: str, rounds: int, price: float = 0.1, pool: Any = None, **options: Any) -> Played:
    options = {"pool": exponential(MEANS) if pool is None else pool, "budget": BUDGET, "price": price, **options}
    env: Any = gym.make_vec(ata_policies.load(name).env_id, num_envs=3, **options)
    policy = ata_policies.make(name, env)
    (observation, _), actions, means = env.reset(seed=0), [], []
    state: Any = None
    for _ in range(rounds * (BUDGET if isinstance(policy, DispatchPolicy) else 1)):
        action, state = decide(policy, env, observation, state)
        means.append(np.broadcast_to(env.unwrapped.means(), action.shape))
        actions.append(action)
        observation, _, _, _, info = env.step(action)
    return Played(np.array(actions), np.array(means), info["runtime"] + price * info["total_worker_time"])


@pytest.mark.parametrize("price", [0.0, 0.3])
@pytest.mark.parametrize(("dynamic", "plain"), [(RACE, "race-oracle"), (DISPATCH, "dispatch-oracle")])
def test_where_nothing_changes_it_costs_what_the_plain_oracle_costs(dynamic: str, plain: str, price: float) -> None:
    ours, fixed = (play(name, 100, price) for name in (dynamic, plain))
    if dynamic == DISPATCH:
        np.testing.assert_array_equal(ours.actions, fixed.actions)
    assert (ours.cost < 1.03 * fixed.cost).all()


@pytest.mark.parametrize(("dynamic", "plain"), [(RACE, "race-oracle"), (DISPATCH, "dispatch-oracle")])
def test_it_follows_workers_that_trade_their_distributions(dynamic: str, plain: str) -> None:
    changes = [Switch(every=20)]
    ours, fixed, still = (
        play(*one, changes=new)
        for one, new in (((dynamic, 200), changes), ((plain, 200), changes), ((dynamic, 200), []))
    )
    assert (ours.cost < 0.9 * fixed.cost).all()
    assert ours.cost == pytest.approx(still.cost, rel=0.15)


def test_the_race_is_the_same_whoever_has_the_distributions() -> None:
    run = play(RACE, 60, changes=[Switch(every=5)])
    races = np.take_along_axis(run.actions, np.argsort(run.means, axis=-1), axis=-1)
    assert len(np.unique(races.reshape(-1, 8), axis=0)) == 1
    assert len(np.unique(run.actions.reshape(-1, 8), axis=0)) > 5


@pytest.mark.parametrize("name", [RACE, DISPATCH])
@pytest.mark.parametrize("price", [0.0, 1.0])
def test_who_is_away_starts_nothing(name: str, price: float) -> None:
    changes = [Spot(0.2, 0.4, deadline=5.0), Periodic(9, 0.5), Outliers(0.01, 5, 9)]
    run = play(name, 60, price, changes=changes)
    gone = np.isinf(run.means)
    assert gone.any()
    assert not run.actions[gone].any()
    if name == RACE:
        assert (run.actions.sum(axis=-1) >= BUDGET).all()


@pytest.mark.parametrize("name", [RACE, DISPATCH])
def test_it_knows_the_times_of_a_round_that_is_replayed(name: str) -> None:
    fast, slow = [1.0, 1.0, 50.0, 50.0], [50.0, 50.0, 1.0, 1.0]
    run = play(name, 40, 1.0, trace([fast, slow, [80.0]], replay="round"))
    assert not run.actions[run.means >= 50.0].any()


DRAWN = PoolDistribution(5, families=("gamma", "log-normal"), heterogeneity=(2.0, 9.0), cv=(0.2, 1.0))
PADDED = PoolDistribution(16, fewest=3, families="gamma")  # with as many distributions as places
ORACLES = {"dynamic-ofta": "ofta", "dynamic-oracle": "oracle", RACE: "race-oracle", DISPATCH: "dispatch-oracle"}


def costs(name: str, env: Any, seed: int, rounds: int = 20) -> Any:
    """What each row costs, and the last state."""
    policy = ata_policies.make(name, env)
    steps = rounds * (env.unwrapped.budget if isinstance(policy, DispatchPolicy) else 1)
    *_, last = islice(play_on_env(policy, env, seed), steps)
    return last.info["runtime"] + env.unwrapped.price * last.info["total_worker_time"], last.state


def drawn(name: str, rows: int, pools: PoolDistribution = DRAWN, price: float = 0.1, **options: Any) -> Any:
    changes = [Redraw(pools, **options)]
    one = {"pool": pools, "budget": BUDGET, "price": price, "changes": changes}
    return gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, **one)


@pytest.mark.parametrize("price", [0.0, 0.3])
@pytest.mark.parametrize(("dynamic", "plain"), ORACLES.items())
def test_where_workers_are_drawn_it_is_the_oracle_of_each_draw(dynamic: str, plain: str, price: float) -> None:
    env = drawn(dynamic, 3, price=price)
    ours, _ = costs(dynamic, env, seed=4)
    for e in range(3):
        env.reset(seed=4)
        pool = env.unwrapped.conditions().row(e).pool(env.unwrapped.scenario.catalogue)
        alone = Scenario(pool, BUDGET, price=price)
        fixed, _ = costs(plain, gym.make_vec(ata_policies.load(plain).env_id, num_envs=1, scenario=alone), seed=4 + e)
        assert ours[e] == pytest.approx(fixed[0], rel=0.08 if dynamic == RACE else 1e-9)


def test_the_shadow_price_is_chosen_for_each_draw_and_kept_in_between() -> None:
    kept = drawn(DISPATCH, 4, among=((Switch(every=3),),))
    state = costs(DISPATCH, kept, seed=0, rounds=1)[1]
    later = costs(DISPATCH, kept, seed=0, rounds=8)[1]
    np.testing.assert_array_equal(state.plan.shadow, later.plan.shadow)
    assert len(np.unique(state.plan.shadow)) == 4
    anew = drawn(DISPATCH, 4, every=3)
    shadows = [costs(DISPATCH, anew, seed=0, rounds=rounds)[1].plan.shadow for rounds in (3, 4)]
    assert (shadows[0] != shadows[1]).all()


@pytest.mark.parametrize("given", [None, {"means": [1.0, 2.0]}, np.ones(2), "conditions", (1, 2)])
def test_privileged_information_of_another_type_is_refused(given: Any) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=exponential([1.0, 2.0]), budget=3)
    policy = ata_policies.make("dynamic-ofta", env)
    observation, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=r"DynamicOfta is an oracle, and privileged is .*: call predict\(\.\.\., priv"):
        policy.predict(observation, privileged=given)


@pytest.mark.parametrize("name", ORACLES)
def test_empty_places_get_nothing(name: str) -> None:
    env = drawn(name, 4, PADDED)
    for step in islice(play_on_env(ata_policies.make(name, env), env, seed=1), 10):
        assert not step.action[step.seen["present"] == 0].any()
        assert step.action.any(axis=1).all() or name == DISPATCH
    assert not step.observation["present"].all()


@pytest.mark.parametrize("plain", ORACLES.values())
def test_oracles_of_one_pool_say_that_workers_are_drawn_anew(plain: str) -> None:
    for pools in (DRAWN, PADDED):
        with pytest.raises(ValueError, match=r"the workers, and here they are drawn anew: use a dynamic oracle"):
            ata_policies.make(plain, drawn(plain, 1, pools))
