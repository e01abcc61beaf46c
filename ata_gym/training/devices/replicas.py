"""Copies of a trainer's model on devices, where single tasks are run and timed, and the measured times of workers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.training.devices.device import enough_memory, seeded
from ata_gym.training.devices.workers import Worker
from ata_gym.training.models import trained_weights
from ata_gym.training.trainer import Trainer
from ata_gym.typing import Floats

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
                states = [chain(model.parameters(), model.buffers()) for model in (self._copy, self._trainer.model)]
                for ours, theirs in zip(*states, strict=True):
                    ours.copy_(theirs)

    def run(self, task: int, work: int = 1, *, keep: bool = False) -> tuple[float, float]:
        """Run a task of the trainer's round, with the sample that it has there; its time in seconds, and its loss.

        Its gradient is computed ``work`` times; ``keep`` adds it to ``total``. A loss that is NaN or infinite raises
        ``FloatingPointError``.
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


def measure_times(
    trainer: Trainer, workers: Sequence[Worker], tasks: int, progress: Callable[[int], None] = lambda _done: None
) -> Floats:
    """Measure the task times of n workers in seconds, shape (n, tasks).

    Workers take turns, after a warm-up that is not recorded. The trainer's weights stay as they are: task j of every
    worker is task j of its first round. ``progress`` is called after every task with the number of tasks done. A loss
    that is NaN or infinite raises ``FloatingPointError``, a device without enough memory ``MemoryError``.

    >>> times = measure_times(Trainer("quadratic", budget=1), [Worker(work=1), Worker(work=2)], tasks=3)
    >>> times.shape, bool((times > 0).all())
    ((2, 3), True)
    """
    replicas = replicate(trainer, workers)
    times = np.empty((len(workers), tasks))
    for task in range(tasks):
        for i, worker in enumerate(workers):
            times[i, task], _ = replicas[worker.device].run(task, worker.work)
            progress(task * len(workers) + i + 1)
    return times


def autocorrelation(times: Floats) -> Floats:
    """The correlation of a worker's successive task times, shape (n,), from times (n, tasks); NaN if all are equal.

    >>> autocorrelation(np.array([[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]])).round(3)
    array([-0.833])
    """
    centred = times - times.mean(1, keepdims=True)
    with np.errstate(invalid="ignore"):  # times that are all the same
        correlation: Floats = (centred[:, 1:] * centred[:, :-1]).sum(1) / (centred**2).sum(1)
    return correlation


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
