"""The settings of a trainer: optimisers, schedules, precision, groups, averages, and what is
refused.
"""

import copy
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

from ata_gym.training import Classification, Tasks, Trainer
from ata_gym.training.trainer import losses
from ata_gym.training.trainer.losses import _compiled
from tests.training.small_problem import SAMPLES, mean_loss, small, weights

B = 6
TASKS = Tasks(nn.Linear(2, 3), mean_loss, [SAMPLES])


def network():
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))


def problem():
    return small(network, learning_rates={"sgd": 0.5, "adam": 0.01})


def run(rounds=4, **kwargs):
    trainer = Trainer(problem(), B, **kwargs)
    return [trainer.step() for _ in range(rounds)], weights(trainer)


@pytest.mark.parametrize(
    ("chosen", "factory"),
    [
        ({"optimizer": "sgd"}, partial(optim.SGD, lr=0.5)),
        ({"optimizer": "momentum"}, partial(optim.SGD, lr=0.05, momentum=0.9)),
        ({"optimizer": "adam"}, partial(optim.Adam, lr=0.01)),
        ({"optimizer": "adamw"}, lambda parameters: optim.AdamW(parameters, lr=0.01)),
        ({"optimizer": "adamw", "lr": 0.3}, partial(optim.AdamW, lr=0.3)),
        ({"lr": 0.1}, partial(optim.SGD, lr=0.1)),
        ({"optimizer": optim.SGD, "lr": 0.1}, partial(optim.SGD, lr=0.1)),
        ({"optimizer": optim.Adam}, partial(optim.Adam, lr=1e-3)),
    ],
)
def test_optimisers_by_name_and_by_factory_are_torchs(chosen, factory):
    (losses, end), (expected, expected_end) = run(**chosen), run(optimizer=factory)
    assert losses == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(end, expected_end, rtol=0, atol=1e-7)


def adamw(parameters, lr=0.01):
    return optim.SGD(parameters, lr=lr)


def test_a_function_with_the_name_of_an_optimiser_is_not_that_optimiser():
    named, custom = (Trainer(small(), B, optimizer=chosen, lr=0.01) for chosen in ("adamw", adamw))
    assert (named.optimizer_choice.named, custom.optimizer_choice.named) == (True, False)
    assert custom.config()["optimizer"] == f"{__name__}.adamw"
    with pytest.raises(ValueError, match=rf"optimizer is '{__name__}.adamw' there"):
        named.restore(custom.checkpoint())


def rates(schedule, rounds=7):
    trainer = Trainer(problem(), B, lr=2.0, schedule=schedule)
    rates_of_rounds = []
    for _ in range(rounds):
        rates_of_rounds.append(trainer._optimizer.param_groups[0]["lr"])
        trainer.step()
    trainer.reset()
    assert trainer._optimizer.param_groups[0]["lr"] == rates_of_rounds[0]
    return rates_of_rounds


def test_schedules_by_name():
    assert rates(None) == rates("constant") == [2.0] * 7
    assert rates("linear:4") == [2.0, 1.5, 1.0, 0.5, 0.0, 0.0, 0.0]
    assert rates("warmup:4") == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0]
    cosine = [1 + math.cos(math.pi * min(k, 4) / 4) for k in range(7)]
    np.testing.assert_allclose(rates("cosine:4"), cosine, atol=1e-12)


def test_a_schedule_of_torch_and_a_whole_round_after_its_end():
    def make(optimizer):
        return optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=4)

    trainer = Trainer(small(), B, optimizer="momentum", lr=0.1, schedule=make)
    twin = optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1, momentum=0.9)
    schedule = make(twin)
    for _ in range(4):
        assert trainer._optimizer.param_groups[0]["lr"] == twin.param_groups[0]["lr"]
        trainer.step()
        twin.step()
        schedule.step()
    with pytest.raises(ValueError, match="Tried to step 5 times"):
        trainer.step()
    assert trainer.round == 5


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_follows_full_precision(precision):
    (exact, end), (losses, close) = run(20), run(20, precision=precision)
    assert losses != exact
    np.testing.assert_allclose(losses, exact, rtol=0.02)
    torch.testing.assert_close(close, end, rtol=0, atol=0.05)
    assert end.dtype == close.dtype == torch.float32


class Scaled(Classification):
    factor = 1.0

    def loss(self, model, batch):
        return super().loss(model, batch) * self.factor


