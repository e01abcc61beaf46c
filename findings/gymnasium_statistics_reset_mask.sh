#!/usr/bin/env bash
# gymnasium 1.4.0
#
# With autoreset_mode=DISABLED the user resets the rows whose episodes have ended, by reset(options={"reset_mask": mask}). The
# envs reset those rows alone; wrappers.vector.RecordEpisodeStatistics begins to count anew in all rows. So it reports for each
# row the steps and the return since any row was last reset: here episodes have 3 and 5 steps, with a reward of 1 in each, and
# those of 5 steps are reported with lengths from 1 to 3, those of 3 steps from 1 to 3. With the two other modes all are right.
# It concerns curves of returns of vector envs that are reset by mask: count steps and rewards yourself, or use another mode.
. "$(dirname "$0")/fresh.bash"
install gymnasium==1.4.0 numpy==2.4.6

expect "NEXT_STEP: row of 3 steps [3, 3, 3, 3, 3, 3, 3], row of 5 steps [5, 5, 5, 5, 5]
SAME_STEP: row of 3 steps [3, 3, 3, 3, 3, 3, 3, 3, 3, 3], row of 5 steps [5, 5, 5, 5, 5, 5]
DISABLED: row of 3 steps [3, 1, 3, 2, 3, 3, 1, 3, 2, 3], row of 5 steps [2, 1, 3, 2, 1, 3]" <<'PY'
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Steps(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def make(length):
    return lambda: gym.wrappers.TimeLimit(Steps(), length)


for mode in AutoresetMode:
    envs = SyncVectorEnv([make(3), make(5)], autoreset_mode=mode)
    envs = gym.wrappers.vector.RecordEpisodeStatistics(envs)
    envs.reset(seed=0)
    lengths = [[], []]
    for _ in range(30):
        *_, truncated, info = envs.step(np.zeros(2, np.int64))
        for row in np.flatnonzero(truncated):
            assert info["episode"]["r"][row] == info["episode"]["l"][row]
            lengths[row].append(int(info["episode"]["l"][row]))
        if mode is AutoresetMode.DISABLED and truncated.any():
            envs.reset(options={"reset_mask": truncated})
    print(f"{mode.name}: row of 3 steps {lengths[0]}, row of 5 steps {lengths[1]}")
PY
