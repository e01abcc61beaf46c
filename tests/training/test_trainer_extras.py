"""What a trainer does beside the step: in place, clipping, groups, averages, callbacks, schedules."""

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.training import Classification, Tasks, Trainer, TrainingWrapper, checkpoint
from ata_gym.training.trainer import Gradient
from tests.training.small_problem import SAMPLES, weights

B = 6


def small(build=None, **kwargs):
    return Classification(build or (lambda: nn.Linear(2, 3)), SAMPLES, SAMPLES, **kwargs)


def mean_loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def test_in_place_the_module_itself_is_trained():
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    before = copy.deepcopy(model.state_dict())
    tasks = Tasks(model, mean_loss, DataLoader(TensorDataset(*SAMPLES), 5))
    trainer, of_a_copy = Trainer(tasks, 3, inplace=True), Trainer(Tasks(copy.deepcopy(model), *vars_of(tasks)), 3)
    assert trainer.model is model
    losses = [trainer.step() for _ in range(4)]
    assert losses == [of_a_copy.step() for _ in range(4)]
    assert not torch.equal(model[0].weight, before["0.weight"])
    trainer.reset()
    assert trainer.model is model
    assert all(torch.equal(before[name], part) for name, part in model.state_dict().items())
    assert [trainer.step() for _ in range(4)] == losses


def vars_of(tasks):
    return tasks._loss_fn, tasks._batches


def test_the_wrapper_trains_in_place():
    model = nn.Linear(2, 3)
    pool = {"family": "exponential", "scale": [1.0, 2.0]}
    env = gym.make("ata_gym/TaskAllocation-v0", pool=pool, budget=2)
    env = TrainingWrapper(env, small(), model=model, inplace=True)
    before = model.weight.clone()
    env.reset(seed=0)
    env.step(np.array([1, 1]))
    assert env.model is model
    assert not torch.equal(model.weight, before)


def test_a_long_gradient_is_clipped():
    trainer = Trainer(small(), B, optimizer="sgd", lr=1.0, clip_norm=0.01)
    for _ in range(3):
        before = weights(trainer)
        trainer.step()
        assert (weights(trainer) - before).norm() == pytest.approx(0.01, rel=1e-3)
    plain, unclipped = (Trainer(small(), B, lr=0.1, clip_norm=norm) for norm in (None, 1e6))
    assert [plain.step() for _ in range(3)] == [unclipped.step() for _ in range(3)]


def test_parameter_groups_and_named_parameters():
    def groups(model):
        return [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.0}]

    trainer = Trainer(small(), B, optimizer="sgd", lr=0.5, parameter_groups=groups)
    before = copy.deepcopy(trainer.model)
    trainer.step()
    assert torch.equal(trainer.model.bias, before.bias)
    assert not torch.equal(trainer.model.weight, before.weight)
    named = Trainer(small(), B, lr=0.5, parameter_groups=lambda model: model.named_parameters())
    assert named.step() == Trainer(small(), B, lr=0.5).step()
    with pytest.raises(ValueError, match="parameter_groups is None there"):
        trainer.restore(Trainer(small(), B, optimizer="sgd", lr=0.5).checkpoint())


def test_a_callback_after_each_round():
    seen = []
    trainer = Trainer(small(), B, on_step=lambda k, loss, of: seen.append((k, loss, of.round)))
    losses = [trainer.step() for _ in range(3)]
    assert seen == [(k + 1, loss, k + 1) for k, loss in enumerate(losses)]


def test_the_average_of_the_weights_is_evaluated(tmp_path):
    trainer, plain = Trainer(small(), B, ema=0.75, lr=0.5), Trainer(small(), B, lr=0.5)
    expected = weights(trainer)
    for _ in range(5):
        assert trainer.step() == plain.step()
        expected = 0.75 * expected + 0.25 * weights(plain)
    torch.testing.assert_close(torch.cat([p.flatten() for p in trainer.evaluated_model.parameters()]), expected)
    assert trainer.evaluate() == trainer.problem.evaluate(trainer.evaluated_model)
    assert trainer.evaluate() != plain.evaluate()
    checkpoint.save(tmp_path / "run.pt", trainer.checkpoint())
    later = Trainer(small(), B, ema=0.75, lr=0.5)
    later.restore(checkpoint.load(tmp_path / "run.pt"))
    later.step()
    trainer.step()
    assert later.evaluate() == trainer.evaluate()


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=9),
        lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
        lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 0.5, step_size_up=2),
        lambda o: optim.lr_scheduler.ExponentialLR(o, 0.9),
        lambda o: optim.lr_scheduler.MultiStepLR(o, [2, 4]),
        lambda o: optim.lr_scheduler.PolynomialLR(o, 5),
        lambda o: optim.lr_scheduler.SequentialLR(
            o, [optim.lr_scheduler.ConstantLR(o, 0.1, 2), optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
        ),
    ],
)
def test_schedules_of_torch(make):
    trainer = Trainer(small(), B, optimizer="momentum", lr=0.1, schedule=make)
    twin = optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)
    schedule = make(twin)
    for _ in range(6):
        assert trainer._optimizer.param_groups[0]["lr"] == twin.param_groups[0]["lr"]
        trainer.step()
        twin.step()
        schedule.step()


def test_after_the_end_of_a_schedule_a_round_is_whole():
    trainer = Trainer(small(), B, schedule=lambda o: optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=2))
    trainer.step()
    trainer.step()
    with pytest.raises(ValueError, match="Tried to step 3 times"):
        trainer.step()
    assert trainer.round == 3


def test_a_gradient_from_elsewhere_counts_as_a_round_of_tasks():
    trainer = Trainer(Tasks(nn.Linear(2, 3), mean_loss, DataLoader(TensorDataset(*SAMPLES), 5, shuffle=True)), 2)
    other = Trainer(Tasks(copy.deepcopy(trainer.model), *vars_of(trainer.problem)), 2)
    given = trainer.gradient()
    trainer.apply(Gradient(given.loss, given.parts))
    other.step()
    assert trainer.step() == other.step()
