"""AgileRL: PPO learns shares, on the native rows; the steps are collected here, as its own function
errs at an end.
"""

import gymnasium as gym
import numpy as np
import torch
from agilerl.algorithms import PPO

ID = "ata_gym:ata_gym/TaskAllocation-v0"
STEPS = 40
GAMMA = 0.9
FORM = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}
torch.manual_seed(0)
np.random.seed(0)  # noqa: NPY002 - minibatches are drawn from numpy's global generator
envs = gym.make_vec(ID, num_envs=16, autoreset_mode="SameStep", **FORM)
agent = PPO(
    envs.single_observation_space,
    envs.single_action_space,
    num_envs=16,
    learn_step=16 * STEPS,
    batch_size=160,
    lr=1e-3,
    gamma=GAMMA,
    update_epochs=8,
    action_std_init=0.4,
    ent_coef=0.0,
)
seen = envs.reset(seed=0)[0]
began = np.zeros(16, bool)
for _ in range(30):
    agent.rollout_buffer.reset()
    for _ in range(STEPS):
        action, chance, _, value = agent.get_action(seen)
        after, reward, _, truncated, info = envs.step(action)
        # it takes a truncation for an end: add what the rest of the episode is worth
        if truncated.any():
            last = np.stack(info["final_obs"][truncated])
            reward[truncated] += GAMMA * agent.get_action(last)[3]
        # its advantages read the flag of a step where the one before is meant
        agent.rollout_buffer.add(seen, action, reward, began, value, chance, after)
        seen = after
        began = truncated
    agent.rollout_buffer.compute_returns_and_advantages(agent.get_action(seen)[3], began)
    agent.learn()
agent.set_training_mode(False)
envs = gym.make_vec(ID, num_envs=64, **FORM)
for name, weight in (("PPO", 1.0), ("uniform", 0.0)):
    seen = envs.reset(seed=1_000_000)[0]
    total = 0.0
    for _ in range(FORM["horizon"]):
        seen, reward, *_ = envs.step(weight * agent.get_action(seen)[0])
        total += reward.mean()
    print(f"{name}: {total:.2f}")
