"""Fresh models whose tasks have gradients of their own, what is trained of them, and models under evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ata_gym.training.devices import seeded


def build_model(source: nn.Module | Callable[[], nn.Module], key: int) -> nn.Module:
    """A model with fresh weights keyed by ``key``, or a copy of a model with the weights that it has.

    Raises
    ------
    TypeError
        If the function does not return a module.
    ValueError
        If a batch norm in it mixes the samples of a batch.
    """
    if isinstance(source, nn.Module):
        model = copy.deepcopy(source)
    else:
        with seeded(key, torch.device("cpu")):
            model = source()
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model must be a torch module, or a function that returns one, not {model!r}")
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise ValueError(
                f"the model's {type(part).__name__} mixes the samples of a batch, so that a task would have no "
                "gradient of its own: use GroupNorm, or call eval() on that layer"
            )
    return model


def trained_weights(model: nn.Module) -> list[nn.Parameter]:
    """Those parameters of a model that are not frozen."""
    return [weights for weights in model.parameters() if weights.requires_grad]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation without gradients; afterwards each of its parts is in the mode it was in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode
