"""A live cluster as the backend of an env: policies and agents allocate real tasks."""

import copy
import time

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra cluster")

import ata_policies
from ata_gym.changes import Periodic
from ata_gym.cluster import ClusterBackend, TraceRecorder
from ata_gym.pools import deterministic, read_trace
from tests.fuzz.actors import make_caller, make_sleep
from tests.waiting import PATIENCE

B = 4
SLEEPS = {"a": 0.002, "b": 0.005, "c": 0.01}
IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0", "ata_gym/TaskDispatch-v0"]
SLEEP = make_sleep(SLEEPS)


@pytest.fixture(scope="module")
def backend(cluster, tmp_path_factory):  # noqa: ARG001 - it must be there
    workers = {name: {"num_cpus": 0.25} for name in SLEEPS}
    with (
        TraceRecorder(tmp_path_factory.mktemp("trace") / "times.csv") as recorder,
        ClusterBackend(make_caller(), workers, B, deadline=60.0, recorder=recorder) as backend,
    ):
        yield backend


def make(env_id, backend, **options):
    while backend._actors.away:
        backend._actors.next(0.1)
    env = gym.make(env_id, pool=backend.pool, budget=B, backend=backend, **options)
    env.reset(seed=0)
    return env


def over(info):
    return "round_time" in info and info.get("round_over", True)


def play_round(env, action):
    info = {}
    while not over(info):
        feedback, *_, info = env.step(np.array(action))
        assert env.observation_space.contains(feedback)
    return feedback, info


def play(env, backend, choose, rounds=4):
    """Play rounds and check each; ``choose`` gives the action for an observation."""
    observation, _ = env.reset(seed=1)
    used = set(backend.indices)
    played = 0
    waited = 0.0
    while played < rounds:
        backend.payload = SLEEP, played
        observation, reward, _, _, info = env.step(choose(observation))
        assert env.observation_space.contains(observation)
        waited -= reward
        if over(info):
            played += 1
            record = backend.record
            assert [value[1] for value in backend.values] == [played - 1] * B
            assert [value[2] for value in backend.values] == list(backend.indices)
            assert len(set(backend.indices) - used) == B
            used |= set(backend.indices)
            assert info["round_time"] == pytest.approx(record.round_time)
            assert info["worker_time"] >= sum(record.busy.values()) * (1 - 1e-9)
            assert waited == pytest.approx(info["runtime"])


@pytest.mark.parametrize("env_id", IDS)
def test_a_policy_of_the_zoo_and_a_random_agent_play(backend, env_id):
    env = make(env_id, backend)
    policy = ata_policies.make("default", env, seed=0)
    state = None

    def choose(observation):
        nonlocal state
        action, state = policy.predict(observation, state)
        if "duration" in observation:
            durations = observation["duration"][observation["worker"] >= 0]
            assert all(time >= SLEEPS["a"] for time in durations)
        return action

    play(env, backend, choose)
    if "Dispatch" in env_id:
        action = "start"
    else:
        action = "shares"
    env = make(env_id, backend, observation="workers", action=action)
    env.action_space.seed(0)
    for rounds in (4, 2):
        play(env, backend, lambda _: env.action_space.sample(), rounds)
        env.step(env.action_space.sample())


@pytest.mark.parametrize("env_id", IDS[:2])
def test_results_are_those_of_the_allocation_and_their_times_are_replayed(backend, env_id):
    pytest.importorskip("polars")
    env = make(env_id, backend)
    backend.payload = SLEEP, None
    feedback, *_, info = env.step(np.array([1, 0, 3]))
    assert feedback["worker"].tolist() == [0, 2, 2, 2]
    assert feedback["elapsed"].tolist() == [0.0] * 3
    assert info["worker_time"] == pytest.approx(feedback["duration"].sum())
    assert backend.record.tasks == {"a": 1, "b": 0, "c": 3}
    feedback = env.step(np.array([2, 1, 1]))[0]
    pool = read_trace(backend._recorder.path, worker="worker", duration="duration")
    assert [pool.record(i)[-1] for i in (1, 2)] == feedback["duration"][2:].tolist()


