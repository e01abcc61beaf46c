"""A policy plays an env, step by step."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_policies.observations import Observation
from ata_policies.policy import Policy, State

Env = gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]


class Step(NamedTuple):
    """One step of an env: a round, or in dispatch one completion.

    In a vector env each field has a leading row axis.
    """

    observation: Observation
    """The observation on which the policy decided."""
    action: Any
    """What it chose, (n,)."""
    state: State
    """What it remembers with this decision, before it sees the result of the step."""
    next_observation: Observation
    """The result of the step, on which the policy decides next."""
    reward: Any
    """The reward of the step."""
    terminated: Any
    """Whether the episode has ended by itself."""
    truncated: Any
    """Whether the episode has ended at the horizon."""
    info: dict[str, Any]
    """Further results of the step, by name."""

    @property
    def round_over(self) -> bool:
        """Whether the round has ended, in a vector env in every row.

        In dispatch a round has several steps.
        """
        return bool(np.all(self.info.get("round_over", True)))


def play(policy: Policy, env: Env, seed: int = 0) -> Iterator[Step]:
    """Reset an env with ``seed``, and let the policy play until every row's episode has ended.

    The env is a single or a vector env. An env without a horizon goes on for ever: stop the loop,
    or take so many steps with ``itertools.islice``. Each step is taken when the loop asks for it.
    An oracle is given the conditions of each round, no other policy is.

    Example:
        >>> import gymnasium, ata_gym, ata_policies
        >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", scenario="five-workers", horizon=3)
        >>> for step in play(ata_policies.make("ofta", env), env):
        ...     print(step.action, round(step.info["runtime"], 2))
        [4 2 1 1 0] 8.78
        [4 2 1 1 0] 20.03
        [4 2 1 1 0] 27.2
    """
    return play_on(policy, env, env.reset(seed=seed)[0])


def play_on(
    policy: Policy,
    env: Env,
    observation: Observation,
    state: State | None = None,
) -> Iterator[Step]:
    """Play as :func:`play` does, from where an episode stands.

    Args:
        policy: The policy.
        env: A single or a vector env, in an episode.
        observation: The last observation.
        state: The policy's last state.
    """
    ended = False
    while not ended:
        action, state = decide(policy, env, observation, state)
        next_observation, reward, terminated, truncated, info = env.step(action)
        yield Step(
            observation, action, state, next_observation, reward, terminated, truncated, info
        )
        observation = next_observation
        ended = bool(np.all(np.logical_or(terminated, truncated)))


def decide(
    policy: Policy,
    env: Env,
    observation: Observation,
    state: State | None = None,
) -> tuple[Any, State]:
    """Return the policy's next action and state in an env.

    An oracle is given the conditions of the coming round.

    Args:
        policy: The policy.
        env: A single or a vector env, in an episode.
        observation: The last observation.
        state: The policy's last state; None at first.
    """
    if policy.privileged:
        conditions = env.unwrapped.conditions()  # type: ignore[union-attr]
        return policy.predict(observation, state, privileged=conditions)
    return policy.predict(observation, state)
