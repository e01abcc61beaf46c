"""The code in the process of a worker.

It runs one task at a time, and a second thread in which a round can be cancelled. It imports Ray
where it needs it, since drivers and task functions import this file too.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from ata_gym.typing import Worker
from ata_gym.utils.trees import finite

Task = Callable[[Any, int], Any]
"""A function that computes the value of a sample.

It is called with the payload of the round and the sample's index."""
MakeTask = Callable[[Worker], Task]
"""A function that is called once in each actor, with the worker's name."""
# The concurrency group whose thread cancels; the thread of Ray's default group runs tasks only.
CONTROL = "control"
Running = tuple[int, int, float]
"""The task that an actor runs: the stamp of its round, its sample, and its seconds so far."""

_here: "TaskActor | None" = None
"""The actor in this process."""


def cancelled() -> bool:
    """Whether the round of the calling task is over, so that its result is not needed any more.

    Ray does not interrupt a task that runs in an actor, and the worker is not free before it ends.
    A long task of a race should ask between its steps, and return anything as soon as this is True.
    Outside of an actor it is False.

    Example:
        >>> cancelled()
        False
    """
    return _here is not None and _here.task_is_over()


class TaskActor:
    """The actor of a worker.

    ``run`` is called in one thread, one call after the other, ``cancel`` in another.
    """

    def __init__(self) -> None:
        # A process has one actor.
        global _here  # noqa: PLW0603
        _here = self
        self._task: Task | None = None
        self._payload: tuple[int, Any] = (-1, None)
        self._lock = threading.Lock()
        # The stamp of the round, the sample and the start of the running task.
        self._now: tuple[int, int, float] | None = None
        # Rounds up to this stamp are over.
        self._over = -1

    def begin(self, make_task: MakeTask, worker: Worker, finite_only: bool) -> None:
        """Make the task function, in the thread that will call it.

        Args:
            make_task: Makes the task function.
            worker: The worker's name.
            finite_only: Whether the values of tasks must be finite.
        """
        self._worker = worker
        self._finite_only = finite_only
        self._task = make_task(worker)

    def run(self, stamp: int, sample: int, payload: list[Any]) -> tuple[float | None, Any]:
        """Run a task.

        Args:
            stamp: The stamp of its round.
            sample: The index of its sample.
            payload: A reference to the payload of the round, or nothing. It is read once for all
                tasks of a round, before the time of the first task begins.

        Returns:
            The task time and the value; None and None if the round was over before the task began.

        Raises:
            FloatingPointError: For a value that is not finite, if it must be.
        """
        if self._task is None:
            raise RuntimeError("begin was not called")
        if self._payload[0] != stamp and stamp > self._over:
            # Only here, since files without Ray import this module.
            import ray  # noqa: PLC0415

            self._payload = stamp, ray.get(payload[0]) if payload else None
        with self._lock:
            if stamp <= self._over:
                return None, None
            start = time.perf_counter()
            self._now = stamp, sample, start
        try:
            value = self._task(self._payload[1], sample)
        finally:
            seconds = time.perf_counter() - start
            with self._lock:
                self._now = None
        if self._finite_only and stamp > self._over and not finite(value):
            raise FloatingPointError(
                f"worker {self._worker!r} computed a value for sample {sample} that is not finite; "
                "allow_nonfinite=True lets such values through",
            )
        return seconds, value

    def cancel(self, stamp: int) -> Running | None:
        """End the rounds up to a stamp, and return the running task.

        Queued tasks of these rounds do not begin.
        """
        with self._lock:
            self._over = max(self._over, stamp)
            if self._now is None:
                return None
            running_stamp, sample, start = self._now
            return running_stamp, sample, time.perf_counter() - start

    def task_is_over(self) -> bool:
        """Whether a task runs whose round is over."""
        running = self._now
        return running is not None and running[0] <= self._over