def test_a_cancelled_task_has_an_elapsed_time(backend, tmp_path):
    begun = tmp_path / "begun"
    sleep = make_sleep({"a": 0.001, "b": 0.001, "c": 2.0 * PATIENCE})

    def slow(worker, *_):
        import time

        if worker == "c":
            begun.touch()
        while not begun.exists():  # the task that will be cancelled begins first
            time.sleep(0.001)
        sleep(worker)

    for env_id, action in ((IDS[1], [B, 0, 1]), (IDS[2], [1, 0, 1])):
        begun.unlink(missing_ok=True)
        env = make(env_id, backend)
        backend.payload = (slow, None)
        before = time.monotonic()
        feedback, info = play_round(env, action)
        assert feedback["elapsed"][:2].tolist() == [0.0, 0.0]
        # The task runs on until its worker hears of the round's end, so it can last longer than the
        # round.
        assert 0.0 < feedback["elapsed"][2] <= time.monotonic() - before
        assert info["worker_time"] >= feedback["elapsed"][2]


def test_a_task_of_a_worker_that_dies_is_handed_on(backend, tmp_path):
    path = tmp_path / "once"
    sleep = make_sleep(dict.fromkeys("abc", 0.005))

    def dies(worker, *_):
        import os

        if worker == "b" and not path.exists():
            path.touch()
            os.kill(os.getpid(), 9)
        sleep(worker)

    for env_id, action in ((IDS[1], [1, 4, 0]), (IDS[2], [0, 1, 0])):
        path.unlink(missing_ok=True)
        env = make(env_id, backend)
        backend.payload = dies, None
        play_round(env, action)
        assert backend.record.away["b"].startswith("it was lost")
        assert len(backend.values) == B


def test_an_error_of_a_task_leaves_the_env_as_it_was(backend):
    def fails(*_):
        raise ZeroDivisionError

    def is_infinite(*_):
        return 1.0, float("inf")

    cases = [(env_id, fails, ZeroDivisionError) for env_id in IDS] + [
        (IDS[0], is_infinite, FloatingPointError),
    ]
    for env_id, wrong, error in cases:
        env = make(env_id, backend)
        before = env.unwrapped.checkpoint()
        backend.payload = (wrong, None)
        action = [1, 1, 2 if env_id != IDS[2] else 1]
        with pytest.raises(error):
            env.step(np.array(action))
        after = env.unwrapped.checkpoint()
        assert all(after[name].tobytes() == field.tobytes() for name, field in before.items())
        backend.payload = SLEEP, "good"
        play_round(env, action)
        assert {value[1] for value in backend.values} == {"good"}


def test_what_does_not_fit_is_refused(backend):
    assert copy.deepcopy(backend) is backend
    for env_id, options, message in zip(
        IDS,
        ({"pool": deterministic([1.0, 2.0])}, {"budget": 5}, {"changes": [Periodic(5, 0.5)]}),
        (
            "the env has 2 workers, but its cluster has 3",
            "the env has budget 5, but its cluster has 4",
            "real workers, which no changes=... can change",
        ),
        strict=True,
    ):
        with pytest.raises(ValueError, match=message):
            gym.make(env_id, **({"pool": backend.pool, "budget": B, "backend": backend} | options))
    env_in_round = make(IDS[2], backend)
    other = make(IDS[2], backend)
    backend.payload = SLEEP, None
    for env in (env_in_round, env_in_round, other):
        env.step(np.ones(3, np.int8))
    with pytest.raises(ValueError, match="within a round that the cluster does not run: reset it"):
        env_in_round.step(np.ones(3, np.int8))
    env_in_round.reset()
    play_round(env_in_round, np.ones(3, np.int8))
