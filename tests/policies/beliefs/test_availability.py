"""Who is away, told from who owes results."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ata_gym.changes import Change, Crash, Spot
from ata_gym.pools import exponential
from ata_policies.beliefs.availability import Availability, signs_of_life


@settings(max_examples=40)
@given(st.data())
def test_it_agrees_with_a_diary_kept_by_hand(data: st.DataObject) -> None:
    """Two rows of three workers; a diary for each worker, in plain words."""
    pause, longest = 2, 8
    known = Availability.full(2, 3, pause)
    diary = [[{"away": False, "pause": pause, "wait": 0} for _ in range(3)] for _ in range(2)]
    for _ in range(data.draw(st.integers(1, 12))):
        asked, worker = (data.draw(arrays(np.int64, (2, k), elements=st.integers(0, 2))) for k in (3, 4))
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


@pytest.mark.parametrize(
    ("kind", "change"),
    [("Race", Spot(0.05, 0.2, 30.0)), ("Race", Crash(0.05, 3.0, 5, 30.0)), ("Dispatch", Spot(0.05, 0.2))],
)
def test_who_is_away_shows_no_sign_of_life(kind: str, change: Change) -> None:
    """A worker that is to start a task is away if and only if it shows none; no round waits for it."""
    rng, known = np.random.default_rng(0), Availability.full(3, 6, 0)
    world: dict[str, Any] = {"pool": exponential(np.arange(1.0, 7)), "budget": 8, "changes": [change]}
    env: Any = gym.make_vec(f"ata_gym/Task{kind}-v0", num_envs=3, **world)
    observation, _ = env.reset(seed=0)
    gone, all_gone = np.zeros((3, 6), bool), []
    for _ in range(150 if kind == "Race" else 300):
        shown = (observation[name] for name in ("worker", "elapsed", "running") if name in observation)
        known = known.after(signs_of_life(*shown), 0, 0)
        np.testing.assert_array_equal(known.away[known.asked > 0], gone[known.asked > 0])
        assert known.available().all()
        gone = env.unwrapped.conditions().dies == 0.0
        all_gone.append(gone)
        if kind == "Race":
            action = np.where(np.arange(6) == rng.integers(6), 8, rng.integers(0, 3, (3, 6)))
            started = action > 0
        else:
            action = (rng.random((3, 6)) < 0.7).astype(np.int8)
            action[~((action > 0) & ~gone).any(axis=1)] = 1  # somebody works
            started = (action > 0) & (observation["running"] == 0)
        known = known._replace(asked=started.astype(int))
        observation, *_ = env.step(action)
    assert 0.02 < np.mean(all_gone) < 0.7
