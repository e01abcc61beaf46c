"""One round on the actors.

Tasks start, results come in, other workers get the tasks of lost workers, and the rest is
cancelled. The numbers of tasks come from outside: from a policy in ``RayRunner``, from the action
of an agent in ``ClusterBackend``.
"""

import copy
import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ata_gym.cluster.on_ray.rounds.actor_group import (
    ActorGroup,
    TaskFailure,
    TaskResult,
    WorkerLoss,
    WorkerReady,
)
from ata_gym.cluster.round_record import RoundRecord
from ata_gym.typing import Worker
from ata_gym.utils.validation import whole_number
from ata_policies import Propensities

_MOMENT = 1e-6
"""The time in seconds of a cancelled task that had hardly begun.

A time of 0 would mean that its worker was away."""


class SampleQueue:
    """The indices of a run's samples from 0 on, of which each task takes one when it starts.

    An index whose task was cancelled or lost is given back, and taken again before all larger ones.
    So over a run each index is used once at most, and no index is left out.

    Example:
        >>> queue = SampleQueue()
        >>> [queue.take() for _ in range(4)]
        [0, 1, 2, 3]
        >>> queue.give_back([2, 1])
        >>> [queue.take() for _ in range(3)], queue.state_dict()
        ([1, 2, 4], {'next_sample': 5, 'returned_samples': []})
    """

    def __init__(self, next_sample: int = 0, returned: Iterable[int] = ()) -> None:
        self._next = next_sample
        # A heap, which a sorted list is.
        self._returned = sorted(returned)

    def take(self) -> int:
        """The smallest index that is free."""
        if self._returned:
            return heapq.heappop(self._returned)
        self._next += 1
        return self._next - 1

    def give_back(self, indices: Iterable[int]) -> None:
        """Make indices free that were taken and not used."""
        for index in indices:
            heapq.heappush(self._returned, index)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the queue remembers, as numbers."""
        return {"next_sample": self._next, "returned_samples": sorted(self._returned)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Make a queue from a ``state_dict``.

        Raises:
            ValueError: If the state is none of a queue.
        """
        try:
            next_sample = whole_number("next_sample", state["next_sample"], least=0)
            returned = {
                whole_number("a sample", index, least=0) for index in state["returned_samples"]
            }
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no state of a queue of samples: {error}") from None
        if returned and max(returned) >= next_sample:
            raise ValueError(
                "this is no state of a queue of samples: one was returned that was never taken",
            )
        return cls(next_sample, returned)


