"""What is recorded of a round: every task in its place, and together the very round that the env
reports.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from ata_gym.changes import Change, Crash, Jump, Outliers, Spot, Walk
from ata_gym.envs.rendering.timeline import CANCELLED, DONE, LOST, RUNNING, Timeline
from ata_gym.pools import deterministic, exponential, gamma, trace
from tests.envs.playing import ALLOCATION, DISPATCH, IDS, RACE, same

POOL = (
    exponential([1.0, 2.0], shift=[0.5, 0.0])
    + gamma(2.5, 0.7)
    + trace([[1.0, 0.0, 2.0]])
    + deterministic([1.0, 3.0])
)
CHANGES: list[list[Change]] = [
    [],
    [Spot(0.3, 0.4, deadline=1.0)],
    [Crash(0.4, within=4.0, away=1)],
    [Crash(0.6, within=2.0, away=1, deadline=1.5), Spot(0.2, 0.5), Walk(0.3, 0.5)],
    [Jump(at=1, workers=(0, 3), factor=0.1), Outliers(0.2, 3, 9)],
]


def check(timeline: Timeline, info: dict[str, Any], budget: int, mean: np.ndarray) -> None:
    worker = timeline.worker
    start = timeline.start
    end = timeline.end
    kind = timeline.kind
    close = 1e-9 * (1 + timeline.time)
    assert (start >= 0).all()
    assert (end >= start).all()
    assert (end <= timeline.time + close).all()
    assert (np.diff(worker) >= 0).all()
    neighbours = np.diff(worker) == 0
    assert (start[1:][neighbours] >= end[:-1][neighbours] - close).all(), (
        "tasks of a worker overlap"
    )
    assert (timeline.time, timeline.runtime) == (info["round_time"], info["runtime"])
    assert timeline.total_worker_time == info["total_worker_time"]
    assert timeline.worker_time == pytest.approx(info["worker_time"])
    assert (end - start).sum() == pytest.approx(info["worker_time"], abs=close)
    assert timeline.busy.sum() == pytest.approx(info["worker_time"], abs=close)
    assert end[kind == DONE].max() == pytest.approx(timeline.time, abs=close)
    assert end[(kind == CANCELLED) | (kind == RUNNING)] == pytest.approx(timeline.time, abs=close)
    assert end[kind == LOST] == pytest.approx(timeline.death_time[worker[kind == LOST]], abs=close)
    assert (kind == LOST).sum() == info.get("lost", 0)
    assert (end <= timeline.death_time[worker] + close).all(), "a dead worker works"
    assert not np.isin(worker, np.flatnonzero(timeline.away)).any()
    assert timeline.mean.tobytes() == mean.tobytes()
    if timeline.round_over:
        assert (kind == DONE).sum() == budget
        assert not (kind == RUNNING).any()
    else:
        assert not (kind == CANCELLED).any()


@pytest.mark.parametrize("env_id", IDS)
@settings(max_examples=25)
@given(
    changes=st.sampled_from(CHANGES),
    seed=st.integers(0, 2**40),
    budget=st.integers(1, 9),
    price=st.sampled_from([0, 0.5]),
)
def test_a_round_is_the_sum_of_its_tasks(env_id, changes, seed, budget, price) -> None:
    options: dict[str, Any] = {"pool": POOL, "budget": budget, "changes": changes, "price": price}
    env, plain = (
        gym.make(env_id, **options, render_mode=mode).unwrapped for mode in ("ansi", None)
    )
    env.reset(seed=seed)
    plain.reset(seed=seed)
    env.action_space.seed(seed)
    assert env.timeline().round == len(env.timeline().worker) == 0
    rounds = 0
    for _ in range(12):
        begins = rounds == 0 or env.timeline().round_over
        mean = env.means()
        action = env.action_space.sample()
        observation, *rest = env.step(action)
        info = rest[-1]
        plain_feedback, *plain_rest = plain.step(action)
        assert rest == plain_rest
        assert same(observation, plain_feedback)
        rounds += begins
        timeline = env.timeline()
        assert (timeline.round, timeline.round_over) == (rounds, info.get("round_over", True))
        assert timeline.price == price
        check(timeline, info, budget, mean)
        if env_id == DISPATCH:
            ends = timeline.worker[(timeline.kind == DONE) & (timeline.end == timeline.time)]
            assert observation["worker"][0] in ends
            assert timeline.last_worker == ends.max()
            assert timeline.round_over or (observation["started"] == timeline.tasks).all()
        else:
            assert (timeline.tasks == action).all()
            done = timeline.worker[timeline.kind == DONE]
            assert (done == observation["worker"]).all()
            length = (timeline.end - timeline.start)[timeline.kind == DONE]
            assert length == pytest.approx(observation["duration"], abs=1e-9 * (1 + timeline.time))


def test_rows_that_only_choose_a_worker_keep_their_last_round() -> None:
    env: Any = gym.make(
        ALLOCATION,
        pool=POOL,
        budget=2,
        action="assign",
        render_mode="ansi",
    ).unwrapped
    env.reset(seed=0)
    rounds = []
    for worker in (0, 4, 1, 1, 0):
        env.step(np.int64(worker))
        rounds.append((env.timeline().round, env.timeline().tasks.tolist()))
    nothing = (0, [0] * 6)
    first = (1, [1, 0, 0, 0, 1, 0])
    second = (2, [0, 2, 0, 0, 0, 0])
    assert rounds == [nothing, first, first, second, second]


def test_estimates_are_the_means_of_results_or_the_arguments() -> None:
    env: Any = gym.make(
        ALLOCATION,
        pool=deterministic([1.0, 2.0, 9.0]),
        budget=3,
        render_mode="ansi",
    ).unwrapped
    env.reset(seed=0)
    means = np.array([1.0, 2.0, np.nan])
    estimates = np.array([5.0, 6.0, 7.0])
    for shown in (None, estimates, None, estimates):
        env.step(np.array([1, 2, 0]))
        env.show_estimates(shown)
        np.testing.assert_array_equal(
            env.timeline().estimate, means if shown is None else estimates
        )
    env.step(np.array([1, 2, 0]))
    assert env.timeline().estimate.tolist() == estimates.tolist()
    env.reset()
    assert np.isnan(env.timeline().estimate).all()
    with pytest.raises(
        ValueError,
        match=r"estimates must have shape \(3,\) or \(1, 3\), not \(2,\)",
    ):
        env.show_estimates(np.ones(2))
    gym.make(ALLOCATION).unwrapped.show_estimates(np.ones(5))  # nothing shows them


@pytest.mark.parametrize("env_id", [RACE, DISPATCH])
def test_slow_workers_whose_tasks_are_cancelled_do_not_look_fast(env_id: str) -> None:
    env: Any = gym.make(
        env_id,
        pool=exponential([1.0, 8.0]),
        budget=3,
        render_mode="ansi",
    ).unwrapped
    env.reset(seed=0)
    if env_id == RACE:
        every = np.full(2, 3)
        steps = 250
    else:
        every = np.ones(2, np.int8)
        steps = 750
    for _ in range(steps):
        env.step(every)
    # the means of finished tasks are 1.0 and 1.6
    assert env.timeline().estimate == pytest.approx(
        [1.0, 8.0],
        rel=0.2,
    )


@pytest.mark.parametrize("env_id", [RACE, DISPATCH])
def test_a_worker_without_a_result_takes_at_least_the_time_that_it_has_spent(env_id: str) -> None:
    env: Any = gym.make(
        env_id,
        pool=deterministic([1.0, 6.0]),
        budget=2,
        render_mode="ansi",
    ).unwrapped
    env.reset(seed=0)
    for _ in range(2 if env_id == RACE else 4):
        env.step(np.array([2, 2]) if env_id == RACE else np.ones(2, np.int8))
    assert (env.timeline().estimate.tolist(), env.timeline().is_lower_bound.tolist()) == (
        [1.0, 4.0],
        [False, True],
    )
    assert "≥ 4" in env.render().splitlines()[4]
    env.show_estimates(np.array([5.0, 6.0]))
    assert not env.timeline().is_lower_bound.any()


def test_after_a_restored_checkpoint_rounds_are_recorded_anew() -> None:
    env: Any = gym.make(DISPATCH, budget=3, render_mode="ansi").unwrapped
    env.reset(seed=0)
    env.step(np.ones(5, np.int8))
    saved = env.checkpoint()
    env.restore(saved)
    assert env.timeline().round == 0
    env.step(np.ones(5, np.int8))
    assert ((env.timeline().kind == DONE).sum(), len(env.render().splitlines())) == (1, 9)
