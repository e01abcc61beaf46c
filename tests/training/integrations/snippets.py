"""What the tests of this folder share: policies, their clocks, and the snippets that train a user's model on them."""

from itertools import islice

import gymnasium as gym

import ata_policies
from ata_gym.training import Trainer, TrainingWrapper

POLICIES = ("uta", "default")
ROUNDS = 20


def make_env():
    return gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")


def make_clocks():
    return [ata_policies.Clock(make_env(), name) for name in POLICIES]


def train_on_clocks(tasks, clocks, **settings):
    """Train once; after each round its loss, and the runtime on each clock."""
    trainer = Trainer(tasks, budget=5, **settings)
    return [(trainer.step(), *(clock.tick() for clock in clocks)) for _ in range(ROUNDS)]


def train_in_env(tasks, name, **settings):
    """Train in the env of a policy; after each round its loss, and the runtime."""
    env = TrainingWrapper(make_env(), tasks, **settings)
    steps = islice(ata_policies.play(ata_policies.make(name, env), env), ROUNDS)
    return [(step.info["loss"], step.info["runtime"]) for step in steps]


def ticks(policy, rounds):
    """The runtime after each round, of a clock that nothing trains beside."""
    clock = ata_policies.Clock(make_env(), policy)
    return [clock.tick() for _ in range(rounds)]
