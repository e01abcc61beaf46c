"""The named scenarios: as they were published, built, played, and changed when they say so; and
sums that overflow.
"""

import json
import pickle
from itertools import cycle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ata_gym import Scenario, scenario, scenario_names
from ata_gym.changes import Change, Crash, Jump, Load, OnOff, Outliers, Periodic, Spot, Walk
from ata_gym.pools import exponential, pareto
from ata_gym.scenarios import SPLITS
from ata_gym.scenarios.recorded import fingerprint_of
from tests.envs.playing import ALLOCATION, DISPATCH, IDS

CHANGING = [name for name in scenario_names() if name.startswith("changing")]
STRAGGLERS = [name for name in scenario_names() if name.startswith("stragglers")]
FOLLOWING = [name for name in scenario_names() if name.startswith("load")]


@pytest.mark.parametrize("name", scenario_names())
def test_each_is_plain_data_and_says_where_it_is_from(name: str) -> None:
    result = scenario(name)
    assert result.name == name
    assert result.source.startswith("Maranjyan" if name.startswith("icml") else "ours")
    assert not name.startswith("changing") or result.changes
    data = json.loads(json.dumps(result.to_data()))
    again = Scenario(**data)
    assert (again.pool, again.changes, again.published) == (
        result.pool,
        result.changes,
        result.published,
    )
    assert json.loads(json.dumps(again.to_data())) == data
    assert pickle.loads(pickle.dumps(result)) == result


def test_no_number_of_a_named_scenario_has_changed() -> None:
    """After a change here, old results belong to another scenario: give it another name."""
    fingerprint = fingerprint_of({name: scenario(name).to_data() for name in scenario_names()})
    assert fingerprint == "adc26f8cc7c153b2bc48d235725ea72f594d895eb81a0fd11fc924e28e1a1185"


def test_scenarios_match_their_publication() -> None:
    names = [name for name in scenario_names() if name.startswith("icml2025")]
    assert len(names) == 21
    linear = scenario("icml2025-cifar100")
    np.testing.assert_allclose(linear.pool.mean(), 58 * np.arange(1, 52))
    np.testing.assert_allclose(linear.pool.sd(), 29 * np.arange(1, 52))
    for name in names:
        published = scenario(name)
        means = published.pool.mean()
        (alpha, eta), by_icml = published.published
        assert by_icml == (None, None)
        if name == "icml2025-regret":
            assert (alpha, eta) == (means.max(), 1.0) == (40, 1)
        else:
            np.testing.assert_allclose(alpha, 2 * means.max())
            assert (published.budget, eta) == (23, 2.0)
    mixed = scenario("icml2025-mixed-n15").pool
    assert mixed.families[:5] == ("exponential", "uniform", "half-normal", "log-normal", "gamma")
    np.testing.assert_allclose(mixed.mean(), np.repeat(58.0 * np.array([1, 6, 11]), 5))
    np.testing.assert_allclose(mixed.sd()[3:5], [29 * np.sqrt(28), 1.0])
    with pytest.raises(ValueError, match="there is no scenario"):
        scenario("nothing")


def test_a_scenario_may_be_shortened() -> None:
    env: Any = gym.make(ALLOCATION, scenario="icml2025-regret", horizon=2, budget=3).unwrapped
    assert (env.horizon, env.budget, env.n) == (2, 3, 20)
    plain: Any = gym.make(ALLOCATION, pool=exponential([1.0]), budget=1).unwrapped
    assert plain.horizon is None


@pytest.mark.parametrize(
    ("name", "env_id"),
    [
        *zip((*CHANGING, *STRAGGLERS), cycle(IDS), strict=False),
        *(
            (name, env_id)
            for name in FOLLOWING
            for env_id in IDS
            if env_id == ALLOCATION or not scenario(name).needs_allocation
        ),
    ],
)
def test_each_can_be_played(name: str, env_id: str) -> None:
    env: Any = gym.make(env_id, scenario=name, signals=True).unwrapped
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(9):
        assert observation in env.observation_space
        observation, reward, *over, info = env.step(env.action_space.sample())
        assert [type(part) for part in (reward, *over)] == [float, bool, bool]
        assert reward < 0
        assert ("lost" in info) == (name in ("changing-spot", "changing-crash", "load-leak"))
    loaded = any(isinstance(change, Load) for change in env.scenario.changes)
    assert observation["signal"].any() == loaded


def test_splits_do_not_overlap() -> None:
    train, validation, test = SPLITS.values()
    assert train[-1] < validation[0] <= validation[-1] < test[0]


def test_times_that_can_overflow_are_refused() -> None:
    pool = {"family": "exponential", "scale": [1.0, 2.0]}
    huge: list[tuple[list[Change], str]] = [
        ([Load(0.3, 0.3, 1e4, 0.5)], "Load"),
        ([Outliers(0.5, 1e308, 1.7e308)], "Outliers"),
        ([Jump(1, (0,), 1e20), Jump(2, (0,), 1e20)], r"Jump\(at=2"),
        ([Walk(1.0, 100.0)] * 7, "Walk"),
        ([Periodic(5, 0.9)] * 1100, "Periodic"),
        ([OnOff(1e299, 0.1, 0.1)], "OnOff"),
        ([Crash(0.1, within=1e308, away=1)], "Crash"),
        ([Spot(0.1, 0.1, deadline=1e308)], "Spot"),
    ]
    for changes, name in huge:
        with pytest.raises(
            ValueError,
            match=rf"with {name}.* times of up to .* use smaller factors",
        ):
            Scenario(pool, budget=3, changes=changes)
    for arguments in (
        {"price": 1e308},
        {"pool": {"family": "pareto", "shape": 0.05}},
        {"pool": exponential([1e299])},
    ):
        with pytest.raises(
            ValueError,
            match=r"with the pool, times of up to .* smaller price, or a larger unit",
        ):
            Scenario(**{"pool": pool, "budget": 3} | arguments)
    Scenario(exponential([1e20]), budget=3, changes=[Jump(1, (0,), 1e-300), OnOff(1e12, 0.1, 0.1)])


@pytest.mark.parametrize("env_id", IDS)
def test_the_largest_times_have_finite_rewards(env_id: str) -> None:
    changes = [Load(0.9, 0.09, 1.0, 0.5, swap=0.0), Outliers(0.5, 1e2, 1e3)]
    envs = gym.make_vec(
        env_id,
        num_envs=50,
        pool=pareto([0.8, 0.6], 1.0),
        budget=3,
        changes=changes,
    )
    envs.reset(seed=0)
    for _ in range(6):
        observation, reward, *_ = envs.step(np.tile([1, 1 if env_id == DISPATCH else 2], (50, 1)))
        assert np.isfinite(reward.astype(np.float32)).all()
        assert np.isfinite(observation["duration"].astype(np.float32)).all()
