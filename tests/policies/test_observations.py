"""The check of what predict is given: what is wrong is refused with a sentence, and nothing is learned."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_gym.utils.trees import difference
from ata_policies.steps import decide, play

ROWS, N, BUDGET = 3, 5, 7
POOL = shifted_exponential(np.arange(1.0, N + 1), np.arange(1.0, N + 1))
PLAYERS = ("ata", "dispatch", "dynamic-ofta")
"""A policy of rounds, one that decides within the round, and one that needs privileged information."""


class Played(NamedTuple):
    """A policy after six steps."""

    policy: Any
    observation: dict[str, Any]
    state: Any
    now: dict[str, Any]
    """The privileged information, for oracles."""
    action: Any
    """What it does next."""
    after: Any
    """The state after that."""


@functools.cache
def played(name: str, rows: int = ROWS) -> Played:
    env: Any = gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, pool=POOL, budget=BUDGET)
    policy = ata_policies.make(name, env)
    *_, last = islice(play(policy, env), 6)
    now = {"privileged": env.unwrapped.conditions()} if policy.privileged else {}
    return Played(policy, last.observation, last.state, now, *decide(policy, env, last.observation, last.state))


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
        yield f"fewer rows of {name}", seen | {name: field[:2]}, "must have shape"
    yield "three axes", {name: field[None] for name, field in seen.items()}, "must have shape (R,) or (E, R)"
    yield "no dict", [1.0, 2.0], "an observation is a dict of arrays with the keys worker, duration, elapsed"
    yield "nothing", None, "an observation is a dict of arrays with the keys worker, duration, elapsed"
    other = {name: np.concatenate([field, field[:, :1]], axis=1) for name, field in seen.items() if name != "worker"}
    yield "another worker", seen | other, "must have shape"
    ragged = seen | {"duration": [[1.0], [1.0, 2.0]]}
    yield "ragged", ragged, "an observation is a dict of arrays with the keys worker, duration, elapsed"


def refusal(game: Played, observation: Any, state: Any, **more: Any) -> str:
    """What is said; or what happened in the place of a ValueError."""
    try:
        game.policy.predict(observation, state, **(game.now | more))
    except ValueError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__} in the place of a ValueError: {error}"
    return "nothing is wrong"


def goes_on(game: Played) -> bool:
    """Whether the policy does with the same state what it would have done."""
    answer = game.policy.predict(game.observation, game.state, **game.now)
    return difference(answer, (game.action, game.after)) is None


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_observation_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name)
    faults = []
    for what, observation, said in wrong_observations(game.observation):
        message = refusal(game, observation, game.state)
        if said not in message:
            faults.append(f"{what}: {message}")
        if not goes_on(game):
            faults.append(f"{what}: it goes on in another way")
    assert not faults


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_state_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name)
    first = {key: field[0] for key, field in game.observation.items()}
    cases = [
        ("of other rows", played(name, rows=2).state, game.observation, "is that of 2 rows, and the observation has 3"),
        ("of a batch, for one row", game.state, first, "is that of 3 rows, and the observation has 1"),
        ("a tuple", tuple(game.state), game.observation, "must be what predict returned before, or None, not a tuple"),
        ("a number", 3, game.observation, "must be what predict returned before, or None, not a int"),
        ("an array", np.zeros((3, 5)), game.observation, "must be what predict returned before, or None, not a ndarr"),
    ]
    if "counts" in game.state.belief._fields:
        other = game.state._replace(belief=game.state.belief._replace(counts=np.zeros((3, 6))))
        said = "the state's belief.counts must hold float64 of shape (3, 5), not float64 of shape (3, 6)"
        cases.append(("of other workers", other, game.observation, said))
    for what, state, observation, said in cases:
        message = refusal(game, observation, state)
        assert said in message, f"{what}: {message}"
        assert goes_on(game), what


@pytest.mark.parametrize("name", PLAYERS)
def test_a_state_of_another_policy_is_refused(name: str) -> None:
    """Unless it is made of the same tuples throughout."""
    game = played(name)
    for other in ata_policies.names():
        foreign = played(other)
        if foreign.policy.env_id == game.policy.env_id and not alike(foreign.state, game.state):
            message = refusal(game, game.observation, foreign.state)
            assert "the state is" in message, f"{other}: {message}"
            assert goes_on(game), other


def alike(one: Any, other: Any) -> bool:
    """Whether two states are made of the same tuples."""
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    return not isinstance(other, tuple)


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_episode_start_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name)
    for start in (True, [True, False], np.zeros(4, bool), np.zeros(0, bool), np.zeros((3, 2), bool), [0.5] * 3, "yes"):
        message = refusal(game, game.observation, game.state, episode_start=start)
        assert "episode_start must" in message, f"{start}: {message}"
        assert goes_on(game), start
    for start in (np.zeros(3, bool), np.zeros((3, 1), bool), [False] * 3):
        action, _ = game.policy.predict(game.observation, game.state, start, **game.now)
        np.testing.assert_array_equal(action, game.action)
