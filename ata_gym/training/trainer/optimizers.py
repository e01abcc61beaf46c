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

from ata_gym.models.model import trained_weights
from ata_gym.training.problem import Problem
from ata_gym.training.problems.tasks import Tasks

OptimizerFactory = Callable[..., Optimizer]
"""A function of the model's parameters, such as ``torch.optim.AdamW``.

If the user gives a learning rate, it is called with ``lr=``, too."""

ParameterGroups = Callable[[nn.Module], Iterable[Any]]
"""A function of the model that gives what torch's optimisers take.

They take groups of parameters, or named parameters."""

ScheduleFactory = Callable[[Optimizer], LRScheduler]
"""A function of the optimiser that gives a schedule.

An example is ``lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1000)``."""

_MOMENTUM = 0.9


class _NamedOptimizer(NamedTuple):
    make: OptimizerFactory
    fallback: str
    """The optimiser whose learning rate counts where a problem has none for this one."""
    factor: float = 1.0
    """The learning rate of ``fallback`` is multiplied by it."""


OPTIMIZERS = {
    "sgd": _NamedOptimizer(torch.optim.SGD, "sgd"),
    # With the factor 1 - momentum, the steps along a constant gradient are as long as without it.
    "momentum": _NamedOptimizer(partial(torch.optim.SGD, momentum=_MOMENTUM), "sgd", 1 - _MOMENTUM),
    "adam": _NamedOptimizer(torch.optim.Adam, "adam"),
    "adamw": _NamedOptimizer(torch.optim.AdamW, "adam"),
}
"""SGD, SGD with momentum 0.9, Adam and AdamW, with torch's defaults."""


@dataclass(frozen=True)
class OptimizerChoice:
    """An optimiser and its learning rate, before it is made for a model."""

    name: str
    """A name of ``OPTIMIZERS``, or the name of a factory with its module."""
    make: OptimizerFactory
    lr: float | None
    """The learning rate; None for the factory's own."""
    groups: ParameterGroups | None = None
    """The parameter groups; by default all trained weights are one group."""

    @property
    def named(self) -> bool:
        """Whether the optimiser was chosen by name; such an optimiser draws no random numbers."""
        return self.name in OPTIMIZERS

    def __call__(self, model: nn.Module) -> Optimizer:
        """Make the optimiser of the trained weights of a model.

        Raises:
            TypeError: If the factory makes no optimiser.
            ValueError: If the optimiser cannot be used.
        """
        trained = trained_weights(model)
        limit = min((torch.finfo(weights.dtype).max for weights in trained), default=math.inf)
        if self.lr is not None and self.lr > limit:
            raise ValueError(
                f"lr must be at most {limit:.3g}, the largest number that the weights hold, not"
                f" {self.lr:g}",
            )
        arguments: dict[str, Any]
        if self.lr is None:
            arguments = {}
        else:
            arguments = {"lr": self.lr}
        if self.named and all(weights.is_cuda for weights in trained):
            # One CUDA kernel then steps all weights.
            arguments["fused"] = True
        groups: list[Any] = trained
        if self.groups is not None:
            groups = list(self.groups(model))
        optimizer = self.make(groups, **arguments)
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer must return a torch.optim.Optimizer, but {self.name} returned"
                f" {optimizer!r}",
            )
        if _needs_arguments(optimizer.step):
            raise ValueError(
                f"{self.name} cannot be used: its step() needs a closure that computes the loss"
                " again, and a round has its B gradients once; use an optimiser such as"
                " torch.optim.AdamW",
            )
        group_ids = {id(weights) for group in optimizer.param_groups for weights in group["params"]}
        if not group_ids <= {id(weights) for weights in model.parameters()}:
            raise ValueError(
                f"the parameter groups of {self.name} hold weights that are not the model's",
            )
        if not group_ids & {id(weights) for weights in trained}:
            raise ValueError(
                f"the parameter groups of {self.name} hold none of the model's trained weights",
            )
        return optimizer


