"""Models, optimisers and data that a training loop meets rarely: each trains, or is refused before anything moves."""

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn.functional import cross_entropy, dropout
from torch.utils.data import DataLoader, IterableDataset

from ata_gym.training import Classification, Trainer
from ata_gym.training.models import copy_weights
from ata_gym.training.problems.from_torch import from_torch
from tests.training.small_problem import SAMPLES, weights

B = 6


def small(build=None, samples=SAMPLES, **kwargs):
    return Classification(build or (lambda: nn.Linear(2, 3)), samples, samples, **kwargs)


def adamw(parameters, lr=0.01):
    return optim.SGD(parameters, lr=lr)


def test_a_function_with_the_name_of_an_optimiser_is_not_that_optimiser():
    named, own = (Trainer(small(), B, optimizer=chosen, lr=0.01) for chosen in ("adamw", adamw))
    assert (named.optimizer_choice.named, own.optimizer_choice.named) == (True, False)
    assert own.config()["optimizer"] == f"{__name__}.adamw"
    with pytest.raises(ValueError, match=rf"optimizer is '{__name__}.adamw' there"):
        named.restore(own.checkpoint())


@pytest.mark.gpu
def test_a_function_with_the_name_of_an_optimiser_is_called_as_it_is_on_cuda():
    assert Trainer(small(), B, optimizer=adamw, device="cuda").step() > 0


class Overflowing(Classification):
    """The gradient of round 3 is beyond float16 at the first loss scales."""

    def __init__(self, *args, factor=1.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.factor, self.computed = factor, 0

    def loss(self, model, batch):
        self.computed += torch.is_grad_enabled()
        outputs = model(batch.inputs)
        return cross_entropy(outputs, batch.labels, reduction="none") * self.factor


def test_a_round_whose_float16_gradient_overflows_is_computed_again():
    def play(factor, precision):
        build = lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))  # noqa: E731
        problem = Overflowing(build, SAMPLES, SAMPLES, factor=factor)
        trainer = Trainer(problem, B, lr=0.1 / factor, precision=precision, schedule="linear:8")
        losses, rates = [], []
        for _ in range(6):
            rates.append(trainer._optimizer.param_groups[0]["lr"] * factor)
            before = weights(trainer)
            losses.append(trainer.step() / factor)
            assert not torch.equal(weights(trainer), before)  # every round has its step
        return losses, rates, trainer.problem.computed

    exact, rates, computed = play(1.0, "float32")
    assert computed == 6
    losses, rates_there, computed = play(2.0**9, "float16")
    assert computed > 6
    assert rates_there == pytest.approx(rates)
    assert losses == pytest.approx(exact, rel=0.02)


class Steep(torch.autograd.Function):
    """A finite value with an infinite gradient."""

    @staticmethod
    def forward(_context, x):
        return x.clone()

    @staticmethod
    def backward(_context, gradient):
        return gradient * float("inf")


