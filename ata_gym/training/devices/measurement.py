"""Measured task times of workers on real devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ata_gym.training.devices.replicas import replicate
from ata_gym.training.devices.workers import Worker
from ata_gym.training.trainer import Trainer
from ata_gym.typing import Floats


def measure_times(
    trainer: Trainer,
    workers: Sequence[Worker],
    tasks: int,
    progress: Callable[[int], None] = lambda _done: None,
) -> Floats:
    """Measure the task times of n workers, which take turns, after a warm-up that is not recorded.

    Parameters
    ----------
    trainer
        Its weights stay as they are: task j of every worker is task j of its first round.
    workers, tasks
        The n workers, and how many tasks each of them runs.
    progress
        Called after every task with the number of tasks done.

    Returns
    -------
    Task times in seconds, shape (n, tasks).

    Raises
    ------
    FloatingPointError
        If the loss of a task is NaN or infinite.
    MemoryError
        If a device has not enough memory for a task.

    Examples
    --------
    >>> from ata_gym.training import Trainer, Worker
    >>> times = measure_times(Trainer("quadratic", budget=1), [Worker(work=1), Worker(work=2)], tasks=3)
    >>> times.shape, bool((times > 0).all())
    ((2, 3), True)
    """
    replicas = replicate(trainer, workers)
    times = np.empty((len(workers), tasks))
    for task in range(tasks):
        for i, worker in enumerate(workers):
            times[i, task], _ = replicas[worker.device].run(task, worker.work)
            progress(task * len(workers) + i + 1)
    return times


def autocorrelation(times: Floats) -> Floats:
    """The correlation of a worker's successive task times, shape (n,), from times (n, tasks); NaN if all are equal.

    >>> autocorrelation(np.array([[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]])).round(3)
    array([-0.833])
    """
    centred = times - times.mean(1, keepdims=True)
    with np.errstate(invalid="ignore"):  # times that are all the same
        correlation: Floats = (centred[:, 1:] * centred[:, :-1]).sum(1) / (centred**2).sum(1)
    return correlation
