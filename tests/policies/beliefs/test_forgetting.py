"""Windows and discounts against what they stand for, worked out anew from all that was seen."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym.pools import shifted_exponential
from ata_policies.beliefs.discount import DiscountedMoments
from ata_policies.beliefs.window import WindowMoments

POOL = shifted_exponential([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])
NAMES = ["ata-icml", "ata-empirical-icml", "thompson", "thompson-gamma"]
N = 3

rounds = st.lists(
    st.lists(st.tuples(st.integers(-1, N - 1), st.floats(0.1, 10)), min_size=4, max_size=4), min_size=1, max_size=40
).map(lambda played: [[(-1, 0.0)] * 4, *[[(0, 1.0), *results[1:]] for results in played]])
"""The empty feedback after a reset, and then rounds of up to four results, the first one of worker 0."""


def fed(belief: Any, played: list[list[tuple[int, float]]]) -> Any:
    for results in played:
        worker, time = zip(*results, strict=True)
        belief = belief.observe(np.array([worker]), np.array([time]))
    return belief


def compare(belief: Any, expected: list[list[float]]) -> None:
    """With lists of (weight, time) for each worker."""
    for i, weighted in enumerate(expected):
        w, x = np.array(weighted, np.float64).reshape(-1, 2).T
        for found, power in ((belief.counts, 0), (belief.totals, 1), (belief.squares, 2)):
            np.testing.assert_allclose(found[0, i], (w * x**power).sum(), rtol=1e-9, atol=1e-12)
    assert (belief.untried() == (belief.counts == 0)).all()


@settings(max_examples=60, deadline=None)
@given(played=rounds, length=st.integers(1, 4), blocks=st.integers(1, 5))
def test_a_window_of_tasks_holds_the_last_of_each_worker(played: Any, length: int, blocks: int) -> None:
    """All but what the oldest block held, whose place is being filled: W - W / k to W tasks."""
    belief = fed(WindowMoments.empty(1, N, length * blocks, blocks, by_task=True), played)
    expected = []
    for i in range(N):
        times = [x for results in played for worker, x in results if worker == i]
        newest = (len(times) - 1) // length * length  # where the block being filled begins
        expected.append([(1.0, x) for x in times[max(newest - length * (blocks - 1), 0) :]])
        assert len(expected[i]) == len(times) or length * (blocks - 1) < len(expected[i]) <= length * blocks
    compare(belief, expected)


@settings(max_examples=60, deadline=None)
@given(played=rounds, length=st.integers(1, 4), blocks=st.integers(1, 5))
def test_a_window_of_rounds_holds_the_last_rounds(played: Any, length: int, blocks: int) -> None:
    belief = fed(WindowMoments.empty(1, N, length * blocks, blocks, by_task=False), played)
    newest = (len(played) - 2) // length * length
    last = played[1:][max(newest - length * (blocks - 1), 0) :]
    compare(belief, [[(1.0, x) for results in last for worker, x in results if worker == i] for i in range(N)])
    assert belief.rounds(np.array([len(played)]))[0] == min(len(played), length * blocks)


@settings(max_examples=60, deadline=None)
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
    belief = fed(DiscountedMoments.empty(1, N, discount), played)
    compare(belief, expected)
    k = len(played)
    np.testing.assert_allclose(belief.rounds(np.array([k]))[0], sum(discount**j for j in range(k)))


def allocations(name: str, rounds: int = 60, **hyperparameters: Any) -> np.ndarray:
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=3, pool=POOL, budget=7)
    policy = ata_policies.make(name, env, **hyperparameters)
    observation, _ = env.reset(seed=4)
    state, chosen = None, []
    for _ in range(rounds):
        allocation, state = policy.predict(observation, state)
        observation = env.step(allocation)[0]
        chosen.append(allocation)
    return np.array(chosen)


@pytest.mark.parametrize("name", NAMES)
def test_who_forgets_nothing_plays_as_the_plain_policy(name: str) -> None:
    more = {"shape": 2.0} if name == "thompson" else {}  # below 1 a gamma number is drawn in another way
    plain = allocations(name, **more)
    for unit in ("tasks", "rounds"):
        np.testing.assert_array_equal(allocations(name, memory="window", window=6000, of=unit, **more), plain)
    hardly = allocations(name, memory="discount", discount=1 - 1e-13, **more)
    assert (hardly == plain).all(axis=(1, 2)).mean() > 0.95  # a tie may fall otherwise


@pytest.mark.parametrize("name", ["thompson", "thompson-gamma"])
def test_who_forgets_finds_a_worker_that_became_fast(name: str) -> None:
    """A window of rounds and a discount try it again; a window of tasks does not, being never empty."""
    pool = shifted_exponential([1.0, 1.0, 1.0, 1.0, 60.0], [1.0, 1.0, 1.0, 1.0, 60.0])
    for memory, finds in (
        ({"memory": "window", "of": "rounds", "window": 60}, True),
        ({"memory": "discount", "discount": 0.98}, True),
        ({"memory": "window", "window": 60}, False),
    ):
        env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=pool, budget=7)
        policy = ata_policies.make(name, env, **memory)
        observation, _ = env.reset(seed=0)
        state, tried = None, np.zeros(4)
        for k in range(300):
            allocation, state = policy.predict(observation, state)
            observation = env.step(allocation)[0]
            tried += (allocation[:, 4] > 0) & (k > 20)
        assert (tried > 0).all() == finds


@pytest.mark.parametrize(
    ("memory", "bad", "message"),
    [
        ("window", {"window": 10, "blocks": 3}, "blocks must divide the window of 10"),
        ("window", {"of": "years"}, 'of must be "tasks"'),
        ("window", {"window": 0}, "window"),
        ("discount", {"discount": 1.0}, "discount must be below 1"),
        ("discount", {"discount": 0.0}, "discount must be a finite number above 0"),
    ],
)
def test_bad_hyperparameters(memory: str, bad: dict[str, Any], message: str) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=7)
    with pytest.raises(ValueError, match=message):
        ata_policies.make("thompson", env, memory=memory, **bad)
