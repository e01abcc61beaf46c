"""What predict is given and what it explains: what is wrong is refused with a sentence, or played
on legally.
"""

import copy
import itertools
import logging
import pickle
from collections.abc import Iterator
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import deterministic, shifted_exponential
from ata_gym.utils.trees import difference, map_leaves
from ata_policies.allocation.baselines import Uta
from ata_policies.beliefs.distributions.arrays import SLOT
from ata_policies.beliefs.memory import Window
from ata_policies.explanation import listed
from ata_policies.planning.races.search import RaceSearch
from ata_policies.policy import DispatchPolicy
from ata_policies.registry import DEFAULTS
from ata_policies.setting import Setting
from ata_policies.steps import play
from tests.fuzz import states
from tests.fuzz.states import BUDGET, PLAYED, ROWS, Game, N, Try, played
from tests.policies.conftest import blank

POLICIES = ("ata", "dispatch", "dynamic-ofta")
"""A policy of rounds, one that decides within the round, and one that needs privileged information.
"""


def told(game: Game) -> dict[str, Any]:
    if game.policy.privileged:
        return {"privileged": game.env.unwrapped.conditions()}
    return {}


def with_one(field: Any, value: Any) -> Any:
    changed = field.copy()
    changed[1, -1] = value
    return changed


def wrong_observations(seen: dict[str, Any]) -> Iterator[tuple[Any, str]]:
    for value in (N, 10**6, -2):
        said = (
            f'observation["worker"] must be from -1 (no result) to {N - 1}, the last of {N}'
            f" workers, not {value}"
        )
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
            yield (
                seen | {name: with_one(field.astype(int), value)},
                f"observation['{name}'] must be from",
            )
        yield (
            {key: other for key, other in seen.items() if key != name},
            f"the observation lacks {name};",
        )
        yield from ((seen | {name: wrong}, must) for wrong in (wider, field[0], field[:1]))
    yield {name: field[None] for name, field in seen.items()}, "must have shape (R,) or (E, R)"
    others = {
        name: np.concatenate([field, field[:, :1]], axis=1)
        for name, field in seen.items()
        if name != "worker"
    }
    yield seen | others, must  # of one worker more
    for nothing in ([1.0, 2.0], None, seen | {"duration": [[1.0], [1.0, 2.0]]}):
        yield nothing, "an observation is a dict of arrays with the keys worker, duration, elapsed"


def assert_refused(name: str, cases: list[tuple[Any, Any, dict[str, Any], str]]) -> None:
    """Each observation and state is refused with what is said, and the policy then does what it
    would have done.
    """
    game = played(name, 0.1)
    faults = []
    policy = game.policy
    now = told(game)
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


@pytest.mark.parametrize("name", POLICIES)
def test_a_wrong_observation_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name, 0.1)
    assert_refused(
        name,
        [(wrong, game.state, {}, said) for wrong, said in wrong_observations(game.observation)],
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_wrong_state_or_episode_start_is_refused_and_changes_nothing(name: str) -> None:
    game = played(name, 0.1)
    seen = game.observation
    state = game.state
    first = {key: field[0] for key, field in game.observation.items()}
    more = {key: np.concatenate([field, field[:1]]) for key, field in seen.items()}
    cases: list[Any] = [
        (more, state, {}, "is for 2 rows, and the observation has 3"),
        (first, state, {}, "is for 2 rows, and the observation has 1"),
    ]
    must = "must be what predict returned before, or None, not a "
    cases += [
        (seen, wrong, {}, must + type(wrong).__name__)
        for wrong in (tuple(state), 3, np.zeros((2, 5)))
    ]
    if "counts" in state.belief._fields:
        said = "the state's belief.counts must hold float64 of shape (2, 4), not "
        forms = {
            "float64 of shape (2, 6)": np.zeros((2, 6)),
            "float32": np.ones((2, 4), np.float32),
            "list": [],
        }
        for form, counts in forms.items():
            cases.append(
                (
                    seen,
                    state._replace(belief=state.belief._replace(counts=counts)),
                    {},
                    said + form,
                ),
            )
    others = [played(other, 0.1) for other in ata_policies.names()]
    foreign = [one.state for one in others if one.policy.env_id == game.policy.env_id]
    cases += [(seen, one, {}, "the state is") for one in foreign if not alike(one, state)]
    starts = (
        True,
        [True] * 3,
        np.zeros(4, bool),
        np.zeros(0, bool),
        np.zeros((2, 2), bool),
        [0.5] * 2,
        "yes",
    )
    cases += [(seen, state, {"episode_start": start}, "episode_start must") for start in starts]
    assert_refused(name, cases)
    usual, _ = game.policy.predict(seen, state, **told(game))
    for start in (np.zeros(2, bool), np.zeros((2, 1), bool), [False] * 2):
        action, _ = game.policy.predict(seen, state, start, **told(game))
        np.testing.assert_array_equal(action, usual)


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(alike, one, other))
    return not isinstance(other, tuple)


