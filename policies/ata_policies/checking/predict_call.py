"""One call of a policy's ``predict``, and what it changed besides its answer."""

from __future__ import annotations

import copy
import functools
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.utils.trees import difference, leaves
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State

Array = NDArray[Any]


class FaultError(Exception):
    """A fault after which a check cannot go on; the message is its sentence."""


def checked_predict(
    note: Callable[[str], None],
    policy: Policy,
    observation: Observation,
    state: State | None,
    start: Array | None = None,
    **privileged: Any,
) -> tuple[Array, State]:
    """Call ``predict`` as Stable-Baselines3 does, and ``note`` a sentence for each forbidden side effect.

    Raises
    ------
    FaultError
        If there is no answer that the checks could go on with.
    """
    seen, given = copy.deepcopy((observation, state))  # the checks that follow need them unchanged
    held, generators = _attributes(policy), _global_generators()
    try:
        answer: Any = policy.predict(seen, state=given, episode_start=start, deterministic=True, **privileged)
    except Exception as error:
        raise FaultError(f"predict raises {type(error).__name__}: {error}") from error
    for library, now in _global_generators().items():
        if now != generators[library]:
            note(
                f"predict draws from the global generator of {library}: draw with ata_gym.simulation.keys.uniforms "
                "from keys such as state.round_keys()"
            )
    for name in _changed(policy, held):
        note(f"predict changes self.{name}: a policy keeps nothing, what it remembers belongs into the state")
    if (what := difference(observation, seen)) is not None:
        note(f"predict changes observation[{what!r}], which belongs to the env: work on a copy")
    if (what := difference({"state": state}, {"state": given})) is not None:
        note(f"predict changes {what} of the state that it was given: make new arrays, and give state._replace(...)")
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], State)):
        raise FaultError("predict must give an action and a State, as Policy.predict does: override act or allocate")
    action, after = answer
    if not isinstance(action, np.ndarray):
        raise FaultError(f"its action must be a NumPy array, not {type(action).__name__}")
    _check_form(policy, after, len(np.atleast_2d(observation["worker"])))
    return action, after


def _check_form(policy: Policy, state: State, rows: int) -> None:
    """Raise FaultError unless the state has the form of the first state, so that it can be saved and restored."""
    for name, leaf in leaves(state, "state"):
        if not isinstance(leaf, np.ndarray) or leaf.dtype.hasobject or leaf.shape[:1] != (rows,):
            form = f"an array of {leaf.dtype} {leaf.shape}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
            raise FaultError(
                f"{name} must be an array of numbers with a leading row axis, not {form}: otherwise the state cannot "
                "be saved, nor its rows start anew"
            )
    now, first = _form(state), _form(policy.first_state(rows))
    for name in [*now, *first]:
        if now.get(name) != first.get(name):
            there, here = first.get(name, "not there"), now.get(name, "not there")
            raise FaultError(
                f"{name} must keep the form that it has in first_state: it is {there} there, and {here} later"
            )


def _form(state: State) -> dict[str, str]:
    return {name: f"{np.asarray(leaf).dtype} {np.shape(leaf)}" for name, leaf in leaves(state, "state")}


def _attributes(policy: Policy) -> dict[str, bytes]:
    """The attributes of a policy besides its setting, pickled where possible."""
    held = {}
    for name, value in vars(policy).items():
        if name != "setting":
            try:
                held[name] = pickle.dumps(value)
            except Exception:  # such as a local function: its effect is seen in the actions
                held[name] = b""
    return held


def _changed(policy: Policy, held: dict[str, bytes]) -> list[str]:
    """The attributes that differ from those ``held``; a cached property may be filled."""
    now = _attributes(policy)
    return [
        name
        for name in {**held, **now}
        if now.get(name) != held.get(name)
        and not (name not in held and isinstance(getattr(type(policy), name, None), functools.cached_property))
    ]


def _global_generators() -> dict[str, object]:
    """The states of the global generators."""
    generator: Any = np.random.get_state()  # noqa: NPY002 - a policy must not use it
    return {"random": random.getstate(), "numpy.random": (generator[1].tobytes(), generator[2])}
