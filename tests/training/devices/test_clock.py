import copy
import itertools
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import deterministic, trace
from ata_gym.training import Classification, Trainer, TrainingWrapper, Worker, make_problem
from ata_gym.training.devices import workers
from ata_gym.training.devices.clock import DeviceClock
from tests.training.small_problem import small

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
GOOD = np.array([3, 2, 1])
WORKERS = ["cpu:1", "cpu:2", "cpu:3"]


def make(problem=None, *, env_id=IDS[0], budget=6, workers=WORKERS, **settings):
    """An env whose tasks are really run, or without workers one on the clock of its pool."""
    problem = problem or small()
    if workers is None:
        return TrainingWrapper(gym.make(env_id, pool=deterministic(np.ones(3)), budget=budget), problem, **settings)
    clock = DeviceClock(Trainer(problem, budget, **settings), workers)
    return TrainingWrapper(gym.make(env_id, pool=clock.pool, budget=budget, backend=clock))


def play(env, policy=None, rounds=4):
    if policy is None:
        env.reset(seed=0)
        return [(GOOD, *env.step(GOOD)) for _ in range(rounds)]
    return [
        (step.action, step.observation, *step[4:]) for step in itertools.islice(ata_policies.play(policy, env), rounds)
    ]


def weights(env):
    return [part.detach().clone() for part in env.model.parameters()]


@pytest.fixture
def several_devices(monkeypatch):
    """To torch, cpu:0 and cpu:1 are other devices than cpu, on the same processor."""
    monkeypatch.setattr(workers, "find_device", torch.device)
    return [Worker("cpu"), Worker("cpu:0", 2), Worker("cpu:1")]


def both_clocks(problem, tolerance, **kwargs):
    for name in ("uta", "gta"):
        policy_class = ata_policies.load(name)
        pool_clock = make(problem, env_id=policy_class.env_id, workers=None, optimizer="sgd", lr=0.1)
        device_clock = make(problem, env_id=policy_class.env_id, optimizer="sgd", lr=0.1, **kwargs)
        steps = [play(env, ata_policies.make(name, env)) for env in (pool_clock, device_clock)]
        ours, theirs = ([info["loss"] for *_, info in played] for played in steps)
        np.testing.assert_allclose(theirs, ours, rtol=tolerance)
        moved = [after - before for after, before in zip(weights(pool_clock), start(pool_clock), strict=True)]
        assert all(part.abs().max() > 0 for part in moved)
        for a, b in zip(weights(device_clock), weights(pool_clock), strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * float(moved[0].abs().max()))


def start(env):
    return [part.detach() for part in copy.deepcopy(env.trainer._fresh).parameters()]


def test_the_weights_are_those_of_the_pool_clock_on_one_device_and_on_several(several_devices):
    both_clocks(make_problem("quadratic"), 1e-9)
    both_clocks(make_problem("digits"), 1e-3, workers=several_devices)


def same_ends(problem=None, **settings):
    ends = []
    for listed in (WORKERS, None):
        env = make(problem, workers=listed, **settings)
        play(env)
        ends.append(weights(env))
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("home", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["digits", "quadratic"])
def test_the_weights_are_the_same_where_a_gpu_helps(name, home):
    reference = make(make_problem(name), workers=None)
    env = make(make_problem(name), workers=["cpu:2", "cuda", "cuda:0:3"], device=home)
    steps = play(env)
    play(reference)
    assert all((feedback["duration"] > 0).all() for _, feedback, *_ in steps)
    for a, b in zip(weights(env), weights(reference), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-2, atol=1e-4)


def test_on_one_device_the_trajectory_is_the_same_to_the_bit_whatever_the_times_and_the_allocation():
    runs = []
    for name, listed in (("uta", WORKERS), ("gta", WORKERS), ("gta", ["cpu:5", "cpu", "cpu"]), (None, "cpu,cpu,cpu")):
        env = make("digits", env_id=ata_policies.load(name or "uta").env_id, workers=listed, optimizer="adam")
        steps = play(env, name and ata_policies.make(name, env))
        runs.append(([info["loss"] for *_, info in steps], weights(env)))
    for losses, end in runs[1:]:
        assert losses == runs[0][0]
        assert all(torch.equal(a, b) for a, b in zip(end, runs[0][1], strict=True))


def test_a_round_is_made_of_the_measured_times():
    env, runtime, busy = make(), 0.0, 0.0
    for allocation, feedback, reward, terminated, truncated, info in play(env):
        np.testing.assert_array_equal(feedback["worker"], np.repeat(np.arange(3), allocation))
        assert (feedback["duration"] > 0).all()
        assert len(set(feedback["duration"])) > 1
        assert not feedback["elapsed"].any()
        sums = np.bincount(feedback["worker"], feedback["duration"], 3)
        assert info["round_time"] == pytest.approx(sums.max())
        assert info["worker_time"] == pytest.approx(sums.sum())
        runtime, busy = runtime + info["round_time"], busy + info["worker_time"]
        assert (info["runtime"], info["total_worker_time"]) == pytest.approx((runtime, busy))
        assert reward == -info["round_time"]
        assert not terminated
        assert not truncated
        assert env.observation_space.contains(feedback)


class Recorded:
    """In place of a replica: it gives recorded times, by the worker's own work, and counts the tasks that it ran."""

    def __init__(self, times):
        self.times = [iter(itertools.cycle(record)) for record in times]
        self.tasks = []

    def begin(self):
        self.tasks.append([])

    def run(self, task, work, *, keep):
        self.tasks[-1].append((task, keep))
        return next(self.times[work - 1]), 0.0


