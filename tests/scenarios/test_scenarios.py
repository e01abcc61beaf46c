"""The named scenarios that change, and those of stragglers: built, played, and changed when they say so."""

from __future__ import annotations

import json
import pickle
from itertools import cycle, pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ata_gym import scenario, scenario_names
from ata_gym.changes import Load
from ata_gym.pools import Pool

CHANGING = [name for name in scenario_names() if name.startswith("changing")]
STRAGGLERS = [name for name in scenario_names() if name.startswith("stragglers")]
IDS = [f"ata_gym/Task{kind}-v0" for kind in ("Allocation", "Race", "Dispatch")]


def bare(name: str, **options: Any) -> Any:
    env: Any = gym.make("ata_gym/TaskAllocation-v0", scenario=name, **options).unwrapped
    env.reset(seed=0)
    return env


def follow(name: str, rounds: int, start: int = 0) -> list[np.ndarray]:
    """The means of each round."""
    env, seen = bare(name), []
    env.restore({**env.checkpoint(), "round": np.array([start])})
    for _ in range(rounds):
        seen.append(env.means())
        env.step(env.budget * np.eye(env.n, dtype=np.int64)[0])
    return seen


@pytest.mark.parametrize("name", scenario_names())
def test_each_is_plain_data_and_says_where_it_is_from(name: str) -> None:
    found = scenario(name)
    assert found.name == name
    assert found.source.startswith("Maranjyan" if name.startswith("icml") else "ours")
    assert not name.startswith("changing") or found.changes
    assert Pool.from_data(json.loads(json.dumps(found.pool.to_data()))) == found.pool
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("name", CHANGING)
def test_each_changing_one_is_the_published_setting_before_its_changes(name: str) -> None:
    base, found = scenario("icml2025-quadratic-linear-n51"), scenario(name)
    assert found.budget == base.budget
    assert found.horizon == 100_000
    np.testing.assert_allclose(found.pool.mean(), base.pool.mean())
    if name == "changing-outliers-steady":  # but for the noise
        np.testing.assert_allclose(found.pool.sd(), 0.1 * base.pool.mean())
        return
    assert found.pool.distributions.scale.tolist() == base.pool.distributions.scale.tolist()
    assert found.summary.startswith(base.summary)


@pytest.mark.parametrize(("name", "env_id"), list(zip(CHANGING + STRAGGLERS, cycle(IDS), strict=False)))
def test_each_can_be_played(name: str, env_id: str) -> None:
    env: Any = gym.make(env_id, scenario=name, signals=True).unwrapped
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(20):
        assert observation in env.observation_space
        observation, reward, *_, info = env.step(env.action_space.sample())
        assert reward < 0
        assert ("lost" in info) == (name in ("changing-spot", "changing-crash"))
    loaded = any(isinstance(change, Load) for change in env.scenario.changes)
    assert observation["signal"].any() == loaded


@pytest.mark.parametrize(
    ("name", "at"), [("changing-permuted-linear-n51", 20_000), ("changing-sleeper-linear-n51", 21_000)]
)
def test_abrupt_changes_come_at_their_round(name: str, at: int) -> None:
    seen, usual = follow(name, 4, start=at - 2), scenario(name).pool.mean()
    assert seen[0].tolist() == seen[1].tolist() == usual.tolist()
    assert seen[2].tolist() == seen[3].tolist()
    changed = np.flatnonzero(seen[2] != usual)
    if name == "changing-sleeper-linear-n51":  # the slowest wakes up as the fastest
        assert changed.tolist() == [50]
        np.testing.assert_allclose(seen[2][50], usual.min() / 2)
    else:
        assert len(changed) > 40
        assert sorted(seen[2]) == sorted(usual)


@pytest.mark.parametrize("name", ["changing-periodic", "changing-walk", "changing-load", "changing-load-hidden"])
def test_gradual_changes_go_on_in_every_round(name: str) -> None:
    seen = follow(name, 20)
    for before, after in pairwise(seen):
        assert (after != before).mean() > 0.9
        assert 0.2 < np.median(after / before) < 5


@pytest.mark.parametrize(("name", "share"), [("changing-straggler", 1 / 11), ("changing-spot", 1 / 11)])
def test_spells_are_as_frequent_as_said(name: str, share: float) -> None:
    env: Any = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=200, scenario=name).unwrapped
    env.reset(seed=0)
    means = env.means() / scenario(name).pool.mean()
    assert set(np.unique(means.round(6))) == {1.0, 10.0 if name == "changing-straggler" else np.inf}
    np.testing.assert_allclose((means > 1).mean(), share, atol=0.015)


def test_some_die_now_and_then() -> None:
    env: Any = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=100, scenario="changing-crash")
    env.reset(seed=0)
    env.action_space.seed(0)
    lost = sum(int(env.step(env.action_space.sample())[-1]["lost"].sum()) for _ in range(10))
    assert 5 <= lost <= 100  # in 1,000 rounds 51 die on average, some of them while they do nothing


def test_four_settings_of_stragglers() -> None:
    fastest = {"homo": [1], "hetero-l1": [1, 2], "hetero-l2": [1, 2, 3, 4], "hetero-l3": [1, 2, 3, 4]}
    assert [f"stragglers-{name}" for name in fastest] == STRAGGLERS
    for name, groups in fastest.items():
        found = scenario(f"stragglers-{name}")
        assert (found.pool.n, found.budget) == (16, 64)
        assert np.unique((found.pool.mean() / 10).round(9)).tolist() == groups
        np.testing.assert_allclose(found.pool.sd() / found.pool.mean(), 0.1)
        assert "our definition" in found.summary
        assert "we do not know" in found.source
        assert bool(found.changes) == (name == "hetero-l3")
