"""The workers of a run as Ray actors.

A group says which of them are present, why others are away, and which event comes next.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, NamedTuple

from ata_gym.cluster.on_ray.connection import connect_ray
from ata_gym.cluster.on_ray.rounds.actor import CONTROL, MakeTask, RunningTask, TaskActor
from ata_gym.cluster.on_ray.rounds.deadlines import Deadlines
from ata_gym.cluster.on_ray.rounds.worker_actor import SentTask, WorkerActor, with_options
from ata_gym.typing import Worker
from ata_gym.utils.extras import require
from ata_gym.utils.validation import flag, real, short, whole_number

_LOG = logging.getLogger("ata_gym.cluster")

_REPLY_WITHIN = 0.1
"""The seconds within which an actor says how long its cancelled task has run.

If its code holds the interpreter for longer, the clock of the driver counts, which began when the
task was sent."""
_LONGEST_PAUSE = 60.0
"""The longest pause, in seconds, before a new actor replaces a lost one."""
_LOOK_AGAIN = 10.0
"""The seconds between two looks at the nodes of the cluster.

The group looks while actors take longer to start than ``start_timeout``."""


class WorkerReady(NamedTuple):
    """A worker can start tasks: its actor has started, or has ended a task of an earlier round."""

    worker: Worker


class TaskResult(NamedTuple):
    """The result of a task."""

    task: SentTask
    seconds: float
    value: Any


class TaskFailure(NamedTuple):
    """A task function raised an error."""

    task: SentTask
    error: Exception


class WorkerLoss(NamedTuple):
    """A worker's actor is given up."""

    worker: Worker
    tasks: tuple[SentTask, ...]
    """The tasks that it had not answered, in the order of their starts."""
    seconds: float
    """The seconds that the first of them had run, by the clock of the driver."""


Event = WorkerReady | TaskResult | TaskFailure | WorkerLoss


class ActorGroup:
    """The actors of the workers.

    The keywords are as for ``RayRunner``; ``workers`` are options by name.

    An actor that dies, or gives no answer within the deadline, is killed. Ray can restart actors
    too (``max_restarts``), but not one that hangs, and under the same handle. Here each new actor
    has a handle of its own, so that an answer of the old actor is never taken for one of the new
    actor. Ray decides where and when a new actor is placed, by the options of the worker.
    """

    def __init__(
        self,
        make_task: MakeTask,
        workers: Mapping[Worker, Mapping[str, Any]],
        *,
        deadline: float | str | None,
        restarts: int,
        start_timeout: float,
        allow_nonfinite: bool,
    ) -> None:
        self._ray = require("ray", extra="cluster", purpose="A group of Ray actors")
        if not callable(make_task):
            expected = "a function that makes a task function"
            raise ValueError(f"make_task must be {expected}, not {short(make_task)}")  # noqa: TRY004
        self._deadlines = Deadlines(deadline)
        self._start_timeout = real("start_timeout", start_timeout)
        self._restarts = whole_number("restarts", restarts, least=0)
        finite_only = not flag("allow_nonfinite", allow_nonfinite)
        self._class = self._ray.remote(concurrency_groups={CONTROL: 1})(TaskActor)
        self.workers = {
            name: WorkerActor(name, options, self._class) for name, options in workers.items()
        }
        connect_ray(log_to_driver=True)
        self._start_arguments = self._ray.put(make_task), finite_only
        self._stamp = 0
        self._wasted: dict[Worker, float] = defaultdict(float)
        for worker in self.workers.values():
            worker.launch(*self._start_arguments)
        self._gather_until = time.monotonic() + self._start_timeout

    @property
    def present(self) -> tuple[Worker, ...]:
        """The workers that are present."""
        return tuple(name for name, worker in self.workers.items() if not worker.absence)

    @property
    def starts(self) -> dict[Worker, int]:
        """How many actors each present worker has had."""
        return {name: self.workers[name].starts for name in self.present}

    @property
    def away(self) -> dict[Worker, str]:
        """The workers that are away, and why."""
        return {name: worker.absence for name, worker in self.workers.items() if worker.absence}

    def add(self, name: Worker, options: Mapping[str, Any] | None) -> None:
        """Add a worker, or take one back; without options it has its earlier options.

        Raises:
            ValueError: If it has not left.
        """
        previous = self.workers.get(name)
        if previous is not None and (previous.actor is not None or previous.launch_time < inf):
            raise ValueError(f"worker {name!r} has not left")
        if options is None:
            options = {}
            if previous is not None:
                options = previous.options
        ((name, worker_options),) = with_options({name: options}).items()
        worker = WorkerActor(name, worker_options, self._class)
        if previous is not None:
            worker.starts = previous.starts
        worker.launch(*self._start_arguments)
        self.workers[name] = worker

    def remove(self, name: Worker) -> None:
        """Remove a worker.

        Raises:
            ValueError: If there is none of that name.
        """
        if name not in self.workers:
            raise ValueError(
                f"there is no worker {short(name)}; there are {short(list(self.workers))}",
            )
        self.workers[name].give_up(self._ray, "it has left")

    def close(self) -> None:
        """Kill all actors, unless Ray has been shut down."""
        if self._ray.is_initialized():
            for worker in self.workers.values():
                worker.give_up(self._ray, "the run is over")

    def begin_round(self, payload: Any) -> tuple[int, list[Any]]:
        """The stamp and the payload of a new round.

        No other round has the stamp, even if a round is played again. The payload is a list of one
        reference in Ray's object store, so that Ray hands the reference on as it is, or an empty
        list.
        """
        self._stamp += 1
        return self._stamp, [] if payload is None else [self._ray.put(payload)]

    def gather(self) -> None:
        """Take note of what happened since the last round, and wait until a worker is present.

        Within the ``start_timeout`` after the start, wait for all workers.

        Raises:
            RuntimeError: If none comes.
        """
        while self.next(0.0) is not None:
            pass
        while self._starting() and (seconds := self._gather_until - time.monotonic()) > 0.0:
            self.next(seconds)
        self._gather_until = -inf
        self.wait_for_worker()

    def wait_for_worker(self) -> None:
        """Wait until a worker is present, as long as an actor is starting.

        Raises:
            RuntimeError: If no actor is starting, or, after ``start_timeout``, if no node of the
                cluster is large enough for any of the actors.
        """
        start = time.monotonic()
        next_look = start + self._start_timeout
        while not self.present:
            starting = self._starting()
            late_text = ""
            now = time.monotonic()
            if starting and now >= next_look:
                next_look = now + _LOOK_AGAIN
                late_text = f" after {now - start:.3g} s"
                nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
                starting = [worker for worker in starting if any(map(worker.fits, nodes))]
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.away.items())
            if not starting:
                if late_text:
                    detail = f"{late_text}, and no node has what their actors ask for"
                else:
                    detail = ""
                raise RuntimeError(f"no worker is there{detail} ({reasons})")
            if late_text:
                _LOG.warning(
                    "no worker is there%s, and actors are still starting (%s)",
                    late_text,
                    reasons,
                )
            self.next(next_look - now)

    def cancel(
        self,
        stamp: int,
        workers: Iterable[Worker],
        wait: bool = True,
    ) -> dict[Worker, float]:
        """End the rounds up to a stamp at some workers.

        A running task goes on until it ends, unless it asks ``cancelled()``; its result will be
        dropped.

        Args:
            stamp: The stamp of the last round that ends.
            workers: The workers.
            wait: Whether to wait for their answers.

        Returns:
            How long the running task of each has run, in seconds, without time that was counted
            already; empty without waiting.
        """
        busy = [worker for name in workers if (worker := self.workers[name]).tasks]
        for worker in busy:
            worker.cancels += 1
            for task in worker.tasks:
                # Without the reference, Ray can free the value.
                task.late = True
                task.value = None
        replies = [
            worker.actor.cancel.options(concurrency_group=CONTROL).remote(stamp) for worker in busy
        ]
        if not wait or not replies:
            return {}
        ready, _ = self._ray.wait(replies, num_returns=len(replies), timeout=_REPLY_WITHIN)
        answered = set(ready)
        run_times = {}
        for worker, reply in zip(busy, replies, strict=True):
            if reply in answered:
                run_times[worker.name] = self._run_time(worker, reply)
            else:
                run_times[worker.name] = self._run_time(worker, None)
        return run_times

    def wasted(self) -> dict[Worker, float]:
        """The worker time of tasks that ended after their round, since the last call."""
        wasted = self._wasted
        self._wasted = defaultdict(float)
        return wasted

    def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event.

        An error that ``make_task`` raises is raised here.

        Args:
            timeout: The seconds to wait at most; None for no limit.

        Returns:
            The event; None if none comes in time, or none can come.
        """
        if timeout is None:
            end = inf
        else:
            end = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            for worker in self.workers.values():
                if worker.launch_time <= now:
                    worker.launch(*self._start_arguments)
            awaited = {
                ref: worker
                for worker in self.workers.values()
                if (ref := worker.awaited) is not None
            }
            wake_time = min(end, self._next_due())
            if wake_time == inf:
                pause = None
            else:
                pause = max(wake_time - now, 0.0)
            if awaited:
                ready, _ = self._ray.wait(list(awaited), num_returns=1, timeout=pause)
                if ready:
                    event = self._event_of(awaited[ready[0]])
                else:
                    event = self._overdue()
                if event is not None:
                    return event
            elif pause is None:
                return None
            else:
                time.sleep(pause)
            if time.monotonic() >= end:
                return None

    def _starting(self) -> list[WorkerActor]:
        """The workers whose actor is starting, or will be made."""
        return [
            worker
            for worker in self.workers.values()
            if worker.startup is not None or worker.launch_time < inf
        ]

    def _next_due(self) -> float:
        """When the next actor is made, or the next deadline ends, by the monotonic clock."""
        launch_times = [worker.launch_time for worker in self.workers.values()]
        deadlines = [
            worker.tasks[0].start_time + self._deadlines.seconds(worker.name)
            for worker in self.workers.values()
            if worker.tasks
        ]
        return min([*launch_times, *deadlines])

    def _overdue(self) -> Event | None:
        """The loss of a worker whose deadline has ended; its answer if that came just now."""
        now = time.monotonic()
        for worker in self.workers.values():
            if worker.tasks and now >= worker.tasks[0].start_time + (
                deadline := self._deadlines.seconds(worker.name)
            ):
                ready, _ = self._ray.wait([worker.tasks[0].report], timeout=_REPLY_WITHIN)
                if ready:
                    return self._event_of(worker)
                return self._lose(worker, f"it gave no answer for {deadline:.3g} s")
        return None

    def _event_of(self, worker: WorkerActor) -> Event | None:
        """The event of a worker whose actor has started, answered or died."""
        errors = self._ray.exceptions
        try:
            if worker.startup is not None:
                self._ray.get(worker.startup)
                worker.absence = ""
                worker.startup = None
                return WorkerReady(worker.name)
            task = worker.tasks[0]
            seconds = self._ray.get(task.report)
            self._deadlines.note(worker.name, seconds or 0.0)
            # Of a late task there is no reference any more, so that Ray can free its value.
            if task.late:
                value = None
            else:
                value = self._ray.get(task.value)
        except errors.RayTaskError as error:
            if worker.startup is not None:
                worker.give_up(self._ray, "its make_task raised an error")
                error.add_note(f"make_task raised it for worker {worker.name!r}")
                raise
            worker.answered()
            error.add_note(f"worker {worker.name!r} raised it in the task of sample {task.sample}")
            if task.late:
                return WorkerReady(worker.name)
            return TaskFailure(task, error)
        except errors.RayError as error:
            return self._lose(worker, f"it was lost: {type(error).__name__}")
        worker.answered()
        if not task.late:
            return TaskResult(task, seconds, value)
        # What it had run when it was cancelled was counted in its round.
        self._wasted[worker.name] += max((seconds or 0.0) - task.counted_seconds, 0.0)
        return WorkerReady(worker.name)

    def _lose(self, worker: WorkerActor, reason: str) -> WorkerLoss:
        """Give up the actor of a worker, and plan a new one unless too many were lost."""
        now = time.monotonic()
        launch_time = inf
        if worker.tasks and not worker.tasks[0].late:
            seconds = now - worker.tasks[0].start_time
        else:
            seconds = 0.0
        worker.losses += 1
        if worker.losses <= self._restarts:
            # No pause for the first loss in a row, then 1, 2, 4, ... seconds.
            if worker.losses == 1:
                pause = 0.0
            else:
                pause = min(2.0 ** (worker.losses - 2), _LONGEST_PAUSE)
            launch_time = now + pause
        elif self._restarts:
            reason += f"; {worker.losses} actors were lost in a row without a result"
        _LOG.warning("worker %s: %s", worker.name, reason)
        return WorkerLoss(worker.name, worker.give_up(self._ray, reason, launch_time), seconds)

    def _run_time(self, worker: WorkerActor, reply: Any) -> float:
        """How long the running task of an actor has run since its time was last counted.

        This time counts as counted from now on.
        """
        running: RunningTask | None
        if reply is None:
            first_task = worker.tasks[0]
            running = RunningTask(
                first_task.stamp,
                first_task.sample,
                time.monotonic() - first_task.start_time,
            )
        else:
            try:
                running = self._ray.get(reply)
            except self._ray.exceptions.RayError:
                # The next event will be the loss of the actor.
                return 0.0
        for task in worker.tasks:
            if running is not None and (task.stamp, task.sample) == (running.stamp, running.sample):
                seconds = max(running.seconds - task.counted_seconds, 0.0)
                task.counted_seconds += seconds
                return seconds
        return 0.0
