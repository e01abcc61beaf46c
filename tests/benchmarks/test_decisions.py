"""What the decisions of the three defaults cost, the median and the worst, beside ATA's; rounds of planning count."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import Scenario, scenario
from ata_gym.pools import exponential

pytestmark = pytest.mark.benchmark

WORLDS = {
    "n = 51, B = 23": (scenario("icml2025-cifar100"), 300),
    "n = 1,000, B = 500": (Scenario(exponential(np.linspace(1.0, 20.0, 1000)), 500), 60),
    "n = 10,000, B = 23": (Scenario(exponential(np.linspace(1.0, 20.0, 10_000)), 23), 60),
}
"""Worlds, and how many decisions are timed."""
DEFAULTS = [f"ata_gym/Task{name}-v0" for name in ("Allocation", "Race", "Dispatch")]


def costs(name: str, env_id: str, world: Scenario, rows: int, decisions: int) -> Any:
    """Milliseconds of processor time of each decision."""
    envs = gym.make_vec(env_id, num_envs=rows, scenario=world)
    policy, observation, state, taken = ata_policies.make(name, envs), envs.reset(seed=0)[0], None, []
    for _ in range(decisions):
        start = time.process_time()
        action, state = policy.predict(observation, state)
        taken.append(1e3 * (time.process_time() - start))
        observation = envs.step(action)[0]
    return np.array(taken)


def said(taken: Any) -> str:
    median = np.median(taken)
    planning = np.count_nonzero(taken > 5 * median)
    return f"mean {taken.mean():.3g} ms, median {median:.3g}, worst {taken.max():.3g}; {planning} above 5 medians"


@pytest.mark.parametrize("env_id", DEFAULTS)
@pytest.mark.parametrize("world", WORLDS)
def test_decisions_of_a_default(world: str, env_id: str) -> None:
    known, decisions = WORLDS[world]
    costs("default", env_id, known, 1, 3)  # compiles
    costs("ata", DEFAULTS[0], known, 1, 3)
    ours, beside = costs("default", env_id, known, 1, decisions), costs("ata", DEFAULTS[0], known, 1, decisions)
    print(f"\n{env_id}, {world}: {said(ours)}; ratio of means to ATA {ours.mean() / beside.mean():.1f}")
    assert ours.mean() < 50_000 * beside.mean()


@pytest.mark.parametrize("env_id", DEFAULTS)
def test_many_rows_of_a_default(env_id: str) -> None:
    known, _ = WORLDS["n = 51, B = 23"]
    costs("default", env_id, known, 2, 3)  # compiles
    rows, single = costs("default", env_id, known, 256, 40), costs("default", env_id, known, 1, 40)
    ratio = rows.mean() / (256 * single.mean())
    print(f"\n{env_id}, 256 rows: {said(rows)}; {ratio:.2f} of 256 single ones (target: below 1)")
    assert ratio < 100
