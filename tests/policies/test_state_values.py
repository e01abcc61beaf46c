"""States from outside: each number of a state says what it may be, and others are refused or played on legally."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest

import ata_policies
from ata_gym.utils.trees import difference
from ata_policies.beliefs.memory import Window
from ata_policies.planning.race_search import RaceSearch
from tests.fuzz.states import COMBINATIONS, Try, in_child, outcome, played, tampered, tries, undeclared

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
