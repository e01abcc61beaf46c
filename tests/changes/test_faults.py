"""Rounds in which workers die: against a plain event simulator written from the definition, under made-up schedules."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.changes import Hazards, Mortal, Spot
from ata_gym.changes.conditions import calm
from ata_gym.pools import Pool, deterministic, exponential, trace
from ata_gym.simulation import Underway, allocation_round, dispatch_step, race_round, stream_keys, task_times

POOL = deterministic([1.0, 2.0]) + exponential([1.0, 3.0]) + trace([[1.0, 0.0, 2.0]])  # with ties, and with no time
N = POOL.n
INF = np.inf

deaths = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.7, 4.0, INF]), min_size=N, max_size=N)
deadlines = st.sampled_from([0.0, 1.0, 2.5, 7.0])


def survivors(dies: list[float]) -> np.ndarray:
    """Who would die last, the first of equals, does not."""
    moments = np.array(dies)
    moments[np.argmax(moments)] = INF
    return moments


def hazards(dies: np.ndarray, deadline: float = 0.0) -> Hazards:
    return Hazards(calm(N).noise, dies[None], deadline)


def time_of(worker: int, task: int, seed: int) -> float:
    return float(task_times(POOL.laws, stream_keys(seed), 0, 0, worker, task)[0])


class ByDefinition:
    """One round as events in order of (moment, worker)."""

    def __init__(self, allocation: list[int], budget: int, dies: np.ndarray, deadline: float, seed: int) -> None:
        self.dies, self.seed = dies, seed
        self.now, self.lost = 0.0, 0
        self.todo = [a if dies[i] > 0 else 0 for i, a in enumerate(allocation)]
        self.begun: dict[int, float] = {}  # of those who run a task
        self.idle_since = [0.0] * N
        self.started = [0] * N
        self.elapsed = [0.0] * N
        self.results: list[tuple[int, int, float]] = []
        for i in range(N):
            self.start(i)
        while True:
            while self.now >= deadline and self.short_of(budget):
                heirs = [(self.idle_since[i], i) for i in range(N) if i not in self.begun and dies[i] > self.now]
                if not heirs:
                    break
                heir = min(heirs)[1]
                self.todo[heir] = 1
                self.start(heir)
            moment, i = min(((self.leaves(i), i) for i in self.begun), default=(INF, -1))
            if self.now < deadline < moment and self.short_of(budget):
                self.now = deadline
                continue
            self.now = moment
            if self.ends(i) <= dies[i]:
                self.results.append((i, self.started[i] - 1, self.ends(i) - self.begun[i]))
            else:
                self.lost += 1
                self.elapsed[i] = moment - self.begun[i]
            del self.begun[i]
            self.idle_since[i] = moment
            if len(self.results) == budget:
                break
            if dies[i] > moment:
                self.start(i)
            else:
                self.todo[i] = 0
        for i, begun in self.begun.items():
            self.elapsed[i] = self.now - begun

    def short_of(self, budget: int) -> bool:
        return len(self.results) + len(self.begun) + sum(self.todo) < budget  # who will die is not known

    def start(self, i: int) -> None:
        if self.todo[i]:
            self.todo[i] -= 1
            self.begun[i] = self.now
            self.started[i] += 1

    def ends(self, i: int) -> float:
        return self.begun[i] + time_of(i, self.started[i] - 1, self.seed)

    def leaves(self, i: int) -> float:
        return min(self.ends(i), self.dies[i])


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 4), min_size=N, max_size=N).filter(any), st.data(), deaths, deadlines, st.integers(0, 30)
)
def test_a_round_equals_its_definition(
    allocation: list[int], data: st.DataObject, dies: list[float], deadline: float, seed: int
) -> None:
    budget = data.draw(st.integers(max(allocation), sum(allocation)))
    moments, zero = survivors(dies), np.zeros(1, np.int64)
    expected = ByDefinition(allocation, budget, moments, deadline, seed)
    runner = allocation_round if budget == sum(allocation) else race_round
    outcome = runner(
        POOL.laws, stream_keys(seed), zero, zero, np.zeros((1, N), np.int64), np.array([allocation]), budget,
        hazards(moments, deadline),
    )  # fmt: skip
    results = sorted(expected.results)
    assert outcome.worker[0].tolist() == [i for i, _, _ in results]
    np.testing.assert_allclose(outcome.time[0], [time_of(i, j, seed) for i, j, _ in results])
    np.testing.assert_allclose(outcome.elapsed[0], expected.elapsed, atol=1e-12)
    assert outcome.started[0].tolist() == expected.started
    assert outcome.lost[0] == expected.lost
    np.testing.assert_allclose(outcome.round_time[0], expected.now)
    # worker time is what gave a result and what did not; nobody gives a result after its death
    np.testing.assert_allclose(outcome.worker_time[0], outcome.time[0].sum() + outcome.elapsed[0].sum(), atol=1e-12)
    done = np.bincount(outcome.worker[0], minlength=N)
    assert len({(i, j) for i, j, _ in results}) == budget == done.sum()
    assert (done[moments == 0] == 0).all()
    busy = np.bincount(outcome.worker[0], outcome.time[0], minlength=N) + outcome.elapsed[0]
    assert (busy <= np.minimum(moments, expected.now) + 1e-9).all()


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=N, max_size=N), min_size=1, max_size=10),
    deaths, st.integers(1, 5), st.integers(0, 30),
)  # fmt: skip
def test_dispatch_equals_its_definition(decisions: list[list[int]], dies: list[float], budget: int, seed: int) -> None:
    moments, zero = survivors(dies), np.zeros(1, np.int64)
    started, underway = np.zeros((1, N), np.int64), Underway.start(1, N, budget)
    now = 0.0
    running: dict[int, tuple[float, float]] = {}  # (due, begun)
    spent, elapsed, tasks = 0.0, np.zeros(N), [0] * N
    for results, action in enumerate(decisions, start=1):
        at = dispatch_step(
            POOL.laws, stream_keys(seed), zero, zero, started, underway, np.array([action], np.int8), budget,
            hazards(moments),
        )  # fmt: skip
        started, underway = at.started, at.underway
        while True:
            alive = [i for i in range(N) if moments[i] > now]
            chosen = [i for i in alive if action[i] and i not in running]
            for i in chosen if chosen or running else alive:
                running[i] = (now + time_of(i, tasks[i], seed), now)
                tasks[i] += 1
            now, i = min((min(due, moments[i]), i) for i, (due, _) in running.items())
            due, begun = running.pop(i)
            spent += now - begun
            if due <= moments[i]:
                break
            elapsed[i] = now - begun
        age = np.zeros(N)
        for j, (_, begun) in running.items():
            age[j] = now - begun
        over = results == budget
        assert at.worker[0] == i
        assert at.round_over[0] == over
        np.testing.assert_allclose(at.round_time[0], now)
        np.testing.assert_allclose(at.worker_time[0], spent + age.sum(), atol=1e-12)
        np.testing.assert_allclose(at.elapsed[0], elapsed + age if over else np.zeros(N), atol=1e-12)
        np.testing.assert_allclose(at.age[0], np.zeros(N) if over else age, atol=1e-12)
        assert underway.lost[0] == np.count_nonzero(elapsed)
        assert started[0].tolist() == tasks
        if over:
            break
        assert underway.running[0].tolist() == [int(j in running) for j in range(N)]


def test_tasks_are_handed_on_at_the_deadline_or_at_a_later_death() -> None:
    """Worker 0 is away, worker 1 dies at 5 in its second task; worker 2 runs its own and then what is left."""
    pool, zero = deterministic([1.0, 3.0, 2.0]), np.zeros(1, np.int64)
    for deadline, round_time in ((0.0, 9.0), (4.0, 10.0), (20.0, 26.0)):
        outcome = allocation_round(
            pool.laws, stream_keys(0), zero, zero, np.zeros((1, 3), np.int64), np.array([[1, 3, 1]]), 5,
            Hazards(calm(3).noise, np.array([[0.0, 5.0, INF]]), deadline),
        )  # fmt: skip
        assert outcome.worker[0].tolist() == [1, 2, 2, 2, 2]
        assert outcome.elapsed[0].tolist() == [0.0, 2.0, 0.0]
        assert (outcome.round_time[0], outcome.worker_time[0], outcome.lost[0]) == (round_time, 13.0, 1)


def test_a_race_goes_on_without_the_dead_as_long_as_it_can() -> None:
    pool, zero = deterministic([1.0, 1.0]), np.zeros(1, np.int64)
    for allocation, handed in (([3, 3], 0), ([3, 2], 1)):
        outcome = race_round(
            pool.laws, stream_keys(0), zero, zero, np.zeros((1, 2), np.int64), np.array([allocation]), 3,
            Hazards(calm(2).noise, np.array([[0.0, INF]]), 10.0),
        )  # fmt: skip
        assert outcome.worker[0].tolist() == [1, 1, 1]
        assert outcome.round_time[0] == (11.0 if handed else 3.0)


def test_somebody_must_live() -> None:
    zero, never = np.zeros(1, np.int64), np.zeros((1, N))
    with pytest.raises(ValueError, match="must be inf for one"):
        race_round(
            POOL.laws, stream_keys(0), zero, zero, np.zeros((1, N), np.int64), np.ones((1, N), np.int64), N,
            Hazards(calm(N).noise, never, 0.0),
        )  # fmt: skip


def make(env_id: str, pool: Pool, rows: int = 3, **world: Any) -> Any:
    return gym.make_vec(f"ata_gym/Task{env_id}-v0", num_envs=rows, **{"pool": pool, "budget": 6, **world})


FAULTY = exponential([1.0, 1.5, 2.0, 2.5]).changing(
    Spot(leaves=0.2, returns=0.4, deadline=1.0), Mortal(probability=0.4, within=3.0, away=2, deadline=2.0)
)


chances = st.floats(0.01, 1.0)
faults = st.lists(
    st.one_of(
        st.builds(Spot, chances, chances, deadlines),
        st.builds(Mortal, chances, st.floats(0.1, 5.0), st.integers(0, 3), deadlines),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60)
@given(st.sampled_from(["Allocation", "Race", "Dispatch"]), faults, st.integers(1, 7), st.integers(0, 99))
def test_no_schedule_of_faults_hangs_a_round_or_loses_or_doubles_a_result(
    kind: str, changes: list[Spot | Mortal], budget: int, seed: int
) -> None:
    rows, rounds = 2, 6
    env = make(kind, POOL.changing(*changes), rows, budget=budget, horizon=rounds)
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
        busy += observation["time"].sum(axis=1) + observation["elapsed"].sum(axis=1)
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
    plain, race = make("Allocation", FAULTY, horizon=40), make("Race", FAULTY, horizon=40)
    plain.action_space.seed(0)
    for env in (plain, race):
        env.reset(seed=3)
    lost = away = 0
    for _ in range(100):
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
    assert away > 100


def test_starting_always_is_the_race_of_everybody_under_faults() -> None:
    """GTA needs nothing handed on: whoever lives gives results enough."""
    race, results = make("Race", FAULTY), make("Dispatch", FAULTY)
    race.reset(seed=5)
    results.reset(seed=5)
    for _ in range(30):
        expected, _, _, _, whole = race.step(np.full((3, 4), 6))
        worker, time = np.empty((3, 6), np.int64), np.empty((3, 6))
        for b in range(6):
            observation, _, _, _, info = results.step(np.ones((3, 4), np.int8))
            worker[:, b], time[:, b] = observation["worker"][:, 0], observation["time"][:, 0]
        order = np.argsort(worker, axis=1, kind="stable")
        assert np.take_along_axis(worker, order, 1).tolist() == expected["worker"].tolist()
        assert np.take_along_axis(time, order, 1).tobytes() == expected["time"].tobytes()
        assert observation["elapsed"].tobytes() == expected["elapsed"].tobytes()
        for name in ("round_time", "worker_time", "lost", "total_worker_time"):
            assert info[name].tobytes() == whole[name].tobytes(), name


def test_the_absent_and_the_mortal_follow_their_chains() -> None:
    rows, rounds = 400, 60
    env = make("Allocation", deterministic(np.ones(8)).changing(Mortal(0.1, within=2.0, away=3)), rows, budget=1)
    env.reset(seed=0)
    action = np.zeros((rows, 8), np.int64)
    action[:, 0] = 1
    seen = []
    for _ in range(rounds):
        seen.append(env.unwrapped._episodes.course.memories[0].copy())
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
    spot = make("Allocation", deterministic(np.ones(8)).changing(Spot(0.1, 0.3)), rows, budget=1)
    spot.reset(seed=0)
    away = []
    for _ in range(rounds):
        away.append((spot.unwrapped.conditions().dies == 0).mean())
        spot.step(action)
    np.testing.assert_allclose(np.mean(away), 0.25, atol=0.01)


def test_all_away_but_one() -> None:
    env = make("Allocation", deterministic([1.0, 2.0, 3.0]).changing(Spot(1.0, 1e-9)), 2, budget=3)
    env.reset(seed=0)
    for _ in range(3):
        observation, *_, info = env.step(np.array([[1, 1, 1], [0, 0, 3]]))
        assert (env.unwrapped.conditions().dies == [INF, 0, 0]).all()
        assert (observation["worker"] == 0).all()
        assert info["round_time"].tolist() == info["worker_time"].tolist() == [3.0, 3.0]
        assert not info["lost"].any()
