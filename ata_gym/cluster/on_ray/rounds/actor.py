"""The code in the process of a worker.

It runs one task at a time, and a second thread in which a round can be cancelled. It imports Ray
where it needs it, since drivers and task functions import this file too.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ata_gym.typing import Worker
from ata_gym.utils.trees import finite

Task = Callable[[Any, int], Any]
"""A function that computes the value of a sample.

It is called with the payload of the round and the sample's index."""
MakeTask = Callable[[Worker], Task]
"""A function that is called once in each actor, with the worker's name."""
# The concurrency group whose thread cancels; the thread of Ray's default group runs tasks only.
CONTROL = "control"


class RunningTask(NamedTuple):
    """The task that an actor runs."""

    stamp: int
    """The stamp of its round."""
    sample: int
    seconds: float
    """The seconds that it has run so far."""


class _StartedTask(NamedTuple):
    stamp: int
    sample: int
    start: float
    """When it began, by the clock of ``perf_counter``."""


_process_actor: "TaskActor | None" = None
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
    return _process_actor is not None and _process_actor.task_is_over()


class TaskActor:
    """The actor of a worker.

    ``run`` is called in one thread, one call after the other, ``cancel`` in another.
    """

    def __init__(self) -> None:
        # A process has one actor.
        global _process_actor  # noqa: PLW0603
        _process_actor = self
        self._task: Task | None = None
        self._payload: tuple[int, Any] = (-1, None)
        self._lock = threading.Lock()
        self._running: _StartedTask | None = None
        # Rounds up to this stamp are over.
        self._ended_stamp = -1

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
        if self._payload[0] != stamp and stamp > self._ended_stamp:
            # Only here, since files without Ray import this module.
            import ray  # noqa: PLC0415

            self._payload = stamp, ray.get(payload[0]) if payload else None
        with self._lock:
            if stamp <= self._ended_stamp:
                return None, None
            start = time.perf_counter()
            self._running = _StartedTask(stamp, sample, start)
        try:
            value = self._task(self._payload[1], sample)
        finally:
            seconds = time.perf_counter() - start
            with self._lock:
                self._running = None
        if self._finite_only and stamp > self._ended_stamp and not finite(value):
            raise FloatingPointError(
                f"worker {self._worker!r} computed a value for sample {sample} that is not finite; "
                "allow_nonfinite=True lets such values through",
            )
        return seconds, value

    def cancel(self, stamp: int) -> RunningTask | None:
        """End the rounds up to a stamp, and return the running task.

        Queued tasks of these rounds do not begin.
        """
        with self._lock:
            self._ended_stamp = max(self._ended_stamp, stamp)
            running = self._running
            if running is None:
                return None
            return RunningTask(running.stamp, running.sample, time.perf_counter() - running.start)

    def task_is_over(self) -> bool:
        """Whether a task runs whose round is over."""
        running = self._running
        return running is not None and running.stamp <= self._ended_stamp
