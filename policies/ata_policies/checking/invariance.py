"""What decisions must not depend on, and what their draws must depend on.

They must not depend on the unit of time; draws must depend on the round and on the episode.
"""

from typing import Any

import numpy as np

from ata_gym.pools import Pool
from ata_gym.scenarios import Published
from ata_gym.simulation.keys import stream_keys
from ata_gym.typing import Mask
from ata_gym.utils.trees import map_leaves
from ata_policies.checking.contract import TIMES, ContractCheck
from ata_policies.checking.predict_call import Answer, Array, FaultError, PredictCall
from ata_policies.policy import Policy, State

_THOUSAND = 1024.0  # nearly, and a power of two: the products are exact
_ROUNDINGS = (1.0 + 2.0**-40, 1.0 - 2.0**-40, 1.0 + 2.0**-30)
"""Factors that differ from 1 by a rounding.

Where decisions depend on how numbers are rounded, they change as many as a thousand does.
"""

_KEYS = 128  # rows that differ in their keys alone
_STREAM = 1  # the stream of these keys
_COMPARED_ROUNDS = 6  # rounds in which draws are compared, and rounds of an episode
# of the rows at least this many differ from the others in a decision that is drawn
_FEWEST_DRAWN = 4
_ROUNDS_LATER = (1, 101)  # so many rounds later a decision is drawn again
_NEXT_ROUNDS = 12  # rounds that follow, in which decisions are drawn
# decisions of at least this correlation were drawn alike; otherwise it is about 0
_LEAST_CORRELATION = 0.9


def same_in_any_unit(check: ContractCheck) -> None:
    """Check that times in another unit give the same decisions.

    Raises:
        FaultError: If they do not.
    """
    for factor, operation in ((_THOUSAND, "multiplied"), (1.0 / _THOUSAND, "divided")):
        changed = _changed_decisions(check, factor, operation)
        if not changed.any():
            continue
        changed_by_rounding = sum(
            _changed_decisions(check, rounding, operation).sum() for rounding in _ROUNDINGS
        )
        if changed.sum() > changed_by_rounding:
            step = check.steps[int(np.argmax(changed.any(axis=1)))]
            raise FaultError(
                f"in another unit of time it has another action in round {step.round} (all times"
                f" {operation} by {_THOUSAND:,.0f}): make its constants multiples of a mean time,"
                ' or say time_unit = "seconds"',
            )


def _changed_decisions(check: ContractCheck, factor: float, operation: str) -> Mask:
    """Return where actions change if all times are multiplied by a factor, (steps, rows)."""
    setting = check.setting
    constants = []
    for published in setting.published:
        if published.alpha is None:
            constants.append(published)
        else:
            constants.append(published._replace(alpha=published.alpha * factor))
    if setting.pool is None:
        pool = None
    else:
        pool = _scaled(setting.pool, factor)
    policy = check.new_policy(pool=pool, published=Published(*constants))
    state = None
    changed = list[Array]()
    for _, observation, conditions, answer in check.steps:
        scaled_observation = {
            name: field * factor if name in TIMES else field for name, field in observation.items()
        }
        if conditions is None:
            scaled_conditions = None
        else:
            scaled_conditions = conditions._replace(
                death_time=conditions.death_time * factor, deadline=conditions.deadline * factor
            )
        try:
            action, state = check.predict(policy, scaled_observation, state, scaled_conditions)
        except FaultError as fault:
            raise FaultError(
                f"where all times are {operation} by {_THOUSAND:,.0f}, {fault}"
            ) from fault
        changed.append((action != answer.action).any(axis=-1))
    return np.array(changed)


def _scaled(pool: Pool, factor: float) -> Pool:
    """Return a pool whose times are multiplied by a factor."""
    data = pool.to_data()
    for name in ("shift", "scale"):
        data[name] = [factor * number for number in data[name]]
    return Pool.from_data(data)


def draws_anew(check: ContractCheck) -> None:
    """Check that draws are made anew in each round, and in each episode.

    Raises:
        FaultError: If they are not.
    """
    policy = check.new_policy()
    keys = stream_keys(0, _KEYS, _STREAM)
    sentence = (
        "it draws the same in every {part}: draw from keys such as state.round_keys(), others in"
        " each {part}"
    )
    places = np.unique(np.geomspace(1, len(check.steps) - 1, _COMPARED_ROUNDS).astype(int))
    for k in places.tolist():
        step = _tiled(check.steps[k])
        state_before = _tiled(check.steps[k - 1]).answer.state._replace(key=keys)
        # an episode begins, and its first round
        if (step.observation["worker"] < 0).any():
            continue
        if _draws_alike_from_now_on(check, policy, step, state_before):
            raise FaultError(sentence.format(part="round"))
    episodes = []
    state = policy.first_state(_KEYS)._replace(key=keys)
    for _ in range(2):
        actions = []
        for step in check.steps[: min(_COMPARED_ROUNDS, len(check.steps) // 2)]:
            action, state = _decide(check, policy, _tiled(step), state)
            actions.append(action)
        episodes.append(actions)
    pairs = [(first, second) for first, second in zip(*episodes, strict=True) if _drawn(first)]
    if pairs and all(_drawn_alike(*pair) for pair in pairs):
        raise FaultError(sentence.format(part="episode"))


def _draws_alike_from_now_on(
    check: ContractCheck,
    policy: Policy,
    step: PredictCall,
    state_before: State,
) -> bool:
    """Return whether a decision is drawn alike in later rounds, and in the next ones.

    Both are looked at, since a plan may hold or count the draws.
    """
    decision, state = _decide(check, policy, step, state_before)
    for rounds_later in _ROUNDS_LATER:
        later, _ = _decide(
            check, policy, step, state_before._replace(round=state_before.round + rounds_later)
        )
        if not _drawn_alike(decision, later):
            return False
    for _ in range(_NEXT_ROUNDS):
        following, state = _decide(check, policy, step, state)
        if not _drawn_alike(decision, following):
            return False
    return True


def _tiled(step: PredictCall) -> Any:
    """Return a step with 128 rows that are all like its first row."""

    def tiled(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return np.repeat(leaf[:1], _KEYS, axis=0)
        return leaf

    return map_leaves(tiled, step)


def _decide(check: ContractCheck, policy: Policy, step: PredictCall, state: State) -> Answer:
    """Ask the policy for the decision of a step, from a state."""
    return check.predict(policy, step.observation, state, step.conditions)


def _drawn(actions: Array) -> bool:
    """Return whether rows that differ in their keys alone have other actions, (rows, n)."""
    _, counts = np.unique(actions, axis=0, return_counts=True)
    return bool(len(actions) - counts.max() >= _FEWEST_DRAWN)


def _drawn_alike(first: Array, second: Array) -> bool:
    """Return whether two decisions, (rows, n), are drawn, and drawn alike.

    That is, the rows differ from each other in the same way in both.
    """
    first_deviations, second_deviations = (
        actions - actions.mean(axis=0) for actions in (first, second)
    )
    alike = (first_deviations * second_deviations).sum() > _LEAST_CORRELATION * np.sqrt(
        (first_deviations**2).sum() * (second_deviations**2).sum()
    )
    return _drawn(first) and _drawn(second) and bool(alike)
