"""Observations and states from outside: what is wrong is refused with a sentence, or played on legally."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ata_policies
from ata_gym.utils.trees import difference
from ata_policies.beliefs.memory import Window
from ata_policies.planning.race_search import RaceSearch
from tests.fuzz.states import BUDGET, COMBINATIONS, Game, N, Try, in_child, outcome, played, tampered, tries, undeclared

PLAYERS = ("ata", "dispatch", "dynamic-ofta")
"""A policy of rounds, one that decides within the round, and one that needs privileged information."""


def told(game: Game) -> dict[str, Any]:
    return {"privileged": game.env.unwrapped.conditions()} if game.policy.privileged else {}


def with_one(field: Any, value: Any) -> Any:
    """The field with another last entry in its second row."""
    changed = field.copy()
    changed[1, -1] = value
    return changed


def wrong_observations(seen: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    """Observations, and what is said of each."""
    for value in (N, 10**6, -2):
        said = f'observation["worker"] must be from -1 (no result) to {N - 1}, the last of {N} workers, not {value}'
        yield seen | {"worker": with_one(seen["worker"], value)}, said
    limits = {"missing": (0, BUDGET + 1), "started": (-1, BUDGET + 1), "running": (-1, 2)}
    must = "must have shape"
    for name, field in seen.items():
        wider = np.concatenate([field, field[:, :1]], axis=1)
        if name in ("duration", "elapsed", "age"):
            for value in (np.nan, -1.0, np.inf, -np.inf):
                said = f"observation['{name}'] must hold finite times of at least 0, not {value}"
                yield seen | {name: with_one(field, value)}, said
            yield seen | {name: field.astype(str)}, f"observation['{name}'] must hold real num"
        else:
            yield seen | {name: field.astype(float)}, f"observation['{name}'] must hold integ"
        for value in limits.get(name, ()):
            yield seen | {name: with_one(field.astype(int), value)}, f"observation['{name}'] must be from"
        yield {key: other for key, other in seen.items() if key != name}, f"the observation lacks {name};"
        yield from ((seen | {name: wrong}, must) for wrong in (wider, field[0], field[:1]))
    yield {name: field[None] for name, field in seen.items()}, "must have shape (R,) or (E, R)"
    others = {name: np.concatenate([field, field[:, :1]], axis=1) for name, field in seen.items() if name != "worker"}
    yield seen | others, must  # of one worker more
    for nothing in ([1.0, 2.0], None, seen | {"duration": [[1.0], [1.0, 2.0]]}):
        yield nothing, "an observation is a dict of arrays with the keys worker, duration, elapsed"


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
    assert_refused(name, [(wrong, game.state, {}, said) for wrong, said in wrong_observations(game.observation)])


@pytest.mark.parametrize("name", PLAYERS)
def test_a_wrong_state_or_episode_start_is_refused_and_changes_nothing(name: str) -> None:
    """A state of another policy, too, unless it is made of the same tuples throughout."""
    game = played(name, 0.1)
    seen, state, first = game.observation, game.state, {key: field[0] for key, field in game.observation.items()}
    more = {key: np.concatenate([field, field[:1]]) for key, field in seen.items()}
    cases: list[Any] = [
        (more, state, {}, "is that of 2 rows, and the observation has 3"),
        (first, state, {}, "is that of 2 rows, and the observation has 1"),
    ]
    must = "must be what predict returned before, or None, not a "
    cases += [(seen, wrong, {}, must + type(wrong).__name__) for wrong in (tuple(state), 3, np.zeros((2, 5)))]
    if "counts" in state.belief._fields:
        said = "the state's belief.counts must hold float64 of shape (2, 4), not "
        forms = {"float64 of shape (2, 6)": np.zeros((2, 6)), "float32": np.ones((2, 4), np.float32), "list": []}
        for form, counts in forms.items():
            cases.append((seen, state._replace(belief=state.belief._replace(counts=counts)), {}, said + form))
    others = [played(other, 0.1) for other in ata_policies.names()]
    foreign = [one.state for one in others if one.policy.env_id == game.policy.env_id]
    cases += [(seen, one, {}, "the state is") for one in foreign if not alike(one, state)]
    starts = (True, [True] * 3, np.zeros(4, bool), np.zeros(0, bool), np.zeros((2, 2), bool), [0.5] * 2, "yes")
    cases += [(seen, state, {"episode_start": start}, "episode_start must") for start in starts]
    assert_refused(name, cases)
    usual, _ = game.policy.predict(seen, state, **told(game))
    for start in (np.zeros(2, bool), np.zeros((2, 1), bool), [False] * 2):
        action, _ = game.policy.predict(seen, state, start, **told(game))
        np.testing.assert_array_equal(action, usual)


def alike(one: Any, other: Any) -> bool:
    """Whether two states are made of the same tuples."""
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    return not isinstance(other, tuple)


NAMES = (*ata_policies.names(), *COMBINATIONS)
LIGHT = "explore-then-commit"
"""A policy whose kernels are soon compiled."""


def test_every_number_of_a_state_says_what_it_may_be() -> None:
    assert {name: found for name in NAMES if (found := undeclared(name))} == {}


def test_wrong_numbers_are_refused_or_played_on_legally() -> None:
    """All of one policy by kernels that check bounds, and some of all; the rest is tried by ``make fuzz``."""
    assert in_child(list(tries(LIGHT)), bounds=True) == []
    every = itertools.chain.from_iterable(tries(name) for name in NAMES)
    some = {one: outcome(one) for one in itertools.islice(every, 0, None, 47)}
    assert set(some.values()) == {"refused", "legal"}, some


@pytest.mark.parametrize(
    ("name", "leaf", "value"),
    [
        ("distribution-learner", "belief.slot", 10**6),
        ("distribution-learner", "belief.owner", -2),
        ("distribution-learner", "belief.row", np.inf),
        ("distribution-learner", "plan.allocation", 1),
        ("race", "plan.stride", -1000000),
        ("race", "plan.fastest", 0),
        ("dispatch", "belief.place", 5),
        ("dispatch", "plan.workers.order", -1),
        ("dispatch-rest", "plan.order", 4),
        ("lb-bsp-gpu", "plan.leader", 4),
        ("thompson:memory=window", "belief.length", 0.0),
        ("kl-gamma:memory=discount", "belief.discount", 1.0),
        ("ata", "belief.counts", np.nan),
        ("ata", "round", -1),
    ],
)
def test_what_is_wrong_is_named(name: str, leaf: str, value: float) -> None:
    one = Try(name, leaf, value, everywhere=True, price=0.1)
    game = played(name, 0.1)
    with pytest.raises(ValueError, match=rf"the state is not one that this \w+ can have: {leaf} must (be from|add up)"):
        game.policy.predict(game.observation, tampered(game, one))


def test_a_state_that_the_policy_gave_itself_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    game, looked = played("ata", 0.1), []
    policy = copy.deepcopy(game.policy)
    check = policy._door.check
    monkeypatch.setattr(policy._door, "check", lambda state, rows: looked.append(rows) or check(state, rows))
    state = game.state
    for _ in range(3):
        _, state = policy.predict(game.observation, state)
    assert looked == [2]  # of another policy
    for foreign in (state._replace(), pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
        one, expected = policy.predict(game.observation, foreign), policy.predict(game.observation, state)
        assert difference(one, expected) is None
    assert len(looked) > 3
    assert pickle.loads(pickle.dumps(policy))._door.last is None
    with pytest.raises(ValueError, match="the state is that of 2 rows, and the observation has 1"):
        policy.predict(
            {name: field[:1] for name, field in game.observation.items()}, policy.predict(game.observation)[1]
        )


def test_loops_end_whatever_a_state_holds() -> None:
    """Behind the door, too."""
    times = np.arange(1.0, 5.0)[:, None] * np.ones((1, 8))
    assert RaceSearch(times, times[:, 0], 5, 0.1).search_from(2, 7, stride=-1000000).fastest in range(1, 5)
    belief = Window().start(1, 2, deviations=True)
    jumped = belief._replace(clock=np.full((1, 2), 2.0**40), length=np.full(1, 2.0**-20))
    seen = jumped.observe(np.array([[0, 0]]), np.array([[1.0, 2.0]]))
    assert seen.counts[0, 0] <= 2.0
