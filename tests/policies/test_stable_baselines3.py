"""Stable-Baselines3 drives our policies as it drives its own, but those that need privileged information."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import ata_policies

sb3 = pytest.importorskip("stable_baselines3", reason="extra rl is not installed")


@pytest.mark.parametrize("name", [name for name in ata_policies.names() if not ata_policies.load(name).privileged])
def test_evaluate_policy_over_a_monitored_env(name: str) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env_id = ata_policies.load(name).env_id
    env = Monitor(gym.make(env_id, scenario="icml2025-regret", horizon=40))
    policy = ata_policies.make(name, env, seed=3)
    env.reset(seed=3)
    returns, lengths = evaluate_policy(policy, env, n_eval_episodes=2, return_episode_rewards=True)
    steps = 40 * (env.unwrapped.budget if env_id == "ata_gym/TaskDispatch-v0" else 1)
    assert lengths == [steps, steps]
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


def test_ppo_trains_on_dispatch_as_it_is() -> None:
    """SB3 gives the zeros and ones of a Bernoulli head as floats."""
    envs = sb3.common.vec_env.DummyVecEnv([lambda: gym.make("ata_gym/TaskDispatch-v0", scenario="icml2025-regret")] * 2)
    agent = sb3.PPO("MultiInputPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    agent.learn(64)
    action, _ = agent.predict(envs.reset(), deterministic=True)
    assert set(np.unique(action)) <= {0, 1}
