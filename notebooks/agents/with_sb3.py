"""Stable-Baselines3: PPO learns shares, on the native rows, with a network for workers."""

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from ata_gym.rl.sb3.policy import WorkersPolicy
from ata_gym.rl.sb3.vec_env import NativeVecEnv, make_vec_env


def rows(seed: int) -> NativeVecEnv:
    return make_vec_env(
        "ata_gym/TaskAllocation-v0",
        n_envs=16,
        seed=seed,
        observation="workers",
        action="shares",
        horizon=20,
        reward_unit="even round",
    )


class Uniform:
    """Equal shares at all times."""

    def predict(self, observation, state=None, **_):
        return np.zeros(observation.shape[:2], np.float32), state


agent = PPO(
    WorkersPolicy,
    rows(0),
    n_steps=40,
    batch_size=160,
    learning_rate=1e-3,
    gamma=0.9,
    seed=0,
    device="cpu",
)
agent.learn(20_000)
for name, policy in (("PPO", agent), ("uniform", Uniform())):
    print(f"{name}: {evaluate_policy(policy, rows(1_000_000), n_eval_episodes=64)[0]:.2f}")
