import itertools
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import deterministic, trace
from ata_gym.training import Classification, DeviceWorker, Trainer, TrainingWrapper, make_problem
from ata_gym.training.devices import workers
from ata_gym.training.devices.clock import DeviceClock
from tests.training.small_problem import small, weights

IDS = ["ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0"]
GOOD = np.array([3, 2, 1])
WORKERS = ["cpu:1", "cpu:2", "cpu:3"]


def make(problem=None, *, env_id=IDS[0], budget=6, workers=WORKERS, **settings):
    clock = DeviceClock(Trainer(problem or small(), budget, **settings), workers)
    return TrainingWrapper(gym.make(env_id, pool=clock.pool, budget=budget, backend=clock))


def play(env, policy=None, rounds=4):
    if policy is not None:
        return [step.info for step in itertools.islice(ata_policies.play(policy, env), rounds)]
    env.reset(seed=0)
    return [env.step(GOOD)[-1] for _ in range(rounds)]


@pytest.fixture
def several_devices(monkeypatch):
    """To torch, cpu:0 and cpu:1 are other devices than cpu, on the same processor."""
    monkeypatch.setattr(workers, "find_device", torch.device)
    return [DeviceWorker("cpu"), DeviceWorker("cpu:0", 2), DeviceWorker("cpu:1")]


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(2, 4).requires_grad_(False)
        self.used = nn.Linear(4, 3)
        self.unused = nn.Linear(4, 3)

    def forward(self, inputs):
        return self.used(self.frozen(inputs))


def odd_optimizer(parts):
    return torch.optim.AdamW(parts, lr=0.1, weight_decay=0.5)


@pytest.mark.parametrize(
    ("problem", "several", "tolerance", "options"),
    [
        (make_problem("quadratic"), False, 1e-9, {"lr": 0.1}),
        (make_problem("digits"), True, 1e-3, {"optimizer": "sgd", "lr": 0.1}),
        (small(Odd), False, 1e-5, {"optimizer": odd_optimizer, "micro_batch": 3, "clip_norm": 9.0}),
    ],
)
def test_losses_and_weights_are_those_of_a_trainer_on_one_device_and_on_several(
    several_devices,
    problem,
    several,
    tolerance,
    options,
):
    for name in ("uta", "gta"):
        trainer = Trainer(problem, 6, **options)
        start = weights(trainer)
        if several:
            listed = several_devices
        else:
            listed = WORKERS
        env = make(problem, env_id=ata_policies.load(name).env_id, workers=listed, **options)
        losses = [info["loss"] for info in play(env, ata_policies.make(name, env))]
        np.testing.assert_allclose(losses, [trainer.step() for _ in losses], rtol=tolerance)
        moved = (weights(trainer) - start).abs().max().item()
        assert moved > 0
        torch.testing.assert_close(
            weights(env.trainer),
            weights(trainer),
            rtol=tolerance,
            atol=tolerance * moved,
        )


def test_on_one_device_the_trajectory_is_the_same_to_the_bit_whatever_the_times():
    runs = []
    for name, listed in (
        ("uta", WORKERS),
        ("gta", WORKERS),
        ("gta", ["cpu:5", "cpu", "cpu"]),
        (None, "cpu,cpu,cpu"),
    ):
        env = make(
            "digits",
            env_id=ata_policies.load(name or "uta").env_id,
            workers=listed,
            optimizer="adam",
        )
        infos = play(env, name and ata_policies.make(name, env))
        runs.append(([info["loss"] for info in infos], weights(env.trainer).tolist()))
    assert runs[1:] == runs[:1] * 3


class Recorded:
    """In place of a replica: it gives recorded times, by the worker's own work, and counts the
    tasks that it ran.
    """

    def __init__(self, times):
        self.times = [iter(itertools.cycle(record)) for record in times]
        self.tasks = []

    def begin(self):
        self.tasks.append([])

    def run(self, task, work, worker_tasks, *, keep):
        self.tasks[-1].append((task, keep))
        return next(self.times[work - 1]), 0.0


