"""UTA, OFTA and the beta rule: even, optimal for the proxy loss, and what the true distributions say."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym import proxy_optimal
from ata_gym.pools import exponential, shifted_exponential
from ata_gym.theory.allocation.beta_rule import allocate_by_cost


@settings(max_examples=10)
@given(n=st.integers(1, 12), budget=st.integers(1, 30))
def test_uta_is_even_and_ofta_optimal(n: int, budget: int) -> None:
    pool = exponential(np.arange(1.0, n + 1))
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=pool, budget=budget)
    observation, _ = env.reset(seed=0)
    uta, _ = ata_policies.make("uta", env).predict(observation)
    assert (uta.sum(axis=1) == budget).all()
    assert uta.max() - uta.min() <= 1
    ofta, _ = ata_policies.make("ofta", env).predict(observation)
    np.testing.assert_array_equal(ofta, np.tile(proxy_optimal(pool, budget), (4, 1)))


def test_uta_draws_afresh_in_each_episode() -> None:
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=2, pool=exponential(np.ones(5)), budget=7, horizon=3)
    policy, state, starts = ata_policies.make("uta", env), None, []
    for _ in range(5):
        action, state = policy.predict(env.reset()[0], state)
        starts.append(action.tolist())
    assert len({str(start) for start in starts}) > 1


def test_the_beta_rule_settles_on_that_of_the_true_distributions(play: Any) -> None:
    pool = shifted_exponential(np.arange(1.0, 13), np.arange(1.0, 13))
    usual = play("thompson-beta", 2000, 2, pool=pool, budget=15).actions[1500:].mean(axis=(0, 1))
    np.testing.assert_allclose(usual, allocate_by_cost(pool.mean(), 1.5 * pool.sd(), 15), atol=0.5)
