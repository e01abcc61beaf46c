"""The same interface alone, as a row and in Gymnasium's own vector env; rewards in a unit;
checkpoints and resets.
"""

from dataclasses import replace
from itertools import cycle, product
from math import ceil
from statistics import harmonic_mean
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Redraw, Walk
from ata_gym.envs.interface.interface import OBSERVATIONS, REWARD_UNITS, select_rows
from ata_gym.pools import PoolDistribution, exponential
from ata_gym.scenarios import Published, Scenario, scenario
from tests.envs.playing import (
    ALLOCATION,
    DISPATCH,
    FORMS,
    IDS,
    RACE,
    SCENARIOS,
    ActionSampler,
    same,
    single,
    vector,
)

ROWS = 3
SEED = 5


@pytest.mark.parametrize(
    ("env_id", "action", "scenario_name"),
    [(*form, scenario_name) for form, scenario_name in zip(FORMS, cycle(SCENARIOS), strict=False)],
)
def test_rewards_in_the_unit_follow_from_the_workers_at_the_start(
    env_id: str,
    action: str,
    scenario_name: str,
) -> None:
    """The unit is the cost of an even round of workers of the harmonic mean, and stays for the
    episode.
    """
    env = single(env_id, scenario_name, action=action, reward_unit="even round")
    plain = single(env_id, scenario_name, action=action)
    scenario = SCENARIOS[scenario_name]
    sampler = ActionSampler(env.action_space, 3)
    budget = scenario.budget
    for seed in (SEED, None, None):
        (observation, _), _ = (each.reset(seed=seed) for each in (env, plain))
        present = observation.get("present", np.ones(scenario.pool.n)) > 0
        working = present & np.isfinite(plain.means())
        means = plain.means()[working]
        latency = plain.conditions().mean_latency(scenario.catalogue)[working].mean()
        if scenario_name == "drawn":
            price = plain.conditions().price
        else:
            price = scenario.price
        unit = harmonic_mean(means) * (ceil(budget / len(means)) + price * budget)
        unit += latency * (1 + price * min(len(means), budget))
        over = False
        while not over:
            act = sampler(
                env.action_masks().astype(np.int8) if action in ("assign", "start") else None,
            )
            _, reward, _, over, _ = env.step(act)
            assert reward * unit == pytest.approx(plain.step(act)[1])


def test_an_even_round_pays_the_mean_of_the_mean_latencies() -> None:
    """Each of the three workers pays it once, and its worker time counts."""
    pool = exponential([1.0, 2.0, 4.0]).with_latency(exponential([3.0, 6.0, 9.0]))
    options = {"pool": pool, "budget": 5, "price": 0.5}
    env = gym.make(IDS[0], **options, reward_unit="even round")
    plain = gym.make(IDS[0], **options)
    unit = harmonic_mean([1.0, 2.0, 4.0]) * (2 + 0.5 * 5) + 6.0 * (1 + 0.5 * 3)
    for each in (env, plain):
        each.reset(seed=1)
    action = np.array([2, 2, 1])
    assert float(env.step(action)[1]) * unit == pytest.approx(plain.step(action)[1])


@pytest.mark.parametrize("env_id", IDS)
def test_an_env_is_made_for_what_a_reset_asks(env_id: str) -> None:
    before = Scenario(exponential([1.0, 2.0, 3.0]), 3, 4)
    reset_options: dict[str, Any] = {
        "pool": exponential([5.0, 4.0, 1.0]),
        "changes": [Walk(0.2, 1.0)],
        "price": 2.5,
        "horizon": 2,
    }
    for form, unit in product(OBSERVATIONS, REWARD_UNITS):
        options = {"observation": form, "reward_unit": unit}
        env = single(env_id, before, **options)
        rows = vector(env_id, before, 2, **options)
        env.reset(seed=1)
        env.step(env.action_space.sample())
        new_env = single(
            env_id,
            Scenario(reset_options["pool"], 3, 2, (Walk(0.2, 1.0),), price=2.5),
            **options,
        )
        sampler = ActionSampler(new_env.action_space, 2)
        expected = new_env.reset(seed=SEED)[0]
        observation = env.reset(seed=SEED, options=reset_options)[0]
        in_rows = rows.reset(seed=SEED, options=reset_options)[0]
        over = False
        while not over:
            assert same(expected, observation)
            assert same(expected, select_rows(in_rows, 0))
            act = sampler()
            expected, reward, _, over, _ = new_env.step(act)
            observation, other, _, ended, _ = env.step(act)
            in_rows, in_row, *_ = rows.step(np.stack([act, act]))
            assert (reward, over) == (other, ended)
            assert reward == in_row[0]
        assert (env.scenario.price, env.scenario.horizon, env.scenario.name) == (2.5, 2, "")


