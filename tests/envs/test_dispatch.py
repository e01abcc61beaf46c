"""Dispatch: the ids that are its special cases, the horizon, and traces that end. Its kernel: tests/simulation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.changes import Change
from ata_gym.pools import deterministic, exponential, gamma, log_normal, trace
from tests.envs.playing import ALLOCATION, CHANGES, DISPATCH, RACE, same

POOL = (
    deterministic([2.0, 2.0])
    + exponential([1.0, 3.0], shift=[0.0, 1.0])
    + gamma(2.5, 0.7)
    + log_normal(0.1, 0.8)
    + trace([[1.0, 3.0, 0.0]], replay="task")
    + trace([[4.0, 2.0]], replay="round")
)


def make(**options: Any) -> Any:
    return gym.make(DISPATCH, **{"pool": POOL, "budget": 4, **options}).unwrapped


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE])
@settings(max_examples=20)
@given(
    changes=st.sampled_from([[], CHANGES[:8]]),
    rows=st.integers(1, 3),
    budget=st.integers(1, 6),
    seed=st.integers(0, 2**40),
    price=st.sampled_from([0.0, 0.3]),
)
def test_an_allocation_is_a_rule_of_dispatch(
    env_id: str, changes: list[Change], rows: int, budget: int, seed: int, price: float
) -> None:
    options = {"num_envs": rows, "pool": POOL, "changes": changes, "budget": budget, "price": price, "horizon": 3}
    rounds, results = gym.make_vec(env_id, **options), gym.make_vec(DISPATCH, **options)
    rounds.action_space.seed(seed)
    rounds.reset(seed=seed)
    observation, _ = results.reset(seed=seed)
    for _ in range(3):
        allocation = rounds.action_space.sample()
        expected, reward, _, truncated, whole = rounds.step(allocation)
        rewards, before, done = np.zeros(rows), np.zeros((2, rows)), np.zeros_like(allocation)
        worker, time = np.empty((rows, budget), np.int64), np.empty((rows, budget))
        for b in range(budget):
            assert (observation["missing"] == budget - b).all()
            observation, gained, _, ended, info = results.step((observation["started"] < allocation).astype(np.int8))
            worker[:, b], time[:, b] = observation["worker"][:, 0], observation["duration"][:, 0]
            rewards += gained
            now = np.array([info["round_time"], info["worker_time"]])
            np.testing.assert_allclose(-gained, (now - before)[0] + price * (now - before)[1], atol=1e-12)
            before = now
            np.add.at(done, (np.arange(rows), worker[:, b]), 1)
            over = b == budget - 1
            assert (info["round_over"] == over).all()
            assert (ended == (truncated & info["round_over"])).all()
            running = (observation["started"] > done) & (not over)
            assert (observation["running"] == running).all()
            assert (observation["age"][~running] == 0).all()
            assert (observation["age"] <= info["round_time"][:, None]).all()
        order = np.argsort(worker, axis=1, kind="stable")  # the order of a round: by worker, then by start
        assert np.take_along_axis(worker, order, 1).tolist() == expected["worker"].tolist()
        assert np.take_along_axis(time, order, 1).tobytes() == expected["duration"].tobytes()
        assert observation["elapsed"].tobytes() == expected["elapsed"].tobytes()
        for name in ("round_time", "worker_time", "runtime", "total_worker_time"):
            assert info[name].tobytes() == whole[name].tobytes(), name
        assert "lost" not in whole
        np.testing.assert_allclose(rewards, reward)
        here, there = results.unwrapped.checkpoint(), rounds.unwrapped.checkpoint()
        for name, field in there.items():
            assert here[name].tobytes() == field.tobytes(), name


def test_the_horizon_counts_rounds() -> None:
    env = make(horizon=3)
    for _ in range(2):
        env.reset()
        ended = [env.step(env.action_space.sample())[3] for _ in range(12)]
        assert ended == [False] * 11 + [True]
        with pytest.raises(ValueError, match="call reset"):
            env.step(env.action_space.sample())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_trace_that_ends_ends_the_episode_at_a_rounds_end(mode: AutoresetMode) -> None:
    """By task, a row ends when a worker might run out in the next round: rows that use the trace unevenly end apart."""
    pool = trace([[1.0] * 9, [2.0] * 9], end="truncate")
    envs = gym.make_vec(DISPATCH, num_envs=2, pool=pool, budget=3, autoreset_mode=mode)
    envs.reset(seed=0)
    by_turns = [[1, 0], [0, 1]]  # of row 1: a round each
    ended = np.array([envs.step(np.array([[1, 0], by_turns[k // 3 % 2]]))[3] for k in range(15)])
    assert np.argmax(ended[:, 0]) == 8  # after 3 rounds of 3 tasks
    assert np.flatnonzero(ended[:, 1]).tolist() == [14]
    by_round = make(pool=trace([[1.0, 2.0], [3.0, 4.0]], replay="round", end="truncate"), budget=3)
    by_round.reset(seed=0)
    steps = [by_round.step(np.array([1, 0])) for _ in range(6)]
    assert [step[0]["duration"][0] for step in steps] == [1.0] * 3 + [2.0] * 3
    assert [step[3] for step in steps] == [False] * 5 + [True]


def test_an_action_may_be_of_booleans() -> None:
    envs = [make(scenario="icml2025-cifar100", pool=None, budget=None) for _ in range(2)]
    for env in envs:
        env.reset(seed=1)
    assert same(envs[0].step(np.ones(51, bool))[0], envs[1].step(np.ones(51, np.int64))[0])
