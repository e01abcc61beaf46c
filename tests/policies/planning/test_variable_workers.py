"""The default where times vary very widely and workers never change, and in few rounds."""

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.pools import Pool, gamma
from ata_gym.typing import Floats
from ata_policies.steps import decide


def play(name: str, pool: Pool, budget: int, rounds: int, rows: int) -> tuple[Floats, Floats]:
    """Return the tasks, (rounds, rows, n), and the round times, (rounds, rows)."""
    envs = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=rows, pool=pool, budget=budget)
    policy = ata_policies.make(name, envs)
    observation = envs.reset(seed=0)[0]
    state = None
    tasks = []
    times = []
    for _ in range(rounds):
        action, state = decide(policy, envs, observation, state)
        observation, reward, *_ = envs.step(action)
        tasks.append(action)
        times.append(-reward)
    return np.array(tasks, float), np.array(times)


def test_no_row_stays_at_the_slower_worker() -> None:
    """Gamma times of coefficient of variation 2.2, means 1 and 1.5, one task a round."""
    pool = gamma(0.2, np.array([1.0, 1.5]) / 0.2)
    tasks = play("default", pool, 1, 2_000, 16)[0]
    assert tasks[-500:, :, 1].mean(axis=0).max() < 0.5
    rival = play("thompson-gamma", pool, 1, 2_000, 16)[0]
    assert tasks[:, :, 1].sum() < rival[:, :, 1].sum()


def test_several_variable_workers_are_told_apart() -> None:
    """Ten workers of coefficient of variation 3.2, B = 20."""
    pool = gamma(0.1, np.geomspace(1.0, 3.0, 10) / 0.1)
    times = play("default", pool, 20, 300, 16)[1]
    rival = play("thompson-gamma", pool, 20, 300, 16)[1]
    assert times.mean() < rival.mean()


@pytest.mark.parametrize(("n", "budget"), [(100, 25), (200, 100)])
def test_few_rounds_do_not_explore_for_a_thousand(n: int, budget: int) -> None:
    """Twenty rounds of an unknown horizon."""
    pool = gamma(4.0, np.geomspace(1.0, 8.0, n) / 4.0)
    times = play("default", pool, budget, 20, 8)[1]
    rival = play("certainty-equivalence", pool, budget, 20, 8)[1]
    assert times.mean() < 1.03 * rival.mean()
