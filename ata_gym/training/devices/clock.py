"""The device clock: rounds of tasks that are really run, one by one, on real devices."""

import functools
import heapq
from collections.abc import Sequence

import numpy as np

from ata_gym.envs.states.backend import RealWorkers
from ata_gym.pools import trace
from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.keys import NoiseKeys
from ata_gym.simulation.rounds import RoundResult, race_round
from ata_gym.training.devices.workers import DeviceWorker, add, find_workers, replicate
from ata_gym.training.trainer.trainer import Gradient, Trainer
from ata_gym.typing import Ints


class DeviceClock(RealWorkers):
    """The ``backend`` of an env whose tasks are really run on devices and timed.

    Tasks are run one after the other, so that they do not disturb each other, and their times are
    put together as if the workers had run in parallel: the round ends with the B-th result, and
    drawing data, copying weights and averaging gradients take no time. Workers that name the same
    GPU each stand for a GPU of their own. A task's time on CUDA includes the gaps in which the
    device waits for the next launch. One sample of a small model is mostly gaps: ``micro_batch``
    makes tasks of a real size.

    The b-th task that starts in a round draws the sample of task b of a ``Trainer``, and the mean
    of the first B gradients is the round's gradient. In a race, other tasks may give the first B
    results, but a task's time does not depend on its sample: allocation and times decide when a
    gradient is there, never what it is, unless the data differ by worker. Layers such as dropout
    draw from a key of (seed, round, task), where a ``Trainer`` has one key for all tasks.

    ``TrainingWrapper`` lets the clock's trainer take the steps. Copies of an env's spec share the
    clock.

    Args:
        trainer: The trainer whose gradients are computed; without ``compile``, ``graphs`` and
            ``precision="float16"``.
        workers: One for each worker of the env: a list of ``DeviceWorker`` or of texts such as
            ``"cpu:3"``, or ``"cpu:1,cpu:3"``.

    Raises:
        ValueError: For wrong workers, or settings that do not go with single tasks.
        MemoryError: If a device has not enough memory for a task; rounds raise it, too.

    Example:
        >>> import gymnasium, ata_gym
        >>> from ata_gym.training import TrainingWrapper
        >>> clock = DeviceClock(Trainer("quadratic", budget=3), "cpu:1, cpu:2")
        >>> options = {"pool": clock.pool, "budget": 3, "backend": clock}
        >>> env = TrainingWrapper(gymnasium.make("ata_gym/TaskAllocation-v0", **options))
        >>> _ = env.reset(seed=0)
        >>> feedback, _, _, _, info = env.step(np.array([2, 1]))
        >>> feedback["worker"], bool((feedback["duration"] > 0).all()), info["loss"] > 0
        (array([0, 0, 1]), True, True)
    """

    backend_name = "device clock"

    def __init__(self, trainer: Trainer, workers: str | Sequence[DeviceWorker | str]) -> None:
        if trainer.settings.precision == "float16":
            raise ValueError(
                "the device clock does not scale gradients, as float16 needs: use"
                ' precision="bfloat16"',
            )
        if trainer.settings.compile or trainer.settings.graphs:
            raise ValueError(
                "the device clock runs one task at a time: leave out compile=... and graphs=...",
            )
        self.trainer = trainer
        self.budget = trainer.budget
        self.workers = find_workers(workers)
        self._replicas = replicate(trainer, self.workers)
        self._runners = [(self._replicas[worker.device], worker.work) for worker in self.workers]
        self._losses: list[float] = []

    def __call__(
        self,
        _distributions: Distributions,
        noise_keys: NoiseKeys,
        allocation: Ints,
        budget: int,
    ) -> RoundResult:
        """Run a round; the arguments are as for ``race_round`` with one row."""
        self._losses = []
        for replica in self._replicas.values():
            replica.begin()
        times = self._run(allocation[0], budget)
        # A trace needs at least one time, which is not read for a worker without tasks.
        measured = trace([record or [1.0] for record in times]).distributions
        # The simulation of the round reads the measured times from the first one on.
        from_first = noise_keys._replace(started=np.zeros_like(noise_keys.started))
        outcome = race_round(measured, from_first, allocation, budget)
        return outcome._replace(started=noise_keys.started + outcome.started)

    def gradient(self) -> Gradient:
        """The mean gradient of the round that was run, for ``trainer.apply``."""
        budget = self.trainer.budget
        totals = [replica.total(self.trainer.device) for replica in self._replicas.values()]
        parts = [
            None if total is None else total / budget for total in functools.reduce(add, totals)
        ]
        return Gradient(float(np.mean(self._losses[:budget])), parts)

    def _run(self, allocation: Ints, budget: int) -> list[list[float]]:
        """Run the tasks that start before the round ends; the times of each worker in seconds."""
        times: list[list[float]] = [[] for _ in allocation]
        # A heap of the times from which a worker is free. Ties go to the lowest worker.
        free = [(0.0, int(i)) for i in np.flatnonzero(allocation)]
        results = 0
        one_hot = np.eye(len(times), dtype=np.int64)
        while results < budget:
            time, i = heapq.heappop(free)
            # At each pop but its first one, a worker has ended a task.
            results += bool(times[i])
            if results < budget and len(times[i]) < allocation[i]:
                replica, work = self._runners[i]
                task = len(self._losses)
                seconds, loss = replica.run(task, work, one_hot[i], keep=task < budget)
                times[i].append(seconds)
                self._losses.append(loss)
                heapq.heappush(free, (time + seconds, i))
        return times
