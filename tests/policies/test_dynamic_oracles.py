"""Oracles where the distributions of each round are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Outliers, Periodic, Redraw, Spot, Switch
from ata_gym.pools import PoolDistribution, exponential, trace
from ata_gym.scenarios import Scenario
from tests.policies.conftest import Run

BUDGET = 6
RACE, DISPATCH = "race-dynamic-oracle", "dispatch-dynamic-oracle"
ORACLES = {"dynamic-ofta": "ofta", "dynamic-oracle": "oracle", RACE: "race-oracle", DISPATCH: "dispatch-oracle"}
DRAWN = PoolDistribution(5, families=("gamma", "log-normal"), heterogeneity=(2.0, 9.0), cv=(0.2, 1.0))
PADDED = PoolDistribution(16, fewest=3, families="gamma")  # with as many distributions as places


def world(name: str, rows: int = 3, **options: Any) -> Any:
    options = {"pool": exponential(np.arange(1.0, 9.0)), "budget": BUDGET, "price": 0.1, **options}
    return gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, **options)


def drawn(name: str, rows: int, pools: PoolDistribution = DRAWN, price: float = 0.1, **options: Any) -> Any:
    return world(name, rows, pool=pools, price=price, changes=[Redraw(pools, **options)])


@pytest.fixture
def run(play: Any) -> Callable[..., Run]:
    """Let the oracle of a name play some rounds of an env, or of one with these options."""

    def played(name: str, rounds: int, env: Any = None, seed: int = 0, **options: Any) -> Run:
        steps = rounds * (BUDGET if "dispatch" in name else 1)
        result: Run = play(name, steps, seed=seed, env=env or world(name, **options))
        return result

    return played


@pytest.mark.parametrize("dynamic", [RACE, DISPATCH])
def test_it_follows_workers_that_trade_their_distributions(dynamic: str, run: Any) -> None:
    (ours, fixed), (still, plain) = (
        [run(name, 120, changes=changes).costs.sum(axis=0) for name in (dynamic, ORACLES[dynamic])]
        for changes in ([Switch(every=20)], [])
    )
    assert (ours < 0.9 * fixed).all()
    assert ours == pytest.approx(still, rel=0.15)
    assert (still < 1.03 * plain).all()


def test_the_race_is_the_same_whoever_has_the_distributions(run: Any) -> None:
    found = run(RACE, 60, changes=[Switch(every=5)])
    races = np.take_along_axis(found.actions, np.argsort(found.means, axis=-1), axis=-1)
    assert len(np.unique(races.reshape(-1, 8), axis=0)) == 1
    assert len(np.unique(found.actions.reshape(-1, 8), axis=0)) > 5


@pytest.mark.parametrize(("name", "price"), [(RACE, 0.0), (RACE, 1.0), (DISPATCH, 0.0), (DISPATCH, 1.0)])
def test_who_is_away_starts_nothing(name: str, price: float, run: Any) -> None:
    changes = [Spot(0.2, 0.4, deadline=5.0), Periodic(9, 0.5), Outliers(0.01, 5, 9)]
    found = run(name, 30, price=price, changes=changes)
    gone = np.isinf(found.means)
    assert gone.any()
    assert not found.actions[gone].any()
    if name == RACE:
        assert (found.actions.sum(axis=-1) >= BUDGET).all()


@pytest.mark.parametrize("name", [RACE, DISPATCH])
def test_it_knows_the_times_of_a_round_that_is_replayed(name: str, run: Any) -> None:
    fast, slow = [1.0, 1.0, 50.0, 50.0], [50.0, 50.0, 1.0, 1.0]
    found = run(name, 40, price=1.0, pool=trace([fast, slow, [80.0]], replay="round"))
    assert not found.actions[found.means >= 50.0].any()


@pytest.mark.parametrize(("dynamic", "price"), [(name, price) for name in ORACLES for price in (0.0, 0.3)])
def test_where_workers_are_drawn_it_is_the_oracle_of_each_draw(dynamic: str, price: float, run: Any) -> None:
    env, plain = drawn(dynamic, 3, price=price), ORACLES[dynamic]
    ours = run(dynamic, 15, env, seed=4).costs.sum(axis=0)
    for e in range(3):
        env.reset(seed=4)
        pool = env.unwrapped.conditions().row(e).pool(env.unwrapped.scenario.catalogue)
        alone = gym.make_vec(ata_policies.load(plain).env_id, num_envs=1, scenario=Scenario(pool, BUDGET, price=price))
        fixed = run(plain, 15, alone, seed=4 + e).costs.sum()
        assert ours[e] == pytest.approx(fixed, rel=0.08 if dynamic == RACE else 1e-9)


def test_the_shadow_price_is_chosen_for_each_draw_and_kept_in_between(run: Any) -> None:
    kept = run(DISPATCH, 8, drawn(DISPATCH, 4, among=((Switch(every=3),),))).states
    np.testing.assert_array_equal(kept[BUDGET].plan.shadow, kept[-1].plan.shadow)
    assert len(np.unique(kept[0].plan.shadow)) == 4
    anew = run(DISPATCH, 4, drawn(DISPATCH, 4, every=3)).states
    assert (anew[3 * BUDGET - 1].plan.shadow != anew[-1].plan.shadow).all()


@pytest.mark.parametrize("given", [None, {"means": [1.0, 2.0]}, np.ones(2), "conditions", (1, 2)])
def test_privileged_information_of_another_type_is_refused(given: Any) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=exponential([1.0, 2.0]), budget=3)
    policy = ata_policies.make("dynamic-ofta", env)
    observation, _ = env.reset(seed=0)
    with pytest.raises(ValueError, match=r"DynamicOfta is an oracle, and privileged is .*: call predict\(\.\.\., priv"):
        policy.predict(observation, privileged=given)


@pytest.mark.parametrize(("name", "plain"), ORACLES.items())
def test_empty_places_get_nothing_and_an_oracle_of_one_pool_says_so(name: str, plain: str, run: Any) -> None:
    found = run(name, 2 if name == DISPATCH else 10, drawn(name, 4, PADDED), seed=1)
    present = np.array([seen["present"] for seen in found.seen])
    assert not present.all()
    assert not found.actions[present == 0].any()
    assert found.actions.any(axis=-1).all() or name == DISPATCH
    for pools in (DRAWN, PADDED):
        with pytest.raises(ValueError, match=r"the workers, and here they are drawn anew: use a dynamic oracle"):
            ata_policies.make(plain, drawn(plain, 1, pools))
