"""RLlib: PPO learns shares, on the env as it is, by its id."""

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from ata_gym.cluster import connect_ray

ID = "ata_gym:ata_gym/TaskAllocation-v0"
ENV = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}

connect_ray()  # or RLlib starts a Ray that listens on every interface
config = (
    PPOConfig()
    .environment(ID, env_config=ENV)
    .env_runners(
        num_env_runners=0,
        num_envs_per_env_runner=16,
        gym_env_vectorize_mode="vector_entry_point",
    )
    .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64]))
    .training(train_batch_size=1600, minibatch_size=160, num_epochs=6, lr=1e-3, gamma=0.9)
    .debugging(seed=0)
)
agent = config.build_algo()
for _ in range(8):
    agent.train()
net = agent.get_module()
envs = gym.make_vec(ID, num_envs=64, **ENV)
for name, weight in (("PPO", 1.0), ("uniform", 0.0)):
    observation = envs.reset(seed=1_000_000)[0]
    total = 0.0
    for _ in range(ENV["horizon"]):
        numbers = net.forward_inference({Columns.OBS: torch.as_tensor(observation)})[
            Columns.ACTION_DIST_INPUTS
        ]
        actions = weight * numbers[:, : envs.single_action_space.shape[0]].detach().numpy()
        observation, reward, *_ = envs.step(np.clip(actions, -1, 1))
        total += reward.mean()
    print(f"{name}: {total:.2f}")
agent.stop()
