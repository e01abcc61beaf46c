"""Dispatch: against a plain simulation written from the definition, and against the ids that are its special cases."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.changes import Change
from ata_gym.pools import Pool, deterministic, exponential, gamma, log_normal, trace
from ata_gym.simulation.dispatch import RoundState, dispatch_step
from ata_gym.simulation.keys import NoiseKeys, stream_keys
from ata_gym.simulation.task_times import task_times
from tests.envs.playing import ALLOCATION, CHANGES, DISPATCH, RACE, same

POOL = (
    deterministic([2.0, 2.0])
    + exponential([1.0, 3.0], shift=[0.0, 1.0])
    + gamma(2.5, 0.7)
    + log_normal(0.1, 0.8)
    + trace([[1.0, 3.0, 0.0]], replay="task")
    + trace([[4.0, 2.0]], replay="round")
)
N = POOL.n
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


def make(**options: Any) -> Any:
    return gym.make(DISPATCH, **{"pool": POOL, "budget": 4, **options}).unwrapped


def make_vec(rows: int, **options: Any) -> Any:
    return gym.make_vec(DISPATCH, num_envs=rows, **{"pool": POOL, "budget": 4, **options})


class Task(NamedTuple):
    due: float
    worker: int
    begun: float
    time: float


class ByDefinition:
    """An episode of one row, as lists of tasks."""

    def __init__(self, pool: Pool, budget: int, seed: int) -> None:
        self.pool, self.budget, self.key = pool, budget, stream_keys(seed)
        self.started = [0] * pool.n  # in the episode
        self.round = 0
        self.begin()

    def begin(self) -> None:
        self.now = 0.0
        self.running: list[Task] = []
        self.done: list[Task] = []
        self.in_round = [0] * self.pool.n

    def step(self, action: list[int]) -> dict[str, Any]:
        n, busy = self.pool.n, {task.worker for task in self.running}
        chosen = [i for i in range(n) if action[i] and i not in busy]
        for i in chosen if chosen or busy else range(n):
            time = float(task_times(self.pool.distributions, self.key, 0, self.round, i, self.started[i])[0])
            self.running.append(Task(self.now + time, i, self.now, time))
            self.started[i] += 1
            self.in_round[i] += 1
        task = min(self.running)  # earliest, then lowest worker
        self.running.remove(task)
        self.done.append(task)
        self.now = task.due
        age = [0.0] * n
        for other in self.running:
            age[other.worker] = self.now - other.begun
        over = len(self.done) == self.budget
        seen = {
            "worker": [task.worker],
            "duration": [task.time],
            "elapsed": age if over else [0.0] * n,
            "round_over": over,
            "round_time": self.now,
            "worker_time": sum(age) + sum(task.time for task in self.done),
        }
        if over:
            self.round += 1
            self.begin()
        running = {task.worker for task in self.running}
        return seen | {
            "missing": [self.budget - len(self.done)],
            "started": self.in_round,
            "running": [int(i in running) for i in range(n)],
            "age": [0.0] * n if over else age,
        }


actions = st.lists(st.integers(0, 1), min_size=N, max_size=N)


@given(st.lists(actions, min_size=1, max_size=14), st.integers(1, 5), st.integers(0, 50))
def test_the_env_equals_its_definition(decisions: list[list[int]], budget: int, seed: int) -> None:
    env, definition = make(budget=budget, price=0.25), ByDefinition(POOL, budget, seed)
    env.reset(seed=seed)
    past = (0.0, 0.0)
    for action in decisions:
        observation, reward, terminated, truncated, info = env.step(np.array(action))
        expected = definition.step(action)
        for name, field in observation.items():
            assert field.tolist() == expected[name], name
        assert (info["round_over"], info["round_time"]) == (expected["round_over"], expected["round_time"])
        np.testing.assert_allclose(info["worker_time"], expected["worker_time"], atol=1e-12)
        passed = info["round_time"] - past[0] + 0.25 * (info["worker_time"] - past[1])
        np.testing.assert_allclose(reward, -passed, atol=1e-12)
        assert (terminated, truncated) == (False, False)
        assert observation in env.observation_space
        past = (0.0, 0.0) if info["round_over"] else (info["round_time"], info["worker_time"])
    assert env.checkpoint()["started"].tolist() == [definition.started]


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE])
@pytest.mark.parametrize("changes", [[], CHANGES[:8]], ids=["still", "changing"])
@settings(max_examples=25)
@given(rows=st.integers(1, 3), budget=st.integers(1, 6), seed=st.integers(0, 2**40), price=st.sampled_from([0.0, 0.3]))
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
        rewards = np.zeros(rows)
        worker, time = np.empty((rows, budget), np.int64), np.empty((rows, budget))
        for b in range(budget):
            assert (observation["missing"] == budget - b).all()
            observation, gained, _, ended, info = results.step((observation["started"] < allocation).astype(np.int8))
            worker[:, b], time[:, b] = observation["worker"][:, 0], observation["duration"][:, 0]
            rewards += gained
            assert (info["round_over"] == (b == budget - 1)).all()
            assert (ended == (truncated & info["round_over"])).all()
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


def test_a_step_changes_none_of_its_arguments_and_rows_do_not_meet() -> None:
    rows, rng, zero = 3, np.random.default_rng(0), np.zeros(3, np.int64)
    keys, started, round_state = stream_keys(5, rows), np.zeros((rows, N), np.int64), RoundState.start(rows, N, 3)
    for _ in range(7):
        action = rng.integers(0, 2, (rows, N), np.int8)
        before = pickle.dumps((started, round_state, action))
        at = dispatch_step(POOL.distributions, NoiseKeys(keys, zero, zero, started), round_state, action, 3)
        assert pickle.dumps((started, round_state, action)) == before
        for e in range(rows):
            own = slice(e, e + 1)
            alone = dispatch_step(
                POOL.distributions, NoiseKeys(keys[own], zero[own], zero[own], started[own]),
                RoundState(*[part[own] for part in round_state]), action[own], 3,
            )  # fmt: skip
            for batch, single in zip((*at[:-1], *at.round_state), (*alone[:-1], *alone.round_state), strict=True):
                assert batch[own].tobytes() == single.tobytes()
        started, round_state = at.started, at.round_state


def test_the_horizon_counts_rounds() -> None:
    env = make(horizon=3)
    for _ in range(2):
        env.reset()
        ended = [env.step(env.action_space.sample())[3] for _ in range(12)]
        assert ended == [False] * 11 + [True]
        with pytest.raises(ValueError, match="call reset"):
            env.step(env.action_space.sample())


@pytest.mark.parametrize("mode", MODES)
def test_a_trace_that_ends_ends_the_episode_at_a_rounds_end(mode: AutoresetMode) -> None:
    """By task, a row ends when a worker might run out in the next round: rows that use the trace unevenly end apart."""
    envs = make_vec(2, pool=trace([[1.0] * 9, [2.0] * 9], end="truncate"), budget=3, autoreset_mode=mode)
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


def test_it_is_an_env_like_the_others() -> None:
    env = gym.make(DISPATCH, scenario="icml2025-cifar100", horizon=7, price=0.1)
    bare: Any = env.unwrapped
    assert (bare.n, bare.budget, bare.horizon, bare.price) == (51, 23, 7, 0.1)
    assert (bare.scenario.name, bare.pool.n) == ("icml2025-cifar100", 51)
    twin = gym.make(DISPATCH, scenario="icml2025-cifar100")
    for one in (env, twin):
        one.reset(seed=1)
    assert same(twin.step(np.ones(51, bool))[0], env.step(np.ones(51, np.int64))[0])
    with pytest.raises(ValueError, match="call reset"):
        make().step(np.ones(N, np.int8))
    with pytest.raises(ValueError, match="call reset"):
        make_vec(2).step(np.ones((2, N), np.int8))


def test_it_is_not_trained_on() -> None:
    training = pytest.importorskip("ata_gym.training.wrapper", reason="extra train is not installed")
    with pytest.raises(TypeError, match="ata_gym/TaskAllocation-v0 or ata_gym/TaskRace-v0"):
        training.TrainingWrapper(gym.make(DISPATCH, pool=POOL, budget=4), "quadratic")
