"""The workers of a run as Ray actors: which of them are present, why others are away, and which event comes next."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, NamedTuple

from ata_gym.cluster.on_ray.connection import connect_ray
from ata_gym.cluster.on_ray.rounds.actor import CONTROL, MakeTask, TaskActor
from ata_gym.cluster.on_ray.rounds.deadlines import Deadlines
from ata_gym.cluster.on_ray.rounds.worker_actor import Started, WorkerActor, with_options
from ata_gym.typing import Worker
from ata_gym.utils.extras import require
from ata_gym.utils.validation import flag, real, short, whole_number

_LOG = logging.getLogger("ata_gym.cluster")

_REPLY = 0.1
"""Seconds within which an actor says how long its cancelled task has run. If its code holds the interpreter for longer,
the clock of the driver counts, which began when the task was sent."""
_LONGEST_PAUSE = 60.0
_LOOK_AGAIN = 10.0
"""Seconds between two looks at the nodes of the cluster, while actors take longer to start than ``start_timeout``."""


class Ready(NamedTuple):
    """A worker can start tasks: its actor has started, or has ended a task of an earlier round."""

    worker: Worker


class Answered(NamedTuple):
    """The result of a task."""

    task: Started
    seconds: float
    value: Any


class Failed(NamedTuple):
    """A task function raised an error."""

    task: Started
    error: Exception


class Lost(NamedTuple):
    """A worker's actor is given up."""

    worker: Worker
    tasks: tuple[Started, ...]  # the tasks that it had not answered, in the order of their starts
    seconds: float  # how long the first of them had run, by the clock of the driver


Event = Ready | Answered | Failed | Lost


