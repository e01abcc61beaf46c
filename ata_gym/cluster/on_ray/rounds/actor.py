"""The code in the process of a worker: one task at a time, and a second thread in which a round can be cancelled.

It imports Ray where it needs it, since drivers and task functions import this file too.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from ata_gym.typing import Worker
from ata_gym.utils.trees import finite

Task = Callable[[Any, int], Any]
"""Computes the value of a sample: called with the payload of the round and the sample's index."""
MakeTask = Callable[[Worker], Task]  # called once in each actor, with the worker's name
CONTROL = "control"  # the concurrency group whose thread cancels; the thread of Ray's default group runs tasks only
Running = tuple[int, int, float]
"""The task that an actor runs: the stamp of its round, its sample, and its seconds so far."""

_here: "TaskActor | None" = None  # the actor in this process


def cancelled() -> bool:
    """Whether the round of the calling task is over, so that its result is not needed any more.

    Ray does not interrupt a task that runs in an actor, and the worker is not free before it ends. A long task of a
    race should ask between its steps, and return anything as soon as this is True. Outside of an actor it is False.

    >>> cancelled()
    False
    """
    return _here is not None and _here.task_is_over()


class TaskActor:
    """The actor of a worker. ``run`` is called in one thread, one call after the other, ``cancel`` in another."""

    def __init__(self) -> None:
        global _here  # noqa: PLW0603 - a process has one actor
        _here = self
        self._task: Task | None = None
        self._payload: tuple[int, Any] = (-1, None)
        self._lock = threading.Lock()
        self._now: tuple[int, int, float] | None = None  # stamp, sample and start of the running task
        self._over = -1  # rounds up to this stamp are over

    def begin(self, make_task: MakeTask, worker: Worker, finite_only: bool) -> None:
        """Make the task function, in the thread that will call it; its values must be finite if ``finite_only``."""
        self._worker, self._finite_only = worker, finite_only
        self._task = make_task(worker)

    def run(self, stamp: int, sample: int, payload: list[Any]) -> tuple[float | None, Any]:
        """Return the time of a task and its value; None and None if its round was over before it began.

        ``payload`` holds a reference to the payload of the round, or nothing. It is read once for all tasks of a round,
        before the time of the first task begins.
        """
        if self._task is None:
            raise RuntimeError("begin was not called")
        if self._payload[0] != stamp and stamp > self._over:
            import ray  # noqa: PLC0415 - here only, see above

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
                "allow_nonfinite=True lets such values through"
            )
        return seconds, value

    def cancel(self, stamp: int) -> Running | None:
        """End the rounds up to a stamp, so that their queued tasks do not begin, and return the running task."""
        with self._lock:
            self._over = max(self._over, stamp)
            if self._now is None:
                return None
            own, sample, start = self._now
            return own, sample, time.perf_counter() - start

    def task_is_over(self) -> bool:
        """Whether a task runs whose round is over."""
        now = self._now
        return now is not None and now[0] <= self._over
