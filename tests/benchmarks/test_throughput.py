"""How fast: printed as rounds per second and as ratios measured side by side in this run.

``make benchmark`` runs it; ``README.md`` beside this file keeps the figures of versions before. The
targets are for one core of a two-core server, in processor time; a test fails only on a ratio.
"""

import math
import os
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_gym
import ata_policies
from ata_gym import Scenario, allocate, scenario
from ata_gym.pools import exponential
from tests.benchmarks.fused import run

pytestmark = pytest.mark.benchmark

ROWS = 256
SCENARIO = scenario("icml2025-cifar100")


@pytest.fixture(scope="module", autouse=True)
def name_the_processor() -> None:
    file = Path("/proc/cpuinfo")
    if file.exists():
        named = re.search(r"model name\s*: (.*)", file.read_text("utf-8"))
    else:
        named = None
    print(f"\n{named[1] if named else platform.machine()}, {os.cpu_count()} cores")


def best(
    *plays: Callable[[], object],
    repeats: int = 25,
    clock: Callable[[], float] = time.process_time,
) -> list[float]:
    """Seconds of each call at its best, in turns, after one to warm up: what else the machine does
    only ever adds.
    """
    taken: list[list[float]] = [[] for _ in plays]
    for k in range(repeats + 1):
        for play, own in zip(plays, taken, strict=True):
            start = clock()
            play()
            if k:
                own.append(clock() - start)
    return [min(own) for own in taken]


@pytest.mark.parametrize(
    ("phase", "hyperparameters", "target"),
    [("uniform", {}, 1_000_000), ("all scores positive", {"alpha": 1e-3}, 800_000)],
)
def test_env_and_ata(phase: str, hyperparameters: dict[str, float], target: int) -> None:
    steps = 20
    play, policy = rounds_of_ata(ROWS, steps, **hyperparameters)
    for _ in range(20):
        play()  # past the first visits
    rounds = ROWS * steps
    means, radius = SCENARIO.pool.mean(), 4 * math.e * policy.estimate.alpha  # type: ignore[attr-defined]
    taken, bare = best(play, lambda: run(means, SCENARIO.budget, rounds, radius, 0))
    print(f"\nenv + ata, {phase}: {rounds / taken:,.0f} rounds/s (target {target:,})")
    print(f"bare fused loop: {rounds / bare:,.0f} rounds/s; ratio {bare / taken:.2f} (target 0.8)")
    assert bare / taken > 0.2


def rounds_of_ata(
    rows: int,
    steps: int,
    scenario: Any = SCENARIO,
    **hyperparameters: float,
) -> tuple[Any, Any]:
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, scenario=scenario)
    policy = ata_policies.make("ata", envs, **hyperparameters)
    at: dict[str, Any] = {"observation": envs.reset(seed=0)[0], "state": None}

    def play() -> None:
        observation = at["observation"]
        state = at["state"]
        for _ in range(steps):
            action, state = policy.predict(observation, state)
            observation = envs.step(action)[0]
        at.update(observation=observation, state=state)

    return play, policy


@pytest.mark.parametrize("rows", [256, 1024, 4096])
def test_two_threads(rows: int) -> None:
    """By the wall clock: two cores must be idle."""
    play, _ = rounds_of_ata(rows, max(1, 4096 // rows), alpha=1e-3)

    def in_two() -> None:
        with ata_gym.threads(2):
            play()

    one, two = best(play, in_two, clock=time.perf_counter)
    print(f"\nenv + ata in two threads, {rows} rows: {one / two:.2f} times as fast (target 1.8)")
    assert one / two > 0.2


def test_a_million_workers() -> None:
    world = Scenario(exponential(np.linspace(1.0, 2.0, 10**6)), budget=23)
    (play, _), numbers = rounds_of_ata(1, 1, world, alpha=1.0), np.ones(10**6)
    taken, copy = best(play, numbers.copy, repeats=9)
    print(
        f"env + ata, 1e6 workers, B = 23: {1 / taken:,.0f} rounds/s, one costs {taken / copy:.0f}"
        " copies of a column",
    )
    assert taken / copy < 1000


def test_single_env() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", scenario=SCENARIO.name)
    cartpole = gym.make("CartPole-v1")
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(500)]
    for one in (env, cartpole):
        one.reset(seed=0)
    steps, sampled, bare = (
        len(actions) / seconds
        for seconds in best(
            lambda: [env.step(action) for action in actions],
            lambda: [env.step(env.action_space.sample()) for _ in actions],
            lambda: [cartpole.reset() if cartpole.step(0)[2] else None for _ in actions],
        )
    )
    print(
        f"\nsingle env: {steps:,.0f} steps/s with random actions (target 80,000); {sampled:,.0f}"
        " with their sampling",
    )
    print(f"for scale, CartPole-v1: {bare:,.0f} steps/s; ratio {steps / bare:.2f}")
    assert steps / bare > 0.05


def test_dispatch() -> None:
    """The rounds of a race, completion by completion: start while fewer tasks are started than the
    race allows.
    """
    rounds = 4
    whole, stepwise = (
        gym.make_vec(f"ata_gym/Task{name}-v0", num_envs=ROWS, scenario=SCENARIO.name)
        for name in ("Race", "Dispatch")
    )
    race = np.zeros((ROWS, SCENARIO.pool.n), np.int64)
    race[:, :16] = 4
    at = {"started": stepwise.reset(seed=0)[0]["started"]}
    whole.reset(seed=0)

    def play() -> None:
        for _ in range(rounds * SCENARIO.budget):
            at.update(started=stepwise.step(at["started"] < race)[0]["started"])

    results = ROWS * rounds * SCENARIO.budget
    ours, theirs = (
        results / taken
        for taken in best(play, lambda: [whole.step(race) for _ in range(rounds)], repeats=5)
    )
    print(
        f"\ndispatch: {ours:,.0f} results/s; the same rounds as races: {theirs:,.0f}; ratio"
        f" {ours / theirs:.3f}",
    )
    assert ours / theirs > 0.05


def test_allocating_to_a_million_workers() -> None:
    unsorted = np.random.default_rng(0).exponential(size=10**6)
    for name, scores in [("random", unsorted), ("equal", np.ones(10**6))]:
        sort, ours = best(lambda: np.sort(unsorted), lambda s=scores: allocate(s, 10**5), repeats=9)
        ratio = ours / sort
        print(
            f"\nallocate, 1e6 {name} scores, B = 1e5: {ours * 1e3:.1f} ms, {ratio:.2f} sorts"
            " (target: at most 1)",
        )
        assert ratio < 1.5
