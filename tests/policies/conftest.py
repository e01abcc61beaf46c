"""What tests of policies share: a policy plays an env."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_policies import DispatchPolicy, Policy, Setting
from ata_policies.steps import decide


class Run(NamedTuple):
    observations: list[Any]
    """What the policy observed before each action."""
    actions: Any
    states: list[Any]
    """After each action."""
    means: Any
    """Of the round, (rounds, E, n); infinite for workers that are away."""
    costs: Any
    """(rounds, E)"""
    round_times: Any
    """(rounds, E), in dispatch too; as the worker times."""
    worker_times: Any


def blank(n: int, budget: int, *rows: int) -> dict[str, Any]:
    worker = np.full((*rows, budget), -1)
    duration = np.zeros((*rows, budget))
    return {"worker": worker, "duration": duration, "elapsed": np.zeros((*rows, n))}


@pytest.fixture(scope="session")
def play() -> Callable[..., Run]:
    """Let a policy, or one of a class or a name, play some rounds of an env, or of one with these
    options.
    """

    def played(
        policy: str | Policy | type[Policy],
        rounds: int,
        rows: int = 4,
        seed: int = 0,
        hyperparameters: dict[str, Any] | None = None,
        env: Any = None,
        **options: Any,
    ) -> Run:
        if isinstance(policy, str):
            kind = ata_policies.load(policy)
        else:
            kind = policy
        env = env or gym.make_vec(kind.env_id, num_envs=rows, **options)
        made: Any = policy
        if isinstance(policy, str):
            made = ata_policies.make(policy, env, seed=seed, **hyperparameters or {})
        elif isinstance(policy, type):
            made = policy(Setting.from_env(env), seed=seed, **hyperparameters or {})
        observation = env.reset(seed=seed)[0]
        state = None
        steps = []
        ends = []
        for _ in range(rounds * (env.unwrapped.budget if isinstance(made, DispatchPolicy) else 1)):
            action, state = decide(made, env, observation, state)
            means = np.broadcast_to(env.unwrapped.means(), action.shape)
            after, reward, _, _, info = env.step(action)
            steps.append((observation, action, state, means, -reward))
            if np.all(info.get("round_over", True)):
                ends.append((info["round_time"], info["worker_time"]))
            observation = after
        observations, actions, states, means, costs = zip(*steps, strict=True)
        return Run(
            [*observations],
            np.array(actions),
            [*states],
            np.array(means),
            np.array(costs),
            *np.array(ends).swapaxes(0, 1),
        )

    return played


@pytest.fixture(scope="session")
def refuses() -> Callable[..., None]:
    def refused(
        name: str,
        message: str,
        setting: Setting | None = None,
        **hyperparameters: Any,
    ) -> None:
        with pytest.raises(ValueError, match=message):
            ata_policies.load(name)(setting or Setting(n=3, budget=2), **hyperparameters)

    return refused
