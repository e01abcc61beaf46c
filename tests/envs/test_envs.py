"""The contracts of the envs: rewards, seeds, specs, and steps that are refused and change nothing."""

from __future__ import annotations

import json
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from ata_gym.pools import trace
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, WORLDS, same

POOL = {"family": ["exponential", "gamma", "log-normal"], "shift": [1.0, 0.0, 0.5], "shape": [1.0, 3.0, 0.7]}


def test_a_trace_by_round_ends_after_its_last_round() -> None:
    env = gym.make(ALLOCATION, pool=trace([[1.0, 2.0], [3.0, 4.0]], replay="round", end="truncate"), budget=3)
    env.reset(seed=0)
    observation, *_, truncated, _ = env.step(np.array([2, 1]))
    assert observation["duration"].tolist() == [1.0, 1.0, 3.0]
    assert not truncated
    observation, *_, truncated, _ = env.step(np.array([0, 3]))
    assert observation["duration"].tolist() == [4.0] * 3
    assert truncated
    assert env.reset()[0]["worker"].tolist() == [-1, -1, -1]
    assert env.step(np.array([3, 0]))[0]["duration"].tolist() == [1.0] * 3


def test_reward_info_and_price() -> None:
    env = gym.make(ALLOCATION, pool=POOL, budget=5, price=0.25)
    env.reset(seed=3)
    runtime = worker_time = 0.0
    for _ in range(4):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert type(reward) is float
        assert type(terminated) is bool
        assert type(truncated) is bool
        assert reward == -(info["round_time"] + 0.25 * info["worker_time"])
        runtime += info["round_time"]
        worker_time += info["worker_time"]
        assert (info["runtime"], info["total_worker_time"]) == (runtime, worker_time)


@pytest.mark.parametrize("env_id", IDS)
def test_observations_are_the_users_own_and_inside_their_space(env_id: str) -> None:
    def made() -> tuple[Any, Any]:
        return gym.make(env_id, pool=POOL, budget=3), gym.make_vec(env_id, num_envs=2, pool=POOL, budget=3)

    for env, twin in zip(made(), made(), strict=True):
        observation, expected = env.reset(seed=0)[0], twin.reset(seed=0)[0]
        env.action_space.seed(0)
        for _ in range(9):
            assert observation in env.observation_space
            assert same(observation, expected)
            for field in observation.values():
                field[...] = 7
            action = env.action_space.sample()
            observation, *_, info = env.step(action)
            expected = twin.step(action)[0]
            for value in info.values():
                if isinstance(value, np.ndarray):
                    value[...] = 1
        assert all(np.isfinite(box.low).all() and np.isfinite(box.high).all() for box in env.observation_space.values())


def test_seeds() -> None:
    env = gym.make(ALLOCATION, pool=POOL, budget=3)
    action = np.array([1, 1, 1])

    def episode(seed: int | None) -> list[float]:
        env.reset(seed=seed)
        return env.step(action)[0]["duration"].tolist()

    first, second = episode(5), episode(None)
    assert first != second
    assert (episode(5), episode(None)) == (first, second)
    assert episode(6) != first
    fresh = [gym.make(ALLOCATION, pool=POOL, budget=3) for _ in range(2)]
    drawn = [(env.reset(), env.step(action))[1][0]["duration"].tolist() for env in fresh]
    assert drawn[0] != drawn[1]
    assert episode(2**100) == episode(2**100)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("pool", [POOL, WORLDS["changing"].pool.to_data()], ids=["plain", "data"])
def test_spec_survives_json_and_pickle(env_id: str, pool: Any) -> None:
    env = gym.make(env_id, pool=pool, budget=4, price=0.1)
    env.action_space.seed(0)
    assert env.spec is not None
    for spec in (EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        twin: Any = gym.make(spec)
        twin.reset(seed=1)
        env.reset(seed=1)
        action = env.action_space.sample()
        assert same(twin.step(action)[0], env.step(action)[0])
        assert twin.unwrapped.pool == env.unwrapped.pool  # type: ignore[attr-defined]
    assert json.loads(json.dumps(twin.unwrapped.pool.to_data()))


BAD_ACTIONS = [
    (np.array([[1, 1, 2]]), "shape"),
    (np.array([1.0, 1.0, 2.0]), "integer"),
    (np.array([True, True, True]), "integer"),
    (np.array([-1, 3, 2]), "0 or more"),
    (np.array([5, 0, 0]), "budget"),
    (None, "."),
]
BAD_DISPATCHES = [
    (np.ones(2, np.int8), "shape"),
    (np.full(3, 0.5), "integer dtype"),
    (np.arange(3), "worker 2.* must have 0 or 1, not 2"),
    ("111", "."),
]


@pytest.mark.parametrize(
    ("env_id", "action", "message"),
    [(env_id, *bad) for env_id in IDS for bad in (BAD_ACTIONS if env_id != DISPATCH else BAD_DISPATCHES)],
)
def test_a_bad_action_changes_nothing(env_id: str, action: Any, message: str) -> None:
    options: dict[str, Any] = {"pool": POOL, "budget": 4}
    single: Any = gym.make(env_id, disable_env_checker=True, **options)
    vector: Any = gym.make_vec(env_id, num_envs=1, **options)
    for env, wrong, said in (
        (single, action, message),
        (vector, None if action is None else np.array(action)[None], "."),
    ):
        env.reset(seed=0)
        env.step(env.action_space.sample())
        before = env.unwrapped.checkpoint()
        with pytest.raises(ValueError, match=said):
            env.step(wrong)
        assert same(env.unwrapped.checkpoint(), before)


def test_steps_out_of_turn() -> None:
    action = np.array([1, 1, 1])
    env = gym.make(ALLOCATION, pool=POOL, budget=3, horizon=1).unwrapped
    with pytest.raises(ValueError, match="call reset"):
        env.step(action)
    with pytest.raises(gym.error.Error, match="Seed"):
        env.reset(seed=-1)
    env.reset(seed=0)
    assert env.step(action)[3]
    with pytest.raises(ValueError, match="call reset"):
        env.step(action)
    vector = gym.make_vec(ALLOCATION, num_envs=2, pool=POOL, budget=3)
    with pytest.raises(ValueError, match="call reset"):
        vector.step(np.ones((2, 3), np.int64))
