"""Whether the loss of a sample depends on the samples beside it, found by trying."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ata_gym.training.models.device import seeded

_TOLERANCE = 1e-3  # relative to the losses: far above rounding, far below what a batch norm changes

Compute = Callable[[nn.Module], Tensor]  # a function of a model that gives losses


def apart_and_together(model: nn.Module, together: Compute, apart: Sequence[Compute]) -> tuple[float, float] | None:
    """The loss of a sample that differs most if it is computed apart and together; None if none differ.

    ``together`` gives losses of shape (n,); those of ``apart``, put one after the other, are n as well. They get a copy
    of the model whose dropout layers drop nothing. Weights that are all equal are replaced by unequal ones, since a
    layer that starts at 0 would hide the others. The result is also None where torch cannot run the losses, and where
    the model still draws random numbers.
    """
    twin = copy.deepcopy(model)
    device = next(twin.parameters()).device
    for part in twin.modules():
        if isinstance(part, _DropoutNd):
            part.eval()
    try:
        with torch.no_grad(), seeded(0, device):
            for weights in twin.parameters():
                if weights.is_floating_point() and weights.numel() > 1 and (weights == weights.flatten()[0]).all():
                    weights.add_(0.1 * torch.randn_like(weights))
            whole, again = (together(twin).double() for _ in range(2))
            parts = torch.cat([compute(twin).double() for compute in apart])
    except (RuntimeError, TypeError, ValueError, IndexError):  # the first round says what is wrong
        return None
    if whole.shape != parts.shape or not (whole.isfinite() & parts.isfinite()).all() or not torch.equal(whole, again):
        return None
    difference = (whole - parts).abs()
    if difference.max() <= _TOLERANCE * max(whole.abs().max().item(), parts.abs().max().item()):
        return None
    worst = int(difference.argmax())
    return parts[worst].item(), whole[worst].item()