def find_optimizer(
    problem: Problem | Tasks,
    optimizer: str | OptimizerFactory | None,
    lr: float | None,
    groups: ParameterGroups | None = None,
) -> OptimizerChoice:
    """Choose an optimiser and its learning rate, by default the problem's own.

    Args:
        problem: What is trained; it has the default learning rates.
        optimizer: A name of ``OPTIMIZERS``, or a factory; None for the problem's first.
        lr: The learning rate; None for the default one.
        groups: The parameter groups; None for one group of all trained weights.

    Raises:
        ValueError: For a wrong name, or if there is no learning rate.
    """
    if optimizer is None:
        optimizer = next(iter(problem.learning_rates))
    if not isinstance(optimizer, str):
        return OptimizerChoice(factory_name(optimizer), optimizer, lr, groups)
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"optimizer must be {', '.join(map(repr, OPTIMIZERS))}, or a function such as"
            f" torch.optim.RMSprop, not {optimizer!r}",
        )
    entry = OPTIMIZERS[optimizer]
    if lr is None:
        lr = problem.learning_rates.get(optimizer)
    if lr is None and entry.fallback in problem.learning_rates:
        lr = problem.learning_rates[entry.fallback] * entry.factor
    if lr is None:
        raise ValueError(f"{problem.name} has no learning rate for {optimizer!r}: give lr=...")
    return OptimizerChoice(optimizer, entry.make, lr, groups)


_SHAPES: dict[str, Callable[[float], float]] = {
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
    "linear": lambda share: 1 - share,
    "warmup": lambda share: share,
}
"""The factor on the learning rate, by the share of the rounds that are done.

It is a closed form: torch's own schedules of these shapes multiply the last rate, so that rounding
errors add up, and CosineAnnealingLR rises again at the end."""


def find_schedule(schedule: str | ScheduleFactory | None) -> ScheduleFactory | None:
    """Choose a schedule of the learning rate, by name or made by a factory.

    ``"cosine:ROUNDS"`` and ``"linear:ROUNDS"`` fall to 0, ``"warmup:ROUNDS"`` rises from ``1 /
    ROUNDS`` of the learning rate to all of it, each over that many rounds; then the rate stays.
    None and ``"constant"`` are no schedule, and give None.

    Raises:
        ValueError: For another text.
    """
    if schedule is None or schedule == "constant":
        return None
    if not isinstance(schedule, str):
        return partial(_without_metric, schedule)
    name, _, text = schedule.partition(":")
    if name not in _SHAPES or not text.isdecimal() or int(text) == 0:
        raise ValueError(
            'schedule must be "constant", "cosine:ROUNDS", "linear:ROUNDS" or "warmup:ROUNDS", or'
            " a function such as lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer,"
            f" 1000), not {schedule!r}",
        )
    shape = _SHAPES[name]
    rounds = int(text)
    # A warm-up counts the running round as done (True is 1), so that its first rate is above 0.
    first = name == "warmup"

    def factor(done: int) -> float:
        return shape(min(done + first, rounds) / rounds)

    return lambda optimizer: LambdaLR(optimizer, factor)


def _without_metric(make: ScheduleFactory, optimizer: Optimizer) -> LRScheduler:
    schedule = make(optimizer)
    if _needs_arguments(schedule.step):
        raise ValueError(
            f"the schedule {type(schedule).__name__} cannot be used: its step() needs a metric,"
            " which a round does not give; use a schedule of the rounds such as"
            " torch.optim.lr_scheduler.CosineAnnealingLR",
        )
    return schedule


def _needs_arguments(function: Callable[..., Any]) -> bool:
    """Whether a function cannot be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    return False


def factory_name(factory: object) -> str:
    """The name of a function or class with its module, which is the same in every process.

    Example:
        >>> factory_name(partial(torch.optim.SGD, momentum=0.9))
        'torch.optim.sgd.SGD(momentum=0.9)'
    """
    if isinstance(factory, partial):
        arguments = [
            *map(repr, factory.args),
            *(f"{name}={value!r}" for name, value in factory.keywords.items()),
        ]
        return f"{factory_name(factory.func)}({', '.join(arguments)})"
    definition: Any = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{definition.__module__}.{definition.__qualname__}"
