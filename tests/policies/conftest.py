"""What tests of policies share: a policy plays an env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_policies import Policy, Setting


class Run(NamedTuple):
    """What happened, by round; arrays of E rows."""

    seen: list[Any]
    """What the policy observed before each action."""
    actions: Any
    states: list[Any]
    """After each action."""
    means: Any
    """Of the round, (rounds, E, n); infinite for workers that are away."""
    costs: Any
    """(rounds, E)"""
    round_times: Any


@pytest.fixture(scope="session")
def play() -> Callable[..., Run]:
    """Let a policy, or that of a name, play some rounds of an env, or of one with these options."""

    def played(
        policy: str | Policy,
        rounds: int,
        rows: int = 4,
        seed: int = 0,
        hyperparameters: dict[str, Any] | None = None,
        env: Any = None,
        **options: Any,
    ) -> Run:
        env = env or gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, **options)
        made = ata_policies.make(policy, env, seed=seed, **hyperparameters or {}) if isinstance(policy, str) else policy
        observation, state, steps = env.reset(seed=seed)[0], None, []
        for _ in range(rounds):
            now = {"privileged": env.unwrapped.conditions()} if made.privileged else {}
            action, state = made.predict(observation, state, **now)
            means = np.broadcast_to(env.unwrapped.means(), action.shape)
            after, reward, _, _, info = env.step(action)
            steps.append((observation, action, state, means, -reward, info["round_time"]))
            observation = after
        seen, actions, states, means, costs, times = zip(*steps, strict=True)
        return Run([*seen], np.array(actions), [*states], np.array(means), np.array(costs), np.array(times))

    return played


@pytest.fixture(scope="session")
def refuses() -> Callable[..., None]:
    """A policy of this name refuses these hyperparameters with this sentence."""

    def refused(name: str, message: str, setting: Setting | None = None, **hyperparameters: Any) -> None:
        with pytest.raises(ValueError, match=message):
            ata_policies.load(name)(setting or Setting(n=3, budget=2), **hyperparameters)

    return refused
