"""Who is away, told from who owes results."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.changes import Change, Crash, Spot
from ata_gym.pools import exponential
from ata_policies.beliefs.availability import Availability, signs_of_life


def numbers(columns: int) -> st.SearchStrategy[np.ndarray]:
    """Two rows of numbers from 0 to 2."""
    row = st.lists(st.integers(0, 2), min_size=columns, max_size=columns)
    return st.lists(row, min_size=2, max_size=2).map(np.array)


@settings(max_examples=40)
@given(st.data())
def test_it_agrees_with_a_diary_kept_by_hand(data: st.DataObject) -> None:
    """Two rows of three workers; a diary for each worker, in plain words."""
    pause, longest = 2, 8
    known = Availability.full(2, 3, pause)
    diary = [[{"away": False, "pause": pause, "wait": 0} for _ in range(3)] for _ in range(2)]
    for _ in range(data.draw(st.integers(1, 12))):
        asked, worker = data.draw(numbers(3)), data.draw(numbers(4))
        results = (worker[:, :, None] == np.arange(3)).sum(axis=1)
        known = known._replace(asked=asked).after(results.astype(float), pause, longest)
        for e, row in enumerate(diary):
            for i, who in enumerate(row):
                if results[e, i] < asked[e, i]:
                    who["pause"] = min(2 * who["pause"], longest) if who["away"] else who["pause"]
                    who["away"], who["wait"] = True, who["pause"]
                else:
                    who["wait"] = max(who["wait"] - 1, 0)
                    if asked[e, i] > 0:
                        who["away"], who["pause"] = False, pause
            if all(who["away"] for who in row):
                for who in row:
                    who["away"] = False
        for name in ("away", "pause", "wait"):
            assert getattr(known, name).tolist() == [[who[name] for who in row] for row in diary]


def test_without_results_nobody_owes_any() -> None:
    known = Availability.full(1, 2, 3).after(np.zeros((1, 2)), 3, 9)
    assert not known.away.any()
    assert not known.wait.any()


@pytest.mark.parametrize("name", ["restarting-beta", "lb-bsp-federated"])
def test_who_is_away_gets_nothing_but_probes(play: Any, name: str) -> None:
    changes, asked_in_vain, runtime = [Spot(leaves=0.005, returns=0.02, deadline=30.0)], {}, {}
    for policy in (name, "thompson-beta"):
        played = play(policy, 500, reset=3, changes=changes)
        runtime[policy] = played.times.sum()
        asked_in_vain[policy] = (played.allocations * [now.dies == 0 for now in played.conditions]).sum()
    assert asked_in_vain[name] < 0.3 * asked_in_vain["thompson-beta"]
    assert runtime[name] < 0.9 * runtime["thompson-beta"]


@pytest.mark.parametrize("change", [Spot(0.05, 0.2, 30.0), Crash(0.05, 3.0, 5, 30.0)], ids=["spot", "crash"])
def test_races_show_who_is_away(change: Change) -> None:
    """A worker with tasks is away from the round's start if and only if it shows no sign of life."""
    rng, known = np.random.default_rng(0), Availability.full(3, 6, 0)
    env: Any = gym.make_vec(
        "ata_gym/TaskRace-v0", num_envs=3, pool=exponential(np.arange(1.0, 7)), budget=8, changes=[change]
    )
    observation, _ = env.reset(seed=0)
    gone: list[Any] = []
    for _ in range(150):
        known = known.after(signs_of_life(observation["worker"], observation["elapsed"]), 0, 0)
        if gone:
            np.testing.assert_array_equal(known.away[known.asked > 0], gone[-1][known.asked > 0])
        assert known.available().all()
        action = np.where(np.arange(6) == rng.integers(6), 8, rng.integers(0, 3, (3, 6)))
        gone.append(env.unwrapped.conditions().dies == 0.0)
        known = known._replace(asked=(action > 0).astype(int))
        observation, *_ = env.step(action)
    assert 0.02 < np.mean(gone) < 0.7


def test_dispatch_shows_who_is_away() -> None:
    """At each step, of the workers that are to start a task."""
    rng, known, seen_away = np.random.default_rng(1), Availability.full(2, 5, 0), 0
    world: dict[str, Any] = {"pool": exponential(np.arange(1.0, 6)), "budget": 6, "changes": [Spot(0.05, 0.2)]}
    env: Any = gym.make_vec("ata_gym/TaskDispatch-v0", num_envs=2, **world)
    observation, _ = env.reset(seed=0)
    gone = np.zeros((2, 5), bool)
    for _ in range(400):
        known = known.after(signs_of_life(*(observation[name] for name in ("worker", "elapsed", "running"))), 0, 0)
        np.testing.assert_array_equal(known.away[known.asked > 0], gone[known.asked > 0])
        seen_away += known.away.sum()
        action = (rng.random((2, 5)) < 0.7).astype(np.int8)
        action[~(action.astype(bool) & ~gone).any(axis=1)] = 1  # somebody works
        gone = env.unwrapped.conditions().dies == 0.0
        known = known._replace(asked=((action > 0) & (observation["running"] == 0)).astype(int))
        observation, *_ = env.step(action)
    assert seen_away > 0
