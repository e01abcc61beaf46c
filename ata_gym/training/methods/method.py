"""The contract of a training method, its parameter server, and the clock of the workers."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ata_gym.changes.change import ChangeProcess
from ata_gym.models.model import Weights, copy_weights
from ata_gym.pools import Pool
from ata_gym.pools.families import TRACE_BY_ROUND
from ata_gym.simulation.keys import stream_keys
from ata_gym.simulation.task_times import task_times
from ata_gym.training.trainer.trainer import Gradient, Trainer
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number


class WorkerClock:
    """The workers of a pool, each idle or busy with one task.

    Task j of worker i takes the time that it has in the envs, in episode 0 of the same seed, where
    the number of server updates when it starts is its round; a task that was cancelled counts in j.
    After its worker's ``time_limit``, shape (n,) or one for all, a task is given up.

    Where the pool has a latency, a worker pays it before a task at weights that it has not yet, as
    in the round of that number: once for all tasks that it starts between two updates.

    When all busy workers start together after an update, a period begins. Times are counted from
    there, and runtime and worker time of the periods are added up, as an env does with its rounds:
    the floats are the same.

    Args:
        pool: The n workers.
        seed: Keys the task times.
        time_limit: When a task is given up, for all workers or for each, shape (n,).
        overlapped: Whether latencies pass while workers compute, so that no task waits for one;
            what they are for is then with the caller, see ``latencies``.

    Example:
        >>> from ata_gym.pools import deterministic
        >>> clock = WorkerClock(deterministic([2.0, 3.0]), seed=0, time_limit=2.5)
        >>> clock.start([0, 1], update=0)
        >>> clock.next(), clock.next(), clock.runtime, clock.total_worker_time
        ((0, True), (1, False), 2.5, 4.5)
    """

    def __init__(
        self,
        pool: Pool,
        seed: int,
        time_limit: Floats | float = np.inf,
        overlapped: bool = False,
    ) -> None:
        self._distributions = pool.distributions
        self._overlapped = overlapped
        self._latencies = None
        if pool.latency is not None:
            self._latencies = ChangeProcess(pool, (), 1, pool.n)
        # The same stream of keys as for the task times of an env.
        self._key = stream_keys(seed)
        self._limit = np.broadcast_to(np.asarray(time_limit, np.float64), pool.n)
        self.started = np.zeros(pool.n, np.int64)
        """The number of tasks that each worker has started, shape (n,)."""
        self.update = np.zeros(pool.n, np.int64)
        """The number of server updates when each worker's last task started, shape (n,)."""
        self.time = np.zeros(pool.n)
        """How long each worker is busy with its last task, with its latency, shape (n,)."""
        self.latency = np.zeros(pool.n)
        """The latency in that time, shape (n,)."""
        self.trace_ended = False
        """Whether a task was started for which the pool's recorded times did not suffice."""
        # When the running task of each worker ends, in this period; infinite for an idle worker.
        self._ends = np.full(pool.n, np.inf)
        self._will_finish = np.zeros(pool.n, np.bool_)
        self._past_runtime = self._past_worker_time = self._time = 0.0
        # The number of server updates when the period began.
        self._period = 0
        # In this period: when each worker became idle, and how long it was idle before that.
        self._idle_since, self._idle_time = np.zeros((2, pool.n))

    @property
    def busy(self) -> NDArray[np.bool_]:
        """Whether each worker is computing, shape (n,)."""
        busy: NDArray[np.bool_] = np.isfinite(self._ends)
        return busy

    @property
    def runtime(self) -> float:
        """The time since the start."""
        return self._past_runtime + self._time

    @property
    def elapsed(self) -> float:
        """The time since the period began."""
        return self._time

    @property
    def total_worker_time(self) -> float:
        """How long all workers were busy until now, cancelled tasks included."""
        worked = np.where(self.busy, self._time, self._idle_since) - self._idle_time
        # A cumulative sum adds one worker after the other, as an env does; numpy's ``sum`` adds in
        # pairs, and its last bits differ.
        return self._past_worker_time + float(np.cumsum(worked)[-1])

    def start(self, workers: Ints | list[int], update: int) -> None:
        """Let workers start a task each; the tasks that they were running are cancelled.

        Args:
            workers: The workers that start.
            update: The number of server updates so far.
        """
        chosen = np.asarray(workers, np.int64)
        still_busy = self.busy
        still_busy[chosen] = False
        # If no other worker computes, and there was an update, a period begins at time 0.
        if not still_busy.any() and update > self._period:
            self._period = update
            self._past_runtime = self.runtime
            self._past_worker_time = self.total_worker_time
            self._time = 0.0
            self._idle_since[:] = self._idle_time[:] = 0.0
        idle = chosen[~self.busy[chosen]]
        self._idle_time[idle] += self._time - self._idle_since[idle]
        task = self.started[chosen]
        # Recorded times are read by round or by task; past the last one they do not suffice.
        rows = np.where(self._distributions.family[chosen] == TRACE_BY_ROUND, update, task)
        self.trace_ended |= bool((rows >= self._distributions.limit[chosen]).any())
        time = task_times(self._distributions, self._key, 0, update, chosen, task)
        limit = self._limit[chosen]
        worked = np.minimum(time, limit)
        if self._latencies is not None and not self._overlapped:
            fetches = (task == 0) | (self.update[chosen] != update)
            latency = np.where(fetches, self.latencies(update)[chosen], 0.0)
            self.latency[chosen] = latency
            worked = latency + worked
        self.time[chosen] = worked
        self._ends[chosen] = self._time + worked
        self._will_finish[chosen] = time <= limit
        self.started[chosen] += 1
        self.update[chosen] = update

    def latencies(self, update: int) -> Floats:
        """The latency of each worker in the round of that number, shape (n,); 0 without one."""
        process = self._latencies
        if process is None:
            return np.zeros(len(self.started))
        process.update_conditions(self._key, np.zeros(1, np.int64), np.array([update]))
        assert process.disturbances is not None
        return np.asarray(process.disturbances.latency[0])

    def wait(self, until: float) -> bool:
        """Wait for the end of a task, at most until a time since the period began.

        Returns:
            Whether one ends by then, to which ``next`` goes on; otherwise that time has come.
        """
        ends = bool(self._ends.min() <= until)
        if not ends:
            self._time = until
        return ends

    def next(self) -> tuple[int, bool]:
        """Go on to the next end of a task.

        If several end at one moment, it is the task of the lowest worker.

        Returns:
            The worker, which is idle now, and whether the task was finished, not given up.

        Raises:
            RuntimeError: If all workers are idle.
        """
        worker = int(self._ends.argmin())
        end = float(self._ends[worker])
        if end == np.inf:
            raise RuntimeError(
                "all workers are idle: the method started no task, or one whose time is infinite",
            )
        self._time = self._idle_since[worker] = end
        self._ends[worker] = np.inf
        return worker, bool(self._will_finish[worker])


