#!/usr/bin/env bash
# agilerl 2.58.0, with agilerl-arena 1.29.0, gymnasium 1.4.0, tensordict 0.13.0, accelerate 1.15.0, pydantic 2.14.4,
# dill 0.4.1 and lazy-loader 0.6
#
# The advantages of AgileRL's PPO read each flag of an end one step late. Its collect_rollouts adds to RolloutBuffer the flag of
# the step that was just taken, as the returns of the same buffer with use_gae=False expect; the advantages take the flag of
# step t + 1 where that of step t is meant. So the step before the last is cut off from the reward that it earned, and the last
# step of an episode is credited with the rewards of the next one. With lambda = 1 and values of 0 both must give the same sums.
# It concerns PPO on every env whose episodes end inside of a rollout. Collect the steps yourself, and add to each the flag of
# the step before it, with that of the last step as last_done: the advantages are then right, as the last line shows.
. "$(dirname "$0")/fresh.bash"
install gymnasium==1.4.0 tensordict==0.13.0 accelerate==1.15.0 pydantic==2.14.4 torch==2.13.0 numpy==2.4.6
install_alone agilerl==2.58.0 agilerl-arena==1.29.0 dill==0.4.1 lazy-loader==0.6

expect "sums of rewards to the end of the episode: [2, 1, 2, 1]
its returns without GAE: [2, 1, 2, 1]
its returns with GAE, lambda = 1: [1, 2, 1, 1]
the same from flags of the step before: [2, 1, 2, 1]" <<'PY'
import numpy as np
from agilerl.components.rollout_buffer import RolloutBuffer
from gymnasium.spaces import Box, Discrete

REWARDS = [1, 1, 1, 1]
DONE = [False, True, False, True]  # two episodes of two steps


def sums():
    total, backwards = 0, []
    for reward, done in zip(reversed(REWARDS), reversed(DONE)):
        total = reward + (0 if done else total)
        backwards.append(total)
    return backwards[::-1]


def returns(flags, last_done, use_gae):
    buffer = RolloutBuffer(4, Box(0, 1, (1,)), Discrete(2), use_gae=use_gae, gamma=1.0, gae_lambda=1.0)
    for reward, done in zip(REWARDS, flags):
        step = {"obs": np.zeros((1, 1), np.float32), "action": np.zeros(1, np.int64), "value": np.zeros(1)}
        buffer.add(**step, reward=np.array([reward]), done=np.array([done]), log_prob=np.zeros(1))
    buffer.compute_returns_and_advantages(last_value=np.zeros(1), last_done=np.array([last_done]))
    return buffer.buffer["returns"].flatten().int().tolist()


print("sums of rewards to the end of the episode:", sums())
print("its returns without GAE:", returns(DONE, DONE[-1], use_gae=False))
print("its returns with GAE, lambda = 1:", returns(DONE, DONE[-1], use_gae=True))
print("the same from flags of the step before:", returns([False, *DONE[:-1]], DONE[-1], use_gae=True))
PY
