"""Learners that start anew: who is told what, that an idle worker is tried again, and that no change costs little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ata_gym.changes import Jump
from ata_gym.pools import gamma, shifted_exponential

MEANS = np.arange(1.0, 13.0)
STEADY = gamma(25.0, MEANS / 25)
WORLD: dict[str, Any] = {"pool": shifted_exponential(MEANS / 2, MEANS / 2), "budget": 8, "seed": 1}


@pytest.mark.parametrize("name", ["thompson", "thompson-beta", "ata-icml"])
def test_without_alarm_refresh_and_discount_it_is_the_plain_policy(play: Any, name: str) -> None:
    """Until a task is clipped, at 5 means or 6 standard deviations: gamma times of CV 0.2 never are."""
    calm = {"memory": "restarting", "refresh": None, "effective_tasks": None, "threshold": 1e9}
    plain, restarting = (play(name, 120, hyperparameters=h, **WORLD | {"pool": STEADY}) for h in ({}, calm))
    np.testing.assert_array_equal(restarting.actions, plain.actions)
    assert not restarting.states[-1].belief.alarms.any()


def test_an_idle_worker_that_became_fast_is_noticed_at_the_next_refresh(play: Any) -> None:
    changes = [Jump(at=450, workers=(11,), factor=1 / 48)]
    run, never = (
        play(
            "thompson-beta", 700, changes=changes, hyperparameters={"memory": "restarting", "refresh": refresh}, **WORLD
        )
        for refresh in (200.0, None)
    )
    assert (run.actions[605:, :, 11] >= 4).mean() > 0.95
    assert (run.actions[450:595, :, 11] == 0).mean() > 0.95
    assert run.round_times[610:].mean() < 0.7 * run.round_times[300:450].mean()
    assert (never.actions[450:595, :, 11] > 0).mean() < 0.1


def test_idle_workers_are_tried_together(play: Any) -> None:
    """In one round, for there are fewer than B of them, and 200 rounds later again."""
    hyperparameters = {"memory": "restarting", "refresh": 200.0}
    run = play("thompson-gamma", 620, hyperparameters=hyperparameters, **WORLD | {"pool": STEADY, "budget": 14})
    slow = run.actions[:, :, -3:] > 0
    assert slow[[200, 400, 600]].mean() > 0.9
    assert slow[np.setdiff1d(np.arange(150, 620), [200, 400, 600])].mean() < 0.05


def test_it_recovers_when_a_worker_in_use_becomes_slow(play: Any) -> None:
    changes = [Jump(at=300, workers=(0,), factor=20.0)]
    run, plain, known = (
        play(name, 450, changes=changes, **WORLD) for name in ("restarting-beta", "thompson-beta", "dynamic-ofta")
    )
    assert run.states[-1].belief.alarms[:, 0].tolist() == [1, 1, 1, 1]
    late, plain_late, known_late = (one.round_times[330:].mean() for one in (run, plain, known))
    assert late < 0.75 * plain_late
    assert late < 1.1 * known_late
