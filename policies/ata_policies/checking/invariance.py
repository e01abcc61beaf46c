"""What decisions must not hang on, the unit of time, and what their draws must hang on: the round and the episode."""

from typing import Any

import numpy as np

from ata_gym.pools import Pool
from ata_gym.scenarios import Published
from ata_gym.simulation.keys import stream_keys
from ata_gym.typing import Mask
from ata_gym.utils.trees import map_leaves
from ata_policies.checking.contract import TIMES, ContractCheck
from ata_policies.checking.predict_call import Answer, Array, FaultError, Step
from ata_policies.policy import Policy, State

_THOUSAND = 1024.0  # nearly, and a power of two: the products are exact
_ROUNDINGS = (1.0 + 2.0**-40, 1.0 - 2.0**-40, 1.0 + 2.0**-30)
"""Where decisions hang on how numbers are rounded, these factors change as many as a thousand does."""

_KEYS, _STREAM = 128, 1  # rows that differ in their keys alone, and where their keys are from
_LOOKED_AT = 6  # rounds in which draws are compared, and rounds of an episode
_DRAWN = 4  # of the rows at least this many differ from the others in a decision that is drawn
_LATER, _NEXT = (1, 101), 12  # rounds later, and rounds that follow
_ALIKE = 0.9  # the correlation of decisions from which on they were drawn alike; otherwise it is about 0


def same_in_any_unit(check: ContractCheck) -> None:
    """Times in another unit give the same decisions."""
    for factor, how in ((_THOUSAND, "multiplied"), (1.0 / _THOUSAND, "divided")):
        changed = _changed_decisions(check, factor, how)
        if changed.any() and changed.sum() > sum(_changed_decisions(check, one, how).sum() for one in _ROUNDINGS):
            step = check.steps[int(np.argmax(changed.any(axis=1)))]
            raise FaultError(
                f"in another unit of time it has another action in round {step.round} (all times {how} by "
                f'{_THOUSAND:,.0f}): make its constants multiples of a mean time, or say time_unit = "seconds"'
            )


def _changed_decisions(check: ContractCheck, factor: float, how: str) -> Mask:
    """Where the action is another one if all times are multiplied by a factor, (steps, rows)."""
    setting = check.setting
    constants = (one._replace(alpha=None if one.alpha is None else one.alpha * factor) for one in setting.published)
    pool = None if setting.pool is None else _scaled(setting.pool, factor)
    policy, state, changed = check.made(pool=pool, published=Published(*constants)), None, list[Array]()
    for _, observation, now, answer in check.steps:
        seen = {name: field * factor if name in TIMES else field for name, field in observation.items()}
        then = None if now is None else now._replace(dies=now.dies * factor, deadline=now.deadline * factor)
        try:
            action, state = check.predict(policy, seen, state, then)
        except FaultError as fault:
            raise FaultError(f"where all times are {how} by {_THOUSAND:,.0f}, {fault}") from fault
        changed.append((action != answer.action).any(axis=-1))
    return np.array(changed)


def _scaled(pool: Pool, factor: float) -> Pool:
    data = pool.to_data()
    scaled = {name: [factor * number for number in data[name]] for name in ("shift", "scale")}
    return Pool.from_data({**data, **scaled})


def draws_anew(check: ContractCheck) -> None:
    """Decisions that are drawn are drawn anew in each round, and in each episode."""
    policy, keys = check.made(), stream_keys(0, _KEYS, _STREAM)
    said = "it draws the same in every {what}: draw from keys such as state.round_keys(), others in each {what}"
    places = np.unique(np.geomspace(1, len(check.steps) - 1, _LOOKED_AT).astype(int))
    for k in places.tolist():
        step, before = _tiled(check.steps[k]), _tiled(check.steps[k - 1]).answer.state._replace(key=keys)
        if (step.observation["worker"] < 0).any():
            continue  # an episode begins, and its first round
        if _draws_alike_from_now_on(check, policy, step, before):
            raise FaultError(said.format(what="round"))
    episodes, state = [], policy.first_state(_KEYS)._replace(key=keys)
    for _ in range(2):
        actions = []
        for step in check.steps[: min(_LOOKED_AT, len(check.steps) // 2)]:
            action, state = _decide(check, policy, _tiled(step), state)
            actions.append(action)
        episodes.append(actions)
    pairs = [(first, second) for first, second in zip(*episodes, strict=True) if _drawn(first)]
    if pairs and all(_drawn_alike(*pair) for pair in pairs):
        raise FaultError(said.format(what="episode"))


def _draws_alike_from_now_on(check: ContractCheck, policy: Policy, step: Step, before: State) -> bool:
    """Whether a decision is drawn alike in later rounds, and in the next ones: a plan may hold or count the draws."""
    first, state = _decide(check, policy, step, before)
    for more in _LATER:
        later, _ = _decide(check, policy, step, before._replace(round=before.round + more))
        if not _drawn_alike(first, later):
            return False
    for _ in range(_NEXT):
        following, state = _decide(check, policy, step, state)
        if not _drawn_alike(first, following):
            return False
    return True


def _tiled(step: Step) -> Any:
    """Rows that are all like the first row of a step."""

    def tiled(leaf: Any) -> Any:
        return np.repeat(leaf[:1], _KEYS, axis=0) if isinstance(leaf, np.ndarray) else leaf

    return map_leaves(tiled, step)


def _decide(check: ContractCheck, policy: Policy, step: Step, state: State) -> Answer:
    return check.predict(policy, step.observation, state, step.conditions)


def _drawn(actions: Array) -> bool:
    """Whether rows that differ in their keys alone have other actions, (rows, n)."""
    _, counts = np.unique(actions, axis=0, return_counts=True)
    return bool(len(actions) - counts.max() >= _DRAWN)


def _drawn_alike(first: Array, second: Array) -> bool:
    """Whether the rows of two decisions, (rows, n), are drawn, and differ from each other in the same way in both."""
    one, other = (actions - actions.mean(axis=0) for actions in (first, second))
    together = (one * other).sum() > _ALIKE * np.sqrt((one**2).sum() * (other**2).sum())
    return _drawn(first) and _drawn(second) and bool(together)
