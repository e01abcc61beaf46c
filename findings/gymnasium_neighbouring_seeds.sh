#!/usr/bin/env bash
# gymnasium 1.4.0, stable-baselines3 2.9.2
#
# reset(seed=s) of a vector env gives its envs the seeds s, s + 1, ...; so do make_vec_env and its like in
# Stable-Baselines3. So runs with the customary seeds 0, 1, 2, ... on eight envs share seven of eight episodes with their
# neighbour, and a standard deviation over such seeds is that of hardly more than one run. Take seeds at least as far apart as
# there are envs: 0, 100, 200.
. "$(dirname "$0")/fresh.bash"
install gymnasium==1.4.0 stable-baselines3==2.9.2 torch==2.13.0 numpy==2.4.6

expect "gymnasium: episodes that seeds 0 and 1 share: 7 of 8; seeds 0 and 100: 0
stable-baselines3: episodes that seeds 0 and 1 share: 7 of 8; seeds 0 and 100: 0" <<'PY'
import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env

ENVS = 8


def by_gymnasium(seed):
    return gym.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync").reset(seed=seed)[0]


def by_sb3(seed):
    return make_vec_env("CartPole-v1", n_envs=ENVS, seed=seed).reset()


for name, first in (("gymnasium", by_gymnasium), ("stable-baselines3", by_sb3)):
    rows = {seed: set(map(tuple, first(seed).tolist())) for seed in (0, 1, 100)}
    near, far = len(rows[0] & rows[1]), len(rows[0] & rows[100])
    print(f"{name}: episodes that seeds 0 and 1 share: {near} of {ENVS}; seeds 0 and 100: {far}")
PY
