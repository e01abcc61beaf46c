"""One call of a policy's ``predict``: its answer, and its side effects."""

import copy
import functools
import pickle
import random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.utils.errors import described, place_of
from ata_gym.utils.trees import difference, map_leaves
from ata_policies.facts import UndeclaredError
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State

Array = NDArray[Any]


class Answer(NamedTuple):
    """The answer of ``predict``."""

    action: Array
    """(rows, n), or (n,) without a row axis."""
    state: State
    """The next state."""


class PredictCall(NamedTuple):
    """One call of ``predict``: its arguments besides the last state, and its answer."""

    round: int
    """Counted from 1 over all episodes."""
    observation: Observation
    """What the policy observes."""
    conditions: Conditions | None
    """The privileged information; None for policies without."""
    answer: Answer
    """What it answers."""


def rows_of(tree: Any, rows: slice | int) -> Any:
    """Return some rows of all arrays of a tree; with an int, one row without the row axis."""
    return map_leaves(lambda leaf: leaf[rows] if isinstance(leaf, np.ndarray) else leaf, tree)


class FaultError(Exception):
    """A fault after which a check cannot go on; the message is the sentence about it."""


def sentence_on(beginning: str, error: BaseException) -> str:
    """Return a sentence on an error of the policy.

    If the policy uses what it has not declared, the error says so itself; for any other error, the
    sentence begins with ``beginning``.
    """
    if isinstance(error, UndeclaredError):
        place = place_of(error)
        if place is None:
            return str(error)
        return f"{error} ({place})"
    return f"{beginning}{described(error)}"


def note_draws(faults: dict[str, None], before: dict[str, object]) -> None:
    """Add a sentence to ``faults`` for each global generator that has changed.

    Args:
        faults: The sentences.
        before: The states from which they changed; see ``global_generators``.
    """
    for library, generator_state in global_generators().items():
        if generator_state != before[library]:
            faults[
                f"predict draws from the global generator of {library}: draw with"
                " ata_gym.simulation.keys.uniforms from keys such as state.round_keys()"
            ] = None


def checked_predict(
    faults: dict[str, None],
    policy: Policy,
    observation: Observation,
    state: State | None,
    start: Array | None = None,
    **privileged: Any,
) -> Answer:
    """Call ``predict`` as Stable-Baselines3 does, and note forbidden side effects.

    Args:
        faults: A sentence is added for each side effect.
        policy: The policy.
        observation: What it observes.
        state: Its last state; None at first.
        start: The argument ``episode_start``.
        privileged: The argument ``privileged``, for a policy that needs it.

    Raises:
        FaultError: If the checks cannot go on with the answer.
    """
    # the checks that follow need them unchanged
    observation_copy, state_copy = copy.deepcopy((observation, state))
    attributes = _attributes(policy)
    generators = global_generators()
    try:
        answer: Any = policy.predict(
            observation_copy,
            state=state_copy,
            episode_start=start,
            deterministic=True,
            **privileged,
        )
    except (Exception, SystemExit) as error:
        raise FaultError(sentence_on("predict raises ", error)) from error
    note_draws(faults, generators)
    for name in _changed(policy, attributes):
        faults[
            f"predict changes self.{name}: a policy keeps nothing, what it remembers belongs into"
            " the state"
        ] = None
    if (leaf_name := difference(observation, observation_copy)) is not None:
        faults[
            f"predict changes observation[{leaf_name!r}], which belongs to the env: work on a copy"
        ] = None
    if (leaf_name := difference({"state": state}, {"state": state_copy})) is not None:
        faults[
            f"predict changes {leaf_name} of the state that it was given: make new arrays, and give"
            " state._replace(...)"
        ] = None
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], State)):
        raise FaultError(
            "predict must give an action and a State, as Policy.predict does: override act or"
            " allocate",
        )
    checked = Answer(*answer)
    if not isinstance(checked.action, np.ndarray):
        raise FaultError(f"its action must be a NumPy array, not {type(checked.action).__name__}")
    try:
        policy.check_state(checked.state, len(np.atleast_2d(observation["worker"])))
    except ValueError as error:
        raise FaultError(
            f"its state must keep the form of first_state, so that it can be saved: {error}",
        ) from error
    return checked


def _attributes(policy: Policy) -> dict[str, bytes]:
    """Return the attributes of a policy, without its setting, as bytes."""
    attributes = {}
    for name, value in vars(policy).items():
        if name != "setting":
            try:
                attributes[name] = pickle.dumps(value)
            except Exception:
                # such as a local function, whose effect is seen in the actions
                attributes[name] = b""
    return attributes


def _changed(policy: Policy, attributes: dict[str, bytes]) -> list[str]:
    """Return the names of the attributes that have changed since they were these ``attributes``."""
    current_attributes = _attributes(policy)
    # a cached property may be filled in: it follows from the other attributes
    filled = {
        name
        for name in current_attributes
        if isinstance(getattr(type(policy), name, None), functools.cached_property)
    }
    return [
        name
        for name in {**attributes, **current_attributes}
        if current_attributes.get(name) != attributes.get(name)
        and name not in filled - attributes.keys()
    ]


def global_generators() -> dict[str, object]:
    """Return the states of the generators that a policy must not use, by library."""
    generator: Any = np.random.get_state()  # noqa: NPY002 - a policy must not use it
    return {"random": random.getstate(), "numpy.random": (generator[1].tobytes(), generator[2])}
