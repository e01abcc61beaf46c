"""Copies of a trainer's model on devices, where single tasks are run and timed."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from ata_gym.training.devices.device import enough_memory, seeded
from ata_gym.training.devices.workers import Worker
from ata_gym.training.models import trained_weights
from ata_gym.training.trainer import Trainer

WARM_UP = 5
"""Tasks that a device runs untimed at first, as libraries load, memory is reserved and caches fill."""

_TASK = "a single task"
R = TypeVar("R")

Parts = Sequence[Tensor | None]
"""The parts of a ``Gradient``: one for each of the model's trained weights."""


class Replica:
    """A trainer's model and data on a device, which runs single tasks.

    On the trainer's own device the model is the trainer's, elsewhere a copy; the data is copied once. From here on
    ``MemoryError`` is raised if the device has not enough memory.
    """

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        self._trainer, self._device = trainer, device
        with enough_memory(device, _TASK), seeded(trainer.layer_key(0), device):
            at_home = device == trainer.device
            self._problem = trainer.problem if at_home else trainer.problem.to(device)
            self._copy = None if at_home else copy.deepcopy(trainer.model).to(device)
            spare = copy.deepcopy(self._model)
            timed(device, lambda: [self._gradient(spare, 0) for _ in range(WARM_UP)])
        self.begin()

    @property
    def _model(self) -> nn.Module:
        return self._trainer.model if self._copy is None else self._copy

    def begin(self) -> None:
        """Begin a round: copy the trainer's weights to the device, and set the sum of gradients to 0."""
        self._total: Parts = [None] * len(trained_weights(self._model))
        if self._copy is not None:
            with torch.no_grad():
                for ours, theirs in zip(_state(self._copy), _state(self._trainer.model), strict=True):
                    ours.copy_(theirs)

    def run(self, task: int, work: int = 1, *, keep: bool = False) -> tuple[float, float]:
        """Run a task of the trainer's round; return the seconds that it took, and its loss.

        Parameters
        ----------
        task
            Its number in the round; it has the sample that it has in a ``Trainer``.
        work
            How often its gradient is computed.
        keep
            Whether its gradient is added to ``total``.

        Raises
        ------
        FloatingPointError
            If the loss is NaN or infinite.
        """

        def compute() -> tuple[Tensor, Parts]:
            first = self._gradient(self._model, task)
            for _ in range(work - 1):
                self._gradient(self._model, task)
            return first

        with enough_memory(self._device, _TASK):
            with seeded(self._trainer.layer_key(task), self._device):
                seconds, (loss, gradient) = timed(self._device, compute)
            if keep:
                self._total = add(self._total, gradient)
            settle(self._device)  # or the next task, on another device, would be disturbed
        return seconds, self._trainer.finite(loss.item())

    def total(self, device: torch.device) -> Parts:
        """The sum of the kept gradients of the round, moved to a device."""
        return [None if part is None else part.to(device) for part in self._total]

    def _gradient(self, model: nn.Module, task: int) -> tuple[Tensor, Parts]:
        losses = self._trainer.losses(self._problem, model, [task])
        return losses[0], torch.autograd.grad(losses[0], trained_weights(model), allow_unused=True)


def replicate(trainer: Trainer, workers: Iterable[Worker]) -> dict[str, Replica]:
    """A replica for each device that the workers name."""
    names = dict.fromkeys(worker.device for worker in workers)
    return {name: Replica(trainer, torch.device(name)) for name in names}


def add(left: Parts, right: Parts) -> Parts:
    """The sum of two gradients on the same device."""
    return [a if b is None else b if a is None else a + b for a, b in zip(left, right, strict=True)]


def timed(device: torch.device, call: Callable[[], R]) -> tuple[float, R]:
    """The seconds that a call takes on a device, until the device is idle again, and its result."""
    if device.type != "cuda":
        start = time.perf_counter()
        given = call()
        return time.perf_counter() - start, given
    settle(device)
    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        given = call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3, given


def settle(device: torch.device) -> None:
    """Wait until a device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _state(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