def test_options_stay_and_take_what_belongs_to_other_workers_along() -> None:
    drawn = Redraw(PoolDistribution(20)), Walk(0.1, 1.0)
    env = single(ALLOCATION, replace(scenario("icml2025-regret"), changes=drawn, horizon=1))
    env.reset(seed=1)
    env.step(env.action_space.sample())
    env.reset(options={"price": 3.0})
    assert env.checkpoint()["episode"].tolist() == [1]
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward == -(info["round_time"] + 3.0 * info["worker_time"])
    env.reset()
    assert (env.price, env.scenario.changes, env.scenario.published.preprint) == (
        3.0,
        drawn,
        (40.0, 1.0),
    )
    env.reset(options={"pool": exponential(np.ones(20))})
    assert (env.scenario.changes, env.scenario.published) == (drawn[1:], Published())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"colour": 1, "price": 1.0},
            "reset takes the options pool, changes, price, horizon, not colour",
        ),
        ({"pool": exponential([1.0] * 4)}, "must have 5 workers"),
        ({"price": -1.0}, "price must be"),
        ({"horizon": 0}, "horizon must be"),
        ({"changes": [{"change": "nothing"}]}, "a change is a mapping"),
        ({"changes": ()}, "the observations would have other keys"),
        ({"price": 3.0}, None),
    ],
)
def test_options_that_do_not_fit_and_a_bad_seed_change_nothing(
    options: dict[str, Any],
    sentence: str | None,
) -> None:
    for env in (single(DISPATCH, "drawn"), vector(DISPATCH, "drawn", 2)):
        (before, _), kept = env.reset(seed=SEED), env.checkpoint()
        with pytest.raises(ValueError if sentence else gym.error.Error, match=sentence):
            env.reset(seed=SEED + 1 if sentence else -1, options=options)
        assert env.scenario is SCENARIOS["drawn"]
        assert same(env.checkpoint(), kept)
        assert same(env.reset(seed=SEED)[0], before)


@pytest.mark.parametrize("env_id", IDS)
def test_policies_play_the_env_as_it_is_by_default_only(env_id: str) -> None:
    policy = {ALLOCATION: "uta", RACE: "gta", DISPATCH: "dispatch-gta"}[env_id]
    _, *actions = [action for form_id, action in FORMS if form_id == env_id]
    wrong_names = {
        "observation": OBSERVATIONS[1:],
        "reward_unit": REWARD_UNITS[1:],
        "action": actions,
    }
    for make, rows in ((single, {}), (vector, {"rows": 2})):
        for name, values in wrong_names.items():
            for value in values:
                with pytest.raises(
                    ValueError,
                    match="policies play the actions and observations that",
                ):
                    ata_policies.make(policy, make(env_id, "ending", **rows, **{name: value}))
        assert ata_policies.make(policy, make(env_id, "ending", **rows))


def test_policies_refuse_wrapped_actions() -> None:
    env = gym.make(ALLOCATION, scenario=SCENARIOS["ending"])
    with pytest.raises(ValueError, match="without wrappers of actions"):
        ata_policies.make(
            "uta",
            gym.wrappers.TransformAction(env, lambda action: action, gym.spaces.Box(-1, 1, (7,))),
        )
