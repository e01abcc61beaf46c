"""The server: what a method sees and does while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ata_gym.simulation import Ints
from ata_gym.training.methods.events import Workers
from ata_gym.training.methods.learner import Learner, Weights


class Task(NamedTuple):
    """A task that has ended: one stochastic gradient."""

    worker: int
    update: int
    """Server updates when it started."""
    weights: Weights
    """The weights that it started from, and its gradient is taken at."""
    finished: bool
    """Whether the gradient is there; otherwise the task was given up at its time limit."""


class Record(NamedTuple):
    """Where a run stands right after an update; every count and time is from the start on."""

    update: int
    """Server updates k."""
    runtime: float
    """In the pool's units of time."""
    total_worker_time: float
    """How long all workers were busy, cancelled tasks included."""
    computed: int
    """Gradients that workers have finished."""
    used: int
    """Those that updates have used."""
    loss: float
    """Mean loss of this update's gradients, at the weights where they were taken; NaN for an update without any."""


class Server:
    """Starts tasks, takes in what ends, and moves the weights: the verbs in which a method is written."""

    def __init__(self, workers: Workers, learner: Learner) -> None:
        self._workers, self._learner = workers, learner
        self._weights: list[Weights] = [()] * len(workers.started)
        self._computed = self._used = 0
        self.record = Record(0, 0.0, 0.0, 0, 0, math.nan)
        """The last update."""

    @property
    def updates(self) -> int:
        """Updates k done."""
        return self._learner.updates

    @property
    def over(self) -> bool:
        """Whether the pool's recorded times have come to their end."""
        return self._workers.over

    @property
    def idle(self) -> Ints:
        """The workers without a task."""
        return np.flatnonzero(~self._workers.busy)

    def late(self, delay: int) -> Ints:
        """The workers whose running task started that many updates ago, or more."""
        return np.flatnonzero(self._workers.busy & (self.updates - self._workers.update >= delay))

    def delay(self, task: Task) -> int:
        """Updates since a task started."""
        return self.updates - task.update

    def start(self, workers: Ints | Sequence[int]) -> None:
        """Let each of these workers, all different, start a task at the current weights; what it did is cancelled."""
        chosen = np.asarray(workers, np.int64)
        self._workers.start(chosen, self.updates)
        weights = self._learner.weights()
        for worker in chosen.tolist():
            self._weights[worker] = weights

    def next(self) -> Task:
        """Wait for the next task to end."""
        worker, finished = self._workers.next()
        self._computed += finished
        return Task(worker, int(self._workers.update[worker]), self._weights[worker], finished)

    def update(self, tasks: Sequence[Task], scale: float = 1.0) -> None:
        """Step along the mean gradient of tasks that started together; without any, the weights stay."""
        loss = math.nan
        if tasks:
            loss = self._learner.update(len(tasks), tasks[0].weights, scale)
        else:
            self._learner.skip()
        self._used += len(tasks)
        clock = self._workers
        self.record = Record(self.updates, clock.runtime, clock.total_worker_time, self._computed, self._used, loss)
