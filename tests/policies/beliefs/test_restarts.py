"""Learners that start anew: who is told what, that an idle worker is tried again, and that no change costs little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ata_gym import proxy_loss
from ata_gym.changes import Jump, Outliers
from ata_gym.pools import gamma

NAMES = ["thompson", "thompson-gamma", "thompson-beta", "ata-icml", "ata-empirical-icml"]
MEANS = np.arange(1.0, 13.0)


@pytest.mark.parametrize("name", NAMES)
def test_without_alarm_refresh_and_discount_it_is_the_plain_policy(play: Any, name: str) -> None:
    """Until a task is clipped, at 5 means or 6 standard deviations: gamma times of CV 0.2 never are."""
    pool = gamma(25.0, MEANS / 25)
    calm = {"refresh": None, "effective_tasks": None, "threshold": 1e9}
    played = play(name, 150, pool=pool, memory="restarting", **calm)
    np.testing.assert_array_equal(played.allocations, play(name, 150, pool=pool).allocations)
    assert not played.state.belief.alarms.any()


@pytest.mark.parametrize("name", ["thompson", "thompson-beta"])
def test_an_idle_worker_that_became_fast_is_noticed_at_the_next_refresh(play: Any, name: str) -> None:
    more = {"changes": [Jump(at=450, workers=(11,), factor=1 / 48)], "memory": "restarting"}
    allocations, times, *_ = play(name, 700, refresh=200.0, **more)
    assert (allocations[605:, :, 11] >= 4).mean() > 0.95
    assert (allocations[450:595, :, 11] == 0).mean() > 0.95
    assert times[610:].mean() < 0.7 * times[300:450].mean()
    never = play(name, 700, refresh=None, **more).allocations
    assert (never[450:595, :, 11] > 0).mean() < 0.1


def test_idle_workers_are_tried_together(play: Any) -> None:
    """In one round, for there are fewer than B of them, and 200 rounds later again."""
    pool = gamma(25.0, MEANS / 25)
    played = play("thompson-gamma", 820, pool=pool, budget=14, memory="restarting", refresh=200.0)
    slow = played.allocations[:, :, -3:] > 0
    assert slow[[200, 400, 600, 800]].mean() > 0.9
    assert slow[np.setdiff1d(np.arange(150, 820), [200, 400, 600, 800])].mean() < 0.05


def test_it_recovers_when_a_worker_in_use_becomes_slow(play: Any) -> None:
    changes = [Jump(at=300, workers=(0,), factor=20.0)]
    _, times, _, state, _ = play("restarting-beta", 500, changes=changes)
    plain = play("thompson-beta", 500, changes=changes).times
    assert state.belief.alarms[:, 0].tolist() == [1, 1, 1, 1]
    assert times[330:].mean() < 0.75 * plain[330:].mean()
    known = play("dynamic-ofta", 500, changes=changes).times
    assert times[330:].mean() < 1.1 * known[330:].mean()


def test_outliers_are_no_change(play: Any) -> None:
    for detector in ("page-hinkley", "cusum", "glr"):
        played = play("restarting-beta", 600, changes=[Outliers(0.003, 10, 30)], detector=detector)
        assert played.state.belief.alarms.sum() <= 1


def test_near_equal_workers_cost_little(play: Any) -> None:
    """The proxy loss, within 2 % of the best."""
    means = np.linspace(95.0, 105.0, 20)
    pool = gamma(400.0, means / 400)
    allocations, times, _, state, _ = play("restarting-beta", 600, pool=pool, budget=23, refresh=100.0)
    uniform = play("uta", 600, pool=pool, budget=23).times
    assert times.mean() < 1.005 * uniform.mean()
    assert not state.belief.alarms.any()
    assert (proxy_loss(allocations[10:], means) <= 210).all()
