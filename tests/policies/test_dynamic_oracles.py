"""Races and dispatch where the distributions of each round are known."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.bench.experiment.experiment import predict
from ata_gym.changes import Outliers, Periodic, Spot, Switch
from ata_gym.pools import exponential, trace
from ata_policies.policy import DispatchPolicy

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
        action, state = predict(policy, env, observation, state)
        means.append(np.broadcast_to(env.unwrapped.means(), action.shape))
        actions.append(action)
        observation, _, _, _, info = env.step(action)
    return Played(np.array(actions), np.array(means), info["runtime"] + price * info["total_worker_time"])


@pytest.mark.parametrize("price", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(("dynamic", "plain"), [(RACE, "race-oracle"), (DISPATCH, "dispatch-oracle")])
def test_where_nothing_changes_it_costs_what_the_plain_oracle_costs(dynamic: str, plain: str, price: float) -> None:
    ours, fixed = (play(name, 300, price) for name in (dynamic, plain))
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
