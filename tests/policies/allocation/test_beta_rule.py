"""The beta rule on Thompson's draws."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_gym.theory.allocation.beta_rule import allocate_by_cost

POOL = shifted_exponential(np.arange(1.0, 13), np.arange(1.0, 13))


def test_settles_on_the_beta_rule_of_the_true_distributions() -> None:
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=2, pool=POOL, budget=15)
    policy = ata_policies.make("thompson-beta", env)
    observation, _ = env.reset(seed=0)
    state, total = None, np.zeros(12)
    for k in range(3000):
        action, state = policy.predict(observation, state)
        observation = env.step(action)[0]
        total += action.mean(axis=0) * (k >= 2500)
    np.testing.assert_allclose(total / 500, allocate_by_cost(POOL.mean(), 1.5 * POOL.sd(), 15), atol=0.5)


def test_beta_zero_is_thompson_sampling_on_the_proxy() -> None:
    """The same draws, and the same allocation by them."""
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=3, pool=POOL, budget=15)
    ours, proxy = (
        ata_policies.make(name, env, weight=3.0, **more)
        for name, more in (("thompson-beta", {"beta": 0.0}), ("thompson-gamma", {}))
    )
    observation, _ = env.reset(seed=1)
    state = None
    for k in range(40):
        other, _ = proxy.predict(observation, state)
        action, state = ours.predict(observation, state)
        if k > 2:
            np.testing.assert_array_equal(action, other)
        observation = env.step(action)[0]


def test_hyperparameters_are_checked() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=15)
    for bad in ({"beta": -1.0}, {"beta": np.inf}, {"weight": 0.0}):
        with pytest.raises(ValueError, match="must be a finite number"):
            ata_policies.make("thompson-beta", env, **bad)
    assert ata_policies.load("thompson-beta").knows == "nothing"
