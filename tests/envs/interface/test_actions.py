"""Shares, one task at a time, and one start at a time: the rounds of the env's own actions, bit for bit; and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.special import softmax

from ata_gym.envs.interface.shares import SCALE, race_of_shares, tasks_of_shares
from ata_gym.pools import deterministic, exponential
from ata_gym.scenarios import Scenario
from tests.envs.playing import ALLOCATION, DISPATCH, RACE, WORLDS, Player, same, single, vector

numbers = hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(-1, 1, width=32))


def rounded(weights: NDArray[np.float64], total: int) -> list[int]:
    """Hamilton's method of largest remainders; ties to the lowest index."""
    real = total * weights / weights.sum()
    tasks = np.floor(real).astype(int)
    remainders = real - tasks
    assume(np.diff(np.sort(remainders)).min(initial=1.0) > 1e-9)
    for i in np.argsort(-remainders)[: total - tasks.sum()]:
        tasks[i] += 1
    return [int(each) for each in tasks]


@settings(max_examples=40)
@given(numbers, st.integers(1, 60))
def test_shares_are_rounded_by_largest_remainder(action: Any, budget: int) -> None:
    assert tasks_of_shares(action, budget, SCALE).tolist() == rounded(softmax(SCALE * action), budget)


def test_ties_of_remainders_go_to_the_lowest_workers() -> None:
    for budget, expected in ((4, [1, 1, 1, 1, 0, 0]), (8, [2, 2, 1, 1, 1, 1])):
        assert tasks_of_shares(np.zeros(6), budget, SCALE).tolist() == expected
    rows = tasks_of_shares(np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 30.0]]), 4, SCALE)  # extreme shares
    assert rows.tolist() == [[2, 1, 1], [0, 0, 4]]


def test_a_budget_beyond_floating_point_is_refused() -> None:
    with pytest.raises(ValueError, match="budget must be small enough for exact shares in floating point, not"):
        tasks_of_shares(np.zeros(3), 2**62, SCALE)


@settings(max_examples=40)
@given(numbers.filter(lambda x: len(x) > 1), st.integers(1, 60))
def test_the_total_of_a_race_is_on_a_logarithmic_scale(action: Any, budget: int) -> None:
    n = len(action) - 1
    total = round(budget * n ** ((action[-1] + 1) / 2))
    found = race_of_shares(action, budget, SCALE)
    assert found.tolist() == [min(each, budget) for each in rounded(softmax(SCALE * action[:-1]), total)]
    assert found.sum() >= budget


def test_a_race_goes_from_the_budget_to_everybody() -> None:
    level = np.zeros(5)
    assert race_of_shares(np.append(level, -1.0), 6, SCALE).sum() == 6
    assert race_of_shares(np.append(level, 1.0), 6, SCALE).tolist() == [6] * 5
    assert race_of_shares(np.append(level, 7.0), 6, SCALE).tolist() == [6] * 5  # outside the box: the nearest


@settings(max_examples=40)
@given(st.data(), st.integers(1, 40))
def test_empty_places_get_no_share(data: st.DataObject, budget: int) -> None:
    n = data.draw(st.integers(1, 8))
    action = data.draw(hnp.arrays(np.float64, n, elements=st.floats(-1, 1, width=32)))
    present = data.draw(hnp.arrays(np.bool_, n).filter(np.any))
    found = tasks_of_shares(action, budget, SCALE, present)
    assert found.sum() == budget
    assert found[present].tolist() == tasks_of_shares(action[present], budget, SCALE).tolist()
    race = race_of_shares(np.append(action, data.draw(st.floats(-1, 1))), budget, SCALE, present)
    assert not race[~present].any()
    assert race.sum() >= budget


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE])
def test_shares_play_the_round_of_their_tasks(env_id: str) -> None:
    shares, own = single(env_id, "drawn", action="shares"), single(env_id, "drawn")
    player = Player(shares.action_space, 0)
    for episode in range(3):
        seed = 3 if episode == 0 else None
        seen, other = shares.reset(seed=seed)[0], own.reset(seed=seed)[0]
        over = False
        while not over:
            assert same(seen, other)
            act = player()
            tasks_of = tasks_of_shares if env_id == ALLOCATION else race_of_shares
            tasks = tasks_of(act.astype(np.float64), 4, SCALE, seen["present"] > 0)
            assert not tasks[seen["present"] == 0].any()
            seen, reward, _, over, info = shares.step(act)
            other, *rest = own.step(tasks)
            assert rest == [reward, False, over, info]


@pytest.mark.parametrize("world", WORLDS)
def test_picks_play_the_round_of_their_allocation(world: str) -> None:
    picks, own = single(ALLOCATION, world, action="assign"), single(ALLOCATION, world)
    budget, n = picks.budget, picks.n
    rng = np.random.default_rng(0)
    for episode in range(3):
        seed = 3 if episode == 0 else None
        seen, other = picks.reset(seed=seed)[0], own.reset(seed=seed)[0]
        over = False
        while not over:
            chosen = rng.integers(0, n, budget)
            for k, worker in enumerate(chosen):
                assert {name: seen[name] for name in other}.keys() == other.keys()
                assert same({name: seen[name] for name in other}, other)
                assert seen["started"].tolist() == np.bincount(chosen[:k], minlength=n).tolist()
                assert seen["missing"].tolist() == [budget - k]
                assert not over
                seen, reward, _, over, info = picks.step(worker)
                assert (reward, info.keys()) == (0.0, {"action_mask"}) or k == budget - 1
            other, *expected = own.step(np.bincount(chosen, minlength=n))
            del info["action_mask"]
            assert [reward, False, over, info] == expected


