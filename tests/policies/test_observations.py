"""The check of what predict is given: what is wrong is refused with a sentence, and nothing is learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ata_policies
from ata_gym.utils.trees import difference
from tests.fuzz.states import BUDGET, Game, N, played

PLAYERS = ("ata", "dispatch", "dynamic-ofta")
"""A policy of rounds, one that decides within the round, and one that needs privileged information."""


def told(game: Game) -> dict[str, Any]:
    return {"privileged": game.env.unwrapped.conditions()} if game.policy.privileged else {}


def with_one(field: Any, value: Any) -> Any:
    """The field with another last entry in its second row."""
    changed = field.copy()
    changed[1, -1] = value
    return changed


def wrong_observations(seen: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """What is wrong, the observation, and what is said."""
    for value in (N, 10**6, -2):
        said = f'observation["worker"] must be from -1 (no result) to {N - 1}, the last of {N} workers, not {value}'
        yield f"worker {value}", seen | {"worker": with_one(seen["worker"], value)}, said
    for name in ("worker", "missing", "started", "running"):
        if name in seen:
            yield f"{name} as floats", seen | {name: seen[name].astype(float)}, f"observation['{name}'] must hold integ"
    for name in ("duration", "elapsed", "age"):
        if name in seen:
            for value in (np.nan, -1.0, np.inf, -np.inf):
                said = f"observation['{name}'] must hold finite times of at least 0, not {value}"
                yield f"{name} {value}", seen | {name: with_one(seen[name], value)}, said
            yield f"{name} as text", seen | {name: seen[name].astype(str)}, f"observation['{name}'] must hold real num"
    for name, low, high in (("missing", 0, BUDGET + 1), ("started", -1, BUDGET + 1), ("running", -1, 2)):
        if name in seen:
            for value in (low, high):
                said = f"observation['{name}'] must be from"
                yield f"{name} {value}", seen | {name: with_one(seen[name].astype(int), value)}, said
    for name, field in seen.items():
        yield f"no {name}", {key: other for key, other in seen.items() if key != name}, f"the observation lacks {name};"
        wider = np.concatenate([field, field[:, :1]], axis=1)
        yield f"wider {name}", seen | {name: wider}, "must have shape"
        yield f"one row of {name}", seen | {name: field[0]}, "must have shape"
        yield f"fewer rows of {name}", seen | {name: field[:1]}, "must have shape"
    yield "three axes", {name: field[None] for name, field in seen.items()}, "must have shape (R,) or (E, R)"
    yield "no dict", [1.0, 2.0], "an observation is a dict of arrays with the keys worker, duration, elapsed"
    yield "nothing", None, "an observation is a dict of arrays with the keys worker, duration, elapsed"
    other = {name: np.concatenate([field, field[:, :1]], axis=1) for name, field in seen.items() if name != "worker"}
    yield "another worker", seen | other, "must have shape"
    ragged = seen | {"duration": [[1.0], [1.0, 2.0]]}
    yield "ragged", ragged, "an observation is a dict of arrays with the keys worker, duration, elapsed"


def assert_refused(name: str, cases: list[tuple[Any, Any, dict[str, Any], str]]) -> None:
    """Each observation and state is refused with what is said, and the policy then does what it would have done."""
    game, faults = played(name, 0.1), []
    policy, now = game.policy, told(game)
    before = policy.predict(game.observation, game.state, **now)
    for observation, state, more, said in cases:
        try:
            policy.predict(observation, state, **(now | more))
            message = "nothing is wrong"
        except ValueError as error:
            message = str(error)
        except Exception as error:
            message = f"{type(error).__name__} in the place of a ValueError: {error}"
        if said not in message:
            faults.append(f"{said}: {message}")
        if difference(policy.predict(game.observation, game.state, **now), before) is not None:
            faults.append(f"{said}: it goes on in another way")
    assert not faults


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_observation_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name, 0.1)
    assert_refused(name, [(wrong, game.state, {}, said) for _, wrong, said in wrong_observations(game.observation)])


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_state_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name, 0.1)
    seen, first = game.observation, {key: field[0] for key, field in game.observation.items()}
    more = {key: np.concatenate([field, field[:1]]) for key, field in seen.items()}
    must = "must be what predict returned before, or None, not a "
    cases: list[Any] = [
        (more, game.state, {}, "is that of 2 rows, and the observation has 3"),
        (first, game.state, {}, "is that of 2 rows, and the observation has 1"),
        *((seen, wrong, {}, must + kind) for wrong, kind in ((tuple(game.state), "tuple"), (3, "int"))),
        (seen, np.zeros((2, 5)), {}, must + "ndarray"),
    ]
    if "counts" in game.state.belief._fields:
        other = game.state._replace(belief=game.state.belief._replace(counts=np.zeros((2, 6))))
        said = "the state's belief.counts must hold float64 of shape (2, 4), not float64 of shape (2, 6)"
        cases.append((seen, other, {}, said))
    assert_refused(name, cases)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_state_of_another_policy_is_refused(name: str) -> None:
    """Unless it is made of the same tuples throughout."""
    game = played(name, 0.1)
    others = [played(other, 0.1) for other in ata_policies.names()]
    foreign = [one.state for one in others if one.policy.env_id == game.policy.env_id]
    wrong = [state for state in foreign if not alike(state, game.state)]
    assert_refused(name, [(game.observation, state, {}, "the state is") for state in wrong])


def alike(one: Any, other: Any) -> bool:
    """Whether two states are made of the same tuples."""
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    return not isinstance(other, tuple)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_episode_start_is_refused_and_changes_nothing(name: str) -> None:
    game, said = played(name, 0.1), "episode_start must"
    starts = (True, [True] * 3, np.zeros(4, bool), np.zeros(0, bool), np.zeros((2, 2), bool), [0.5] * 2, "yes")
    assert_refused(name, [(game.observation, game.state, {"episode_start": start}, said) for start in starts])
    usual, _ = game.policy.predict(game.observation, game.state, **told(game))
    for start in (np.zeros(2, bool), np.zeros((2, 1), bool), [False] * 2):
        action, _ = game.policy.predict(game.observation, game.state, start, **told(game))
        np.testing.assert_array_equal(action, usual)
