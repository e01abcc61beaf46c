"""A live Ray cluster as the backend of an env: any policy or agent allocates real tasks."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any

import numpy as np

from ata_gym.cluster.on_ray.rounds.actor import MakeTask
from ata_gym.cluster.on_ray.rounds.actor_group import ActorGroup, TaskResult
from ata_gym.cluster.on_ray.rounds.task_round import SampleQueue, TaskRound
from ata_gym.cluster.on_ray.rounds.worker_actor import with_options
from ata_gym.cluster.round_record import RoundRecord
from ata_gym.cluster.trace_recorder import TraceRecorder
from ata_gym.envs.states.backend import RealWorkers
from ata_gym.simulation.dispatch import Completion, RoundState
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.simulation.rounds import RoundResult
from ata_gym.typing import Bits, Floats, Ints, Worker
from ata_gym.utils.validation import whole_number


class ClusterBackend(RealWorkers, AbstractContextManager["ClusterBackend"]):
    """The ``backend`` of an env whose tasks are run by the actors of a Ray cluster.

    ``gymnasium.make(id, pool=backend.pool, budget=backend.budget, backend=backend)`` works for
    ``TaskAllocation-v0``, ``TaskRace-v0`` and ``TaskDispatch-v0``. Times are in seconds; the driver
    measures the round time, communication included. Task times are the times of the tasks alone, as
    the actors measure them; no latency is shown, and transfers are part of the round time only. A
    cancelled task runs until the message reaches its worker, so its ``elapsed`` can be longer than
    the round time by that delay. The env's workers are in the order of ``workers``.

    A task of a lost worker goes to another worker, and so does a task for a worker that is away;
    in dispatch a 1 for a worker that is away has no effect. ``info`` has no ``lost``, which counts
    simulated deaths; ``record`` says more. One env at a time can use a backend, and a copy of the
    env's spec shares it. While an agent learns between two steps of a round of dispatch, the tasks
    of the round run on.

    Each round uses the smallest samples that are free. Every time counts: what is slow at first,
    such as compilation, belongs in ``make_task``, which may compute a task before it returns.

    Args:
        make_task: Makes the task function of a worker, as for ``RayRunner``.
        workers: The workers, as for ``RayRunner``.
        budget: The number B of results that a round needs.
        deadline: When a task counts as hung, as for ``RayRunner``.
        restarts: How often a worker gets a new actor, as for ``RayRunner``.
        start_timeout: How long the first round waits for workers, as for ``RayRunner``.
        allow_nonfinite: Whether values may hold NaN or infinities.
        recorder: A recorder to which the times of each round are added.

    Raises:
        ValueError: For bad arguments.
    """

    backend_name = "cluster"
    payload: Any = None
    """The payload of the tasks of the coming rounds, such as weights."""
    record: RoundRecord | None = None
    """The record of the last round."""
    indices: tuple[int, ...] = ()
    """The B samples of the last round, in order."""
    values: tuple[Any, ...] = ()
    """The values of these samples."""

    def __init__(
        self,
        make_task: MakeTask,
        workers: int | Iterable[Worker] | Mapping[Worker, Mapping[str, Any]],
        budget: int,
        *,
        deadline: float | str | None = None,
        restarts: int = 5,
        start_timeout: float = 60.0,
        allow_nonfinite: bool = False,
        recorder: TraceRecorder | None = None,
    ) -> None:
        self.budget = whole_number("budget", budget)
        self._recorder = recorder
        options = with_options(workers)
        self.workers = tuple(options)
        """The names of the env's workers."""
        self._actors = ActorGroup(
            make_task,
            options,
            deadline=deadline,
            restarts=restarts,
            start_timeout=start_timeout,
            allow_nonfinite=allow_nonfinite,
        )
        self._samples = SampleQueue()
        self._rounds = 0
        self._running: TaskRound | None = None

    def __call__(
        self,
        _distributions: Any,
        noise_keys: NoiseKeys,
        allocation: Ints,
        _budget: int,
    ) -> RoundResult:
        """Run a round; the arguments are as for ``race_round`` with one row.

        An error that a task function raises is raised here.

        Raises:
            FloatingPointError: For a value that holds NaN or an infinity; it names the worker.
            RuntimeError: If no worker is there.
        """
        tasks = self._begin()
        try:
            for worker, share in zip(self.workers, allocation[0].tolist(), strict=True):
                tasks.give(worker, share)
            tasks.run()
            self._end(tasks)
        except BaseException:
            self._abandon()
            raise
        times = [tasks.seconds.get(worker, []) for worker in self.workers]
        results = [len(worker_times) for worker_times in times]
        elapsed = self._array(tasks.elapsed)
        computed = sum(map(sum, times))
        return RoundResult(
            worker=np.repeat(np.arange(len(times)), results)[None],
            duration=np.array([[*chain.from_iterable(times)]]),
            elapsed=elapsed,
            started=noise_keys.started + self._array(tasks.started).astype(np.int64),
            round_time=np.array([tasks.round_time]),
            worker_time=np.array([computed + elapsed.sum()]),
            lost=np.array([tasks.lost_tasks]),
            latency=np.zeros_like(elapsed),
        )

    def dispatch(
        self,
        _distributions: Any,
        noise_keys: NoiseKeys,
        round_state: RoundState,
        action: Bits,
        _budget: int,
        _disturbances: Any = None,
    ) -> Completion:
        """Go on to the next result; the arguments are as for ``dispatch_step`` with one row.

        It raises the errors that a round raises; after an error the round can go on.
        """
        missing = int(round_state.missing[0]) - 1
        if missing + 1 == self.budget:
            self._begin()
        tasks = self._running
        if tasks is None or self.budget - len(tasks.results) != missing + 1:
            raise ValueError("this env is within a round that the cluster does not run: reset it")
        started_before = self._array(tasks.started)
        event = self._next_result(tasks, [self.workers[i] for i in np.flatnonzero(action[0])])
        index = self.workers.index(event.task.worker)
        round_over = missing == 0
        if round_over:
            self._end(tasks)
            ages = {}
            elapsed = tasks.elapsed
        else:
            ages = tasks.ages()
            elapsed = {}
        # By the driver's clock, the age of a task may be longer than the time that its actor then
        # measures: the times of the round must not fall.
        time = max(tasks.round_time, float(round_state.time[0]))
        completed = sum(map(sum, tasks.seconds.values()))
        unfinished = sum((*tasks.elapsed.values(), *ages.values()))
        worker_time = max(completed + unfinished, float(round_state.worker_time[0]))
        age = self._array(ages)
        round_time = np.array([time])
        next_state = RoundState.start(1, len(self.workers), self.budget)
        next_state = next_state._replace(lost=np.array([tasks.lost_tasks]))
        if not round_over:
            running = self._array(dict.fromkeys(ages, 1)).astype(np.int8)
            next_state = next_state._replace(
                missing=np.array([missing]),
                tasks=np.minimum(self._array(tasks.allocation), self.budget).astype(np.int64),
                running=running,
                task_start=np.where(running, time - age, 0.0),
                time=round_time.copy(),
                worker_time=np.array([worker_time]),
            )
        return Completion(
            worker=np.array([index]),
            duration=np.array([event.seconds]),
            elapsed=self._array(elapsed),
            age=age,
            round_over=np.array([round_over]),
            round_time=round_time,
            worker_time=np.array([worker_time]),
            started=noise_keys.started
            + (self._array(tasks.started) - started_before).astype(np.int64),
            round_state=next_state,
            latency=np.zeros_like(age),
        )

    def close(self) -> None:
        """Kill the actors; Ray goes on."""
        self._running = None
        self._actors.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self) -> TaskRound:
        """Begin a round; a round that an env did not end is abandoned."""
        self._abandon()
        self._actors.gather()
        self._running = TaskRound(self._actors, self._samples, self.budget, self.payload)
        return self._running

    def _abandon(self) -> None:
        if self._running is not None:
            self._running.abandon()
            self._running = None

    def _next_result(self, tasks: TaskRound, starting: list[Worker]) -> TaskResult:
        """Start a task on each of some workers, and wait for the next result of the round."""
        for worker in starting:
            if worker in self._actors.present and not tasks.pending_tasks(worker):
                tasks.give(worker, 1)
        while True:
            self._actors.wait_for_worker()
            # If no worker computes, no result would ever come: all present workers get a task.
            if not any(map(tasks.pending_tasks, self._actors.present)):
                for worker in self._actors.present:
                    tasks.give(worker, 1)
            event = tasks.next()
            if isinstance(event, TaskResult):
                return event

    def _end(self, tasks: TaskRound) -> None:
        tasks.close()
        self._running = None
        self._samples = tasks.samples
        self.indices = tuple(sorted(tasks.results))
        self.values = tuple(tasks.results[index][1] for index in self.indices)
        self._rounds += 1
        self.record = tasks.record(self._rounds)
        if self._recorder is not None:
            self._recorder.add(self.record)

    def _array(self, values: Mapping[Worker, float]) -> Floats:
        """The value of each worker, 0 for those without one, shape (1, n)."""
        return np.array([[float(values.get(worker, 0.0)) for worker in self.workers]])
