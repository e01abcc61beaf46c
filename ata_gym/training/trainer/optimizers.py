"""Optimisers and learning-rate schedules by name, or made by any factory of torch's form."""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from ata_gym.training.models.model import trained_weights
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks

OptimizerFactory = Callable[..., Optimizer]
"""A function of the model's parameters, and of ``lr=`` if the user gives one, such as ``torch.optim.AdamW``."""

ParameterGroups = Callable[[nn.Module], Iterable[Any]]
"""A function of the model that gives what torch's optimisers take: groups of parameters, or named parameters."""

ScheduleFactory = Callable[[Optimizer], LRScheduler]
"""A function of the optimiser, such as ``lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000)``."""

_MOMENTUM = 0.9


class _Named(NamedTuple):
    make: OptimizerFactory
    like: str  # where a problem has no learning rate for this optimiser, it is that of ``like`` times ``factor``
    factor: float = 1.0


OPTIMIZERS = {
    "sgd": _Named(torch.optim.SGD, "sgd"),
    "momentum": _Named(partial(torch.optim.SGD, momentum=_MOMENTUM), "sgd", 1 - _MOMENTUM),  # steps of the same length
    "adam": _Named(torch.optim.Adam, "adam"),
    "adamw": _Named(torch.optim.AdamW, "adam"),
}
"""SGD, SGD with momentum 0.9, Adam and AdamW, with torch's defaults."""


@dataclass(frozen=True)
class OptimizerChoice:
    """An optimiser and its learning rate, before it is made for a model."""

    name: str  # a name of ``OPTIMIZERS``, or the name of a factory with its module
    make: OptimizerFactory
    lr: float | None  # None for the factory's own
    groups: ParameterGroups | None = None  # by default all trained weights are one group

    @property
    def named(self) -> bool:
        """Whether it was chosen by name; such an optimiser draws no random numbers."""
        return self.name in OPTIMIZERS

    def __call__(self, model: nn.Module) -> Optimizer:
        """Make the optimiser of the trained weights of a model.

        It raises ``TypeError`` if the factory makes no optimiser, and ``ValueError`` for one that cannot be used.
        """
        trained = trained_weights(model)
        limit = min((torch.finfo(weights.dtype).max for weights in trained), default=math.inf)
        if self.lr is not None and self.lr > limit:
            raise ValueError(
                f"lr must be at most {limit:.3g}, the largest number that the weights hold, not {self.lr:g}"
            )
        given: dict[str, Any] = {} if self.lr is None else {"lr": self.lr}
        if self.named and all(weights.is_cuda for weights in trained):
            given["fused"] = True  # one kernel for all weights
        made = self.make(trained if self.groups is None else list(self.groups(model)), **given)
        if not isinstance(made, Optimizer):
            raise TypeError(f"optimizer must return a torch.optim.Optimizer, but {self.name} returned {made!r}")
        if _needs_more(made.step):
            raise ValueError(
                f"{self.name} cannot be used: its step() needs a closure that computes the loss again, and a round has "
                "its B gradients once; use an optimiser such as torch.optim.AdamW"
            )
        held = {id(weights) for group in made.param_groups for weights in group["params"]}
        if not held <= {id(weights) for weights in model.parameters()}:
            raise ValueError(f"the parameter groups of {self.name} hold weights that are not the model's")
        if not held & {id(weights) for weights in trained}:
            raise ValueError(f"the parameter groups of {self.name} hold none of the model's trained weights")
        return made


def find_optimizer(
    problem: Problem | Tasks, optimizer: str | OptimizerFactory | None, lr: float | None,
    groups: ParameterGroups | None = None,
) -> OptimizerChoice:  # fmt: skip
    """Choose an optimiser, by default the problem's own; ValueError for a wrong name, or without a learning rate."""
    if optimizer is None:
        optimizer = next(iter(problem.learning_rates))
    if not isinstance(optimizer, str):
        return OptimizerChoice(factory_name(optimizer), optimizer, lr, groups)
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
    return OptimizerChoice(optimizer, named.make, lr, groups)


_SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    "linear": lambda share: 1 - share,
    "warmup": lambda share: share,
}
"""The factor on the learning rate, by the share of the rounds that are done. It is a closed form: torch's own schedules
of these shapes multiply the last rate, so that rounding errors add up, and CosineAnnealingLR rises again at the end."""


def find_schedule(schedule: str | ScheduleFactory | None) -> ScheduleFactory | None:
    """Choose a schedule of the learning rate, by name or made by a factory; None and ``"constant"`` are none.

    ``"cosine:ROUNDS"`` and ``"linear:ROUNDS"`` fall to 0, ``"warmup:ROUNDS"`` rises from ``1 / ROUNDS`` of the learning
    rate to all of it, each over that many rounds; then the rate stays. Other texts raise ``ValueError``.
    """
    if schedule is None or schedule == "constant":
        return None
    if not isinstance(schedule, str):
        return partial(_without_metric, schedule)
    name, _, text = schedule.partition(":")
    if name not in _SHAPES or not text.isdecimal() or int(text) == 0:
        raise ValueError(
            'schedule must be "constant", "cosine:ROUNDS", "linear:ROUNDS" or "warmup:ROUNDS", or a function such as '
            f"lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000), not {schedule!r}"
        )
    shape, rounds, first = _SHAPES[name], int(text), name == "warmup"  # a warm-up's first round has a rate above 0

    def factor(done: int) -> float:
        return shape(min(done + first, rounds) / rounds)

    return lambda optimizer: LambdaLR(optimizer, factor)


def _without_metric(make: ScheduleFactory, optimizer: Optimizer) -> LRScheduler:
    schedule = make(optimizer)
    if _needs_more(schedule.step):
        raise ValueError(
            f"the schedule {type(schedule).__name__} cannot be used: its step() needs a metric, which a round does not "
            "give; use a schedule of the rounds such as torch.optim.lr_scheduler.CosineAnnealingLR"
        )
    return schedule


def _needs_more(function: Callable[..., Any]) -> bool:  # whether a function cannot be called without arguments
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    return False


def factory_name(factory: object) -> str:
    """The name of a function or class in a configuration, with its module: the same in every process.

    >>> factory_name(partial(torch.optim.SGD, momentum=0.9))
    'torch.optim.sgd.SGD(momentum=0.9)'
    """
    if isinstance(factory, partial):
        given = [*map(repr, factory.args), *(f"{name}={value!r}" for name, value in factory.keywords.items())]
        return f"{factory_name(factory.func)}({', '.join(given)})"
    found = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{found.__module__}.{found.__qualname__}"
