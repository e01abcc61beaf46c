"""A policy plays an env, step by step."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_policies.observations import Observation
from ata_policies.policy import Policy, State

Env = gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]


class Step(NamedTuple):
    """One step of an env: a round, or in dispatch one completion. In a vector env each field has a leading row axis."""

    seen: Observation  # the observation on which the policy decided
    action: Any  # what it chose, shape (n,)
    state: State  # what it remembers with this decision; it has not seen the result of the step yet
    observation: Observation  # the result of the step, on which the policy decides next
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]

    @property
    def round_over(self) -> bool:
        """Whether the round has ended, in a vector env that of every row; in dispatch a round has several steps."""
        return bool(np.all(self.info.get("round_over", True)))


def play(policy: Policy, env: Env, seed: int = 0) -> Iterator[Step]:
    """Reset a single or a vector env with ``seed``, and let the policy play until the episode of every row has ended.

    An env without a horizon goes on for ever: stop the loop, or take so many steps with ``itertools.islice``. Each step
    is taken when the loop asks for it. An oracle is given the conditions of each round, no other policy is.

    >>> import gymnasium, ata_gym, ata_policies
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="five-workers", horizon=3)
    >>> for step in play(ata_policies.make("ofta", env), env):
    ...     print(step.action, round(step.info["runtime"], 2))
    [4 2 1 1 0] 8.78
    [4 2 1 1 0] 20.03
    [4 2 1 1 0] 27.2
    """
    return play_on(policy, env, env.reset(seed=seed)[0])


def play_on(policy: Policy, env: Env, observation: Observation, state: State | None = None) -> Iterator[Step]:
    """As :func:`play`, from where an episode stands: the last observation, and the policy's last state."""
    ended = False
    while not ended:
        action, state = decide(policy, env, observation, state)
        after, reward, terminated, truncated, info = env.step(action)
        yield Step(observation, action, state, after, reward, terminated, truncated, info)
        observation, ended = after, bool(np.all(np.logical_or(terminated, truncated)))


def decide(policy: Policy, env: Env, observation: Observation, state: State | None = None) -> tuple[Any, State]:
    """The policy's next action and state in an env; an oracle is given the conditions of the coming round."""
    if policy.privileged:
        conditions = env.unwrapped.conditions()  # type: ignore[union-attr]
        return policy.predict(observation, state, privileged=conditions)
    return policy.predict(observation, state)