NAMES = (*ata_policies.names(), *states.COMBINATIONS)
LIGHT = "explore-then-commit"
"""A policy whose kernels are soon compiled."""


def test_every_number_of_a_state_says_what_it_may_be() -> None:
    assert {name: found for name in NAMES if (found := states.undeclared(name))} == {}


def test_wrong_numbers_are_refused_or_played_on_legally() -> None:
    """All of one policy by kernels that check bounds, and some of all; the rest is tried by ``make
    fuzz``.
    """
    assert states.in_child(list(states.tries(LIGHT)), bounds=True) == []
    every = itertools.chain.from_iterable(states.tries(name) for name in NAMES)
    some = {one: states.outcome(one) for one in itertools.islice(every, 0, None, 47)}
    assert set(some.values()) == {"refused", "legal"}, some


@pytest.mark.parametrize(
    ("name", "leaf"),
    [
        ("learned", "belief.workers"),
        ("recent-median", "plan.prediction.samples"),
        ("catoni", "belief.sums"),
    ],
)
def test_what_passes_the_door_fails_no_later(name: str, leaf: str) -> None:
    found = {one: states.outcome(one) for one in states.tries(name) if one.leaf == leaf}
    assert set(found.values()) == {"refused", "legal"}, found


@pytest.mark.parametrize("place", [SLOT.stretch, SLOT.counted_share])
def test_a_suspect_of_which_nothing_was_kept_is_decided_on(place: int) -> None:
    tries = [
        Try("distribution-learner", "belief.tracks", value, (..., place), 0.1)
        for value in (5e-324, 0.5, 1.0)
    ]
    assert [states.outcome(one) for one in tries] == ["legal"] * 3


