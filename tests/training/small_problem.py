"""A small problem and its samples, the weights of a trainer, a whole run of a method, and a
malicious pickle.
"""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from ata_gym.training import Classification, MethodRun
from ata_gym.training.methods import UpdateRecord

SAMPLES = torch.linspace(-1, 1, 40).reshape(20, 2), torch.arange(20) % 3


def small(build=None, kind=Classification, samples=SAMPLES, **kwargs):
    return kind(build or (lambda: nn.Linear(2, 3)), samples, samples, **kwargs)


def mean_loss(model, batch):
    """A loss for ``Tasks`` whose batches are inputs and labels."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


class Malicious:
    def __init__(self, call, *arguments):
        self.parts = call, arguments

    def __reduce__(self):
        return self.parts


def run_method(method, pool, problem, *, updates, **arguments):
    run = MethodRun(method, pool, problem, **arguments)
    records = list(islice(run, updates))
    columns = {
        name: np.array([getattr(record, name) for record in records])
        for name in UpdateRecord._fields
    }
    return SimpleNamespace(**columns, model=run.model)