@settings(max_examples=12)
@given(data=st.data())
def test_a_round_of_given_times_is_that_of_the_simulation(data):
    n, budget = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    time = st.floats(0.1, 3) | st.sampled_from([1.0, 2.0])  # ties
    times = data.draw(st.lists(st.lists(time, min_size=40, max_size=40), min_size=n, max_size=n))
    seed = data.draw(st.integers(0, 99))
    for env_id in IDS:
        simulated = gym.make(env_id, pool=trace(times), budget=budget)
        replica = Recorded(times)
        clock = DeviceClock(Trainer("quadratic", budget), [Worker(work=i + 1) for i in range(n)])
        clock._runners = [(replica, i + 1) for i in range(n)]
        clock._replicas = {"cpu": replica}
        measured = gym.make(env_id, pool=clock.pool, budget=budget, backend=clock)
        simulated.reset(seed=0)
        measured.reset(seed=0)
        simulated.action_space.seed(seed)
        for k in range(4):
            before = simulated.unwrapped._state.started.copy()
            action = simulated.action_space.sample()
            ours, theirs = measured.step(action), simulated.step(action)
            for name in theirs[0]:
                np.testing.assert_array_equal(ours[0][name], theirs[0][name])
            assert ours[1:] == theirs[1:]
            started = simulated.unwrapped._state.started - before
            assert [task for task, _ in replica.tasks[k]] == list(range(started.sum()))  # no task is run in vain
            assert [kept for _, kept in replica.tasks[k]] == [b < budget for b in range(started.sum())]


def test_more_work_takes_longer():
    steps = play(make("digits", workers=["cpu:1", "cpu:1", "cpu:20"]), rounds=5)
    seen = [(feedback["worker"], feedback["duration"]) for _, feedback, *_ in steps]
    times = [np.concatenate([time[worker == i] for worker, time in seen]) for i in range(3)]
    assert times[2].min() > times[0].min()  # other processes make some of them longer


def test_tasks_are_micro_batches_and_parts_of_the_model_frozen_or_unused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(2, 4).requires_grad_(False)
            self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.used(self.frozen(inputs))

    optimizer = lambda parts: torch.optim.AdamW(parts, lr=0.1, weight_decay=0.5)  # noqa: E731
    same_ends(small(Odd), optimizer=optimizer, micro_batch=3, clip_norm=9.0)


def test_the_spec_rebuilds_the_wrapped_env():
    env = make("digits", workers=[Worker(), "cpu:2", Worker(work=3)], lr=0.01, seed=2)
    losses = [info["loss"] for *_, info in play(env, rounds=2)]
    for spec in (env.spec, pickle.loads(pickle.dumps(env.spec))):
        assert [info["loss"] for *_, info in play(gym.make(spec), rounds=2)] == losses


class Fragile(Classification):
    """Its loss can be made to fail, and is counted."""

    error = None
    value = 1.0
    losses = 0

    def loss(self, model, batch):
        Fragile.losses += 1
        if self.error is not None:
            raise self.error
        return super().loss(model, batch) * self.value


def test_a_loss_that_is_nan_no_memory_and_a_bad_action_leave_env_and_weights_as_they_were():
    env, undisturbed = (make(small(kind=Fragile)) for _ in range(2))
    first = [info for *_, info in play(env, rounds=2)]
    play(undisturbed, rounds=2)
    before = weights(env)
    env.trainer.problem.value = float("nan")
    with pytest.raises(FloatingPointError, match=r"loss is nan in round 3"):
        env.step(GOOD)
    env.trainer.problem.value = 1.0
    assert all(torch.equal(a, b) for a, b in zip(weights(env), before, strict=True))
    info = env.step(GOOD)[-1]
    assert info["runtime"] == pytest.approx(first[-1]["runtime"] + info["round_time"])
    assert info["loss"] == undisturbed.step(GOOD)[-1]["loss"]
    env.trainer.problem.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 PiB. GPU 0 ...")
    with pytest.raises(MemoryError, match=r"a single task does not fit into the memory of cpu.*CUDA out of memory"):
        env.step(GOOD)
    env.trainer.problem.error = None
    assert play(env, rounds=1)[0][-1]["loss"] == first[0]["loss"]
    before, losses = weights(env), Fragile.losses
    with pytest.raises(ValueError, match="sum"):
        env.step(np.array([1, 1, 1]))
    assert Fragile.losses == losses
    assert all(torch.equal(a, b) for a, b in zip(weights(env), before, strict=True))


@pytest.mark.parametrize(
    ("settings", "workers", "scenario", "sentence"),
    [
        ({"compile": True}, WORKERS, {}, "the device clock runs one task at a time"),
        ({"precision": "float16"}, WORKERS, {}, "the device clock does not scale gradients"),
        ({}, "", {}, "name at least one worker"),
        ({}, ["cpu"] * 2, {}, "the env has 3 workers, but its device clock has 2"),
        ({}, "cpu,cpu,cpu,cpu", {}, "the env has 3 workers, but its device clock has 4"),
        ({}, WORKERS, {"budget": 5}, "the env has budget 5, but the trainer of its device clock has 6"),
        ({}, WORKERS, {"changes": [Spot(0.1, 0.5)]}, "measures real workers, which no changes=... can change"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_clock_that_does_not_fit(settings, workers, scenario, sentence):
    def made():
        clock = DeviceClock(Trainer(small(), 6, **settings), workers)
        return gym.make(IDS[0], **({"pool": deterministic(np.ones(3)), "budget": 6, "backend": clock} | scenario))

    with pytest.raises(ValueError, match=sentence):
        made()


def test_the_trainer_of_a_clock_has_its_settings_already():
    env = make()
    for arguments in (("digits",), ()):
        with pytest.raises(ValueError, match="leave out the problem and its settings"):
            TrainingWrapper(env.env, *arguments, **({} if arguments else {"lr": 0.1}))
