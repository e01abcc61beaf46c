#!/usr/bin/env bash
# gymnasium 1.4.0
#
# NormalizeReward divides by the standard deviation of discounted returns. Where episodes end by truncation, a single env, and
# vector envs with NEXT_STEP (the default), go on adding to the return of the episode before, as if there were one endless
# episode; with SAME_STEP and DISABLED each episode begins anew. So the same rewards of the same episodes are divided by a
# number that is 3.3 to 3.5 times larger in one mode than in another. Here rewards are uniform between 0 and 1, and an episode
# has 10 steps, so that no mean return can be above .5 (1 + ... + 10) / 10 = 2.75.
# It concerns every env with a time limit: compare agents in one mode, or scale rewards by a constant.
. "$(dirname "$0")/fresh.bash"
install gymnasium==1.4.0 numpy==2.4.6

expect "the largest mean return that there can be: 2.75
single env: mean return 48.9, standard deviation 5.0
NEXT_STEP: mean return 48.7, standard deviation 5.3
SAME_STEP: mean return 2.7, standard deviation 1.5
DISABLED: mean return 2.7, standard deviation 1.5" <<'PY'
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

STEPS, LENGTH = 5000, 10


class Uniform(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(self.np_random.random()), False, False, {}


def make():
    return gym.wrappers.TimeLimit(Uniform(), LENGTH)


def report(name, rms):
    print(f"{name}: mean return {rms.mean:.1f}, standard deviation {np.sqrt(rms.var):.1f}")


print("the largest mean return that there can be:", 0.5 * np.arange(1, LENGTH + 1).mean())
env = gym.wrappers.NormalizeReward(make())
env.reset(seed=0)
for _ in range(STEPS):
    *_, truncated, _ = env.step(0)
    if truncated:
        env.reset()
report("single env", env.return_rms)
for mode in AutoresetMode:
    envs = gym.wrappers.vector.NormalizeReward(SyncVectorEnv([make] * 2, autoreset_mode=mode))
    envs.reset(seed=0)
    for _ in range(STEPS):
        *_, truncated, _ = envs.step(np.zeros(2, np.int64))
        if mode is AutoresetMode.DISABLED and truncated.any():
            envs.reset(options={"reset_mask": truncated})
    report(mode.name, envs.return_rms)
PY
