"""Learners that start anew: who is told what, that an idle worker is tried again, and that no change costs little."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym import proxy_loss
from ata_gym.changes import Jump, Outliers
from ata_gym.pools import Pool, gamma, shifted_exponential

NAMES = ["thompson", "thompson-gamma", "thompson-beta", "ata-icml", "ata-empirical-icml"]
MEANS = np.arange(1.0, 13.0)
POOL = shifted_exponential(MEANS / 2, MEANS / 2)


def play(
    name: str, rounds: int, pool: Pool = POOL, budget: int = 8, changes: Any = (), **hyperparameters: Any
) -> tuple[Any, Any, Any]:
    """Allocations and round times by round, and the last state, of 4 rows."""
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=pool, budget=budget, changes=changes)
    policy = ata_policies.make(name, env, **hyperparameters)
    observation, _ = env.reset(seed=1)
    state, allocations, times = None, [], []
    for _ in range(rounds):
        now = {"privileged": env.unwrapped.conditions()} if policy.privileged else {}
        allocation, state = policy.predict(observation, state, **now)
        observation, *_, info = env.step(allocation)
        allocations.append(allocation)
        times.append(info["round_time"])
    return np.array(allocations), np.array(times), state


@pytest.mark.parametrize("name", NAMES)
def test_without_alarm_refresh_and_discount_it_is_the_plain_policy(name: str) -> None:
    """Until a task is clipped, at 5 means or 6 standard deviations: gamma times of CV 0.2 never are."""
    pool = gamma(25.0, MEANS / 25)
    calm = {"refresh": None, "effective_tasks": None, "threshold": 1e9}
    allocations, _, state = play(name, 150, pool, memory="restarting", **calm)
    np.testing.assert_array_equal(allocations, play(name, 150, pool)[0])
    assert not state.belief.alarms.any()


@pytest.mark.parametrize("name", ["thompson", "thompson-gamma", "thompson-beta"])
def test_an_idle_worker_that_became_fast_is_noticed_at_the_next_refresh(name: str) -> None:
    more = {"changes": [Jump(at=450, workers=(11,), factor=1 / 48)], "memory": "restarting"}
    allocations, times, _ = play(name, 700, refresh=200.0, **more)
    assert (allocations[605:, :, 11] >= 4).mean() > 0.95
    assert (allocations[450:595, :, 11] == 0).mean() > 0.95
    assert times[610:].mean() < 0.7 * times[300:450].mean()
    never, _, _ = play(name, 700, refresh=None, **more)
    assert (never[450:595, :, 11] > 0).mean() < 0.1


def test_idle_workers_are_tried_together() -> None:
    """In one round, for there are fewer than B of them, and 200 rounds later again."""
    pool = gamma(25.0, MEANS / 25)
    allocations, _, _ = play("thompson-gamma", 820, pool, budget=14, memory="restarting", refresh=200.0)
    slow = allocations[:, :, -3:] > 0
    assert slow[[200, 400, 600, 800]].mean() > 0.9
    assert slow[np.setdiff1d(np.arange(150, 820), [200, 400, 600, 800])].mean() < 0.05


def test_it_recovers_when_a_worker_in_use_becomes_slow() -> None:
    changes = [Jump(at=300, workers=(0,), factor=20.0)]
    _, times, state = play("restarting-beta", 500, changes=changes)
    _, plain, _ = play("thompson-beta", 500, changes=changes)
    assert state.belief.alarms[:, 0].tolist() == [1, 1, 1, 1]
    assert times[330:].mean() < 0.75 * plain[330:].mean()
    _, known, _ = play("dynamic-ofta", 500, changes=changes)
    assert times[330:].mean() < 1.1 * known[330:].mean()


def test_outliers_are_no_change() -> None:
    for detector in ("page-hinkley", "cusum", "glr"):
        _, _, state = play("restarting-beta", 600, changes=[Outliers(0.003, 10, 30)], detector=detector)
        assert state.belief.alarms.sum() <= 1


def test_near_equal_workers_cost_little() -> None:
    """The proxy loss, within 2 % of the best."""
    means = np.linspace(95.0, 105.0, 20)
    pool = gamma(400.0, means / 400)
    allocations, times, state = play("restarting-beta", 600, pool, budget=23, refresh=100.0)
    uniform = play("uta", 600, pool, budget=23)[1]
    assert times.mean() < 1.005 * uniform.mean()
    assert not state.belief.alarms.any()
    assert (proxy_loss(allocations[10:], means) <= 210).all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"detector": "ear"}, "detector must be 'page-hinkley' or 'cusum' or 'glr', not 'ear'"),
        ({"restart": "none"}, "restart must be 'everybody' or 'many' or 'worker'"),
        ({"effective_tasks": 5.0}, "effective_tasks must be a finite number of at least 40, or None"),
        ({"refresh": 0.0}, "refresh must be a finite number above 0"),
        ({"threshold": -1.0}, "threshold must be a finite number above 0"),
    ],
)
def test_bad_hyperparameters(bad: dict[str, Any], message: str) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=7)
    with pytest.raises(ValueError, match=message):
        ata_policies.make("restarting-beta", env, **bad)
