"""Where a policy failed that was played in many rows: in which round, in which rows, and on which seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ata_gym.utils.errors import RoundError
from ata_gym.utils.trees import map_leaves
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State


def located(
    error: BaseException, policy: Policy, envs: Any, observation: Observation, state: State | None, first_seed: int
) -> RoundError:
    """The error with its place in the game; its cause is the error itself.

    It was raised where the policy was asked for, or the vector env was given, the action on this observation, before
    which the policy had this state. Which rows it is from is found out by asking again, the whole batch and each row.
    """
    bare = envs.unwrapped
    round, rows = int(bare.checkpoint()["round"][0]) + 1, len(observation["worker"])
    before = policy.first_state(rows) if state is None else state
    now = {"privileged": bare.conditions()} if policy.privileged else {}
    failing = _failing(policy, envs, observation, before, now)
    where = f"in round {round}"
    if failing:
        where += f", row {failing[0]} (seed {first_seed + failing[0]})"
        where += f" and {len(failing) - 1} more of {rows} rows" if failing[1:] else ""
    elif failing is not None:
        where += f", in no row alone but in {rows} rows together (seeds {first_seed} to {first_seed + rows - 1})"
    if isinstance(error, SystemExit):
        return RoundError(f"{where}: the policy called sys.exit({error.code!r})")
    return RoundError(f"{where}: {type(error).__name__}: {error}")


def _failing(
    policy: Policy, envs: Any, observation: Observation, before: State, now: Mapping[str, Any]
) -> list[int] | None:
    """The rows whose action is illegal or cannot be had; None if all is well now."""
    rows = range(len(observation["worker"]))
    try:
        actions, _ = policy.predict(observation, before, **now)
    except (Exception, SystemExit):
        return [e for e in rows if _fails_alone(policy, observation, before, now, e)]
    space = envs.single_action_space
    illegal = [e for e in rows if not _is_legal(space, actions, e)]
    return illegal or None


def _fails_alone(policy: Policy, observation: Observation, before: State, now: Mapping[str, Any], e: int) -> bool:
    def row(leaf: Any) -> Any:
        return leaf[e : e + 1] if isinstance(leaf, np.ndarray) else leaf

    seen, state, alone = (map_leaves(row, tree) for tree in (observation, before, now))
    try:
        policy.predict(seen, state, **alone)
    except (Exception, SystemExit):
        return True
    return False


def _is_legal(space: Any, actions: Any, e: int) -> bool:
    try:
        action = np.asarray(actions[e])
        return action.dtype.kind in "iu" and bool(space.contains(action.astype(np.int64)))
    except (TypeError, ValueError, IndexError):
        return False
