"""Workers that leave, die and return: envs of all ids under schedules of faults."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import Correlated, Crash, Outliers, Spot, Switch, Walk
from ata_gym.pools import Pool, deterministic, exponential, trace

POOL = deterministic([1.0, 2.0]) + exponential([1.0, 3.0]) + trace([[1.0, 0.0, 2.0]])  # with ties, and with no time
N = POOL.n
INF = np.inf

deadlines = st.sampled_from([0.0, 1.0, 2.5, 7.0])


def make(env_id: str, pool: Pool, rows: int = 3, **options: Any) -> Any:
    return gym.make_vec(f"ata_gym/Task{env_id}-v0", num_envs=rows, **{"pool": pool, "budget": 6, **options})


FOUR = exponential([1.0, 1.5, 2.0, 2.5])
FAULTS = [Spot(leaves=0.2, returns=0.4, deadline=1.0), Crash(probability=0.4, within=3.0, away=2, deadline=2.0)]


chances = st.floats(0.01, 1.0)
faults = st.lists(
    st.one_of(
        st.builds(Spot, chances, chances, deadlines),
        st.builds(Crash, chances, st.floats(0.1, 5.0), st.integers(0, 3), deadlines),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=25)
@given(st.sampled_from(["Allocation", "Race", "Dispatch"]), faults, st.integers(1, 7), st.integers(0, 99))
def test_no_schedule_of_faults_hangs_a_round_or_loses_or_doubles_a_result(
    kind: str, changes: list[Spot | Crash], budget: int, seed: int
) -> None:
    rows, rounds = 2, 6
    env = make(kind, POOL, rows, budget=budget, horizon=rounds, changes=[*changes])
    env.reset(seed=seed)
    env.action_space.seed(seed)
    done, busy, lost = np.zeros((rows, N), np.int64), np.zeros(rows), np.zeros(rows, np.int64)
    for _ in range(rounds * (budget if kind == "Dispatch" else 1)):  # a round takes that many steps, whoever dies
        dies = env.unwrapped.conditions().dies
        assert np.isinf(dies).any(axis=1).all()
        observation, _, _, truncated, info = env.step(env.action_space.sample())
        over = info["round_over"] if kind == "Dispatch" else np.ones(rows, bool)
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


def test_an_allocation_and_its_race_agree_over_episodes_of_faults() -> None:
    changes = [Walk(0.3, 0.5), Switch(every=7), Correlated(0.6, 0.8), Outliers(0.05, 10, 30), *FAULTS]
    plain, race = (make(name, FOUR, changes=changes, horizon=40) for name in ("Allocation", "Race"))
    plain.action_space.seed(0)
    for env in (plain, race):
        env.reset(seed=3)
    lost = away = 0
    for _ in range(60):
        conditions = plain.unwrapped.conditions()
        assert np.isinf(conditions.dies).any(axis=1).all()
        action = plain.action_space.sample()
        a, b = plain.step(action), race.step(action)
        for name, field in a[0].items():
            assert field.tobytes() == b[0][name].tobytes()
        for name, field in a[-1].items():
            assert field.tobytes() == b[-1][name].tobytes(), name
        lost += int(a[-1]["lost"].sum())
        away += int((conditions.dies == 0).sum())
        assert (a[0]["worker"] >= 0).all() or not a[-1]["_lost"].all()
    assert lost > 20
    assert away > 60


def test_starting_always_is_the_race_of_everybody_under_faults() -> None:
    """GTA needs nothing handed on: whoever lives gives results enough."""
    race, results = (make(name, FOUR, changes=FAULTS) for name in ("Race", "Dispatch"))
    race.reset(seed=5)
    results.reset(seed=5)
    for _ in range(12):
        expected, _, _, _, whole = race.step(np.full((3, 4), 6))
        worker, time = np.empty((3, 6), np.int64), np.empty((3, 6))
        for b in range(6):
            observation, _, _, _, info = results.step(np.ones((3, 4), np.int8))
            worker[:, b], time[:, b] = observation["worker"][:, 0], observation["duration"][:, 0]
        order = np.argsort(worker, axis=1, kind="stable")
        assert np.take_along_axis(worker, order, 1).tolist() == expected["worker"].tolist()
        assert np.take_along_axis(time, order, 1).tobytes() == expected["duration"].tobytes()
        assert observation["elapsed"].tobytes() == expected["elapsed"].tobytes()
        for name in ("round_time", "worker_time", "lost", "total_worker_time"):
            assert info[name].tobytes() == whole[name].tobytes(), name


def test_workers_that_are_away_or_die_follow_their_chains() -> None:
    rows, rounds = 400, 30
    env = make("Allocation", deterministic(np.ones(8)), rows, budget=1, changes=[Crash(0.1, within=2.0, away=3)])
    env.reset(seed=0)
    action = np.zeros((rows, 8), np.int64)
    action[:, 0] = 1
    seen = []
    for _ in range(rounds):
        seen.append(env.unwrapped._state.process.memories[0].copy())
        env.step(action)
    left, dies = np.array(seen).transpose(2, 0, 1, 3)
    there = left == 0
    died = there & np.isfinite(dies)
    assert not (left[0] > 0).any()
    share = died.sum() / there.sum()
    np.testing.assert_allclose(share, 0.1, atol=4 * (0.09 / there.sum()) ** 0.5)
    for k in range(1, 4):  # after a death, three rounds away
        assert (dies[k:][died[:-k]] == 0).all()
    assert (left[4:][died[:-4]] == 0).all()
    assert ((dies[died] > 0) & (dies[died] < 2)).all()
    np.testing.assert_allclose(dies[died].mean(), 1.0, atol=0.02)
    # the conditions: the last to die lives on
    spot = make("Allocation", deterministic(np.ones(8)), rows, budget=1, changes=[Spot(0.1, 0.3)])
    spot.reset(seed=0)
    away = []
    for _ in range(rounds):
        away.append((spot.unwrapped.conditions().dies == 0).mean())
        spot.step(action)
    np.testing.assert_allclose(np.mean(away), 0.25, atol=0.01)


def test_all_away_but_one() -> None:
    env = make("Allocation", deterministic([1.0, 2.0, 3.0]), 2, budget=3, changes=[Spot(1.0, 1e-9)])
    env.reset(seed=0)
    for _ in range(3):
        observation, *_, info = env.step(np.array([[1, 1, 1], [0, 0, 3]]))
        assert (env.unwrapped.conditions().dies == [INF, 0, 0]).all()
        assert (observation["worker"] == 0).all()
        assert info["round_time"].tolist() == info["worker_time"].tolist() == [3.0, 3.0]
        assert not info["lost"].any()
