"""Optimisers by name, or made by any factory of torch's form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from ata_gym.training.models import trained_weights
from ata_gym.training.problems import Problem

OptimizerFactory = Callable[..., Optimizer]
"""Takes the model's parameters, and ``lr=`` if the user gives one: ``torch.optim.AdamW``, or a function."""

_MOMENTUM = 0.9


class _Named(NamedTuple):
    make: OptimizerFactory
    like: str
    """The optimiser whose learning rate serves, where a problem has none for this one, ..."""
    factor: float = 1.0
    """... times this."""


OPTIMIZERS = {
    "sgd": _Named(torch.optim.SGD, "sgd"),
    "momentum": _Named(partial(torch.optim.SGD, momentum=_MOMENTUM), "sgd", 1 - _MOMENTUM),  # steps of the same length
    "adam": _Named(torch.optim.Adam, "adam"),
    "adamw": _Named(torch.optim.AdamW, "adam"),
}
"""SGD, SGD with momentum 0.9, Adam and AdamW, with torch's defaults."""


@dataclass(frozen=True)
class Recipe:
    """An optimiser that is still to be made for a model."""

    name: str
    make: OptimizerFactory
    lr: float | None
    """Learning rate; None: the factory's own."""

    def __call__(self, model: nn.Module) -> Optimizer:
        """Make the optimiser of those weights of a model that are trained."""
        trained = trained_weights(model)
        given: dict[str, Any] = {} if self.lr is None else {"lr": self.lr}
        if self.name in OPTIMIZERS and all(weights.is_cuda for weights in trained):
            given["fused"] = True  # one kernel for all weights
        return self.make(trained, **given)


def find_optimizer(problem: Problem, optimizer: str | OptimizerFactory | None, lr: float | None) -> Recipe:
    """Choose an optimiser, by default the problem's own and its learning rate.

    Raises
    ------
    ValueError
        If no optimiser has that name, or the learning rate is missing or not positive and finite.
    """
    if lr is not None and (isinstance(lr, bool) or not isinstance(lr, (int, float)) or not 0 < lr < math.inf):
        raise ValueError(f"lr must be a positive finite number, not {lr!r}")
    if optimizer is None:
        optimizer = next(iter(problem.learning_rates))
    if not isinstance(optimizer, str):
        return Recipe(factory_name(optimizer), optimizer, lr)
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"optimizer must be {', '.join(map(repr, OPTIMIZERS))}, or a function such as torch.optim.RMSprop, "
            f"not {optimizer!r}"
        )
    named = OPTIMIZERS[optimizer]
    if lr is None:
        lr = problem.learning_rates.get(optimizer)
    if lr is None and named.like in problem.learning_rates:
        lr = problem.learning_rates[named.like] * named.factor
    if lr is None:
        raise ValueError(f"{problem.name} has no learning rate for {optimizer!r}: give lr=...")
    return Recipe(optimizer, named.make, lr)


def factory_name(factory: object) -> str:
    """What a configuration calls a function or class, the same in every process.

    >>> factory_name(torch.optim.RMSprop), factory_name(partial(torch.optim.SGD, nesterov=True))
    ('RMSprop', 'partial')
    """
    return str(getattr(factory, "__name__", type(factory).__name__))
