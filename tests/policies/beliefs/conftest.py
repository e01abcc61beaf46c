"""What the tests of beliefs share."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import shifted_exponential


class Played(NamedTuple):
    """What a policy did in some rounds, and what it has learned in the end."""

    allocations: Any  # (rounds, rows, n)
    times: Any  # (rounds, rows) round times
    conditions: Any  # of each round
    state: Any
    info: Any  # of the last round


@pytest.fixture
def play() -> Any:
    """A function that lets a policy play an env, by default one of 12 unequal workers."""

    def played(
        name: str, rounds: int, *, env: Any = None, rows: int = 4, reset: int = 1, seed: int = 0, pool: Any = None,
        budget: int = 8, changes: Any = (), **hyperparameters: Any,
    ) -> Played:  # fmt: skip
        pool = pool or shifted_exponential(np.arange(1.0, 13.0) / 2, np.arange(1.0, 13.0) / 2)
        world = {"pool": pool, "budget": budget, "changes": changes}
        env = env or gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, **world)
        policy = ata_policies.make(name, env, seed=seed, **hyperparameters)
        (observation, info), state, told = env.reset(seed=reset), None, []
        for _ in range(rounds):
            conditions = env.unwrapped.conditions()
            now = {"privileged": conditions} if policy.privileged else {}
            allocation, state = policy.predict(observation, state, **now)
            observation, *_, info = env.step(allocation)
            told.append((allocation, info["round_time"], conditions))
        allocations, times, conditions = zip(*told, strict=True)
        return Played(np.array(allocations), np.array(times), conditions, state, info)

    return played
