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
    state: State


class Step(NamedTuple):
    """One call of ``predict``: its arguments besides the last state, and its answer."""

    round: int  # counted from 1 over all episodes
    observation: Observation
    conditions: Conditions | None  # the privileged information; None for policies without
    answer: Answer


def rows_of(tree: Any, rows: slice | int) -> Any:
    """Some rows of all arrays of a tree; with an int, one row without the row axis."""
    return map_leaves(lambda leaf: leaf[rows] if isinstance(leaf, np.ndarray) else leaf, tree)


class FaultError(Exception):
    """A fault after which a check cannot go on; the message is the sentence about it."""


def sentence_on(what: str, error: Exception) -> str:
    """A sentence on an error of the policy: what it is told without having declared it says the error itself."""
    if isinstance(error, UndeclaredError):
        place = place_of(error)
        return str(error) if place is None else f"{error} ({place})"
    return f"{what}{described(error)}"


def note_draws(faults: dict[str, None], before: dict[str, object]) -> None:
    """Add a sentence to ``faults`` for each global generator that has changed; see ``global_generators``."""
    for library, now in global_generators().items():
        if now != before[library]:
            faults[
                f"predict draws from the global generator of {library}: draw with ata_gym.simulation.keys.uniforms "
                "from keys such as state.round_keys()"
            ] = None


def checked_predict(
    faults: dict[str, None], policy: Policy, observation: Observation, state: State | None, start: Array | None = None,
    **privileged: Any,
) -> Answer:  # fmt: skip
    """Call ``predict`` as Stable-Baselines3 does, and add a sentence to ``faults`` for each forbidden side effect.

    FaultError is raised if the checks cannot go on with the answer.
    """
    seen, given = copy.deepcopy((observation, state))  # the checks that follow need them unchanged
    held, generators = _attributes(policy), global_generators()
    try:
        answer: Any = policy.predict(seen, state=given, episode_start=start, deterministic=True, **privileged)
    except Exception as error:
        raise FaultError(sentence_on("predict raises ", error)) from error
    note_draws(faults, generators)
    for name in _changed(policy, held):
        faults[f"predict changes self.{name}: a policy keeps nothing, what it remembers belongs into the state"] = None
    if (what := difference(observation, seen)) is not None:
        faults[f"predict changes observation[{what!r}], which belongs to the env: work on a copy"] = None
    if (what := difference({"state": state}, {"state": given})) is not None:
        faults[
            f"predict changes {what} of the state that it was given: make new arrays, and give state._replace(...)"
        ] = None
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], State)):
        raise FaultError("predict must give an action and a State, as Policy.predict does: override act or allocate")
    checked = Answer(*answer)
    if not isinstance(checked.action, np.ndarray):
        raise FaultError(f"its action must be a NumPy array, not {type(checked.action).__name__}")
    try:
        policy.check_state(checked.state, len(np.atleast_2d(observation["worker"])))
    except ValueError as error:
        raise FaultError(f"its state must keep the form of first_state, so that it can be saved: {error}") from error
    return checked


def _attributes(policy: Policy) -> dict[str, bytes]:
    held = {}
    for name, value in vars(policy).items():
        if name != "setting":
            try:
                held[name] = pickle.dumps(value)
            except Exception:  # such as a local function: its effect is seen in the actions
                held[name] = b""
    return held


def _changed(policy: Policy, held: dict[str, bytes]) -> list[str]:
    now = _attributes(policy)
    filled = {name for name in now if isinstance(getattr(type(policy), name, None), functools.cached_property)}
    return [name for name in {**held, **now} if now.get(name) != held.get(name) and name not in filled - held.keys()]


def global_generators() -> dict[str, object]:
    """The states of the generators that a policy must not use, by library."""
    generator: Any = np.random.get_state()  # noqa: NPY002 - a policy must not use it
    return {"random": random.getstate(), "numpy.random": (generator[1].tobytes(), generator[2])}