@pytest.mark.parametrize(
    ("name", "leaf", "value"),
    [
        ("distribution-learner", "belief.slot", 10**6),
        ("distribution-learner", "belief.owner", -2),
        ("distribution-learner", "belief.row", np.inf),
        ("distribution-learner", "plan.allocation", 1),
        ("race", "plan.stride", -1000000),
        ("race", "plan.fastest", 0),
        ("dispatch", "belief.place", 6),
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
    one = Try(name, leaf, value, states.EVERYWHERE, price=0.1)
    game = played(name, 0.1)
    with pytest.raises(
        ValueError,
        match=rf"the state is not one that this \w+ can have: {leaf} must (be from|add up)",
    ):
        game.policy.predict(game.observation, states.tampered(game, one))


def test_a_state_that_the_policy_gave_itself_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    game = played("ata", 0.1)
    looked = []
    policy = copy.deepcopy(game.policy)
    check = policy._state_check.check
    monkeypatch.setattr(
        policy._state_check,
        "check",
        lambda state, rows: looked.append(rows) or check(state, rows),
    )
    state = game.state
    for _ in range(3):
        _, state = policy.predict(game.observation, state)
    assert looked == [2]  # of another policy
    for foreign in (state._replace(), pickle.loads(pickle.dumps(state)), copy.deepcopy(state)):
        one = policy.predict(game.observation, foreign)
        expected = policy.predict(game.observation, state)
        assert difference(one, expected) is None
    assert len(looked) > 3
    assert pickle.loads(pickle.dumps(policy))._state_check.last_state is None
    first = {name: field[:1] for name, field in game.observation.items()}
    both = policy.predict(game.observation)[1]
    with pytest.raises(ValueError, match="the state is for 2 rows, and the observation has 1"):
        policy.predict(first, both)


def test_loops_end_whatever_a_state_holds() -> None:
    times = np.arange(1.0, 5.0)[:, None] * np.ones((1, 8))
    assert RaceSearch(times, times[:, 0], 5, 0.1).search_from(
        2,
        7,
        stride=-1000000,
    ).fastest in range(1, 5)
    belief = Window().start(1, 2, deviations=True)
    jumped = belief._replace(clock=np.full((1, 2), 2.0**40), length=np.full(1, 2.0**-20))
    seen = jumped.observe(np.array([[0, 0]]), np.array([[1.0, 2.0]]))
    assert seen.counts[0, 0] <= 2.0


MEANS = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
POOL = shifted_exponential(MEANS, 0.1 * MEANS)


@pytest.mark.parametrize("name", ata_policies.names())
def test_every_policy_explains_itself(name: str) -> None:
    game = played(name, 0.1)
    policy = game.policy
    if game.policy.privileged:
        now = {"privileged": game.env.unwrapped.conditions()}
    else:
        now = {}
    action, state = policy.predict(game.observation, game.state, **now)
    if isinstance(policy, DispatchPolicy):
        later = 2
    else:
        later = PLAYED + 1
    for round, one in ((0, policy.first_state(ROWS)), (later, state)):
        told = policy.explain(one, row=1)
        alone = policy.explain(map_leaves(lambda leaf: leaf[1:], one))
        assert str(told) == str(alone)
        np.testing.assert_array_equal(told.mean, alone.mean)
        assert told.round == round
        assert told.policy
        assert (
            told.mean.shape == told.evidence.shape == told.away.shape == told.untried.shape == (N,)
        )
        assert (told.evidence >= 0).all()
        assert not np.nan_to_num(told.mean, nan=1.0).min() < 0
        assert told.tasks is None or (round > 0 and told.tasks.tolist() == action[1].tolist())
        assert round > 0 or not told.away.any()
        lines = str(told).splitlines()
        assert lines[0] == f"round {round}: {told.policy}"
        assert sum(line.split()[:1] == [str(i)] for line in lines for i in range(N)) == N
    with pytest.raises(
        ValueError,
        match=f"one of the state's {ROWS} rows, counted from 0, not {ROWS}",
    ):
        policy.explain(state, ROWS)


def test_means_are_those_of_the_times_seen() -> None:
    envs = gym.make("ata_gym/TaskAllocation-v0", pool=deterministic(MEANS), budget=5)
    named = ("certainty-equivalence", "distribution-learner", "recent-average", "median-of-means")
    for name in (*named, "thompson:memory=window", "thompson:memory=discount", "restarting-beta"):
        policy = ata_policies.make(name, envs)
        *_, last = islice(play(policy, envs), 3)
        told = policy.explain(last.state)
        assert told.mean[~told.untried] == pytest.approx(MEANS[~told.untried])
        assert np.isnan(told.mean[told.untried]).all()


@pytest.mark.parametrize("name", ["restarting-beta", "lb-bsp-federated"])
def test_who_owes_results_is_thought_to_be_away(name: str) -> None:
    pool = deterministic(np.ones(6))
    changes = [Spot(leaves=0.05, returns=0.05, deadline=10.0)]
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, changes=changes, budget=6)
    policy = ata_policies.make(name, env)
    seen = 0
    gone = np.zeros(6, np.bool_)
    for step in islice(play(policy, env, seed=1), 60):
        told = policy.explain(step.state)
        seen += (told.away & gone).sum()  # who has been away for a round
        if told.away.any():
            assert f"thought to be away: {listed(told.away)}" in str(told)
        gone = env.unwrapped.conditions().death_time == 0.0  # type: ignore[attr-defined]
    assert seen > 0


def test_many_workers_are_cut_and_counted() -> None:
    policy = Uta(Setting(n=1000, budget=3))
    action, state = policy.predict(blank(1000, 3))
    text = str(policy.explain(state))
    assert "975 more workers" in text
    assert text.endswith("untried: 0-999")
    shown = {int(line.split()[0]) for line in text.splitlines() if line.split()[0].isdigit()}
    assert set(np.flatnonzero(action).tolist()) <= shown


@settings(max_examples=20)
@given(st.lists(st.booleans(), max_size=40))
def test_ranges_name_each_worker_once(which: list[bool]) -> None:
    text = listed(np.array(which, np.bool_))
    ends = [part.split("-") for part in text.split(", ") if part]
    named = [i for first, *last in ends for i in range(int(first), int((last or [first])[0]) + 1)]
    assert named == np.flatnonzero(which).tolist()


@pytest.mark.parametrize("env_id", DEFAULTS)
def test_the_default_says_who_it_is(
    env_id: str,
    caplog: pytest.LogCaptureFixture,
    capsys: Any,
) -> None:
    env = gym.make(env_id, pool=POOL, budget=6, price=0.25)
    caplog.set_level(logging.INFO, logger="ata_policies")
    ata_policies.make("default", env)
    (one,) = caplog.records
    assert (one.name, one.levelname, one.getMessage()) == (
        "ata_policies",
        "INFO",
        ata_policies.explain_default(env),
    )
    assert f"{DEFAULTS[env_id]} plays {env_id} with 5 workers, B = 6 and price 0.25" in caplog.text
    caplog.clear()
    ata_policies.make(DEFAULTS[env_id], env)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")
