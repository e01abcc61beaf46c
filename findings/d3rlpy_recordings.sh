#!/usr/bin/env bash
# d3rlpy 2.8.1, gymnasium 1.0.0
#
# MDPDataset leaves out steps without a word: all that follow the last flag of an end, and the last one before each timeout, as
# it has no place for the observation after it. A reward that comes with the time limit is therefore never learned from. Whether
# actions are discrete it guesses from the numbers of the first episode alone: floats that are whole there (all 0, or -1 and 1)
# make the data set one of discrete actions, with as many as the largest number says, whatever the episodes after it have.
# It concerns recordings of envs with a time limit, and of agents that stand still or switch in the first episode. Give flags
# for the last step, action_space and action_size; add to each timeout one more step, whose observation is the last one.
. "$(dirname "$0")/fresh.bash"
install d3rlpy==2.8.1 gymnasium==1.0.0 torch==2.13.0 numpy==2.4.6

expect "terminal after 4 of 10 steps: 4 transitions, rewards 1 1 1 9
timeout after 4 of 10 steps: 3 transitions, rewards 1 1 1
timeout with one more step: 4 transitions, rewards 1 1 1 9
actions 0.5: CONTINUOUS, size 1
actions 0.0 in the first episode, then 0.5: DISCRETE, size 1
actions 0.5 in the first episode, then 0.0: CONTINUOUS, size 1" <<'PY'
import logging

import numpy as np
import structlog

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
from d3rlpy.dataset import MDPDataset


def flags(*ends, steps=10):
    return np.isin(np.arange(1, steps + 1), ends).astype(np.float32)


def report(name, rewards, terminals, timeouts):
    steps = len(rewards)
    rewards = np.array(rewards, np.float32)
    actions = np.full((steps, 1), 0.5, np.float32)
    data = MDPDataset(np.zeros((steps, 1), np.float32), actions, rewards, terminals, timeouts)
    episode = data.episodes[0]
    kept = [data.transition_picker(episode, i).reward.item() for i in range(episode.transition_count)]
    print(f"{name}: {data.transition_count} transitions, rewards", *(f"{reward:g}" for reward in kept))


REWARDS = [1, 1, 1, 9]
report("terminal after 4 of 10 steps", REWARDS + [1] * 6, flags(4), flags())
report("timeout after 4 of 10 steps", REWARDS + [1] * 6, flags(), flags(4))
report("timeout with one more step", REWARDS + [0], flags(steps=5), flags(5, steps=5))
for name, first, then in (
    ("actions 0.5", 0.5, 0.5),
    ("actions 0.0 in the first episode, then 0.5", 0.0, 0.5),
    ("actions 0.5 in the first episode, then 0.0", 0.5, 0.0),
):
    actions = np.repeat(np.array([[first], [then]], np.float32), 5, axis=0)
    data = MDPDataset(np.zeros((10, 1), np.float32), actions, np.ones(10, np.float32), flags(5, 10))
    print(f"{name}: {data.dataset_info.action_space.name}, size {data.dataset_info.action_size}")
PY