@settings(max_examples=12)
@given(data=st.data())
def test_a_round_of_measured_times_equals_the_simulation(data):
    n = data.draw(st.integers(1, 4))
    budget = data.draw(st.integers(1, 6))
    time = st.floats(0.1, 3) | st.sampled_from([1.0, 2.0])  # ties
    times = data.draw(st.lists(st.lists(time, min_size=40, max_size=40), min_size=n, max_size=n))
    seed = data.draw(st.integers(0, 99))
    for env_id in IDS:
        simulated = gym.make(env_id, pool=trace(times), budget=budget)
        replica = Recorded(times)
        clock = DeviceClock(
            Trainer("quadratic", budget), [DeviceWorker(work=i + 1) for i in range(n)]
        )
        clock._runners = [(replica, i + 1) for i in range(n)]
        clock._replicas = {"cpu": replica}
        measured = gym.make(env_id, pool=clock.pool, budget=budget, backend=clock)
        simulated.reset(seed=0)
        measured.reset(seed=0)
        simulated.action_space.seed(seed)
        for k in range(4):
            before = simulated.unwrapped._state.started.copy()
            action = simulated.action_space.sample()
            measured_step = measured.step(action)
            simulated_step = simulated.step(action)
            for name in simulated_step[0]:
                np.testing.assert_array_equal(measured_step[0][name], simulated_step[0][name])
            assert measured_step[1:] == simulated_step[1:]
            started = simulated.unwrapped._state.started - before
            # no task is run in vain
            assert [task for task, _ in replica.tasks[k]] == list(
                range(started.sum()),
            )
            assert [kept for _, kept in replica.tasks[k]] == [
                b < budget for b in range(started.sum())
            ]


def test_the_spec_rebuilds_the_wrapped_env_whose_trainer_has_its_settings_already():
    env = make("digits", workers=[DeviceWorker(), "cpu:2", DeviceWorker(work=3)], lr=0.01, seed=2)
    losses = [info["loss"] for info in play(env, rounds=2)]
    for spec in (env.spec, pickle.loads(pickle.dumps(env.spec))):
        assert [info["loss"] for info in play(gym.make(spec), rounds=2)] == losses
    for given_too in ({"problem": "digits"}, {"lr": 0.1}):
        with pytest.raises(ValueError, match="leave out the problem and its settings"):
            TrainingWrapper(env.env, **given_too)


class FragileProblem(Classification):
    error = None
    value = 1.0
    losses = 0

    def loss(self, model, batch):
        FragileProblem.losses += 1
        if self.error is not None:
            raise self.error
        return super().loss(model, batch) * self.value


def test_a_loss_that_is_nan_no_memory_and_a_bad_action_leave_env_and_weights_as_they_were():
    env, undisturbed = (make(small(kind=FragileProblem)) for _ in range(2))
    first = play(env, rounds=2)
    play(undisturbed, rounds=2)
    before = weights(env.trainer)
    losses = FragileProblem.losses
    with pytest.raises(ValueError, match="sum"):
        env.step(np.array([1, 1, 1]))
    assert FragileProblem.losses == losses
    env.trainer.problem.value = float("nan")
    with pytest.raises(FloatingPointError, match=r"loss is nan in round 3"):
        env.step(GOOD)
    env.trainer.problem.value = 1.0
    assert torch.equal(weights(env.trainer), before)
    info = env.step(GOOD)[-1]
    assert info["runtime"] == pytest.approx(first[-1]["runtime"] + info["round_time"])
    assert info["loss"] == undisturbed.step(GOOD)[-1]["loss"]
    env.trainer.problem.error = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 9 PiB. GPU 0 ...",
    )
    with pytest.raises(
        MemoryError,
        match=r"a single task does not fit into the memory of cpu.*CUDA out of memory",
    ):
        env.step(GOOD)
    env.trainer.problem.error = None
    assert play(env, rounds=1)[0]["loss"] == first[0]["loss"]


@pytest.mark.parametrize(
    ("settings", "workers", "scenario", "sentence"),
    [
        ({"compile": True}, WORKERS, {}, "the device clock runs one task at a time"),
        ({"precision": "float16"}, WORKERS, {}, "the device clock does not scale gradients"),
        ({}, "", {}, "name at least one worker"),
        ({}, ["cpu"] * 2, {}, "the env has 3 workers, but its device clock has 2"),
        ({}, "cpu,cpu,cpu,cpu", {}, "the env has 3 workers, but its device clock has 4"),
        ({}, WORKERS, {"budget": 5}, "the env has budget 5, but its device clock has 6"),
        (
            {},
            WORKERS,
            {"changes": [Spot(0.1, 0.5)]},
            "has real workers, which no changes=... can change",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_clock_that_does_not_fit(settings, workers, scenario, sentence):
    fitting = {"pool": deterministic(np.ones(3)), "budget": 6}
    with pytest.raises(ValueError, match=sentence):
        gym.make(
            IDS[0],
            **fitting | scenario,
            backend=DeviceClock(Trainer(small(), 6, **settings), workers),
        )
