"""The samples of a small problem, and the weights of a trainer."""

import torch

SAMPLES = torch.linspace(-1, 1, 40).reshape(20, 2), torch.arange(20) % 3


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
