"""Windows and discounts against what they stand for, worked out anew from all that was seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ata_gym.pools import shifted_exponential
from ata_policies import Setting
from ata_policies.allocation.composition import ComposedPolicy
from ata_policies.beliefs.memory import Discount, Window

WORLD: dict[str, Any] = {"pool": shifted_exponential(np.arange(1.0, 6.0), np.arange(1.0, 6.0)), "budget": 7}
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


@pytest.mark.parametrize(
    ("memory", "bad", "message"),
    [
        ("window", {"window": 10, "blocks": 3}, "blocks must divide the window of 10"),
        ("window", {"of": "years"}, 'of must be "tasks"'),
        ("window", {"window": 0}, "window"),
        ("discount", {"discount": 1.0}, "discount must be below 1"),
        ("discount", {"discount": 0.0}, "discount must be a finite number above 0"),
        ("restarting", {"detector": "ear"}, "detector must be 'page-hinkley' or 'cusum' or 'glr', not 'ear'"),
        ("restarting", {"restart": "none"}, "restart must be 'everybody' or 'many' or 'worker'"),
        ("restarting", {"effective_tasks": 5.0}, "effective_tasks must be a finite number of at least 40, or None"),
        ("restarting", {"refresh": 0.0}, "refresh must be a finite number above 0"),
        ("restarting", {"threshold": -1.0}, "threshold must be a finite number above 0"),
    ],
)
def test_bad_hyperparameters(memory: str, bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ComposedPolicy(Setting(n=5, budget=7), estimate="thompson", memory=memory, **bad)
