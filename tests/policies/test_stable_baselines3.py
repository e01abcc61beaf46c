"""Stable-Baselines3 drives our policies as it drives its own."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import ata_policies

sb3 = pytest.importorskip("stable_baselines3", reason="extra rl is not installed")


@pytest.mark.parametrize("name", ata_policies.names())
def test_evaluate_policy_over_a_monitored_env(name: str) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env_id = ata_policies.load(name).env_id
    env = Monitor(gym.make(env_id, scenario="icml2025-regret", horizon=40))
    policy = ata_policies.make(name, env, seed=3)
    env.reset(seed=3)
    returns, lengths = evaluate_policy(policy, env, n_eval_episodes=2, return_episode_rewards=True)
    assert lengths == [40, 40]
    by_hand = gym.make(env_id, scenario="icml2025-regret", horizon=40)
    by_hand.reset(seed=3)
    state = None
    for expected in returns:  # SB3 resets once more before the first episode
        observation, _ = by_hand.reset()
        total, truncated = 0.0, False
        while not truncated:
            action, state = policy.predict(observation, state)
            observation, reward, _, truncated, _ = by_hand.step(action)
            total += reward
        np.testing.assert_allclose(expected, total)
