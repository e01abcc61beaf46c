"""The first rounds of a worker after its start: nothing is learned from their times, and the worker
is soon known.
"""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, strategies as st

import ata_policies
from ata_gym.cluster import Shadow
from ata_gym.utils.trees import difference
from ata_policies import Allocator, Dispatcher
from ata_policies.beliefs.availability import counted
from tests.policies.allocator.test_states import BUDGET, KINDS, POOL, N, by_json

WARM_UP = 2
NAMES = [name for name, kind in KINDS.items() if not kind.privileged]
ROUNDS = 14


def made(name: str, warm_up: int = WARM_UP) -> Any:
    env = gym.make(KINDS[name].env_id, pool=POOL, budget=BUDGET)
    policy = ata_policies.make(name, env, seed=2)
    if "Dispatch" in KINDS[name].env_id:
        return Dispatcher(N, BUDGET, policy, warm_up=warm_up)
    race = "Race" in KINDS[name].env_id
    return Allocator(N, BUDGET, policy, start_more=race, warm_up=warm_up)


class Workers:
    """Workers with times of their own, which are longer in the warm-up after each start."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.rounds = dict.fromkeys(range(N), 0)
        """The rounds with results of each worker since its start."""

    def time(self, worker: int, number: int) -> float:
        time = (1.0 + worker) * (1.0 + 0.1 * (number % 3))
        return time * self.factor if self.rounds[worker] < WARM_UP else time

    def start(self, worker: int) -> None:
        self.rounds[worker] = 0

    def answered(self, workers: set[int]) -> None:
        for worker in workers:
            self.rounds[worker] += 1


def play_round(loop: Any, workers: Workers, lost: int | None = None) -> Any:
    """What the loop decides in a round; which results are in does not depend on their times."""
    if isinstance(loop, Dispatcher):
        return play_dispatched(loop, workers, lost)
    shares = loop.allocate()
    ends = sorted(
        ((j + 1.0) * (i + 1.0), i) for i, tasks in shares.items() if i != lost for j in range(tasks)
    )
    done = [i for _, i in ends[:BUDGET]]
    seconds = {i: [workers.time(i, j) for j in range(done.count(i))] for i in shares}
    short = [i for i in shares if done.count(i) < shares[i] and i != lost]
    cancelled = {i: workers.time(i, 0) / 2 for i in short}
    latency = {i: workers.time(i, 0) for i in shares if shares[i] and i != lost}
    loop.observe(seconds, cancelled, [] if lost is None else [lost], latency)
    # after the warm-up, a cancelled task tells something of its worker, too
    workers.answered(set(done) | {i for i in short if workers.rounds[i] == WARM_UP})
    if lost is not None:
        workers.start(lost)
    return shares


def play_dispatched(loop: Dispatcher, workers: Workers, lost: int | None) -> Any:
    decisions: list[Any] = []
    answered = set[int]()
    over = False
    while not over:
        decisions.append(loop.start())
        if lost in loop.running and len(loop.running) > 1:
            loop.lost(lost, workers.time(lost, 0) / 2)  # type: ignore[arg-type]
            workers.start(lost)  # type: ignore[arg-type]
            answered.discard(lost)  # type: ignore[arg-type]
        running: Any = loop.running
        worker = running[len(decisions) % len(running)]
        # how long the others have run by now is no result, and known at once; at the round's end
        # it is the time of a cancelled task
        over = loop.missing == 1
        ages = {i: workers.time(i, 0) / 2 if over else 0.5 for i in running if i != worker}
        over = loop.finished(worker, workers.time(worker, len(decisions)), ages)
        answered.add(worker)
    workers.answered(answered)
    return decisions


def play_with_starts(loop: Any, factor: float) -> tuple[list[Any], Any]:
    """Its decisions where workers are lost, leave and come back, and are started again; and what it
    knows then.
    """
    workers = Workers(factor)
    decisions = []
    for k in range(ROUNDS):
        if k == 6:
            loop.leave(1)
        if k == 7:
            loop.join(1)
            workers.start(1)
        if k == 9:
            loop.restarted(0)
            workers.start(0)
        decisions.append(play_round(loop, workers, lost=2 if k == 4 else None))
    return decisions, loop._state


@pytest.mark.parametrize("name", NAMES)
def test_no_time_of_a_warm_up_has_any_effect(name: str) -> None:
    usual, known = play_with_starts(made(name), 1.0)
    slow, known_after_slow = play_with_starts(made(name), 100.0)
    assert slow == usual
    assert difference(known, known_after_slow) is None
    if ata_policies.load(name).learns and name not in ("explore-then-commit", "lb-bsp-profiled"):
        # the times do have an effect where none is left out
        assert difference(known, play_with_starts(made(name, warm_up=0), 100.0)[1]) is not None


@pytest.mark.parametrize("name", [name for name in NAMES if ata_policies.load(name).learns])
def test_who_has_begun_its_warm_up_is_given_tasks_until_it_is_known(name: str) -> None:
    loop = made(name)
    workers = Workers(1.0)
    for _ in range(ROUNDS):
        begun = [i for i, rounds in workers.rounds.items() if 0 < rounds <= WARM_UP]
        left = {i: WARM_UP - r for i, r in workers.rounds.items() if r < WARM_UP}
        assert loop.warming_up == left
        decision = play_round(loop, workers)
        if isinstance(loop, Dispatcher):
            busy = {worker for started in decision for worker in started}
        else:
            busy = {worker for worker, tasks in decision.items() if tasks}
        assert busy >= set(begun)
        assert not loop.explain().away.any()


FASTEST = ["default", "thompson", "restarting-beta", "lb-bsp-ema", "explore-then-commit:tasks=1"]


@pytest.mark.parametrize("warm_up", [1, 5])
@pytest.mark.parametrize("policy", FASTEST)
def test_the_fastest_worker_has_the_tasks_though_its_slow_start_comes_late(
    policy: str,
    warm_up: int,
) -> None:
    seconds = {"a": 0.02, "b": 0.02, "c": 0.005}
    allocator = Allocator(seconds, 2, policy, warm_up=warm_up)
    answered = dict.fromkeys(seconds, 0)
    last: list[int] = []
    for k in range(60):
        if k == 30:
            allocator.leave("c")
        if k == 32:
            allocator.join("c")
            answered["c"] = 0
        shares = {name: tasks for name, tasks in allocator.allocate().items() if tasks}
        slow = {name: 50.0 * (answered[name] < warm_up) for name in shares}
        allocator.observe({name: [seconds[name] + slow[name]] * shares[name] for name in shares})
        for name in shares:
            answered[name] += 1
        last.append(shares.get("c", 0))
    for late in (last[20:30], last[50:]):
        assert sum(late) > len(late)


def test_a_prediction_with_a_part_of_the_results_is_one_of_fewer_results() -> None:
    policy = ata_policies.load("distribution-learner")(ata_policies.Setting(3, 3))
    whole = {"worker": np.array([0, 1, 1]), "duration": np.ones(3), "elapsed": np.zeros(3)}
    for wrong in (np.ones(2, np.bool_), np.ones(3), np.array(True)):
        with pytest.raises(
            ValueError, match=r'observation\["warm_up"\] must hold a boolean for ea'
        ):
            policy.predict(whole | {"warm_up": wrong})
    warm = policy.predict(whole | {"warm_up": np.array([True, False, False])})[1].belief
    fewer = policy.predict(whole | {"worker": np.array([1, 1, -1])})[1].belief
    assert difference(warm, fewer) is None


@given(st.data())
def test_what_counts_are_the_results_of_the_others_in_their_order(data: st.DataObject) -> None:
    rows, results, n = (data.draw(st.integers(1, 4)) for _ in range(3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    observation = {
        "worker": rng.integers(-1, n, (rows, results)),
        "duration": rng.random((rows, results)),
        "elapsed": rng.random((rows, n)),
        "warm_up": rng.random((rows, n)) < 0.5,
    }
    worker, duration, elapsed = counted(observation)
    for row in range(rows):
        warm_up = observation["warm_up"][row]
        pairs = zip(observation["worker"][row], observation["duration"][row], strict=True)
        expected = [(i, time) for i, time in pairs if i >= 0 and not warm_up[i]]
        expected += [(-1, 0.0)] * (results - len(expected))
        assert list(zip(worker[row], duration[row], strict=True)) == expected
        assert elapsed[row].tolist() == [
            0.0 if warm_up[i] else observation["elapsed"][row, i] for i in range(n)
        ]


@pytest.mark.parametrize("name", ["distribution-learner", "race", "dispatch"])
def test_a_state_holds_how_far_each_warm_up_is(name: str) -> None:
    one = made(name, warm_up=3)
    workers = Workers(1.0)
    for _ in range(2):
        play_round(one, workers)
    left = one.warming_up
    assert set(left.values()) & {1, 2}
    kept = by_json(one.state_dict())
    other = made(name, warm_up=3)
    other.load_state_dict(kept)
    assert other.warming_up == left
    expected = [play_round(one, workers) for _ in range(6)]
    assert [play_round(other, workers) for _ in range(6)] == expected
    assert other.warming_up == one.warming_up
    shorter = made(name, warm_up=1)
    shorter.load_state_dict(kept)
    assert set(shorter.warming_up.values()) <= {1}
    without = made(name, warm_up=0)
    without.load_state_dict(kept)
    assert without.warming_up == {}
    for wrong in (-1, 0.5, "x", 3):
        damaged = kept | {"round.until_known": [wrong] * N}
        before = json.dumps(other.state_dict())
        with pytest.raises(ValueError, match=r"until_known|this state is not what"):
            other.load_state_dict(damaged)
        assert json.dumps(other.state_dict()) == before


@pytest.mark.parametrize("loop", [Allocator, Dispatcher])
def test_a_prior_is_of_workers_that_start_now(loop: Any) -> None:
    earlier = loop(N, BUDGET, warm_up=1)
    workers = Workers(1.0)
    for _ in range(4):
        play_round(earlier, workers)
    later = loop(range(N), BUDGET, prior=earlier.state_dict(), warm_up=2)
    assert later.warming_up == dict.fromkeys(range(N), 2)


@pytest.mark.parametrize("warm_up", [-1, 1.5, "1", None, True])
@pytest.mark.parametrize(
    "loop", [Allocator, Dispatcher, lambda _n, _budget, **more: Shadow(**more)]
)
def test_a_warm_up_that_is_no_whole_number_is_refused(loop: Any, warm_up: Any) -> None:
    with pytest.raises(ValueError, match="warm_up must be a whole number from 0"):
        loop(2, 3, warm_up=warm_up)


@pytest.mark.parametrize("policy", ["default", "thompson", "restarting-beta"])
def test_a_worker_with_fewer_tasks_than_its_policy_decided_owes_nothing(policy: str) -> None:
    limits = {"a": (0, 1)}
    watched = {} if policy == "default" else {"availability": True}
    allocator = Allocator(["a", "b", "c"], 6, policy, limits=limits, **watched)
    for _ in range(12):
        shares = allocator.allocate()
        assert shares["a"] == 1
        assert not allocator.explain().away.any()
        allocator.observe({"a": [1.0], "b": [2.0] * shares["b"], "c": [2.0] * shares["c"]})


def test_explore_then_commit_waits_for_a_result_of_each_worker_that_counts() -> None:
    allocator = Allocator(2, 2, "explore-then-commit:tasks=1", warm_up=1)
    for first in (9.0, 1.0):
        assert allocator.allocate() == {0: 1, 1: 1}
        allocator.observe({0: [first], 1: [4.0]})
    assert allocator.allocate() == {0: 2, 1: 0}


def test_the_warm_up_of_a_shadow_is_not_played() -> None:
    shadow = Shadow(tasks=4, policy="certainty-equivalence", warm_up=2, log_every=None)
    for first in (90.0, 30.0):
        shadow.step({"a": first, "b": 1.0})
        assert (shadow.runtime, shadow.policy_runtime, shadow.tasks) == (0.0, 0.0, {})
    shadow.step({"a": 1.0, "b": 3.0})
    shadow.step({"a": 1.0, "b": 3.0})
    assert (shadow.runtime, shadow.tasks) == (6.0, {"a": 6, "b": 2})
