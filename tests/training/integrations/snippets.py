"""What the tests of this folder share: policies, and their clocks."""

import gymnasium as gym

import ata_policies

POLICIES = ("uta", "default")


def make_env():
    return gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-regret")


def ticks(policy, rounds):
    """The runtime after each round, of a clock that nothing trains beside."""
    clock = ata_policies.Clock(make_env(), policy)
    return [clock.tick() for _ in range(rounds)]
