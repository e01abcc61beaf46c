"""A policy failed: in which round, in which rows of a batch, and on which seeds."""

import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np

from ata_gym.utils.errors import RoundError
from ata_gym.utils.trees import map_leaves
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State


def located(
    error: BaseException,
    policy: Policy,
    envs: Any,
    observation: Observation,
    state: State | None,
    first_seed: int,
) -> RoundError:
    """Return an error that says where in the episode another one was raised.

    To find the rows that it comes from, the policy is asked again, for the whole batch and for each
    row alone.

    Args:
        error: What the policy raised when it was asked for an action, or the vector env when it got
            the action.
        policy: The policy that was played.
        envs: The vector env, in the round of the error.
        observation: The observation of this round, with a leading row axis.
        state: The state of the policy before this round; None before the first.
        first_seed: The seed of the first row.
    """
    base_envs = envs.unwrapped
    round = int(base_envs.checkpoint()["round"][0]) + 1
    rows = len(observation["worker"])
    if state is None:
        previous_state = policy.first_state(rows)
    else:
        previous_state = state
    if policy.privileged:
        keywords = {"privileged": base_envs.conditions()}
    else:
        keywords = {}
    failing = _failing(policy, envs, observation, previous_state, keywords)
    place = f"in round {round}"
    if failing:
        place += f", row {failing[0]} (seed {first_seed + failing[0]})"
        if failing[1:]:
            place += f" and {len(failing) - 1} more of {rows} rows"
    elif failing is not None:
        place += (
            f", in no row alone but in {rows} rows together (seeds {first_seed} to"
            f" {first_seed + rows - 1})"
        )
    if isinstance(error, SystemExit):
        return RoundError(f"{place}: the policy called sys.exit({error.code!r})")
    return RoundError(f"{place}: {type(error).__name__}: {error}")


def _failing(
    policy: Policy,
    envs: Any,
    observation: Observation,
    state: State,
    keywords: Mapping[str, Any],
) -> list[int] | None:
    """Return the rows that fail now; None if no row does.

    A row fails if its action is illegal, or if the policy raises an error for this row alone. The
    list is empty where the policy fails for the whole batch, but for no row alone.
    """
    rows = range(len(observation["worker"]))
    try:
        actions, _ = policy.predict(observation, state, **keywords)
    except (Exception, SystemExit):
        return [e for e in rows if _fails_alone(policy, observation, state, keywords, e)]
    space = envs.single_action_space
    illegal = [e for e in rows if not _is_legal(space, actions, e)]
    return illegal or None


def _fails_alone(
    policy: Policy,
    observation: Observation,
    state: State,
    keywords: Mapping[str, Any],
    e: int,
) -> bool:
    """Return whether the policy raises an error for row ``e`` alone."""

    def row(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return leaf[e : e + 1]
        return leaf

    row_observation, row_state, row_keywords = (
        map_leaves(row, tree) for tree in (observation, state, keywords)
    )
    try:
        policy.predict(row_observation, row_state, **row_keywords)
    except (Exception, SystemExit):
        return True
    return False


def _is_legal(space: Any, actions: Any, e: int) -> bool:
    try:
        action = np.asarray(actions[e])
        return action.dtype.kind in "iu" and bool(space.contains(action.astype(np.int64)))
    except (TypeError, ValueError, IndexError):
        return False


def raised_by_policy(error: BaseException) -> bool:
    """Return whether an error was raised while a policy decided, and not by what it plays."""
    return any(
        isinstance(frame.f_locals.get("self"), Policy)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )
