"""Models that a training loop meets rarely: each trains, or is refused before anything moves."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, dropout

from ata_gym.training import Classification, Trainer
from ata_gym.training.models.model import copy_weights
from ata_gym.training.problems.classification import from_torch
from tests.training.small_problem import SAMPLES, small

B = 6


class PairedLoss(Classification):
    """Mixes each sample with the one at the other end of the batch."""

    def loss(self, model, batch):
        outputs = model(batch.inputs)
        return cross_entropy(0.7 * outputs + 0.3 * outputs.flip(0), batch.labels, reduction="none")


class Ranking(nn.Module):
    """Attention over the samples of a batch."""

    def forward(self, x):
        return torch.softmax(x @ x.T, 1) @ x


class Wild(nn.Module):
    """Draws in a function, not in a layer."""

    def forward(self, x):
        return dropout(x, 0.5, self.training) + torch.randn_like(x)


@pytest.mark.parametrize(
    ("mixing", "noise"),
    [
        (Ranking(), nn.Identity()),
        (Ranking(), nn.AlphaDropout(0.5)),
        (nn.BatchNorm1d(8), nn.Dropout(0.5)),
        (nn.BatchNorm1d(8, track_running_stats=False).eval(), nn.Identity()),
    ],
)
def test_samples_that_depend_on_each_other_are_found_by_trying(mixing, noise):
    layers = [nn.Linear(2, 8), mixing, noise, nn.Linear(8, 3)]
    nn.init.zeros_(layers[-1].weight)  # hides the layers below at the start
    with pytest.raises(ValueError, match=r"mixes the samples of a batch.*GroupNorm.*ata_gym\.training\.Tasks"):
        Trainer(small(lambda: nn.Sequential(*layers)), B)
    with pytest.raises(ValueError, match="the model or the loss of classification mixes the samples"):
        Trainer(small(kind=PairedLoss), B)


@pytest.mark.parametrize("layer", [nn.GroupNorm(2, 8), nn.Dropout(0.9), Wild(), nn.RReLU(), nn.Softmax(1)])
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