class Crew:
    """The actors of the workers. The keywords are those of ``RayRunner``; ``workers`` are options by name.

    An actor that dies, or gives no answer within the deadline, is killed. Ray can restart actors too
    (``max_restarts``), but not one that hangs, and under the same handle. Here each new actor has a handle of its own,
    so that an answer of the old actor is never taken for one of the new actor. Ray decides where and when a new actor
    is placed, by the options of the worker.
    """

    def __init__(
        self, make_task: MakeTask, workers: Mapping[Worker, Mapping[str, Any]], *, deadline: float | str | None,
        restarts: int, start_timeout: float, allow_nonfinite: bool,
    ) -> None:  # fmt: skip
        self._ray = require("ray", extra="cluster", purpose="A crew of Ray actors")
        if not callable(make_task):
            what = "a function that makes a task function"
            raise ValueError(f"make_task must be {what}, not {short(make_task)}")  # noqa: TRY004 - as for any argument
        self._deadlines = Deadlines(deadline)
        self._start_timeout = real("start_timeout", start_timeout)
        self._restarts = whole_number("restarts", restarts, least=0)
        finite_only = not flag("allow_nonfinite", allow_nonfinite)
        self._class = self._ray.remote(concurrency_groups={CONTROL: 1})(TaskActor)
        self.workers = {name: WorkerActor(name, own, self._class) for name, own in workers.items()}
        connect_ray(log_to_driver=True)
        self._begin = self._ray.put(make_task), finite_only
        self._stamp = 0
        self._wasted: dict[Worker, float] = defaultdict(float)
        for one in self.workers.values():
            one.launch(*self._begin)
        self._all_until = time.monotonic() + self._start_timeout

    @property
    def ready(self) -> tuple[Worker, ...]:
        """The workers that are present."""
        return tuple(name for name, one in self.workers.items() if not one.why)

    @property
    def away(self) -> dict[Worker, str]:
        """Workers that are away, and why."""
        return {name: one.why for name, one in self.workers.items() if one.why}

    def add(self, name: Worker, options: Mapping[str, Any] | None) -> None:
        """Add a worker, or take one back; without options it has its earlier ones. ValueError if it has not left."""
        old = self.workers.get(name)
        if old is not None and (old.actor is not None or old.due < inf):
            raise ValueError(f"worker {name!r} has not left")
        earlier = {} if old is None else old.options
        ((name, own),) = with_options({name: earlier if options is None else options}).items()
        one = WorkerActor(name, own, self._class)
        one.launch(*self._begin)
        self.workers[name] = one

    def remove(self, name: Worker) -> None:
        """Remove a worker. ValueError if there is none of that name."""
        if name not in self.workers:
            raise ValueError(f"there is no worker {short(name)}; there are {short(list(self.workers))}")
        self.workers[name].give_up(self._ray, "it has left")

    def close(self) -> None:
        """Kill all actors, unless Ray has been shut down."""
        for one in self.workers.values() if self._ray.is_initialized() else ():
            one.give_up(self._ray, "the run is over")

    def begin_round(self, payload: Any) -> tuple[int, list[Any]]:
        """The stamp of a new round, which no other has, though a round may be played again; and its payload.

        That is a reference in Ray's object store, in a list, so that Ray hands it on as it is; or nothing.
        """
        self._stamp += 1
        return self._stamp, [] if payload is None else [self._ray.put(payload)]

    def gather(self) -> None:
        """Take note of what happened since the last round, and wait until a worker is present.

        Within the ``start_timeout`` after the start, wait for all workers. RuntimeError if none comes.
        """
        while self.next(0.0) is not None:
            pass
        while self._coming() and (left := self._all_until - time.monotonic()) > 0.0:
            self.next(left)
        self._all_until = -inf
        self.wait_for_one()

    def wait_for_one(self) -> None:
        """Wait until a worker is present, as long as an actor is starting.

        RuntimeError if none is starting, or, after ``start_timeout``, if no node of the cluster is large enough for any
        of the actors.
        """
        begun = time.monotonic()
        look = begun + self._start_timeout
        while not self.ready:
            coming, late, now = self._coming(), "", time.monotonic()
            if coming and now >= look:
                look, late = now + _LOOK_AGAIN, f" after {now - begun:.3g} s"
                nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
                coming = [one for one in coming if any(map(one.fits, nodes))]
            reasons = "; ".join(f"{name}: {why}" for name, why in self.away.items())
            if not coming:
                no_room = f"{late}, and no node has what their actors ask for" if late else ""
                raise RuntimeError(f"no worker is there{no_room} ({reasons})")
            if late:
                _LOG.warning("no worker is there%s, and actors are still starting (%s)", late, reasons)
            self.next(look - now)

    def cancel(self, stamp: int, workers: Iterable[Worker], wait: bool = True) -> dict[Worker, float]:
        """End the rounds up to a stamp at some workers; return how long the running task of each has run.

        Time that was counted already is left out. A running task goes on until it ends, unless it asks ``cancelled()``;
        its result will be dropped.
        """
        busy = [one for name in workers if (one := self.workers[name]).tasks]
        for one in busy:
            one.cancels += 1
            for task in one.tasks:
                task.late, task.value = True, None
        replies = [one.actor.cancel.options(concurrency_group=CONTROL).remote(stamp) for one in busy]
        if not wait or not replies:
            return {}
        there, _ = self._ray.wait(replies, num_returns=len(replies), timeout=_REPLY)
        come = set(there)
        return {one.name: self._ran(one, ref if ref in come else None) for one, ref in zip(busy, replies, strict=True)}

    def wasted(self) -> dict[Worker, float]:
        """The worker time of tasks that ended after their round, since the last call."""
        wasted, self._wasted = self._wasted, defaultdict(float)
        return wasted

    def next(self, timeout: float | None = None) -> Event | None:
        """Wait for the next event; None if none comes within ``timeout`` seconds, or none can come.

        An error that ``make_task`` raises is raised here.
        """
        end = inf if timeout is None else time.monotonic() + timeout
        while True:
            now = time.monotonic()
            for one in self.workers.values():
                if one.due <= now:
                    one.launch(*self._begin)
            awaited = {ref: one for one in self.workers.values() if (ref := one.awaited) is not None}
            until = min(end, self._soonest())
            pause = None if until == inf else max(until - now, 0.0)
            if awaited:
                there, _ = self._ray.wait(list(awaited), num_returns=1, timeout=pause)
                event = self._event_of(awaited[there[0]]) if there else self._overdue()
                if event is not None:
                    return event
            elif pause is None:
                return None
            else:
                time.sleep(pause)
            if time.monotonic() >= end:
                return None

    def _coming(self) -> list[WorkerActor]:
        return [one for one in self.workers.values() if one.beginning is not None or one.due < inf]

    def _soonest(self) -> float:
        dues = [one.due for one in self.workers.values()]
        return min(
            [*dues, *(one.tasks[0].begun + self._deadlines.of(one.name) for one in self.workers.values() if one.tasks)]
        )

    def _overdue(self) -> Event | None:
        now = time.monotonic()
        for one in self.workers.values():
            if one.tasks and now >= one.tasks[0].begun + (deadline := self._deadlines.of(one.name)):
                there, _ = self._ray.wait([one.tasks[0].report], timeout=_REPLY)
                return self._event_of(one) if there else self._lose(one, f"it gave no answer for {deadline:.3g} s")
        return None

    def _event_of(self, one: WorkerActor) -> Event | None:
        errors = self._ray.exceptions
        try:
            if one.beginning is not None:
                self._ray.get(one.beginning)
                one.why, one.beginning = "", None
                return Ready(one.name)
            task = one.tasks[0]
            seconds = self._ray.get(task.report)
            self._deadlines.note(one.name, seconds or 0.0)
            value = None if task.late else self._ray.get(task.value)
        except errors.RayTaskError as error:
            if one.beginning is not None:
                one.give_up(self._ray, "its make_task raised an error")
                error.add_note(f"make_task raised it for worker {one.name!r}")
                raise
            one.answered()
            error.add_note(f"worker {one.name!r} raised it in the task of sample {task.sample}")
            return Ready(one.name) if task.late else Failed(task, error)
        except errors.RayError as error:
            return self._lose(one, f"it was lost: {type(error).__name__}")
        one.answered()
        if not task.late:
            return Answered(task, seconds, value)
        self._wasted[one.name] += max((seconds or 0.0) - task.counted, 0.0)
        return Ready(one.name)

    def _lose(self, one: WorkerActor, why: str) -> Lost:
        now, due = time.monotonic(), inf
        ran = now - one.tasks[0].begun if one.tasks and not one.tasks[0].late else 0.0
        one.losses += 1
        if one.losses <= self._restarts:
            due = now + (0.0 if one.losses == 1 else min(2.0 ** (one.losses - 2), _LONGEST_PAUSE))
        elif self._restarts:
            why += f"; {one.losses} actors were lost in a row without a result"
        _LOG.warning("worker %s: %s", one.name, why)
        return Lost(one.name, one.give_up(self._ray, why, due), ran)

    def _ran(self, one: WorkerActor, reply: Any) -> float:
        """How long the running task of an actor has run since it was last counted; it counts as counted from now on."""
        if reply is None:
            first = one.tasks[0]
            running = first.stamp, first.sample, time.monotonic() - first.begun
        else:
            try:
                running = self._ray.get(reply)
            except self._ray.exceptions.RayError:  # its loss is found next
                return 0.0
        for task in one.tasks:
            if running is not None and (task.stamp, task.sample) == running[:2]:
                more = max(running[2] - task.counted, 0.0)
                task.counted += more
                return float(more)
        return 0.0