@pytest.mark.parametrize("world", WORLDS)
def test_starts_play_the_round_of_their_dispatch(world: str) -> None:
    starts, own = single(DISPATCH, world, action="start"), single(DISPATCH, world)
    n, rng = own.n, np.random.default_rng(0)
    for episode in range(3):
        seed = 3 if episode == 0 else None
        seen, other = starts.reset(seed=seed)[0], own.reset(seed=seed)[0]
        over = False
        while not over:
            assert same(seen, other)
            act = rng.integers(0, 2, n)
            present = other.get("present", np.ones(n)) > 0
            idle = present & (other["running"] == 0)
            pairs = []
            for worker in rng.permutation(np.flatnonzero(idle & (act == 1))):
                pairs.append(starts.step(worker))
                assert starts.action_masks()[worker] == ("runtime" in pairs[-1][4] and idle_now(pairs[-1][0])[worker])
            if not (act[idle] == 1).all() or not idle.any():  # else time has passed by itself
                pairs.append(starts.step(n))
            seen, reward, _, over, info = pairs[-1]
            for partly, none, _, ended, empty in pairs[:-1]:
                assert (none, ended, empty.keys()) == (0.0, False, {"action_mask"})
                assert same(partly["age"], other["age"])
                assert partly["running"].sum() > other["running"].sum()
            other, *expected = own.step(act)
            del info["action_mask"]
            assert [reward, False, over, info] == expected


def idle_now(seen: dict[str, Any]) -> NDArray[np.bool_]:
    idle: NDArray[np.bool_] = (seen["running"] == 0) & (seen.get("present", 1) > 0)
    return idle


def test_masks_of_starts_say_who_is_idle_and_whether_to_wait() -> None:
    envs = vector(DISPATCH, "drawn", 4, action="start", autoreset_mode="SameStep")
    seen, info = envs.reset(seed=0)
    players = [Player(envs.single_action_space, e) for e in range(4)]
    waited = set()
    for _ in range(80):
        mask = info["action_mask"]
        assert info["_action_mask"].all()
        assert mask.dtype == np.int8
        assert same(mask[:, :-1] > 0, idle_now(seen))
        assert (mask[:, -1] == (seen["running"] > 0).any(axis=1)).all()
        assert mask.any(axis=1).all()
        waited |= set(mask[:, -1].tolist())
        acts = np.array([play.space.sample(one) for play, one in zip(players, mask, strict=True)])
        seen, _, _, _, info = envs.step(acts)
    assert waited == {0, 1}


def test_masks_of_picks_say_who_is_there() -> None:
    envs = vector(ALLOCATION, "drawn", 6, action="assign", autoreset_mode="SameStep")
    seen, info = envs.reset(seed=0)
    for _ in range(25):
        assert same(info["action_mask"], seen["present"])
        acts = np.array([envs.single_action_space.sample(mask) for mask in info["action_mask"]])
        seen, _, _, _, info = envs.step(acts)
    assert not seen["present"].all()


SMALL = Scenario(exponential([1.0, 2.0]) + deterministic([3.0]), 4, 2)


@pytest.mark.parametrize(
    ("env_id", "action", "given", "sentence"),
    [
        (ALLOCATION, "shares", [0, 0, 1], "must be real numbers from -1 to 1"),
        (ALLOCATION, "shares", np.zeros(4), "must have shape"),
        (ALLOCATION, "shares", [0.0, np.nan, 1.0], "must be finite"),
        (RACE, "shares", np.zeros(3), "must have shape"),
        (ALLOCATION, "assign", 3, "whole number from 0 to 2, not 3"),
        (ALLOCATION, "assign", -1, "whole number from 0 to 2, not -1"),
        (ALLOCATION, "assign", 1.0, "integer"),
        (ALLOCATION, "assign", [1], "shape"),
        (DISPATCH, "start", 4, "whole number from 0 to 3, not 4"),
    ],
)  # fmt: skip
def test_an_illegal_action_is_said_and_changes_nothing(env_id: str, action: str, given: Any, sentence: str) -> None:
    for observation in ("feedback", "workers"):
        env = single(env_id, SMALL, action=action, observation=observation)
        env.reset(seed=0)
        env.step(env.action_space.sample())
        kept = env.checkpoint()
        with pytest.raises(ValueError, match=sentence):
            env.step(given)
        assert same(env.checkpoint(), kept)


@pytest.mark.parametrize(
    ("env_id", "action"), [(RACE, "assign"), (DISPATCH, "shares"), (ALLOCATION, "start"), (DISPATCH, "allocation")]
)
def test_an_env_has_its_own_forms_only(env_id: str, action: str) -> None:
    with pytest.raises(ValueError, match=f"no action of this env '{action}'"):
        single(env_id, SMALL, action=action)
