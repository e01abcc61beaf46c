"""One round on the actors: tasks start, results come in, tasks of lost workers are handed on, the rest is cancelled.

The numbers of tasks come from outside: from a policy in ``RayRunner``, from the action of an agent in
``ClusterBackend``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ata_gym.cluster.on_ray.rounds.crew import Answered, Crew, Failed, Lost, Ready
from ata_gym.cluster.on_ray.rounds.sample_queue import SampleQueue
from ata_gym.cluster.round_record import RoundRecord
from ata_gym.typing import Worker

_MOMENT = 1e-6
"""The time in seconds of a cancelled task that had hardly begun; a time of 0 would mean that its worker was away."""


class TaskRound:
    """A round that needs ``budget`` results; it begins when it is made.

    Give tasks to workers, go from event to event with ``next`` (or to the round's end with ``run``), and then ``close``
    it; or ``abandon`` it at any moment.
    """

    def __init__(self, crew: Crew, samples: SampleQueue, budget: int, payload: Any) -> None:
        self.begun = time.monotonic()
        self._crew, self._samples, self._budget = crew, samples, budget
        self._stamp, self._payload = crew.stamp(), crew.put(payload)
        self.given: dict[Worker, int] = {}
        """Tasks that the decision gave to each worker, without those that were handed on to it."""
        self._left: dict[Worker, int] = {}
        """Tasks of each worker that it has not started."""
        self.started: dict[Worker, int] = {}
        """Tasks that each worker was sent."""
        self.results: dict[int, tuple[Worker, Any]] = {}
        """The worker that computed each sample, and its value."""
        self.seconds: dict[Worker, list[float]] = {}
        """The task times of each worker's results, in the order of their starts."""
        self.lost: dict[Worker, float] = {}
        """Workers that were lost while they owed results, and how long their running tasks had run."""
        self.lost_tasks = 0
        """Tasks that were running when their worker was lost."""
        self.cancelled: dict[Worker, float] = {}
        """How long the cancelled task of each worker has run in this round; set by ``close``."""
        self.round_time = 0.0
        """Seconds from the beginning until the last result."""
        self._why: dict[Worker, str] = {}
        self._idle_since: dict[Worker, float] = {}

    def give(self, worker: Worker, tasks: int) -> None:
        """Give tasks to a worker; if it is away, others will compute them."""
        self.given[worker] = self.given.get(worker, 0) + tasks
        if worker in self._crew.ready:
            self._left[worker] = self._left.get(worker, 0) + tasks
        elif tasks:
            self.lost.setdefault(worker, 0.0)

    def owes(self, worker: Worker) -> int:
        """How many tasks of a worker have no answer yet."""
        return self._left.get(worker, 0) + len(self._crew.unanswered(worker))

    def ages(self) -> dict[Worker, float]:
        """How long the task of each worker that owes results has run, by the driver's clock; 0 before its start."""
        now = time.monotonic()
        ages = {}
        for worker in self._crew.ready:
            if self.owes(worker):
                tasks = self._crew.unanswered(worker)
                ages[worker] = max(now - tasks[0].begun, 0.0) if tasks else 0.0
        return ages

    def next(self) -> Answered | Lost | Ready:
        """Start the tasks that can start, and wait for the next event.

        An error of a task function is raised here, and its sample is free again. RuntimeError if no worker is left and
        none comes back in time.
        """
        self._start()
        if not self._crew.ready:
            self._crew.wait_for_one()
            return Ready(self._crew.ready[0])
        event = self._crew.next()
        if event is None:
            raise RuntimeError("no worker owes a result: give one a task first")
        if isinstance(event, Failed):
            self._samples.give_back([event.task.sample])
            raise event.error
        if isinstance(event, Answered):
            self.round_time = time.monotonic() - self.begun
            self.results[event.task.sample] = event.task.worker, event.value
            self.seconds.setdefault(event.task.worker, []).append(event.seconds)
            self._idle_since[event.task.worker] = self.round_time
        elif isinstance(event, Lost):
            self._note_loss(event)
        return event

    def run(self) -> None:
        """Go on until all results are in; the tasks of lost workers are handed on."""
        while len(self.results) < self._budget:
            self._hand_on()
            self.next()

    def close(self) -> None:
        """Cancel the running tasks; the samples without a result are free again."""
        owing = [worker for worker in self._crew.ready if self.owes(worker)]
        for worker in owing:
            self._samples.give_back(task.sample for task in self._crew.unanswered(worker))
        ran = self._crew.cancel(self._stamp, owing)
        self.cancelled = {worker: max(ran.get(worker, 0.0), _MOMENT) for worker in owing}
        self._payload = []

    def abandon(self) -> None:
        """Cancel everything without waiting for an answer; the samples do not become free."""
        self._crew.cancel(self._stamp, self._crew.ready, wait=False)

    def record(
        self, number: int, tasks: Mapping[Worker, int], estimates: Mapping[Worker, float] | None = None
    ) -> RoundRecord:
        """The record of the round, after ``close``."""
        wasted = self._crew.wasted()
        for times in (self.cancelled, self.lost):
            for worker, time_of in times.items():
                wasted[worker] = wasted.get(worker, 0.0) + time_of
        return RoundRecord(
            number,
            {worker: tasks.get(worker, 0) for worker in self._crew.names},
            {worker: tuple(times) for worker, times in self.seconds.items()},
            self.round_time,
            estimates or {},
            wasted={worker: time_of for worker, time_of in wasted.items() if time_of > _MOMENT},
            away=self._crew.away | self._why,
        )

    def _start(self) -> None:
        """Send tasks to workers that have some to start and room for them.

        The smallest samples go to workers that gave results recently, so that no sample is cancelled again and again.
        """
        for worker in self._crew.by_cancels():
            while self._left.get(worker) and self._crew.has_room(worker):
                self._left[worker] -= 1
                self.started[worker] = self.started.get(worker, 0) + 1
                self._crew.send(worker, self._stamp, self._samples.take(), self._payload)

    def _hand_on(self) -> None:
        """If fewer tasks are left than results are missing, give one more to each idle worker until they suffice.

        Workers that the decision gave tasks come first, in the order in which they became idle; others get tasks only
        if none of those is present.
        """
        ready = self._crew.ready
        missing = self._budget - len(self.results) - sum(map(self.owes, ready))
        if missing > 0:
            wanted = [worker for worker in ready if self.given.get(worker)] or ready
            idle = sorted((one for one in wanted if not self.owes(one)), key=lambda one: self._idle_since.get(one, 0.0))
            self._left.update(dict.fromkeys(idle[:missing], 1))

    def _note_loss(self, event: Lost) -> None:
        worker, owed = event.worker, [task for task in event.tasks if not task.late]
        self._samples.give_back(task.sample for task in owed)
        self._why[worker] = self._crew.away[worker]
        if self._left.pop(worker, 0) or owed:
            self.lost[worker] = self.lost.get(worker, 0.0) + event.seconds
        self.lost_tasks += bool(owed) and not event.tasks[0].late
