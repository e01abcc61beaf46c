"""Workers on real devices, whose tasks are run and timed there."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.training.models.device import Stopwatch, current, enough_memory, find_device, seeded
from ata_gym.training.models.model import put_back, state_of, trained_weights
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number

WARM_UP = 5  # tasks that a device runs untimed at first, as libraries load, memory is reserved and caches fill

_TASK = "a single task"

Parts = Sequence[Tensor | None]  # the parts of a ``Gradient``


@dataclass(frozen=True)
class Worker:
    """A device, and how often it computes the gradient of each of its tasks, so that some workers are slower.

    ValueError if there is no such device, or ``work`` is not a whole number from 1 on.

    >>> Worker("cpu", work=3) == Worker.parse("cpu:3")
    True
    """

    device: str = "cpu"  # ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``
    work: int = 1  # how often the gradient of a task is computed; once is enough for the result

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", str(find_device(self.device)))
        object.__setattr__(self, "work", whole_number("work", self.work))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read DEVICE or DEVICE:WORK, such as "cpu", "cpu:3", "cuda:1" (the second GPU) or "cuda:1:3"."""
        name, *numbers = str(text).strip().split(":")
        index = numbers[: name == "cuda"]
        work = numbers[len(index) :]
        if not isinstance(text, str) or len(work) > 1 or not all(number.isdecimal() for number in numbers):
            raise ValueError(f'a worker is DEVICE or DEVICE:WORK, such as "cpu:3" or "cuda:0:3", not {text!r}')
        return cls(":".join([name, *index]), int(work[0]) if work else 1)

    def __str__(self) -> str:
        return f"{self.device}:{self.work}"


def find_workers(workers: str | Sequence[Worker | str] | None) -> tuple[Worker, ...]:
    """The workers of a list, or of a text such as ``"cpu:1,cpu:2"``; ValueError if there is none, or one is wrong."""
    listed = [part for part in workers.split(",") if part.strip()] if isinstance(workers, str) else workers
    if not listed:
        raise ValueError('name at least one worker, such as workers=["cpu:1", "cpu:2"]')
    return tuple(worker if isinstance(worker, Worker) else Worker.parse(worker) for worker in listed)


class Replica:
    """A trainer's model and data on a device, which runs single tasks.

    On the trainer's own device the model is the trainer's, elsewhere a copy; the data is copied once.
    """

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        self._trainer, self._device, self._watch = trainer, device, Stopwatch(device)
        with enough_memory(device, _TASK), seeded(trainer.layer_key(0), device):
            at_home = device == trainer.device
            self._problem = trainer.problem if at_home else trainer.problem.to(device)
            self._copy = None if at_home else copy.deepcopy(trainer.model).to(device)
            spare = copy.deepcopy(self._model)
            for _ in range(WARM_UP):
                self._gradient(spare, trainer.draw(self._problem, [0]))
            settle(device)
        self.begin()

    @property
    def _model(self) -> nn.Module:
        return self._trainer.model if self._copy is None else self._copy

    def begin(self) -> None:
        """Begin a round: copy the trainer's weights to the device, and set the sum of gradients to 0."""
        self._total: Parts = [None] * len(trained_weights(self._model))
        if self._copy is not None:
            put_back(self._copy, state_of(self._trainer.model))

    def run(self, task: int, work: int = 1, by: Ints | None = None, *, keep: bool = False) -> tuple[float, float]:
        """Run a task of the trainer's round, ``work`` times over; its time in seconds, and its loss.

        ``by``, shape (n,), is 1 for its worker and else 0. ``keep`` adds its gradient to ``total``. It raises
        FloatingPointError for a loss that is NaN or infinite.
        """
        with enough_memory(self._device, _TASK):
            with seeded(self._trainer.layer_key(task), self._device):
                batch = self._trainer.draw(self._problem, [task], by)
                settle(self._device)
                begun = self._watch.mark()
                loss, gradient = self._gradient(self._model, batch)
                for _ in range(work - 1):
                    self._gradient(self._model, batch)
                seconds = self._watch.seconds(begun, self._watch.mark())
            if keep:
                self._total = add(self._total, gradient)
            settle(self._device)  # or the next task, on another device, would be disturbed
        return seconds, self._trainer.finite(loss.item())

    def total(self, device: torch.device) -> Parts:
        """The sum of the kept gradients of the round, moved to a device."""
        return [None if part is None else part.to(device) for part in self._total]

    def _gradient(self, model: nn.Module, batch: Any) -> tuple[Tensor, Parts]:
        with current(self._device):
            loss = self._trainer.losses(self._problem, model, batch, 1)[0]
            return loss, torch.autograd.grad(loss, trained_weights(model), allow_unused=True)


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
    worker is task j of its first round. ``progress`` is called with the number of tasks done.
    """
    replicas = replicate(trainer, workers)
    times = np.empty((len(workers), tasks))
    for task in range(tasks):
        for i, worker in enumerate(workers):
            times[i, task], _ = replicas[worker.device].run(task, worker.work)
            progress(task * len(workers) + i + 1)
    return times


def settle(device: torch.device) -> None:
    """Wait until a device is idle."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
