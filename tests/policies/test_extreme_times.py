"""Legal observations at the ends of the range: every action stays legal, and nothing becomes NaN."""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_gym.typing import Floats, Ints
from ata_gym.utils.trees import leaves
from ata_policies import Totals
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES, ComposedPolicy
from ata_policies.steps import decide
from tests.policies.test_policies import BY_KIND

DISPATCH = "ata_gym/TaskDispatch-v0"
SIZES = ((5, 7), (12, 3), (1, 4))
"""Workers and budget."""
ROUNDS = 14
EXTREMES = [0.0, 1e-300, 1.0, 1e300]


def durations(budget: int, rng: np.random.Generator) -> dict[str, Any]:
    """How long tasks take, by round and task, (rounds, B) or (rounds, 1)."""
    k, ones = np.arange(ROUNDS)[:, None], np.ones((ROUNDS, 1))
    return {
        "zero": 0.0 * ones,
        "smallest": 5e-324 * ones,
        "huge": 1e300 * ones,
        "largest": np.finfo(float).max * ones,
        "zero, then huge": np.where(k < ROUNDS // 2, 0.0, 1e300),
        "huge, then zero": np.where(k < ROUNDS // 2, 1e300, 0.0),
        "by turns": np.where(k % 2, 1e-300, 1e300),
        "one huge outlier": np.where(k == 6, 1e300, 1.0),
        "growing": 10.0 ** (-300 + 43 * k),
        "mixed": rng.choice(EXTREMES, (ROUNDS, budget)),
        "of any size": 10.0 ** rng.uniform(-300, 300, (ROUNDS, budget)),
    }


LENGTHS = list(durations(1, np.random.default_rng(0)))
WHOSE = ("as asked", "all of one", "of any")
CASES = [
    (length, WHOSE[(i + turn) % 3], bool((i // 3 + turn) % 2)) for i, length in enumerate(LENGTHS) for turn in range(2)
]
"""Each is a row: how long tasks take, and by turns whose results they are, and whether tasks are cancelled."""


@functools.cache
def feedback(n: int, budget: int) -> tuple[Floats, Ints, Floats]:
    """Durations and workers (rounds, cases, B), elapsed (rounds, cases, n); a worker of -1 is still to be filled in."""
    rng = np.random.default_rng(0)
    worker = np.zeros((ROUNDS, len(CASES), budget), np.int64)
    duration, elapsed = np.zeros(worker.shape), np.zeros((ROUNDS, len(CASES), n))
    for e, (length, whose, cancelled) in enumerate(CASES):
        duration[:, e] = durations(budget, rng)[length]
        anybody = np.sort(rng.integers(0, n, (ROUNDS, budget)))
        worker[:, e] = {"as asked": -1, "all of one": 0, "of any": anybody}[whose]
        elapsed[:, e] = rng.choice(EXTREMES, (ROUNDS, n)) if cancelled else 0.0
    return duration, worker, elapsed


class NumbersOnly:
    """A rule that refuses scores and shapes of NaN."""

    def __init__(self, rule: Any) -> None:
        self.rule, self.needs_shape = rule, rule.needs_shape

    def allocate(self, scores: Any, coming: Any) -> Any:
        assert not np.isnan(scores.score).any()
        assert scores.shape is None or not np.isnan(scores.shape).any()
        return self.rule.allocate(scores, coming)


def started(name: str, n: int, budget: int, rows: int, **hyperparameters: Any) -> tuple[Any, Any]:
    """A first observation, and a function that lets a policy act on one and fails at an illegal action or NaN."""
    pool = shifted_exponential(np.arange(1.0, n + 1), np.arange(1.0, n + 1))
    env: Any = gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, pool=pool, budget=budget)
    policy: Any = ata_policies.make(name, env, **hyperparameters)
    if isinstance(policy, ComposedPolicy):
        policy.rule = NumbersOnly(policy.rule)  # type: ignore[assignment]
    state: Any = None

    def act(observation: Any) -> Any:
        nonlocal state
        action, state = decide(policy, env, observation, state)
        env.unwrapped.checked(action)
        policy.check_state(state, rows)  # it could be saved and loaded
        for part, leaf in leaves(state.belief):
            assert leaf.dtype.kind != "f" or not np.isnan(leaf).any(), f"{part} has NaN: {leaf}"
        return action

    return env.reset(seed=0)[0], act


def play(name: str, n: int, budget: int, **hyperparameters: Any) -> None:
    observation, act = started(name, n, budget, len(CASES), **hyperparameters)
    for duration, worker, elapsed in zip(*feedback(n, budget), strict=True):
        action, filled = act(observation), worker.copy()
        for e in np.flatnonzero(worker[:, 0] < 0):
            filled[e] = np.resize(np.repeat(np.arange(n), action[e]), budget)
        observation = {"worker": filled, "duration": duration, "elapsed": elapsed}


@pytest.mark.parametrize("name", [name for name in BY_KIND if ata_policies.load(name).env_id != DISPATCH])
def test_actions_of_every_kind_of_policy_stay_legal(name: str) -> None:
    for n, budget in SIZES:
        play(name, n, budget)


COMBINATIONS = list(itertools.product(ESTIMATES, MEMORIES))


@pytest.mark.parametrize(("estimate", "memory"), COMBINATIONS)
def test_actions_of_every_composition_stay_legal(estimate: str, memory: str) -> None:
    """Each estimate with each memory; the rules and the sizes take turns."""
    place = COMBINATIONS.index((estimate, memory))
    n, budget = SIZES[place % 2]
    parts: dict[str, Any] = {"estimate": estimate, "memory": memory, "availability": True}
    if memory == "prior":
        counts, totals = [1.0, 0.0, 1e300, 3.0, 1e-300], [0.0, 0.0, 1e300, 1e300, 1e-300]
        parts["prior"] = Totals(np.resize(counts, (1, n)), np.resize(totals, (1, n)))
    for turn in range(len(RULES)):
        parts["rule"] = [*RULES][(place + turn) % len(RULES)]
        setting = ata_policies.Setting(n, budget, pool=shifted_exponential(np.ones(n), np.ones(n)))
        with contextlib.suppress(ValueError):  # they do not fit together
            ComposedPolicy(setting, **parts)
            return play("thompson", n, budget, **parts)
    return None


@pytest.mark.parametrize("name", [name for name in ata_policies.names() if ata_policies.load(name).env_id == DISPATCH])
def test_actions_of_dispatch_stay_legal(name: str) -> None:
    """Any workers are idle, and have started any number of tasks that have run for any time."""
    lengths = np.array([length.ravel() for length in durations(1, np.random.default_rng(0)).values()])
    for n, budget in ((3, 5), (1, 3), (6, 2)):
        rng, rows = np.random.default_rng(n), len(lengths)
        observation, act = started(name, n, budget, rows)
        for k, done in itertools.product(range(0, ROUNDS, 2), range(budget)):
            act(observation)
            running = rng.integers(0, 2, (rows, n)).astype(np.int8) * (done > 0)
            observation = {
                "worker": rng.integers(0, n, (rows, 1)),
                "duration": lengths[:, [k]],
                "elapsed": lengths[:, [k]] * rng.integers(0, 2, (rows, n)) * (done == 0),
                "missing": np.full((rows, 1), budget - done),
                "started": np.maximum(rng.integers(0, budget + 1, (rows, n)) * (done > 0), running),
                "running": running,
                "age": lengths[:, [k]] * running,
            }
