"""Who is away, told from who owes results."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import shifted_exponential
from ata_policies.beliefs.availability import Availability

MEANS = np.arange(1.0, 13.0)
POOL = shifted_exponential(MEANS / 2, MEANS / 2)


def results_of(worker: np.ndarray) -> np.ndarray:
    """How many results each of three workers gave."""
    return (worker[:, :, None] == np.arange(3)).sum(axis=1).astype(float)


@given(st.data())
def test_it_agrees_with_a_diary_kept_by_hand(data: st.DataObject) -> None:
    """Two rows of three workers; a diary for each worker, in plain words."""
    pause, longest = 2, 8
    known = Availability.full(2, 3, pause)
    diary = [[{"away": False, "pause": pause, "wait": 0} for _ in range(3)] for _ in range(2)]
    for _ in range(data.draw(st.integers(1, 12))):
        asked = np.array(
            data.draw(st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=2))
        )
        worker = np.array(
            data.draw(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=2))
        )
        known = known._replace(asked=asked).after(results_of(worker), pause, longest)
        for e, row in enumerate(diary):
            for i, who in enumerate(row):
                results = int((worker[e] == i).sum())
                if asked[e, i] > 0 and results < asked[e, i]:
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


@pytest.mark.parametrize("name", ["restarting-beta", "thompson-gamma:memory=restarting", "lb-bsp-federated"])
def test_who_is_away_gets_nothing_but_probes(name: str) -> None:
    changes = [Spot(leaves=0.005, returns=0.02, deadline=30.0)]
    runtime, asked_in_vain = {}, {}
    for policy in (name, "thompson-beta"):
        env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=POOL, changes=changes, budget=8)
        player = ata_policies.make(policy, env)
        observation, info = env.reset(seed=3)
        state, vain = None, 0
        for _ in range(800):
            allocation, state = player.predict(observation, state)
            vain += int((allocation * (env.unwrapped.conditions().dies == 0)).sum())
            observation, *_, info = env.step(allocation)
        runtime[policy], asked_in_vain[policy] = info["runtime"].mean(), vain
    assert asked_in_vain[name] < 0.3 * asked_in_vain["thompson-beta"]
    assert runtime[name] < 0.9 * runtime["thompson-beta"]
