"""Shares, one task at a time, and one start at a time: the rounds of the env's own actions, bit for
bit; and masks.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.special import softmax

from ata_gym.envs.interface.shares import SCALE, race_of_shares, tasks_of_shares
from ata_gym.pools import deterministic, exponential
from ata_gym.scenarios import Scenario
from ata_policies import Setting, from_agent
from tests.envs.playing import (
    ALLOCATION,
    DISPATCH,
    RACE,
    SCENARIOS,
    ActionSampler,
    same,
    single,
    vector,
)


def rounded(weights: NDArray[np.float64], total: int) -> list[int]:
    real = total * weights / weights.sum()
    tasks = np.floor(real).astype(int)
    remainders = real - tasks
    assume(np.diff(np.sort(remainders)).min(initial=1.0) > 1e-9)
    for i in np.argsort(-remainders)[: total - tasks.sum()]:
        tasks[i] += 1
    return [int(each) for each in tasks]


@settings(max_examples=50)
@given(st.data(), st.integers(1, 8), st.integers(1, 60))
def test_shares_are_rounded_by_largest_remainder_and_the_total_of_a_race_is_logarithmic(
    data,
    n,
    budget,
) -> None:
    action = data.draw(hnp.arrays(np.float64, n + 1, elements=st.floats(-1, 1, width=32)))
    present = data.draw(st.none() | hnp.arrays(np.bool_, n).filter(np.any))
    if present is None:
        present_places = np.ones(n, np.bool_)
    else:
        present_places = present
    shares = softmax(SCALE * action[:-1][present_places])
    tasks = tasks_of_shares(action[:-1], budget, SCALE, present)
    race = race_of_shares(action, budget, SCALE, present)
    assert tasks[present_places].tolist() == rounded(shares, budget)
    total = round(budget * n ** ((action[-1] + 1) / 2))
    assert race[present_places].tolist() == [min(each, budget) for each in rounded(shares, total)]
    assert race.sum() >= budget
    assert not (tasks + race)[~present_places].any()


def test_ties_of_remainders_go_to_the_lowest_workers_and_huge_budgets_are_refused() -> None:
    for budget, expected in ((4, [1, 1, 1, 1, 0, 0]), (8, [2, 2, 1, 1, 1, 1])):
        assert tasks_of_shares(np.zeros(6), budget, SCALE).tolist() == expected
    # extreme shares
    rows = tasks_of_shares(
        np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 30.0]]),
        4,
        SCALE,
    )
    assert rows.tolist() == [[2, 1, 1], [0, 0, 4]]
    with pytest.raises(
        ValueError,
        match="budget must be small enough for exact shares in floating point, not",
    ):
        tasks_of_shares(np.zeros(3), 2**62, SCALE)


def test_a_race_goes_from_the_budget_to_all_workers() -> None:
    lowest, highest = (
        race_of_shares(np.array([0.0] * 5 + [last]), 6, SCALE) for last in (-1.0, 1.0)
    )
    assert lowest.sum() == 6
    assert highest.tolist() == [6] * 5


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE])
def test_shares_play_the_round_of_their_tasks(env_id: str) -> None:
    shares = single(env_id, "drawn", action="shares")
    plain = single(env_id, "drawn")
    sampler = ActionSampler(shares.action_space, 0)
    for seed in (3, None, None):
        observation = shares.reset(seed=seed)[0]
        other = plain.reset(seed=seed)[0]
        over = False
        while not over:
            assert same(observation, other)
            act = sampler()
            if env_id == ALLOCATION:
                tasks_of = tasks_of_shares
            else:
                tasks_of = race_of_shares
            tasks = tasks_of(act.astype(np.float64), 4, SCALE, observation["present"] > 0)
            assert not tasks[observation["present"] == 0].any()
            observation, reward, _, over, info = shares.step(act)
            other, *rest = plain.step(tasks)
            assert rest == [reward, False, over, info]


@settings(max_examples=15)
@given(st.data(), st.sampled_from([ALLOCATION, RACE]), st.integers(0, 2**32))
def test_shares_outside_the_box_are_played_as_the_nearest_inside_of_every_share_and_of_the_total(
    data: Any,
    env_id: str,
    seed: int,
) -> None:
    """Alone and in rows; of an agent that is a policy, too, which is asked with the same
    feedback.
    """
    rows = 3
    alone, clipped = (
        single(env_id, "changing", action="shares", observation="flat") for _ in range(2)
    )
    batch = vector(env_id, "changing", rows, action="shares", observation="flat")
    shape = (rows, *alone.action_space.shape)
    wild = st.floats(-3, 3, width=32) | st.floats(allow_nan=False, allow_infinity=False, width=32)
    acts = data.draw(hnp.arrays(np.float32, shape, elements=wild))
    acts[0, -1] = 5.0  # the last worker, or the total
    alone.reset(seed=seed)
    clipped.reset(seed=seed)
    batch.reset(seed=seed)
    in_rows = batch.step(acts)
    played = alone.step(acts[0])
    nearest = clipped.step(np.clip(acts[0], -1, 1))
    assert all(same(one, other) for one, other in zip(played, nearest, strict=True))
    assert same(played[0], in_rows[0][0])
    assert played[1] == in_rows[1][0]
    bare = single(env_id, "changing")
    feedback = bare.reset(seed=seed)[0]
    setting = Setting.from_env(bare)
    of_agent = from_agent(lambda seen: acts[: len(seen)], alone)(setting).predict(feedback)[0]
    of_nearest = from_agent(lambda seen: np.clip(acts[: len(seen)], -1, 1), alone)(setting).predict(
        feedback,
    )[0]
    assert same(of_agent, of_nearest)


def idle_now(observation: dict[str, Any]) -> NDArray[np.bool_]:
    idle: NDArray[np.bool_] = (observation["running"] == 0) & (observation.get("present", 1) > 0)
    return idle


@pytest.mark.parametrize("scenario_name", SCENARIOS)
def test_picks_play_the_round_of_their_allocation_and_masks_say_who_is_there(
    scenario_name: str,
) -> None:
    picks = single(ALLOCATION, scenario_name, action="assign")
    plain = single(ALLOCATION, scenario_name)
    budget = picks.budget
    n = picks.n
    rng = np.random.default_rng(0)
    for seed in (3, None, None):
        (observation, info), other, over = picks.reset(seed=seed), plain.reset(seed=seed)[0], False
        while not over:
            chosen = rng.integers(0, n, budget)
            for k, worker in enumerate(chosen):
                assert same({name: observation[name] for name in other}, other)
                assert (
                    observation["started"].tolist() == np.bincount(chosen[:k], minlength=n).tolist()
                )
                assert observation["missing"].tolist() == [budget - k]
                assert info["action_mask"].tolist() == other.get("present", np.ones(n)).tolist()
                before = info
                observation, reward, _, over, info = picks.step(worker)
                assert info.keys() == before.keys()
                if k < budget - 1:  # nothing was played yet
                    no_round = {
                        "round_time": 0.0,
                        "worker_time": 0.0,
                        **({"lost": 0} if "lost" in info else {}),
                    }
                    assert (reward, over) == (0.0, False)
                    assert same(info, before | no_round)
            other, *expected = plain.step(np.bincount(chosen, minlength=n))
            assert [reward, False, over, {name: info[name] for name in expected[-1]}] == expected


@pytest.mark.parametrize("scenario_name", SCENARIOS)
def test_starts_play_the_round_of_their_dispatch_and_masks_say_who_is_idle_and_whether_to_wait(
    scenario_name: str,
) -> None:
    starts = single(DISPATCH, scenario_name, action="start")
    plain = single(DISPATCH, scenario_name)
    n = plain.n
    rng = np.random.default_rng(0)
    for seed in (3, None, None):
        (observation, info), other, over = starts.reset(seed=seed), plain.reset(seed=seed)[0], False
        while not over:
            assert same(observation, other)
            act = rng.integers(0, 2, n)
            idle = idle_now(other)
            chosen = rng.permutation(np.flatnonzero(idle & (act == 1))).tolist()
            if not (act[idle] == 1).all() or not idle.any():  # else time has passed by itself
                chosen.append(n)
            for k, worker in enumerate(chosen, 1):
                waiting = (observation["running"] > 0).any()
                assert info["action_mask"].tolist() == [*idle_now(observation).astype(int), waiting]
                before = observation["running"].sum()
                earlier = info
                observation, reward, _, over, info = starts.step(worker)
                assert info.keys() == earlier.keys()
                if k < len(chosen):  # no time has passed
                    assert (reward, over) == (0.0, False)
                    of_next = {
                        "round_time": 0.0,
                        "worker_time": 0.0,
                        **({"lost": 0} if "lost" in info else {}),
                    }
                    expected = (
                        earlier | (of_next if earlier["round_over"] else {}) | {"round_over": False}
                    )
                    assert same(info, expected | {"action_mask": info["action_mask"]})
                    assert same(observation["age"], other["age"])
                    assert observation["running"].sum() > before
            other, *expected = plain.step(act)
            assert info["action_mask"].dtype == np.int8
            assert [reward, False, over, {name: info[name] for name in expected[-1]}] == expected


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE])
@pytest.mark.parametrize("action", ["allocation", "shares"])
def test_own_actions_and_shares_have_no_mask(env_id: str, action: str) -> None:
    for env in (
        single(env_id, "ending", action=action),
        vector(env_id, "ending", 2, action=action),
    ):
        assert "action_mask" not in env.reset(seed=0)[1]
        with pytest.raises(
            AttributeError,
            match='only the actions "assign" and "start" have masks',
        ):
            env.action_masks()


SMALL = Scenario(exponential([1.0, 2.0]) + deterministic([3.0]), 4, 2)


@pytest.mark.parametrize(
    ("env_id", "action", "wrong_action", "sentence"),
    [
        (ALLOCATION, "allocation", [-1, 3, 2], "0 or more"),
        (ALLOCATION, "allocation", [1.0, 1.0, 2.0], "integer"),
        (RACE, "allocation", [5, 0, 0], "budget"),
        (ALLOCATION, "shares", [0, 0, 1], "must be real numbers from -1 to 1"),
        (ALLOCATION, "shares", np.zeros(4), "must have shape"),
        (ALLOCATION, "shares", [0.0, np.nan, 1.0], "must be finite"),
        (RACE, "shares", np.zeros(3), "must have shape"),
        (ALLOCATION, "assign", 3, "whole number from 0 to 2, not .*3"),
        (ALLOCATION, "assign", -1, "whole number from 0 to 2, not .*-1"),
        (ALLOCATION, "assign", 1.0, "integer"),
        (ALLOCATION, "assign", [1], "shape"),
        (DISPATCH, "start", 4, "whole number from 0 to 3, not .*4"),
        (DISPATCH, "dispatch", [0, 1, 2], "worker 2.* must have 0 or 1, not 2"),
        (DISPATCH, "dispatch", "111", "shape"),
    ],
)
def test_an_illegal_action_is_refused_and_changes_nothing(
    env_id: str,
    action: str,
    wrong_action: Any,
    sentence: str,
) -> None:
    options: dict[str, Any] = {
        "action": action,
        "observation": "feedback" if action == "assign" else "workers",
    }
    alone = single(env_id, SMALL, **options)
    rows = vector(env_id, SMALL, 1, **options)
    for env, wrong in ((alone, wrong_action), (rows, np.array(wrong_action)[None]), (alone, None)):
        env.reset(seed=0)
        env.step(env.action_space.sample())
        kept = env.checkpoint()
        with pytest.raises(ValueError, match="." if wrong is None else sentence):
            env.step(wrong)
        assert same(env.checkpoint(), kept)
