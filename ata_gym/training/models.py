"""Models: built from a problem or by the user, their weights, and their modes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ata_gym.training.devices.device import lacks_memory, seeded

Weights = tuple[Tensor, ...]
"""A copy of a model's parameters, frozen ones included, in their order."""


def build_model(source: nn.Module | Callable[[], nn.Module], key: int) -> nn.Module:
    """A model with fresh weights keyed by ``key``, or a copy of a model with the weights that it has.

    It raises ``TypeError`` if a function does not return a module, and ``ValueError`` for a batch norm that mixes the
    samples of a batch.
    """
    with seeded(key, torch.device("cpu")):
        model = copy.deepcopy(source) if isinstance(source, nn.Module) else source()
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


def copy_weights(model: nn.Module) -> Weights:
    """A copy of the weights that a model has now."""
    return tuple(part.detach().clone() for part in model.parameters())


@contextmanager
def at_weights(model: nn.Module, weights: Weights | None) -> Iterator[None]:
    """Give a model other weights, or with None those that it has; afterwards it has its own again. Nothing is copied.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> with at_weights(model, (torch.full((1, 1), 3.0),)):
    ...     model(torch.ones(1)).item()
    3.0
    >>> model.weight.item() == 3.0
    False
    """
    if weights is None:
        yield
        return
    parts = list(model.parameters())
    own = [part.data for part in parts]
    try:
        for part, values in zip(parts, weights, strict=True):
            part.data = values
        yield
    finally:
        for part, values in zip(parts, own, strict=True):
            part.data = values


@contextmanager
def accepting(problem: str) -> Iterator[None]:
    """Turn torch's errors about shapes, types and classes, where a model meets a problem's data, into a ``ValueError``.

    >>> with accepting("mine"):
    ...     nn.Linear(2, 3)(torch.ones(1, 5))
    Traceback (most recent call last):
    ...
    ValueError: the model of mine does not take its data: mat1 and mat2 shapes cannot be multiplied (1x5 and 2x3)
    """
    try:
        yield
    except (RuntimeError, TypeError, IndexError) as error:
        of_torch = type(error).__module__.startswith("torch._") or "CUDA error" in str(error)  # such as torch.compile's
        if lacks_memory(error) or of_torch:
            raise
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"the model of {problem} does not take its data: {reason}") from error


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
