"""Memories that forget: windows and discounts against all that was seen; and whom those that restart try again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.changes import Jump
from ata_gym.pools import gamma, shifted_exponential
from ata_policies.beliefs.memory import Discount, Window

MEANS = np.arange(1.0, 13.0)
STEADY = gamma(25.0, MEANS / 25)
WORLD: dict[str, Any] = {"pool": shifted_exponential(MEANS / 2, MEANS / 2), "budget": 8, "seed": 1}
N = 3

played_rounds = st.lists(
    st.lists(st.tuples(st.integers(-1, N - 1), st.floats(0.1, 10)), min_size=4, max_size=4), min_size=1, max_size=40
)
rounds = st.builds(
    lambda played, mean: [
        [(-1, 0.0)] * 4,
        *[[(0, mean + 1.0), *((worker, mean + time) for worker, time in results[1:])] for results in played],
    ],
    played_rounds,
    st.sampled_from([0.0, 0.0, 1e4, 1e8]),
)
"""The empty feedback after a reset, and then rounds of up to four results, the first one of worker 0.

Times are from 0.1 to 10, or vary as little about a mean of 1e8.
"""


def fed(belief: Any, played: list[list[tuple[int, float]]]) -> Any:
    for results in played:
        worker, time = zip(*results, strict=True)
        belief = belief.observe(np.array([worker]), np.array([time]))
    return belief


def compare(belief: Any, expected: list[list[float]]) -> None:
    """With lists of (weight, time) for each worker."""
    for i, weighted in enumerate(expected):
        w, x = np.array(weighted, np.float64).reshape(-1, 2).T
        deviations = (w * (x - np.average(x, weights=w)) ** 2).sum() if w.size else 0.0
        for found, sums in zip(belief[:2], (w.sum(), (w * x).sum()), strict=True):
            np.testing.assert_allclose(found[0, i], sums, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(belief.deviations[0, i], deviations, rtol=1e-6, atol=1e-8)


@settings(max_examples=40)
@given(played=rounds, length=st.integers(1, 4), blocks=st.integers(1, 5), unit=st.sampled_from(["tasks", "rounds"]))
def test_a_window_holds_the_last_tasks_of_each_worker_or_the_last_rounds(
    played: Any, length: int, blocks: int, unit: str
) -> None:
    """All but what the oldest block held, whose place is being filled: W - W / k to W tasks or rounds."""

    def in_window(past: list[Any]) -> list[Any]:
        newest = (len(past) - 1) // length * length  # where the block being filled begins
        kept = past[max(newest - length * (blocks - 1), 0) :]
        assert len(kept) == len(past) or length * (blocks - 1) < len(kept) <= length * blocks
        return kept

    memory = Window(length * blocks, unit, blocks)
    belief = fed(memory.start(1, N, deviations=True), played)
    counting = in_window(played[1:]) if unit == "rounds" else played
    times = [[x for results in counting for worker, x in results if worker == i] for i in range(N)]
    compare(belief, [[(1.0, x) for x in (in_window(own) if unit == "tasks" else own)] for own in times])
    assert memory.rounds(belief, np.array([len(played)]))[0] == min(len(played), length * blocks)


@settings(max_examples=25)
@given(played=rounds, discount=st.floats(0.05, 0.999))
def test_a_discounted_belief_is_a_weighted_sum(played: Any, discount: float) -> None:
    """What is worth less than half a task is dropped when a round passes."""
    expected: list[list[Any]] = [[] for _ in range(N)]
    for results in played:
        for i in range(N):
            expected[i] = [(discount * w, x) for w, x in expected[i]]
            worth = sum(w for w, _ in expected[i])
            assert abs(worth - 0.5) > 1e-12 or worth == 0.5
            if worth < 0.5:
                expected[i] = []
            expected[i] += [(1.0, x) for worker, x in results if worker == i]
    memory = Discount(discount)
    belief = fed(memory.start(1, N, deviations=True), played)
    compare(belief, expected)
    k = len(played)
    np.testing.assert_allclose(memory.rounds(belief, np.array([k]))[0], sum(discount**j for j in range(k)))


def test_who_forgets_finds_a_worker_that_became_fast(play: Any) -> None:
    """A window of rounds and a discount try it again; a window of tasks does not, being never empty."""
    means = np.array([1.0, 1.0, 1.0, 1.0, 60.0])
    for memory, finds in (
        ({"memory": "window", "of": "rounds", "window": 60}, True),
        ({"memory": "discount", "discount": 0.98}, True),
        ({"memory": "window", "window": 60}, False),
    ):
        pool = shifted_exponential(means, means)
        run = play("thompson", 300, hyperparameters=memory, pool=pool, budget=7)
        assert (run.actions[21:, :, 4] > 0).any(axis=0).all() == finds


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