class EndedTask(NamedTuple):
    """A task that has ended: one stochastic gradient."""

    worker: int
    update: int
    """The number of server updates when it started."""
    weights: Weights
    """The weights that it started from, where its gradient is taken."""
    finished: bool
    """Whether the gradient was computed; otherwise the task was given up at its time limit."""
    time: float
    """How long its worker was busy with it, with its latency."""
    latency: float
    """The latency in that time."""


class UpdateRecord(NamedTuple):
    """The state of a run right after an update; every count and time is from the start on."""

    update: int
    """The number k of server updates."""
    runtime: float
    """The time since the start, in the pool's units."""
    total_worker_time: float
    """How long all workers were busy, cancelled tasks included."""
    computed: int
    """Gradients that workers have finished."""
    used: int
    """Gradients that updates have used."""
    loss: float
    """The mean loss of this update's gradients, where they were taken; NaN without gradients."""


class ParameterServer:
    """The server of a method: it starts tasks, waits for their ends, and moves the weights.

    Gradient b of update k draws its sample from the key of (seed, k, b), as task b of round k does
    in a ``Trainer``: with B gradients at the current weights, both take the same step to the bit. A
    gradient is computed when it is used. This changes nothing, since its noise is independent of
    all times, and it saves the gradients that no update uses.
    """

    def __init__(self, clock: WorkerClock, trainer: Trainer) -> None:
        self._clock = clock
        self._trainer = trainer
        self._current: Weights | None = None
        self._started_at: list[Weights] = [()] * len(clock.started)
        self._computed = 0
        self._used = 0
        # Gradients that were taken since the last update, which is where the next one draws.
        self._drawn = 0
        self.record = UpdateRecord(0, 0.0, 0.0, 0, 0, math.nan)
        """The last update."""

    @property
    def updates(self) -> int:
        """The number k of updates so far."""
        return self._trainer.round

    @property
    def seed(self) -> int:
        """The seed of the run, for what a method draws."""
        return self._trainer.settings.seed

    @property
    def model(self) -> nn.Module:
        """The model as it is now."""
        return self._trainer.model

    @property
    def elapsed(self) -> float:
        """The time since the period began, see ``WorkerClock``."""
        return self._clock.elapsed

    @property
    def latencies(self) -> Floats:
        """The latency of each worker in the running round, shape (n,); 0 without one."""
        return self._clock.latencies(self.updates)

    @property
    def idle(self) -> Ints:
        """The workers without a task, in rising order."""
        return np.flatnonzero(~self._clock.busy)

    def late_workers(self, delay: int) -> Ints:
        """The workers whose running task started at least that many updates ago."""
        return np.flatnonzero(self._clock.busy & (self.updates - self._clock.update >= delay))

    def delay(self, task: EndedTask) -> int:
        """The number of updates since a task started."""
        return self.updates - task.update

    def start(self, workers: Ints | Sequence[int]) -> None:
        """Let each of these workers start a task at the current weights.

        A task that it was running is cancelled.
        """
        chosen = np.asarray(workers, np.int64)
        self._clock.start(chosen, self.updates)
        # All tasks that start between two updates share one copy of the weights.
        if self._current is None:
            self._current = copy_weights(self._trainer.model)
        for worker in chosen.tolist():
            self._started_at[worker] = self._current

    def wait(self, until: float) -> bool:
        """Wait for the end of a task, at most until a time since the period began.

        Returns:
            Whether one ends by then, which ``next`` gives; otherwise that time has come.
        """
        return self._clock.wait(until)

    def next(self) -> EndedTask:
        """Wait for the next task to end.

        Raises:
            StopIteration: If recorded times end, see ``MethodRun``.
        """
        if self._clock.trace_ended:
            raise StopIteration
        worker, finished = self._clock.next()
        self._computed += finished
        return EndedTask(
            worker,
            int(self._clock.update[worker]),
            self._started_at[worker],
            finished,
            float(self._clock.time[worker]),
            float(self._clock.latency[worker]),
        )

    def update(self, tasks: Sequence[EndedTask], scale: float = 1.0) -> None:
        """Step along the mean gradient of tasks that started at the same weights.

        It raises what ``Trainer.gradient`` raises.

        Args:
            tasks: The tasks; without any, the weights stay.
            scale: A factor on the learning rate.
        """
        gradient = self.mean_gradient(tasks, tasks[0].weights) if tasks else None
        self.step(gradient, len(tasks), scale)

    def mean_gradient(self, tasks: Sequence[EndedTask], weights: Weights) -> Gradient:
        """Compute the mean of the gradients of all tasks of an update, for ``step``.

        At other weights the samples are the same.

        Args:
            tasks: The tasks, at least one.
            weights: Where the gradients are taken.
        """
        self._drawn = len(tasks)
        worker_tasks = np.bincount([task.worker for task in tasks], minlength=len(self._started_at))
        return self._trainer.gradient(weights, worker_tasks)

    def gradient(self, task: EndedTask) -> Gradient:
        """Compute the gradient of a task, for ``step``.

        It draws its sample as the next gradient since the last update.
        """
        self._drawn += 1
        worker_tasks = np.bincount([task.worker], minlength=len(self._started_at))
        return self._trainer.gradient(task.weights, worker_tasks, self._drawn - 1)

    def local_step(self, weights: Weights, gradient: Gradient) -> Weights:
        """The weights after a step of SGD that a worker takes by itself.

        Args:
            weights: Where it steps from.
            gradient: What it steps along, as ``gradient`` gives it.
        """
        return self._trainer.moved(weights, gradient)

    def step(self, gradient: Gradient | None, used: int, scale: float = 1.0) -> None:
        """Step along a mean of gradients.

        Args:
            gradient: The mean; None for an update that leaves the weights as they are.
            used: How many of its gradients no update has used before.
            scale: A factor on the learning rate.
        """
        loss = math.nan
        if gradient is None:
            self._trainer.skip()
        else:
            loss = self._trainer.apply(gradient._replace(tasks=self._drawn), scale)
            self._current = None
        self._used = self._used + used
        self._drawn = 0
        times = self._clock.runtime, self._clock.total_worker_time
        self.record = UpdateRecord(self.updates, *times, self._computed, self._used, loss)


