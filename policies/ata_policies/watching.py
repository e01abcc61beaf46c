"""One call of a policy's ``predict``, and whatever else happened meanwhile."""

from __future__ import annotations

import copy
import functools
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_policies.policy import Observation, Policy, State

Array = NDArray[Any]
Arrays = dict[str, Array]


class FaultError(Exception):
    """A fault after which a check cannot go on; the message is its sentence."""


def watched_predict(
    note: Callable[[str], None],
    policy: Policy,
    observation: Observation,
    state: State | None,
    start: NDArray[np.bool_] | None = None,
) -> tuple[Array, State]:
    """Predict as Stable-Baselines3 would; ``note`` is told a sentence for each thing that should not have happened.

    Raises
    ------
    FaultError
        If there is no answer that one could go on with.
    """
    seen, given = copy.deepcopy((observation, state))  # so that nothing is spoilt for the checks that follow
    held, luck = _held(policy), _global_luck()
    try:
        answer: Any = policy.predict(seen, state=given, episode_start=start, deterministic=True)
    except Exception as error:
        raise FaultError(f"predict raises {type(error).__name__}: {error}") from error
    for library, now in _global_luck().items():
        if now != luck[library]:
            note(
                f"predict draws from the global generator of {library}: draw with ata_gym.simulation.uniforms from "
                "keys such as state.round_keys()"
            )
    for name in _changed(policy, held):
        note(f"predict changes self.{name}: a policy keeps nothing, what it remembers belongs into the state")
    if (what := difference(observation, seen)) is not None:
        note(f"predict changes observation[{what!r}], which belongs to the env: work on a copy")
    if (what := difference(dict(leaves(state)), dict(leaves(given)))) is not None:
        note(f"predict changes {what} of the state that it was given: make new arrays, and give state._replace(...)")
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], State)):
        raise FaultError("predict must give an action and a State, as Policy.predict does: override act or allocate")
    action, after = answer
    if not isinstance(action, np.ndarray):
        raise FaultError(f"its action must be a NumPy array, not {type(action).__name__}")
    _check_form(policy, after, len(np.atleast_2d(observation["worker"])))
    return action, after


def _check_form(policy: Policy, state: State, rows: int) -> None:
    """A state can be saved, and its rows can start anew, where it has the form of the first state."""
    for name, leaf in leaves(state):
        if not isinstance(leaf, np.ndarray) or leaf.dtype.hasobject or leaf.shape[:1] != (rows,):
            form = f"an array of {leaf.dtype} {leaf.shape}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise FaultError(
                f"{name} must be an array of numbers with a leading row axis, not {form}: else the state cannot be "
                "saved, nor its rows start anew"
            )
    now, first = _form(state), _form(policy.first_state(rows))
    for name in [*now, *first]:
        if now.get(name) != first.get(name):
            there, here = first.get(name, "not there"), now.get(name, "not there")
            raise FaultError(
                f"{name} must keep the form that it has in first_state: it is {there} there, and {here} later"
            )


def _form(state: State) -> dict[str, str]:
    return {name: f"{np.asarray(leaf).dtype} {np.shape(leaf)}" for name, leaf in leaves(state)}


def leaves(tree: Any, name: str = "state") -> Iterator[tuple[str, Any]]:
    """What nested tuples hold, each with the name of its place.

    >>> dict(leaves((1, (2, 3)), "plan"))
    {'plan.0': 1, 'plan.1.0': 2, 'plan.1.1': 3}
    """
    if isinstance(tree, tuple):
        for part, child in zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True):
            yield from leaves(child, f"{name}.{part}")
    else:
        yield name, tree


def difference(some: Arrays, others: Arrays) -> str | None:
    """The name of the first of some arrays that is not the same bits among the others."""
    for name in some:
        one, other = np.asarray(some[name]), np.asarray(others[name])
        if one.shape != other.shape or one.dtype != other.dtype or one.tobytes() != other.tobytes():
            return name
    return None


def _held(policy: Policy) -> dict[str, bytes]:
    """What a policy holds beside its setting, as far as it can be written down."""
    held = {}
    for name, value in vars(policy).items():
        if name != "setting":
            try:
                held[name] = pickle.dumps(value)
            except Exception:  # such as a function made on the spot: what it does is seen in the actions
                held[name] = b""
    return held


def _changed(policy: Policy, held: dict[str, bytes]) -> list[str]:
    """What a policy holds otherwise than before; a cached property may be filled."""
    now = _held(policy)
    return [
        name
        for name in {**held, **now}
        if now.get(name) != held.get(name)
        and not (name not in held and isinstance(getattr(type(policy), name, None), functools.cached_property))
    ]


def _global_luck() -> dict[str, object]:
    """Where the global generators are."""
    generator: Any = np.random.get_state()  # noqa: NPY002 - it is looked at because nobody should use it
    return {"random": random.getstate(), "numpy.random": (generator[1].tobytes(), generator[2])}
