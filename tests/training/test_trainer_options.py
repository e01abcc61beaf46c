import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn, optim

from ata_gym.training import Classification, Trainer
from ata_gym.training.devices.device import autocast
from ata_gym.training.optimizers import find_schedule
from ata_gym.training.trainer import Gradient
from tests.training.small_problem import SAMPLES

BUDGET = 6


def small(**kwargs):
    kwargs = {"learning_rates": {"sgd": 0.5, "adam": 0.01}} | kwargs
    return Classification(lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), *[SAMPLES] * 2, **kwargs)


def run(rounds=5, **kwargs):
    trainer = Trainer(small(), BUDGET, **kwargs)
    losses = [trainer.step() for _ in range(rounds)]
    return losses, torch.cat([p.detach().flatten().cpu() for p in trainer.model.parameters()])


@pytest.mark.parametrize(
    ("name", "factory"),
    [
        ("sgd", partial(optim.SGD, lr=0.5)),
        ("momentum", partial(optim.SGD, lr=0.05, momentum=0.9)),
        ("adam", partial(optim.Adam, lr=0.01)),
        ("adamw", partial(optim.AdamW, lr=0.01)),
    ],
)
def test_named_optimisers_are_torchs(name, factory):
    losses, end = run(optimizer=name)
    assert run(optimizer=factory)[0] == pytest.approx(losses, abs=1e-12)
    torch.testing.assert_close(run(optimizer=factory)[1], end, rtol=0, atol=1e-7)
    assert not torch.equal(run(optimizer=name, lr=0.3)[1], end)


def rates(schedule, rounds=7, lr=2.0):
    trainer = Trainer(small(), BUDGET, lr=lr, schedule=schedule)
    seen = []
    for _ in range(rounds):
        seen.append(trainer._optimizer.param_groups[0]["lr"])
        trainer.step()
    return seen


def test_schedules_by_name_and_as_factories():
    assert rates(None) == rates("constant") == [2.0] * 7
    assert rates("linear:4") == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0, 0.0]
    assert rates("warmup:4") == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0]
    cosine = [1 + math.cos(math.pi * min(k, 4) / 4) for k in range(7)]
    np.testing.assert_allclose(rates("cosine:4"), cosine, atol=1e-12)
    np.testing.assert_allclose(rates(lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 4), rounds=4), cosine[:4])
    assert rates(lambda o: optim.lr_scheduler.StepLR(o, 3)) == pytest.approx([2, 2, 2, 0.2, 0.2, 0.2, 0.02])


def test_a_schedule_starts_anew_with_reset():
    trainer = Trainer(small(), BUDGET, schedule="linear:4")
    first = [trainer.step() for _ in range(4)]
    trainer.reset()
    assert [trainer.step() for _ in range(4)] == first


@pytest.mark.parametrize("schedule", ["cosine", "cosine:", "cosine:0", "cosine:-3", "step:3", "warmup:1.5", ""])
def test_unknown_schedules(schedule):
    with pytest.raises(ValueError, match="schedule must be"):
        find_schedule(schedule)


def test_a_micro_batch_draws_other_samples_for_each_task():
    drawn, seen = [], []
    problem = small()
    draw = problem.draw
    problem.draw = lambda keys: drawn.append(keys) or draw(keys)
    problem.to = lambda _device: problem
    for m in (1, 4):
        trainer = Trainer(problem, BUDGET, micro_batch=m)
        drawn.clear()
        trainer.step()
        seen.append(len(np.unique(np.concatenate(drawn))))
    assert seen == [BUDGET, 4 * BUDGET]


def test_mixed_precision_follows_full_precision():
    exact, end = run(20)
    for precision in ("bfloat16", "float16"):
        losses, close = run(20, precision=precision)
        assert losses != exact
        np.testing.assert_allclose(losses, exact, rtol=0.02)
        torch.testing.assert_close(close, end, rtol=0, atol=0.05)
        assert end.dtype == close.dtype == torch.float32


def test_float16_scales_small_gradients():
    class Faint(Classification):
        def loss(self, model, batch):
            return super().loss(model, batch) * 1e-9

    def moved(precision):
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
        for part in model.parameters():
            nn.init.constant_(part, 0.1)
        trainer = Trainer(Faint(lambda: model, SAMPLES, SAMPLES), BUDGET, lr=1e7, precision=precision)
        for _ in range(3):
            trainer.step()
        return trainer.model[2].bias.detach() - 0.1

    torch.testing.assert_close(moved("float16"), moved("float32"), rtol=0.05, atol=1e-4)


def test_a_gradient_from_elsewhere_gives_the_same_step():
    trainer, other = (Trainer(small(), BUDGET) for _ in range(2))
    mean = other.losses(other.problem, other.model, range(BUDGET)).mean()
    parts = torch.autograd.grad(mean, list(other.model.parameters()))
    assert other.apply(Gradient(mean.item(), parts)) == trainer.step()
    for ours, theirs in zip(other.model.parameters(), trainer.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


def test_the_precision_is_that_of_the_models_device():
    with autocast(nn.Linear(1, 1), "float32"):
        assert not torch.is_autocast_enabled("cpu")
    with pytest.raises(ValueError, match=r"precision must be 'float32', 'bfloat16', 'float16', not 'half'"):
        Trainer(small(), BUDGET, precision="half")


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiled_training_follows_eager_training(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # without a C++ compiler
    losses, end = run()
    compiled, compiled_end = run(compile=True)
    np.testing.assert_allclose(compiled, losses, rtol=1e-6)
    torch.testing.assert_close(compiled_end, end)


def test_graphs_need_cuda():
    with pytest.raises(ValueError, match="graphs=True needs a CUDA device, and this is cpu"):
        Trainer(small(), BUDGET, graphs=True)


class Huge(Classification):
    def loss(self, model, batch):
        return super().loss(model, batch) + torch.empty(10**16).sum()


def test_a_round_that_does_not_fit_into_memory():
    trainer = Trainer(Huge(lambda: nn.Linear(2, 3), SAMPLES, SAMPLES), BUDGET)
    with pytest.raises(MemoryError, match="round 1 does not fit into the memory of cpu: DefaultCPUAllocator"):
        trainer.step()
    assert trainer.round == 0
    with pytest.raises(MemoryError, match="the model with its data does not fit"):
        Trainer(small(), BUDGET, model=lambda: nn.Linear(10**8, 10**8))
