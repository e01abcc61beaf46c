"""The samples of a small problem, the problem itself, and the weights of a trainer."""

import torch
from torch import nn

from ata_gym.training import Classification

SAMPLES = torch.linspace(-1, 1, 40).reshape(20, 2), torch.arange(20) % 3


def small(build=None, kind=Classification, samples=SAMPLES, **kwargs):
    """Twenty points of three classes, by default for a linear model."""
    return kind(build or (lambda: nn.Linear(2, 3)), samples, samples, **kwargs)


def mean_loss(model, batch):
    """A loss for ``Tasks`` whose batches are inputs and labels."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
