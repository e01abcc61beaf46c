"""Envs whose pool changes: who meets which conditions and signals; and a pool without changes gives what it did."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import MultiBinary

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import Correlated, Load, Spot, Switch, Walk
from ata_gym.pools import deterministic, exponential, gamma, log_normal, pareto, trace

IDS = {"ata_gym/TaskAllocation-v0": 1, "ata_gym/TaskRace-v0": 1, "ata_gym/TaskDispatch-v0": 4}
"""Each id's steps in a round of budget 4."""
POOL = exponential([1.0, 2.0], shift=[0.5, 0.0]) + gamma(2.5, 0.7) + trace([[1.0, 5.0, 2.0]]) + deterministic([3.0])
OPTIONS: dict[str, Any] = {
    "pool": POOL,
    "changes": [Switch(every=2), Walk(0.3, 0.5), Correlated(0.6, 0.8), Load(0.5, 0.3, 0.2, 0.9), Spot(0.2, 0.5, 3)],
    "budget": 4,
    "horizon": 4,
    "signals": True,
}


@pytest.mark.parametrize("env_id", IDS)
def test_signals(env_id: str) -> None:
    env: Any = gym.make(env_id, **OPTIONS).unwrapped
    assert env.observation_space["signal"].shape == (5, 2)
    observation, _ = env.reset(seed=0)
    for _ in range(12):
        assert observation["signal"].tobytes() == env.conditions().signal.tobytes()
        observation["signal"][:] = 7  # it is the user's own
        observation, *_, truncated, _ = env.step(env.action_space.sample())
        if truncated:
            break
    blind = gym.make(env_id, **{**OPTIONS, "signals": False})
    assert "signal" not in blind.reset(seed=0)[0]
    plain = gym.make(env_id, pool=POOL, budget=4, signals=True)
    assert not plain.reset(seed=0)[0]["signal"].any()
    with pytest.raises(ValueError, match="signals must be True or False, not 'cpu'"):
        gym.make(env_id, pool=POOL, budget=4, signals="cpu")


BEFORE = {
    "ata_gym/TaskAllocation-v0": [
        [5.637789362062856, 3.5827595866512847, 3.345019719778647],
        [72.96623691581696, 68.99120995980743, 88.11015124329087],
        [0.5514107811677665, 1.2494792995099062, 2.151079879249259],
    ],
    "ata_gym/TaskRace-v0": [
        [1.4730231916324938, 1.7144246816142965, 1.5794739520556507],
        [79.88270672244377, 73.86677965904899, 102.74632140854865],
        [1.0, 0.6389081228387945, 0.9759632962688626],
    ],
    "ata_gym/TaskDispatch-v0": [
        [1.268231628267012, 1.2378041457582611, 4.658913930634846],
        [23.681397139179964, 18.11020919778974, 24.99647088655656],
        [1.0507043710906003, 1.2378041457582611, 2.6828325970184683],
    ],
}
"""Round time, total worker time and last time of three rows, computed when pools could not change."""


@pytest.mark.parametrize("env_id", IDS)
def test_a_pool_without_changes_gives_what_it_did(env_id: str) -> None:
    pool = (
        exponential([1.0, 2.0]) + gamma(2.5, 0.7) + log_normal(0.1, 0.8) + pareto(3.0, 1.0) + trace([[1.0, 5.0, 2.0]])
    )
    env = gym.make_vec(env_id, num_envs=3, pool=pool, budget=4, price=0.25)
    actions = MultiBinary((3, 6), seed=3) if "Dispatch" in env_id else env.action_space
    actions.seed(3)
    env.reset(seed=5)
    for _ in range(12):
        observation, *_, info = env.step(actions.sample())
    seen = [info["round_time"], info["total_worker_time"], observation["duration"][:, -1]]
    np.testing.assert_allclose(seen, BEFORE[env_id], rtol=1e-14)
    assert not any(name.startswith("change") for name in env.unwrapped.checkpoint())  # type: ignore[attr-defined]
