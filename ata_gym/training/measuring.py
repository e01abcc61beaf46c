"""Real task times of real workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ata_gym.simulation import Floats
from ata_gym.training.replicas import replicate
from ata_gym.training.trainer import Trainer
from ata_gym.training.workers import Worker


def measure_times(
    trainer: Trainer,
    workers: Sequence[Worker],
    tasks: int,
    progress: Callable[[int], None] = lambda _done: None,
) -> Floats:
    """Measure tasks of real workers, which take turns, after a warm-up that is not recorded.

    Parameters
    ----------
    trainer
        Whose tasks are run. It is not trained: task j of every worker is the gradient of its task j.
    workers
        The n workers.
    tasks
        How many each of them runs.
    progress
        Told after every task how many are done.

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
    """The correlation of a worker's task time with that of its next task, shape (n,), from times (n, tasks).

    >>> autocorrelation(np.array([[1.0, 2.0, 1.0, 2.0, 1.0, 2.0]])).round(3)
    array([-0.833])
    """
    centred = times - times.mean(1, keepdims=True)
    with np.errstate(invalid="ignore"):  # times that are all the same
        correlation: Floats = (centred[:, 1:] * centred[:, :-1]).sum(1) / (centred**2).sum(1)
    return correlation
