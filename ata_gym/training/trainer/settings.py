"""The settings of training."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import nn

from ata_gym.models.device import find_device
from ata_gym.models.precision import find_precision
from ata_gym.training.trainer.optimizers import (
    OptimizerFactory,
    ParameterGroups,
    ScheduleFactory,
    factory_name,
    find_schedule,
)
from ata_gym.utils.validation import flag, real, whole_number


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSettings:
    """How a model is trained.

    The fields are the keyword arguments of ``Trainer``, ``TrainingWrapper`` and ``MethodRun``.

    Raises:
        ValueError: For a bad value, or a device that torch does not see.
    """

    model: nn.Module | Callable[[], nn.Module] | None = None
    """A module, of which a copy is trained, or a function that returns one.

    By default it is the problem's model."""
    inplace: bool = False
    """Whether the module itself is trained instead of a copy.

    ``reset`` then puts its initial weights back."""
    micro_batch: int = 1
    """The number m of samples of a task, whose loss is their mean."""
    optimizer: str | OptimizerFactory | None = None
    """The optimiser's name, or a factory such as ``torch.optim.RMSprop``.

    Names are ``"sgd"``, ``"momentum"``, ``"adam"`` and ``"adamw"``. By default it is the problem's
    first."""
    lr: float | None = None
    """The learning rate.

    By default it is the problem's for a named optimiser, and the factory's own for a factory."""
    parameter_groups: ParameterGroups | None = None
    """A function of the model that gives what the optimiser is made of.

    It gives groups of parameters with their options, or named parameters, as ``lambda model:
    model.named_parameters()`` does. By default all trained weights are one group."""
    clip_norm: float | None = None
    """The largest Euclidean norm of a round's gradient; a longer one is scaled down to it."""
    ema: float | None = None
    """The decay of an exponential moving average of weights and buffers, from 0 to 1.

    The average is evaluated in place of the weights and buffers."""
    chunk: int | None = None
    """For a problem, how many tasks are computed at once, which bounds the memory.

    By default all B are. Layers such as dropout then draw from a key for each chunk. ``Tasks`` have
    a chunk of their own."""
    schedule: str | ScheduleFactory | None = "constant"
    """How the learning rate changes from round to round.

    It is a name of ``optimizers.find_schedule``, or a schedule of torch that needs no metric."""
    precision: str = "float32"
    """``"float32"``, or ``"bfloat16"`` or ``"float16"``: torch's automatic mixed precision.

    With ``"float16"`` torch's ``GradScaler`` scales the loss, and a round whose gradient overflows
    moves no weights."""
    compile: bool = False
    """Whether ``torch.compile`` compiles the model and the loss."""
    graphs: bool = False
    """On CUDA, whether ``torch.compile`` captures the passes of a gradient as CUDA graphs.

    The kernels of a graph are launched together. It is the backend ``"cudagraphs"`` of
    ``torch.compile``, or with ``compile=True`` its mode ``"reduce-overhead"``."""
    device: str | torch.device = "cpu"
    """The device: ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.

    The data is moved there once."""
    seed: int = 0
    """The seed, which keys the initial weights and the gradients."""
    on_step: Callable[[int, float, Any], None] | None = None
    """A function that is called after each round.

    Its arguments are the number of rounds done, the loss of the round, and the trainer."""

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            # None is accepted only where it is the default.
            if value is not None or getattr(type(self), name) is not None:
                # The dataclass is frozen: this is how it sets its own fields.
                object.__setattr__(self, name, check(name, value))
        object.__setattr__(self, "device", find_device(self.device))
        if self.schedule is None:
            object.__setattr__(self, "schedule", "constant")
        find_precision(self.precision)
        find_schedule(self.schedule)
        for name in ("parameter_groups", "on_step"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise ValueError(f"{name} must be a function, not {getattr(self, name)!r}")
        if self.graphs and self.chunk is not None:
            raise ValueError(
                "graphs=True captures all tasks of a round at once: leave out chunk=...",
            )
        if self.graphs and torch.device(self.device).type != "cuda":
            raise ValueError(
                f"graphs=True needs a CUDA device, and this is {self.device}: leave it out, or use"
                ' device="cuda"',
            )

    def to_data(self) -> dict[str, Any]:
        """The settings that the trajectory depends on, as plain values.

        A factory is given by its name, a device by its type.
        """
        return {
            field.name: _plain(getattr(self, field.name))
            for field in fields(self)
            if field.name not in _NO_DATA
        }


_NO_DATA = {"model", "inplace", "on_step"}
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "micro_batch": whole_number,
    "lr": real,
    "inplace": flag,
    "clip_norm": real,
    "ema": partial(real, up_to=1.0),
    "chunk": whole_number,
    "compile": flag,
    "graphs": flag,
    "seed": partial(whole_number, least=0),
}


def _plain(value: Any) -> Any:
    if isinstance(value, torch.device):
        return value.type
    if callable(value):
        return factory_name(value)
    return value