class TaskRound:
    """A round that needs ``budget`` results; it begins when it is made.

    Give tasks to workers, go from event to event with ``next`` (or to the round's end with
    ``run``), and then ``close`` it; or ``abandon`` it at any moment. The tasks take their samples
    from a copy of the queue, ``samples``.
    """

    def __init__(self, actors: ActorGroup, samples: SampleQueue, budget: int, payload: Any) -> None:
        self._start_time = time.monotonic()
        self._actors = actors
        self.samples = copy.deepcopy(samples)
        self._budget = budget
        self._stamp, self._payload = actors.begin_round(payload)
        self.allocation = Counter[Worker]()
        """The number of tasks that the decision gave to each worker.

        Tasks of lost workers that it got later are not counted."""
        # The number of tasks that each worker has not started.
        self._unstarted = Counter[Worker]()
        self.started = Counter[Worker]()
        """The number of tasks that each worker was sent."""
        self.results: dict[int, tuple[Worker, Any]] = {}
        """The worker that computed each sample, and its value."""
        self.seconds: dict[Worker, list[float]] = defaultdict(list)
        """The task times of each worker's results, in the order of their starts."""
        self.latency: dict[Worker, float] = {}
        """The seconds from sending the first task of each worker to its result, less its task time.

        Both moments are of the driver's clock: no clocks of two machines are compared. It holds the
        ways to the worker and back, and the payload that it reads before its first task."""
        self.lost: dict[Worker, float] = defaultdict(float)
        """The workers that were lost while they had tasks.

        Each has the seconds that its running task had run."""
        self.lost_tasks = 0
        """The number of tasks that were running when their worker was lost."""
        self.cancelled: dict[Worker, float] = {}
        """The seconds that the cancelled task of each worker has run in this round.

        ``close`` sets it."""
        self.round_time = 0.0
        """The seconds from the beginning until the last result."""
        self._absences: dict[Worker, str] = {}
        self._idle_since: dict[Worker, float] = {}

    @property
    def elapsed(self) -> dict[Worker, float]:
        """How long tasks without a result had run when they were cancelled or lost."""
        return {
            worker: self.lost.get(worker, 0.0) + self.cancelled.get(worker, 0.0)
            for worker in self.lost | self.cancelled
        }

    def give(self, worker: Worker, tasks: int) -> None:
        """Give tasks to a worker; if it is away, others will compute them."""
        self.allocation[worker] += tasks
        if worker in self._actors.present:
            self._unstarted[worker] += tasks
        elif tasks:
            # The worker counts as lost, without any time.
            self.lost[worker] += 0.0

    def pending_tasks(self, worker: Worker) -> int:
        """How many tasks of a worker have no answer yet."""
        return self._unstarted[worker] + len(self._actors.workers[worker].unanswered)

    def ages(self) -> dict[Worker, float]:
        """The seconds that the task of each worker that has tasks has run.

        They are measured by the driver's clock, and 0 before the start of the task.
        """
        now = time.monotonic()
        ages = {}
        for worker in self._actors.present:
            if self.pending_tasks(worker):
                tasks = self._actors.workers[worker].unanswered
                if tasks:
                    ages[worker] = max(now - tasks[0].start_time, 0.0)
                else:
                    ages[worker] = 0.0
        return ages

    def next(self) -> TaskResult | WorkerLoss | WorkerReady:
        """Start the tasks that can start, and wait for the next event.

        An error of a task function is raised here, and its sample is free again.

        Raises:
            RuntimeError: If no worker is present and none comes back in time, or no worker has a
                task.
        """
        self._start()
        if not self._actors.present:
            self._actors.wait_for_worker()
            return WorkerReady(self._actors.present[0])
        event = self._actors.next()
        if event is None:
            raise RuntimeError("no worker has a task: give a worker one first")
        if isinstance(event, TaskFailure):
            self.samples.give_back([event.task.sample])
            raise event.error
        if isinstance(event, TaskResult):
            worker = event.task.worker
            now = time.monotonic()
            self.round_time = now - self._start_time
            # The first result of a worker shows what comes on top of a task, such as transfers.
            if worker not in self.latency:
                self.latency[worker] = max(now - event.task.start_time - event.seconds, 0.0)
            self.results[event.task.sample] = worker, event.value
            self.seconds[worker].append(event.seconds)
            self._idle_since[worker] = self.round_time
        elif isinstance(event, WorkerLoss):
            self._note_loss(event)
        return event

    def run(self) -> None:
        """Go on until all results are in; other workers get the tasks of lost workers."""
        while len(self.results) < self._budget:
            self._reassign()
            self.next()

    def close(self) -> None:
        """Cancel the running tasks; the samples without a result are free again."""
        busy_workers = [worker for worker in self._actors.present if self.pending_tasks(worker)]
        for worker in busy_workers:
            self.samples.give_back(task.sample for task in self._actors.workers[worker].unanswered)
        run_times = self._actors.cancel(self._stamp, busy_workers)
        self.cancelled = {
            worker: max(run_times.get(worker, 0.0), _MOMENT) for worker in busy_workers
        }
        self._payload = []

    def abandon(self) -> None:
        """Cancel everything without waiting for an answer."""
        self._actors.cancel(self._stamp, self._actors.present, wait=False)

    def record(
        self,
        number: int,
        estimates: Mapping[Worker, float] | None = None,
        propensities: Propensities | None = None,
    ) -> RoundRecord:
        """The record of the round, after ``close``."""
        wasted = self._actors.wasted()
        for worker, seconds in self.elapsed.items():
            wasted[worker] += seconds
        return RoundRecord(
            number,
            {worker: self.allocation[worker] for worker in self._actors.workers},
            {worker: tuple(times) for worker, times in self.seconds.items()},
            self.round_time,
            estimates or {},
            wasted={worker: seconds for worker, seconds in wasted.items() if seconds > _MOMENT},
            away=self._actors.away | self._absences,
            propensities=propensities,
        )

    def _start(self) -> None:
        """Send tasks to workers that have some to start and room for them.

        The smallest samples go to workers that gave results recently, so that no sample is
        cancelled again and again.
        """
        actors = self._actors.workers
        for worker in sorted(self._actors.present, key=lambda worker: actors[worker].cancels):
            while self._unstarted[worker] and actors[worker].has_room:
                self._unstarted[worker] -= 1
                self.started[worker] += 1
                actors[worker].send(self._stamp, self.samples.take(), self._payload)

    def _reassign(self) -> None:
        """Give tasks to idle workers if fewer tasks are pending than results are missing.

        Each idle worker gets one more task until the tasks suffice. Workers that the decision gave
        tasks come first, in the order in which they became idle; others get tasks only if no such
        worker is present.
        """
        ready = self._actors.present
        missing = self._budget - len(self.results) - sum(map(self.pending_tasks, ready))
        if missing > 0:
            candidates = [worker for worker in ready if self.allocation[worker]] or ready
            idle = sorted(
                (candidate for candidate in candidates if not self.pending_tasks(candidate)),
                key=lambda candidate: self._idle_since.get(candidate, 0.0),
            )
            self._unstarted.update(idle[:missing])

    def _note_loss(self, event: WorkerLoss) -> None:
        """Free the samples of a lost worker, and note the time of its running task."""
        worker = event.worker
        pending = [task for task in event.tasks if not task.late]
        self.samples.give_back(task.sample for task in pending)
        self._absences[worker] = self._actors.away[worker]
        if self._unstarted.pop(worker, 0) or pending:
            self.lost[worker] += event.seconds
        self.lost_tasks += bool(pending) and not event.tasks[0].late