def test_float16_scales_small_gradients(monkeypatch):
    monkeypatch.setattr(Scaled, "factor", 1e-9)
    biases = []
    for precision in ("float16", "float32"):
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
        for part in model.parameters():
            nn.init.constant_(part, 0.1)
        trainer = Trainer(small(kind=Scaled), B, model=model, lr=1e7, precision=precision)
        for _ in range(3):
            trainer.step()
        biases.append(trainer.model[2].bias.detach() - 0.1)
    torch.testing.assert_close(*biases, rtol=0.05, atol=1e-4)


def test_a_round_whose_float16_gradient_overflows_moves_nothing_and_lowers_the_scale(monkeypatch):
    monkeypatch.setattr(Scaled, "factor", 8.0)
    trainer = Trainer(
        small(network, Scaled),
        B,
        lr=1e-4,
        optimizer="adamw",
        precision="float16",
        ema=0.5,
    )
    moved = []
    for k in range(6):
        before = weights(trainer)
        scale = trainer.checkpoint()["scaler"]["scale"]
        assert np.isfinite(trainer.step())
        assert trainer.round == k + 1
        moved.append(not torch.equal(weights(trainer), before))
        assert trainer.checkpoint()["scaler"]["scale"] == (scale if moved[-1] else scale / 2)
    assert not moved[0]
    assert any(moved)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiled_training_follows_eager_training(monkeypatch):
    """The backend of ``graphs=True`` needs no C++ compiler; on a CPU it traces the passes and
    captures none.
    """
    settings = {"precision": "float16", "micro_batch": 2}
    exact, end = run(**settings)
    monkeypatch.setattr(
        losses,
        "_compiled",
        lambda loss, _settings: torch.compile(loss, backend="cudagraphs"),
    )
    fast, fast_end = run(**settings)
    np.testing.assert_allclose(fast, exact, rtol=1e-6)
    torch.testing.assert_close(fast_end, end)


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, None),
        ({"compile": True}, {"mode": None}),
        ({"graphs": True}, {"backend": "cudagraphs"}),
        ({"compile": True, "graphs": True}, {"mode": "reduce-overhead"}),
    ],
)
def test_what_is_asked_of_torch_compile(monkeypatch, options, asked):
    # as graphs needs CUDA
    settings = SimpleNamespace(
        **({"compile": False, "graphs": False} | options),
    )
    monkeypatch.setattr(torch, "compile", lambda loss, **arguments: (loss, arguments))
    assert _compiled(len, settings) == (len if asked is None else (len, asked))


def test_in_place_the_module_itself_is_trained():
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    before = copy.deepcopy(model.state_dict())
    loader = DataLoader(TensorDataset(*SAMPLES), 5)
    of_a_copy = Trainer(Tasks(copy.deepcopy(model), mean_loss, loader), 3)
    trainer = Trainer(Tasks(model, mean_loss, loader), 3, inplace=True)
    assert trainer.model is model
    losses = [trainer.step() for _ in range(4)]
    assert losses == [of_a_copy.step() for _ in range(4)]
    assert not torch.equal(model[0].weight, before["0.weight"])
    trainer.reset()
    assert trainer.model is model
    assert all(torch.equal(before[name], part) for name, part in model.state_dict().items())
    assert [trainer.step() for _ in range(4)] == losses


def test_a_long_gradient_is_clipped():
    trainer = Trainer(small(), B, optimizer="sgd", lr=1.0, clip_norm=0.01)
    for _ in range(3):
        before = weights(trainer)
        trainer.step()
        assert (weights(trainer) - before).norm() == pytest.approx(0.01, rel=1e-3)
    assert run(clip_norm=1e6)[0] == run()[0]


def test_parameter_groups_and_named_parameters():
    def groups(model):
        return [{"params": []}, {"params": [model.weight]}, {"params": [model.bias], "lr": 0.0}]

    trainer = Trainer(small(), B, optimizer="sgd", lr=0.5, parameter_groups=groups)
    before = copy.deepcopy(trainer.model)
    trainer.step()
    assert torch.equal(trainer.model.bias, before.bias)
    assert not torch.equal(trainer.model.weight, before.weight)
    assert run(parameter_groups=lambda model: model.named_parameters())[0] == run()[0]
    with pytest.raises(ValueError, match="parameter_groups is None there"):
        trainer.restore(Trainer(small(), B, optimizer="sgd", lr=0.5).checkpoint())


