import gymnasium as gym
import numpy as np
import pytest
import torch

from ata_gym.changes import Spot
from ata_gym.training import Classification, DeviceClock, Trainer, TrainingWrapper
from tests.training.small_problem import small

ID = "ata_gym/TaskAllocation-v0"
POOL = {"family": "exponential", "scale": [1.0, 2.0, 3.0]}
GOOD = np.array([3, 2, 1])


def make(workers="cpu:1,cpu:2,cpu:3", scenario=None, **settings):
    problem = small(kind=Fragile)
    clock = DeviceClock(Trainer(problem, 6, **settings), workers)
    return TrainingWrapper(gym.make(ID, **({"pool": POOL, "budget": 6, "backend": clock} | (scenario or {}))))


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


def test_a_loss_that_is_nan_no_memory_and_a_bad_action_leave_env_and_weights_as_they_were():
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
    env.trainer.problem.error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 PiB. GPU 0 ...")
    with pytest.raises(MemoryError, match=r"a single task does not fit into the memory of cpu.*CUDA out of memory"):
        env.step(GOOD)
    env.trainer.problem.error = None
    assert play(env, rounds=1)[0]["loss"] == first[0]["loss"]
    before, losses = weights(env), Fragile.losses
    with pytest.raises(ValueError, match="sum"):
        env.step(np.array([1, 1, 1]))
    assert Fragile.losses == losses
    assert all(torch.equal(a, b) for a, b in zip(weights(env), before, strict=True))


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"compile": True}, "the device clock runs one task at a time"),
        ({"precision": "float16"}, "the device clock does not scale gradients"),
        ({"workers": ""}, "name at least one worker"),
        ({"workers": ["cpu"] * 2}, "the env has 3 workers, but its device clock has 2"),
        ({"workers": "cpu,cpu,cpu,cpu"}, "the env has 3 workers, but its device clock has 4"),
        ({"scenario": {"budget": 5}}, "the env has budget 5, but the trainer of its device clock has 6"),
        ({"scenario": {"changes": [Spot(0.1, 0.5)]}}, "measures real workers, which no changes=... can change"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_clock_that_does_not_fit(kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**kwargs)


def test_the_trainer_of_a_clock_has_its_settings_already():
    env = make()
    for arguments in (("digits",), ()):
        with pytest.raises(ValueError, match="leave out the problem and its settings"):
            TrainingWrapper(env.env, *arguments, **({} if arguments else {"lr": 0.1}))
