import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from ata_gym.training import Classification, TrainingWrapper

POOL = {"family": "exponential", "scale": [1.0, 2.0, 3.0]}
SAMPLES = torch.linspace(-1, 1, 40).reshape(20, 2), torch.arange(20) % 3
GOOD = np.array([3, 2, 1])


def make(**kwargs):
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=6)
    problem = Fragile(lambda: nn.Linear(2, 3), SAMPLES, SAMPLES)
    return TrainingWrapper(env, problem, **({"clock": "device", "workers": "cpu:1,cpu:2,cpu:3"} | kwargs))


def play(env, rounds):
    env.reset(seed=0)
    return [env.step(GOOD)[-1] for _ in range(rounds)]


def weights(env):
    return [part.detach().clone() for part in env.model.parameters()]


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


def test_a_loss_that_is_nan_leaves_env_and_weights_as_they_were():
    env, undisturbed = make(), make()
    first = play(env, rounds=2)
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
    env.reset(seed=0)
    assert env.step(GOOD)[-1]["loss"] == first[0]["loss"]


def test_the_env_is_usable_after_a_lack_of_memory():
    env = make()
    first = play(env, rounds=1)[0]["loss"]
    env.trainer.problem.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 PiB. GPU 0 ...")
    with pytest.raises(MemoryError, match=r"a single task does not fit into the memory of cpu.*CUDA out of memory"):
        env.step(GOOD)
    env.trainer.problem.error = None
    assert play(env, rounds=1)[0]["loss"] == first


def test_a_bad_action_runs_nothing():
    env = make()
    play(env, rounds=1)
    before, losses = weights(env), Fragile.losses
    with pytest.raises(ValueError, match="sum"):
        env.step(np.array([1, 1, 1]))
    assert Fragile.losses == losses
    assert all(torch.equal(a, b) for a, b in zip(weights(env), before, strict=True))


def test_a_source_of_rounds_that_fails_leaves_the_env_as_it_was():
    env, twin = (gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=6) for _ in range(2))
    for each in (env, twin):
        each.reset(seed=0)
        each.step(GOOD)
    rounds = env.unwrapped._episodes.source

    def broken(*_):
        raise OSError("pulled the plug")

    env.unwrapped.run_on(broken)
    with pytest.raises(OSError, match="pulled the plug"):
        env.step(GOOD)
    env.unwrapped.run_on(rounds)
    assert env.step(GOOD)[-1] == twin.step(GOOD)[-1]


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"clock": "wall"}, 'clock must be "pool" or "device", not \'wall\''),
        ({"clock": "pool"}, 'workers=... only goes with clock="device"'),
        ({"compile": True}, "the device clock runs one task at a time"),
        ({"graphs": True}, "the device clock runs one task at a time"),
        ({"precision": "float16"}, "the device clock does not scale gradients"),
        ({"workers": None}, "name at least one worker"),
        ({"workers": ["cpu"] * 2}, "the env has 3 workers, but workers=... lists 2"),
        ({"workers": "cpu,cpu,cpu,cpu"}, "the env has 3 workers, but workers=... lists 4"),
    ],
)
def test_a_clock_without_its_workers(kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**kwargs)