def test_a_gradient_that_is_never_finite_ends_the_round():
    class Broken(Classification):
        def loss(self, model, batch):
            return Steep.apply(super().loss(model, batch))

    trainer = Trainer(Broken(lambda: nn.Linear(2, 3), SAMPLES, SAMPLES), B, precision="float16")
    before, scale = weights(trainer), trainer.checkpoint()["scaler"]
    with pytest.raises(
        FloatingPointError, match=r"NaN or infinite in round 1 at every loss scale of float16.*bfloat16"
    ):
        trainer.step()
    assert torch.equal(weights(trainer), before)
    assert trainer.checkpoint()["scaler"] == scale
    assert trainer.round == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizer": optim.LBFGS}, "LBFGS cannot be used: its step.. needs a closure"),
        ({"schedule": optim.lr_scheduler.ReduceLROnPlateau}, "ReduceLROnPlateau cannot be used: .* needs a metric"),
        ({"optimizer": lambda _weights: None}, "optimizer must return a torch.optim.Optimizer"),
        ({"model": lambda: nn.Linear(2, 3).requires_grad_(False)}, "nothing to train: Linear has no parameter with"),
        ({"model": nn.Flatten}, "nothing to train: Flatten"),
        ({"parameter_groups": lambda _model: [{"params": [nn.Parameter(torch.ones(1))]}]}, "that are not the model's"),
        ({"parameter_groups": lambda _model: [{"params": []}]}, "hold none of the model's trained weights"),
        ({"parameter_groups": 3}, "parameter_groups must be a function"),
        ({"on_step": "print"}, "on_step must be a function"),
        ({"inplace": True}, "inplace=True trains a module of yours: give model="),
        ({"clip_norm": 0}, "clip_norm must be a finite number above 0"),
        ({"ema": 1.5}, "ema must be a finite number above 0 and at most 1"),
        ({"chunk": 0}, "chunk must be a whole number"),
    ],
)
def test_what_cannot_train_is_refused_when_the_trainer_is_made(options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        Trainer(small(), B, **options)


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.ones(2), 0


def test_an_endless_stream_is_refused():
    with pytest.raises(ValueError, match=r"have a length: .*for a stream, see ata_gym.training.Tasks"):
        from_torch(lambda: (nn.Linear(2, 3), DataLoader(Endless(), 4)))


class PairedLoss(Classification):
    """Mixes each sample with the one at the other end of the batch."""

    def loss(self, model, batch):
        outputs = model(batch.inputs)
        return cross_entropy(0.7 * outputs + 0.3 * outputs.flip(0), batch.labels, reduction="none")


class Centred(nn.Module):
    """Subtracts the mean over the batch."""

    def forward(self, x):
        return x - x.mean(0)


class Ranking(nn.Module):
    """Attention over the samples of a batch."""

    def forward(self, x):
        return torch.softmax(x @ x.T, 1) @ x


class Wild(nn.Module):
    """Draws in a function, not in a layer."""

    def forward(self, x):
        return dropout(x, 0.5, self.training) + torch.randn_like(x)


@pytest.mark.parametrize("mixing", [Centred(), Ranking(), nn.BatchNorm1d(8)])
@pytest.mark.parametrize("noise", [nn.Identity(), nn.Dropout(0.5), Wild()])
def test_samples_that_depend_on_each_other_are_found_by_trying(mixing, noise):
    layers = [nn.Linear(2, 8), mixing, noise, nn.Linear(8, 3)]
    nn.init.zeros_(layers[-1].weight)  # hides the layers below at the start
    with pytest.raises(ValueError, match=r"mixes the samples of a batch.*ata_gym\.training\.Tasks"):
        Trainer(small(lambda: nn.Sequential(*layers)), B)


def test_a_loss_that_mixes_is_found():
    with pytest.raises(ValueError, match="the model or the loss of classification mixes the samples"):
        Trainer(PairedLoss(lambda: nn.Linear(2, 3), SAMPLES, SAMPLES), B)


@pytest.mark.parametrize(
    "layer",
    [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.Dropout(0.9), Wild(), nn.RReLU(), nn.AlphaDropout(), nn.Softmax(1)],
)
def test_samples_that_do_not_are_trained(layer):
    trainer = Trainer(small(lambda: nn.Sequential(nn.Linear(2, 8), layer, nn.Linear(8, 3))), B)
    assert np.isfinite([trainer.step() for _ in range(3)]).all()


def test_a_float64_model():
    doubles = SAMPLES[0].double(), SAMPLES[1]
    problem = from_torch(lambda: (nn.Linear(2, 3).double(), doubles))
    trainer, single = Trainer(problem, B), Trainer(from_torch(lambda: (nn.Linear(2, 3), SAMPLES)), B)
    single.model.load_state_dict(trainer.model.state_dict())
    for _ in range(5):
        assert trainer.step() == pytest.approx(single.step(), rel=1e-5)
    assert trainer.model.weight.dtype == torch.float64
    with pytest.raises(ValueError, match="does not take its data: mat1 and mat2 must have the same dtype"):
        Trainer(small(), B, model=nn.Linear(2, 3).double()).step()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_tied_weights_stay_tied():
    trainer, later = (Trainer(small(Tied), B, optimizer="adam", ema=0.9) for _ in range(2))
    for _ in range(3):
        trainer.step()
    later.restore(trainer.checkpoint())
    for one in (trainer, later, Trainer(small(), B, model=trainer.model)):
        assert one.model.first.weight is one.model.second.weight
    assert later.step() == trainer.step()
    before = copy_weights(trainer.model)
    trainer.step()
    at_old = trainer.gradient(before, 3)
    assert len(at_old.parts) == len(before) == 5


def test_weights_that_are_not_contiguous():
    def transposed():
        model = nn.Linear(2, 3)
        model.weight = nn.Parameter(model.weight.detach().T.contiguous().T)
        return model

    assert not transposed().weight.is_contiguous()
    for optimizer in ("momentum", "adamw"):
        trainer, plain = (Trainer(small(build), B, optimizer=optimizer) for build in (transposed, None))
        assert [trainer.step() for _ in range(4)] == pytest.approx([plain.step() for _ in range(4)])
        later = Trainer(small(transposed), B, optimizer=optimizer)
        later.restore(trainer.checkpoint())
        assert later.step() == trainer.step()


def test_an_empty_parameter_group_is_harmless():
    def groups(model):
        return [{"params": []}, {"params": list(model.parameters())}]

    plain, with_empty = Trainer(small(), B), Trainer(small(), B, parameter_groups=groups)
    assert [with_empty.step() for _ in range(3)] == [plain.step() for _ in range(3)]


def test_a_model_that_a_loss_uses_in_part():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 3), nn.Linear(2, 3)

        def forward(self, x):
            return self.used(x)

    trainer = Trainer(small(Half), B, optimizer="adamw", clip_norm=1.0)
    before = trainer.model.unused.weight.clone()
    trainer.step()
    assert torch.equal(trainer.model.unused.weight, before)
