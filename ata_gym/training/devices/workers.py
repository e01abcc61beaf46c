"""Workers on real devices, whose tasks are run and timed there."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ata_gym.models.device import current_device, find_device, synchronize
from ata_gym.models.memory import enough_memory
from ata_gym.models.model import model_state, restore_state, trained_weights
from ata_gym.models.seeds import seeded
from ata_gym.models.stopwatch import Stopwatch
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number

# A device runs so many tasks untimed at first: libraries load, memory is reserved, caches fill.
WARM_UP_TASKS = 5

_TASK = "a single task"

Parts = Sequence[Tensor | None]
"""The parts of a ``Gradient``."""


@dataclass(frozen=True)
class DeviceWorker:
    """A device, and how often it computes the gradient of each of its tasks.

    A worker that computes each gradient several times is a slower worker.

    Raises:
        ValueError: If there is no such device, or ``work`` is not a whole number from 1 on.

    Example:
        >>> DeviceWorker("cpu", work=3) == DeviceWorker.parse("cpu:3")
        True
    """

    device: str = "cpu"
    """The device: ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``."""
    work: int = 1
    """How often the gradient of a task is computed; once is enough for the result."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", str(find_device(self.device)))
        object.__setattr__(self, "work", whole_number("work", self.work))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read DEVICE or DEVICE:WORK.

        Examples are "cpu", "cpu:3", "cuda:1" (the second GPU) and "cuda:1:3".

        Raises:
            ValueError: If the text has another form, or there is no such device.
        """
        name, *numbers = str(text).strip().split(":")
        # After "cuda" the first number is the index of the device.
        index = numbers[: name == "cuda"]
        work = numbers[len(index) :]
        if (
            not isinstance(text, str)
            or len(work) > 1
            or not all(number.isdecimal() for number in numbers)
        ):
            raise ValueError(
                f'a worker is DEVICE or DEVICE:WORK, such as "cpu:3" or "cuda:0:3", not {text!r}',
            )
        device = ":".join([name, *index])
        if work:
            return cls(device, int(work[0]))
        return cls(device, 1)

    def __str__(self) -> str:
        return f"{self.device}:{self.work}"


def find_workers(workers: str | Sequence[DeviceWorker | str] | None) -> tuple[DeviceWorker, ...]:
    """The workers of a list, or of a text such as ``"cpu:1,cpu:2"``.

    Raises:
        ValueError: If there is no worker, or one is wrong.
    """
    listed: Sequence[DeviceWorker | str] | None
    if isinstance(workers, str):
        listed = [part for part in workers.split(",") if part.strip()]
    else:
        listed = workers
    if not listed:
        raise ValueError('name at least one worker, such as workers=["cpu:1", "cpu:2"]')
    return tuple(
        worker if isinstance(worker, DeviceWorker) else DeviceWorker.parse(worker)
        for worker in listed
    )


class Replica:
    """A trainer's model and data on a device, which runs single tasks.

    On the trainer's own device the model is the trainer's, elsewhere a copy; the data is copied
    once.
    """

    def __init__(self, trainer: Trainer, device: torch.device) -> None:
        self._trainer = trainer
        self._device = device
        self._watch = Stopwatch(device)
        with enough_memory(device, _TASK), seeded(trainer.layer_key(0), device):
            same_device = device == trainer.device
            if same_device:
                self._problem = trainer.problem
            else:
                self._problem = trainer.problem.to(device)
            if same_device:
                self._copy = None
            else:
                self._copy = copy.deepcopy(trainer.model).to(device)
            spare_model = copy.deepcopy(self._model)
            for _ in range(WARM_UP_TASKS):
                self._gradient(spare_model, trainer.draw(self._problem, [0]))
            synchronize(device)
        self.begin()

    @property
    def _model(self) -> nn.Module:
        if self._copy is None:
            return self._trainer.model
        return self._copy

    def begin(self) -> None:
        """Begin a round with the trainer's weights on the device, and without kept gradients."""
        self._total: Parts = [None] * len(trained_weights(self._model))
        if self._copy is not None:
            restore_state(self._copy, model_state(self._trainer.model))

    def run(
        self,
        task: int,
        work: int = 1,
        worker_tasks: Ints | None = None,
        *,
        keep: bool = False,
    ) -> tuple[float, float]:
        """Run a task of the trainer's round.

        Args:
            task: The place of the task in the round.
            work: How many times its gradient is computed.
            worker_tasks: 1 for the task's worker and 0 for the others, shape (n,).
            keep: Whether its gradient is added to ``total``.

        Returns:
            The task's time in seconds, and its loss.

        Raises:
            FloatingPointError: For a loss that is NaN or infinite.
        """
        with enough_memory(self._device, _TASK):
            with seeded(self._trainer.layer_key(task), self._device):
                batch = self._trainer.draw(self._problem, [task], worker_tasks)
                synchronize(self._device)
                start = self._watch.mark()
                loss, gradient = self._gradient(self._model, batch)
                for _ in range(work - 1):
                    self._gradient(self._model, batch)
                seconds = self._watch.seconds(start, self._watch.mark())
            if keep:
                self._total = add(self._total, gradient)
            # Work that still runs would disturb the next task, on another device.
            synchronize(self._device)
        return seconds, self._trainer.finite(loss.item())

    def total(self, device: torch.device) -> Parts:
        """The sum of the kept gradients of the round, moved to a device."""
        return [None if part is None else part.to(device) for part in self._total]

    def _gradient(self, model: nn.Module, batch: Any) -> tuple[Tensor, Parts]:
        with current_device(self._device):
            loss = self._trainer.losses(self._problem, model, batch, 1)[0]
            return loss, torch.autograd.grad(loss, trained_weights(model), allow_unused=True)


def replicate(trainer: Trainer, workers: Iterable[DeviceWorker]) -> dict[str, Replica]:
    """A replica for each device that the workers name."""
    names = dict.fromkeys(worker.device for worker in workers)
    return {name: Replica(trainer, torch.device(name)) for name in names}


def scaled(parts: Parts, factor: float) -> Parts:
    """A gradient times a number."""
    return [part if part is None else factor * part for part in parts]


def add(left: Parts, right: Parts) -> Parts:
    """The sum of two gradients on the same device."""
    return [_added(a, b) for a, b in zip(left, right, strict=True)]


def _added(left: torch.Tensor | None, right: torch.Tensor | None) -> torch.Tensor | None:
    if left is None:
        return right
    if right is None:
        return left
    return left + right


def measure_times(
    trainer: Trainer,
    workers: Sequence[DeviceWorker],
    tasks: int,
    progress: Callable[[int], None] = lambda _done: None,
) -> Floats:
    """Measure the task times of n workers in seconds, shape (n, tasks).

    Workers take turns, after a warm-up that is not recorded. The trainer's weights stay as they
    are: task j of every worker is task j of the trainer's first round.

    Args:
        trainer: The trainer whose gradients are computed.
        workers: The n workers.
        tasks: The number of tasks of each worker.
        progress: Called with the number of tasks done.
    """
    replicas = replicate(trainer, workers)
    times = np.empty((len(workers), tasks))
    for task in range(tasks):
        for i, worker in enumerate(workers):
            times[i, task], _ = replicas[worker.device].run(task, worker.work)
            progress(task * len(workers) + i + 1)
    return times