def test_the_average_of_the_weights_is_evaluated_and_a_callback_called():
    calls = []
    trainer = Trainer(
        small(),
        B,
        ema=0.75,
        lr=0.5,
        on_step=lambda k, loss, trainer: calls.append((k, loss, trainer.round)),
    )
    plain = Trainer(small(), B, lr=0.5)
    expected = weights(trainer)
    for k in range(1, 6):
        loss = plain.step()
        assert (trainer.step(), calls[-1]) == (loss, (k, loss, k))
        expected = 0.75 * expected + 0.25 * weights(plain)
    torch.testing.assert_close(
        torch.cat([p.flatten() for p in trainer.evaluated_model.parameters()]),
        expected,
    )
    assert trainer.evaluate() == trainer.problem.evaluate(trainer.evaluated_model)
    assert trainer.evaluate() != plain.evaluate()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"budget": 0}, "budget must be a whole number"),
        ({"problem": "digit"}, "did you mean digits"),
        ({"problem": nn.Linear(1, 1)}, "must be a name or have the parts"),
        *(({"seed": seed}, "seed must be a whole number") for seed in (-1, 1.5)),
        ({"optimizer": "adamm"}, "optimizer must be 'sgd', 'momentum', 'adam', 'adamw'"),
        ({"optimizer": optim.LBFGS}, "LBFGS cannot be used: its step.. needs a closure"),
        ({"optimizer": lambda _weights: None}, "optimizer must return a torch.optim.Optimizer"),
        *(({"lr": lr}, "lr must be a finite number above 0") for lr in (0, math.nan, True)),
        ({"lr": 1e308}, r"lr must be at most 3\.4e\+38, the largest number that the weights hold"),
        *(({"device": device}, 'device must be "cpu", "cuda"') for device in ("tpu", "meta", 1.5)),
        (
            {"device": "cuda:99"},
            r'sees (0 CUDA devices: use device="cpu"|[1-9] CUDA devices: count from cuda:0)',
        ),
        ({"model": lambda: None}, "must be a torch module, or a function that returns one"),
        (
            {"model": lambda: nn.Linear(2, 3).requires_grad_(False)},
            "nothing to train: Linear has no parameter with",
        ),
        ({"model": nn.Flatten}, "nothing to train: Flatten"),
        *(
            ({"schedule": text}, "schedule must be")
            for text in ("cosine", "cosine:", "cosine:0", "cosine:-3", "step:3", "warmup:1.5", "")
        ),
        (
            {"schedule": optim.lr_scheduler.ReduceLROnPlateau},
            "ReduceLROnPlateau cannot be used: .* needs a metric",
        ),
        (
            {"parameter_groups": lambda _model: [{"params": [nn.Parameter(torch.ones(1))]}]},
            "that are not the model's",
        ),
        (
            {"parameter_groups": lambda _model: [{"params": []}]},
            "hold none of the model's trained weights",
        ),
        ({"parameter_groups": 3}, "parameter_groups must be a function"),
        ({"on_step": "print"}, "on_step must be a function"),
        ({"inplace": True}, "inplace=True trains a module of yours: give model="),
        ({"clip_norm": 0}, "clip_norm must be a finite number above 0"),
        ({"ema": 1.5}, "ema must be a finite number above 0 and at most 1"),
        ({"chunk": 0}, "chunk must be a whole number"),
        ({"compile": 1}, "compile must be True or False, not 1"),
        ({"graphs": True}, "graphs=True needs a CUDA device, and this is cpu"),
        (
            {"graphs": True, "chunk": 2},
            "graphs=True captures all tasks of a round at once: leave out chunk",
        ),
        ({"precision": "half"}, "precision must be 'float32', 'bfloat16', 'float16', not 'half'"),
        ({"problem": TASKS, "micro_batch": 2}, "set the batch size in the loader"),
        ({"problem": TASKS, "chunk": 2}, "and chunk in ata_gym.training.Tasks"),
        ({"problem": TASKS, "optimizer": "sgd"}, "tasks has no learning rate for 'sgd': give lr="),
        ({"optimiser": "sgd"}, "unexpected keyword argument 'optimiser'"),
    ],
)
def test_what_cannot_train_is_refused_when_the_trainer_is_made(options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        Trainer(**({"problem": small(), "budget": B} | options))
