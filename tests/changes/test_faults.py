"""Workers that leave, die and return: envs of all ids under schedules of faults.

Their rounds: tests/simulation.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import given, settings, strategies as st

from ata_gym.changes import Crash, Spot
from ata_gym.pools import deterministic, exponential, trace
from tests.changes.test_changes import process
from tests.envs.playing import DISPATCH, IDS

# with ties, and with no time
POOL = deterministic([1.0, 2.0]) + exponential([1.0, 3.0]) + trace([[1.0, 0.0, 2.0]])
MANY = deterministic(np.ones(16))
N = POOL.n
chances = st.floats(0.01, 1.0)
deadlines = st.sampled_from([0.0, 1.0, 2.5, 7.0])
spots = st.builds(Spot, chances, chances, deadlines)
crashes = st.builds(Crash, chances, st.floats(0.1, 5.0), st.integers(0, 3), deadlines)


@settings(max_examples=25)
@given(
    st.sampled_from(IDS),
    st.lists(spots | crashes, min_size=1, max_size=3),
    st.integers(1, 7),
    st.integers(0, 99),
)
def test_no_schedule_of_faults_hangs_a_round_or_loses_or_doubles_a_result(
    env_id,
    changes,
    budget,
    seed,
) -> None:
    rows = 2
    rounds = 6
    env: Any = gym.make_vec(
        env_id,
        rows,
        pool=POOL,
        budget=budget,
        horizon=rounds,
        changes=[*changes],
    )
    env.reset(seed=seed)
    env.action_space.seed(seed)
    done = np.zeros((rows, N), np.int64)
    busy = np.zeros(rows)
    lost = np.zeros(rows, np.int64)
    # a round takes that many steps, whoever dies
    for _ in range(
        rounds * (budget if env_id == DISPATCH else 1),
    ):
        dies = env.unwrapped.conditions().death_time
        assert np.isinf(dies).any(axis=1).all()
        observation, _, _, truncated, info = env.step(env.action_space.sample())
        if env_id == DISPATCH:
            over = info["round_over"]
        else:
            over = np.ones(rows, bool)
        for e, worker in enumerate(observation["worker"]):
            done[e] += np.bincount(worker, minlength=N)
            assert (dies[e, worker] > 0).all()
        busy += observation["duration"].sum(axis=1) + observation["elapsed"].sum(axis=1)
        cut = (observation["elapsed"] > 0) & (dies <= info["round_time"][:, None])
        assert (info["lost"] == cut.sum(axis=1))[over].all()
        lost += np.where(over, info["lost"], 0)
    assert truncated.all()
    assert (done.sum(axis=1) == rounds * budget).all()
    started = env.unwrapped.checkpoint()["started"]
    assert (done <= started).all()
    assert (done.sum(axis=1) + lost <= started.sum(axis=1)).all()
    np.testing.assert_allclose(info["total_worker_time"], busy, atol=1e-9)


def test_workers_follow_their_chains_and_the_lowest_lives_where_all_would_die() -> None:
    spot = [condition.death_time == 0 for condition in process(MANY, 200, 30, [Spot(0.1, 0.3)])]
    np.testing.assert_allclose(np.mean(spot), 0.25, atol=0.01)
    dies = np.array(
        [
            condition.death_time
            for condition in process(MANY, 200, 30, [Crash(0.1, within=2.0, away=3)])
        ]
    )
    present = dies > 0
    died = (dies > 0) & np.isfinite(dies)
    assert present[0].all()
    np.testing.assert_allclose(
        died.sum() / present.sum(), 0.1, atol=4 * (0.09 / present.sum()) ** 0.5
    )
    for k in range(1, 5):  # after a death, three rounds away
        assert (present[k:][died[:-k]] == (k == 4)).all()
    assert (dies[died] < 2).all()
    np.testing.assert_allclose(dies[died].mean(), 1.0, atol=0.02)
    (alone,) = process(POOL, 2, 1, [Spot(1.0, 1e-9)])
    assert (alone.death_time == [np.inf, *[0.0] * (N - 1)]).all()
