"""Workers on real devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ata_gym.training.devices.device import find_device
from ata_gym.utils.validation import whole_number


@dataclass(frozen=True)
class Worker:
    """A device, and how often it computes the gradient of each of its tasks, so that some workers are slower.

    Raises
    ------
    ValueError
        If there is no such device, or ``work`` is not a whole number from 1 on.

    Examples
    --------
    >>> Worker("cpu", work=3) == Worker.parse("cpu:3")
    True
    """

    device: str = "cpu"
    """``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``."""
    work: int = 1
    """How often the gradient of a task is computed; once is enough for the result."""

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
    """The workers of a list, or of a text such as ``"cpu:1,cpu:2"``; ValueError if there is none, or one is wrong.

    >>> [str(worker) for worker in find_workers("cpu, cpu:2")]
    ['cpu:1', 'cpu:2']
    """
    listed = [part for part in workers.split(",") if part.strip()] if isinstance(workers, str) else workers
    if not listed:
        raise ValueError('name at least one worker, such as workers=["cpu:1", "cpu:2"]')
    return tuple(worker if isinstance(worker, Worker) else Worker.parse(worker) for worker in listed)
