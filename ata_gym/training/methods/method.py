"""The contract of a training method, and the parameter server that it drives."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from ata_gym.pools import Pool
from ata_gym.training.methods.clock import WorkerClock
from ata_gym.training.models.model import Weights, copy_weights
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number


class EndedTask(NamedTuple):
    """A task that has ended: one stochastic gradient."""

    worker: int
    update: int  # the number of server updates when it started
    weights: Weights  # the weights that it started from, where its gradient is taken
    finished: bool  # whether the gradient was computed; otherwise the task was given up at its time limit


class UpdateRecord(NamedTuple):
    """The state of a run right after an update; every count and time is from the start on."""

    update: int  # the number k of server updates
    runtime: float  # the time since the start, in the pool's units
    total_worker_time: float  # how long all workers were busy, cancelled tasks included
    computed: int  # gradients that workers have finished
    used: int  # gradients that updates have used
    loss: float  # mean loss of this update's gradients, where they were taken; NaN for an update without any


class ParameterServer:
    """The server of a method: it starts tasks, waits for their ends, and moves the weights.

    Gradient b of update k draws its sample from the key of (seed, k, b), as task b of round k does in a ``Trainer``:
    with B gradients at the current weights, both take the same step to the bit. A gradient is computed when it is used,
    which changes nothing, since its noise is independent of all times, and saves those that no update uses.
    """

    def __init__(self, clock: WorkerClock, trainer: Trainer) -> None:
        self._clock, self._trainer = clock, trainer
        self._current: Weights | None = None
        self._started_at: list[Weights] = [()] * len(clock.started)
        self._computed = self._used = 0
        self.record = UpdateRecord(0, 0.0, 0.0, 0, 0, math.nan)
        """The last update."""

    @property
    def updates(self) -> int:
        """The number k of updates so far."""
        return self._trainer.round

    @property
    def idle(self) -> Ints:
        """The workers without a task, in rising order."""
        return np.flatnonzero(~self._clock.busy)

    def late(self, delay: int) -> Ints:
        """The workers whose running task started at least that many updates ago."""
        return np.flatnonzero(self._clock.busy & (self.updates - self._clock.update >= delay))

    def delay(self, task: EndedTask) -> int:
        """The number of updates since a task started."""
        return self.updates - task.update

    def start(self, workers: Ints | Sequence[int]) -> None:
        """Let each of these workers start a task at the current weights; the task that it was running is cancelled."""
        chosen = np.asarray(workers, np.int64)
        self._clock.start(chosen, self.updates)
        if self._current is None:
            self._current = copy_weights(self._trainer.model)
        for worker in chosen.tolist():
            self._started_at[worker] = self._current  # one copy for all that start between two updates

    def next(self) -> EndedTask:
        """Wait for the next task to end."""
        worker, finished = self._clock.next()
        self._computed += finished
        return EndedTask(worker, int(self._clock.update[worker]), self._started_at[worker], finished)

    def update(self, tasks: Sequence[EndedTask], scale: float = 1.0) -> None:
        """Step along the mean gradient of tasks that started at the same weights; without any, the weights stay.

        ``scale`` is a factor on the learning rate. It raises what ``Trainer.gradient`` raises.
        """
        loss = math.nan
        if tasks:
            loss = self._trainer.apply(self._trainer.gradient(tasks[0].weights, len(tasks)), scale)
            self._current = None
        else:
            self._trainer.skip()
        self._used += len(tasks)
        times = self._clock.runtime, self._clock.total_worker_time
        self.record = UpdateRecord(self.updates, *times, self._computed, self._used, loss)


class Method(ABC):
    """What a server does when a task ends; a worker that it does not start stays idle.

    A subclass needs ``arrive`` and ``step_size``; its docstring says what it knows of the task times of ``pool``. An
    object is used for one run. The ``budget`` B, the gradients that one update needs, is in theory max(1, ceil(sigma^2
    / eps)), for variance sigma^2 and accuracy eps.
    """

    source: ClassVar[str] = ""  # the publication that it comes from
    family: ClassVar[str] = "other"  # the family of methods with which it is drawn

    def __init__(self, pool: Pool, budget: int) -> None:
        self.pool, self.budget = pool, whole_number("budget", budget)
        self.workers: Ints = np.arange(pool.n)  # those that take part
        self.time_limit: Floats | float = np.inf  # after which a task is given up, for all workers or for each, (n,)

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    @property
    def gradients(self) -> float:
        """The expected number of gradients of an update, by default one."""
        return 1.0

    @abstractmethod
    def step_size(self, smoothness: float, variance: float, accuracy: float) -> float:
        """The learning rate that theory gives for SGD; eps is the wanted mean squared gradient norm over all updates.

        Where papers write min(1/u, 1/v), it is computed as 1/max(u, v), which allows for sigma^2 = 0.
        """

    def begin(self, server: ParameterServer) -> None:
        """Start the first tasks, by default one on each worker that takes part."""
        server.start(self.workers)

    @abstractmethod
    def arrive(self, server: ParameterServer, task: EndedTask) -> None:
        """React to the end of a task, whose worker is idle now, with at most one update."""

    def proceed(self, server: ParameterServer) -> None:  # noqa: B027 - most methods have nothing to do here
        """Make at most one update that needs no further task; called after each update. By default there is none."""


def best_group(times: Floats, chances: Floats, gradients: int) -> tuple[Ints, float]:
    """The fastest m workers, m minimising t(m) = (S + sum_{j <= m} p_j) / sum_{j <= m} p_j / c_j, and that time.

    Worker j tries every c_j, and succeeds with chance p_j; workers are sorted by c. Source: MindFlayer SGD (UAI 2025);
    with p = 1 it is the m* of Naive Optimal ASGD, as Ringmaster ASGD (ICML 2025) defines it.
    """
    order = np.argsort(times, kind="stable")
    p, c = chances[order], times[order]
    needed = (gradients + np.cumsum(p)) / np.cumsum(p / c)
    last = int(np.argmin(needed))
    return order[: last + 1], float(needed[last])