class Method(ABC):
    """What a server does when a task ends; a worker that it does not start stays idle.

    A subclass needs ``arrive``, and ``step_size`` where theory gives one; its docstring says what
    it knows of the task times of ``pool``. An object is used for one run. The ``budget`` B, the
    gradients that one update needs, is in theory max(1, ceil(sigma^2 / eps)), for variance sigma^2
    and accuracy eps.
    """

    source: ClassVar[str] = ""
    """The publication that the method comes from."""
    overlapped: ClassVar[bool] = False
    """Whether workers compute while their latencies pass, see ``WorkerClock``."""

    def __init__(self, pool: Pool, budget: int) -> None:
        self.pool = pool
        self.budget = whole_number("budget", budget)
        self.workers: Ints = np.arange(pool.n)
        """The workers that take part, in rising order."""
        self.time_limit: Floats | float = np.inf
        """The time after which a task is given up, for all workers or for each, shape (n,)."""

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @property
    def gradients(self) -> float:
        """The expected number of gradients along whose mean an update steps, by default one."""
        return 1.0

    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The learning rate that theory gives for SGD.

        Where papers write min(1/u, 1/v), it is computed as 1/max(u, v), which allows for sigma^2 =
        0.

        Args:
            smoothness: The smoothness constant L of the loss.
            variance: The variance sigma^2 of a stochastic gradient.
            accuracy: The wanted mean squared gradient norm over all updates, eps.

        Raises:
            ValueError: If no step size of theory is known for the method, as by default.
        """
        raise ValueError(
            f"no step size of theory is known for {type(self).__name__}: give a learning rate",
        )

    def check(self, trainer: Trainer) -> None:  # noqa: B027
        """Raise a ValueError if the settings of a training do not go with the method.

        By default all that ``MethodRun`` takes do.
        """

    def begin(self, server: ParameterServer) -> None:
        """Start the first tasks, by default one on each worker that takes part."""
        server.start(self.workers)

    @abstractmethod
    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """React to the end of a task, whose worker is idle now, with at most one update."""

    def proceed(self, server: ParameterServer) -> None:  # noqa: B027
        """Make at most one update that needs no further task.

        It is called after each update. Most methods have nothing to do here.
        """


def mean_cycle_times(pool: Pool) -> Floats:
    """Mean times of one task of each worker at new weights, latency included, shape (n,)."""
    if pool.latency is None:
        return pool.mean()
    return pool.mean() + pool.latency.mean()


def best_group(times: Floats, chances: Floats, gradients: int) -> tuple[Ints, float]:
    """The group of the fastest m workers with the least time of an update, and that time.

    m minimises t(m) = (S + sum_{j <= m} p_j) / sum_{j <= m} p_j / c_j. Worker j tries every c_j,
    and succeeds with chance p_j; workers are sorted by c.

    Source: MindFlayer SGD (UAI 2025); with p = 1 it is the m* of Naive Optimal ASGD, as Ringmaster
    ASGD (ICML 2025) defines it.

    Args:
        times: The times c of a try, shape (n,).
        chances: The chances p of success, shape (n,).
        gradients: The number S of gradients of an update.
    """
    order = np.argsort(times, kind="stable")
    p = chances[order]
    c = times[order]
    needed = (gradients + np.cumsum(p)) / np.cumsum(p / c)
    last = int(np.argmin(needed))
    return order[: last + 1], float(needed[last])
