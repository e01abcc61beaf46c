"""The code in the process of a worker: one task at a time, and a second thread in which a round can be cancelled.

It imports Ray where it needs it, since drivers and task functions import this file too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ata_gym.typing import Worker
from ata_gym.utils.trees import finite

Task = Callable[[Any, int], Any]
"""Computes the value of a sample: called with the payload of the round and the sample's index."""
MakeTask = Callable[[Worker], Task]  # called once in each actor, with the worker's name
CONTROL = "control"  # the concurrency group whose thread cancels; the thread of Ray's default group runs tasks only


class Running(NamedTuple):
    """The task that an actor runs."""

    stamp: int  # the stamp of its round
    sample: int
    seconds: float


class _Process:
    """The state of the task that a process runs; the two threads of its actor share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: tuple[int, int, float] | None = None
        self._cancelled = -1  # rounds up to this stamp are over

    def begin(self, stamp: int, sample: int) -> bool:
        """Begin a task now, and return True; False, and no task begins, if its round is over."""
        with self._lock:
            if self.over(stamp):
                return False
            self._now = stamp, sample, time.perf_counter()
            return True

    def end(self) -> float:
        """End the running task, and return its time in seconds."""
        end = time.perf_counter()
        with self._lock:
            begun = 0.0 if self._now is None else self._now[2]
            self._now = None
        return end - begun

    def cancel(self, stamp: int) -> Running | None:
        """End the rounds up to a stamp, and return the running task."""
        with self._lock:
            self._cancelled = max(self._cancelled, stamp)
            if self._now is None:
                return None
            own, sample, begun = self._now
            return Running(own, sample, time.perf_counter() - begun)

    def over(self, stamp: int) -> bool:
        """Whether the round with this stamp is over."""
        return stamp <= self._cancelled

    def cancelled(self) -> bool:
        """Whether a task runs whose round is over."""
        now = self._now
        return now is not None and self.over(now[0])


_PROCESS = _Process()


def cancelled() -> bool:
    """Whether the round of the calling task is over, so that its result is not needed any more.

    Ray does not interrupt a task that runs in an actor, and the worker is not free before it ends. A long task of a
    race should ask between its steps, and return anything as soon as this is True. Outside of an actor it is False.

    >>> cancelled()
    False
    """
    return _PROCESS.cancelled()


def checked(make_task: MakeTask) -> MakeTask:
    """A ``make_task`` whose tasks raise FloatingPointError if a value that is needed holds NaN or an infinity."""

    def make_checked(worker: Worker) -> Task:
        task = make_task(worker)

        def run(payload: Any, index: int) -> Any:
            value = task(payload, index)
            if not cancelled() and not finite(value):
                raise FloatingPointError(
                    f"worker {worker!r} computed a value for sample {index} that is not finite; "
                    "allow_nonfinite=True lets such values through"
                )
            return value

        return run

    return make_checked


class TaskActor:
    """The actor of a worker. ``run`` is called in one thread, one call after the other, ``cancel`` in another."""

    def __init__(self) -> None:
        self._task: Task | None = None
        self._payload: tuple[int, Any] = (-1, None)

    def begin(self, make_task: MakeTask, worker: Worker) -> None:
        """Make the task function, in the thread that will call it."""
        self._task = make_task(worker)

    def run(self, stamp: int, sample: int, payload: list[Any]) -> tuple[float | None, Any]:
        """Return the time of a task and its value; None and None if its round was over before it began.

        ``payload`` holds a reference to the payload of the round, or nothing. It is read once for all tasks of a round,
        before the time of the first task begins.
        """
        if self._task is None:
            raise RuntimeError("begin was not called")
        if self._payload[0] != stamp and not _PROCESS.over(stamp):
            self._payload = stamp, _fetched(payload)
        if not _PROCESS.begin(stamp, sample):
            return None, None
        try:
            value = self._task(self._payload[1], sample)
        finally:
            seconds = _PROCESS.end()
        return seconds, value

    def cancel(self, stamp: int) -> Running | None:
        """End the rounds up to a stamp, so that their queued tasks do not begin, and return the running task."""
        return _PROCESS.cancel(stamp)


def _fetched(payload: list[Any]) -> Any:
    """The object of the reference in a list; None if the list is empty."""
    if not payload:
        return None
    import ray  # noqa: PLC0415 - here only, see above

    return ray.get(payload[0])
