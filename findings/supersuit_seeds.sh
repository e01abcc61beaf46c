#!/usr/bin/env bash
# supersuit 3.11.0, pettingzoo 1.27.0, gymnasium 1.4.0
#
# concat_vec_envs_v1 copies an env by pickle. PettingZoo's tutorials reset the env with a seed, make eight copies, and train by
# Stable-Baselines3, whose wrapper in SuperSuit resets the copies without a seed. Where the env is pickled as it is, like most of
# one's own, all eight copies then begin the same episodes: eight envs give the starts of one. Where it inherits EzPickle, like
# PettingZoo's, it is made anew, the seed is lost, and a second run has other episodes.
# With reset(seed=s) on several processes, process i counts from s + i, whatever number of envs it has: of eight copies on two or
# four processes five are different, and on one or eight processes all. sticky_actions_v0 gives each agent the same seed, though a
# comment there says otherwise: after reset(seed=s) all agents of an env repeat their actions in the same steps, always.
# It concerns training on vector envs of several agents, and standard errors over them: reset no env before it is copied, call
# reset(seed=s) of the copies on one process or on one for each copy, and give each agent a sticky_actions of its own.
. "$(dirname "$0")/fresh.bash"
install gymnasium==1.4.0 numpy==2.4.6
install_alone supersuit==3.11.0 pettingzoo==1.27.0

expect "reset(seed=0), then eight copies, then reset()
  Walk: different starts 1 of 8; the same in two runs True
  EzWalk: different starts 8 of 8; the same in two runs False
eight copies, then reset(seed=0)
  processes 1: different starts of Walk 8 of 8, of EzWalk 8 of 8
  processes 2: different starts of Walk 5 of 8, of EzWalk 5 of 8
  processes 4: different starts of Walk 5 of 8, of EzWalk 5 of 8
  processes 8: different starts of Walk 8 of 8, of EzWalk 8 of 8
sticky actions, reset(seed=0): each agent repeats in 23% of its steps, both in 23%
sticky actions, reset(): both repeat in less than 15% True" <<'PY'
import numpy as np
import supersuit
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import EzPickle, seeding
from pettingzoo import ParallelEnv


class Walk(ParallelEnv):
    """Both agents begin at a random place; what they play is kept."""

    metadata = {"name": "walk"}
    render_mode = None
    possible_agents = ["first", "second"]
    random = None

    def observation_space(self, agent):
        return Box(0.0, 1.0, (1,), np.float64)

    def action_space(self, agent):
        return Discrete(1000)

    def reset(self, seed=None, options=None):
        if self.random is None or seed is not None:
            self.random, _ = seeding.np_random(seed)
        self.agents = list(self.possible_agents)
        self.place = self.random.random()
        return self.give(np.array([self.place])), self.give({})

    def give(self, value):
        return {agent: value for agent in self.agents}

    def step(self, actions):
        self.played = actions
        return self.give(np.array([self.place])), self.give(0.0), self.give(False), self.give(False), self.give({})


class EzWalk(EzPickle, Walk):
    """As PettingZoo's own envs are."""

    def __init__(self):
        EzPickle.__init__(self)


def starts(kind, first_seed=None, processes=0, seed=None):
    env = kind()
    if first_seed is not None:
        env.reset(seed=first_seed)
    vector = supersuit.pettingzoo_env_to_vec_env_v1(env)
    vector = supersuit.concat_vec_envs_v1(vector, 8, num_cpus=processes)
    observations, _ = vector.reset(seed=seed)
    vector.close()
    return set(observations.ravel().tolist())


def repeats(seed, steps=900):
    """Whether each agent plays another action than it was given, where each step has a new action."""
    env = Walk()
    sticky = supersuit.sticky_actions_v0(env, 0.25)
    sticky.reset(seed=seed)
    repeated = []
    for step in range(steps):
        sticky.step(dict.fromkeys(env.agents, step))
        repeated.append([env.played[agent] != step for agent in env.agents])
    return np.array(repeated).T


if __name__ == "__main__":
    print("reset(seed=0), then eight copies, then reset()")
    for kind in (Walk, EzWalk):
        first, second = starts(kind, first_seed=0), starts(kind, first_seed=0)
        print(f"  {kind.__name__}: different starts {len(first)} of 8; the same in two runs {first == second}")
    print("eight copies, then reset(seed=0)")
    for processes in (1, 2, 4, 8):
        different = [len(starts(kind, processes=processes, seed=0)) for kind in (Walk, EzWalk)]
        print(f"  processes {processes}: different starts of Walk {different[0]} of 8, of EzWalk {different[1]} of 8")
    first, second = repeats(seed=0)
    each, both = first.mean(), (first & second).mean()
    print(f"sticky actions, reset(seed=0): each agent repeats in {each:.0%} of its steps, both in {both:.0%}")
    first, second = repeats(seed=None)
    print(f"sticky actions, reset(): both repeat in less than 15% {(first & second).mean() < 0.15}")
PY
