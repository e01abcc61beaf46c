"""The device clock: rounds of tasks that are really run, one by one, on real devices."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence

import numpy as np

from ata_gym.pools import trace
from ata_gym.pools.laws import Laws
from ata_gym.simulation import Ints, Keys, Outcome, race_round
from ata_gym.training.replicas import add, replicate
from ata_gym.training.trainer import Trainer
from ata_gym.training.workers import Worker


class DeviceClock:
    """A source of rounds for ``TaskAllocationEnv.run_on``, made of measured times of real tasks.

    Tasks are run one after the other, so that they do not disturb each other, and their times are put together as
    if the workers had run in parallel: each worker runs its tasks one after the other, the round ends with the B-th
    result, and copying weights and averaging gradients take no time. In a race, a task is run when it starts in this
    order of events, and a cancelled one counts as worker time until the round's end.

    The b-th task that starts in a round draws the sample of task b of a ``Trainer``, and the mean of the first B
    gradients is the round's. A task's time does not depend on its sample, so it does not matter that in a race the
    first B results may be those of other tasks: allocation and times decide when a gradient is there, never what it is.
    Layers such as dropout draw from a key of (seed, round, task), where a ``Trainer`` has one for all tasks of a round.

    Parameters
    ----------
    trainer
        Whose gradients are computed.
    workers
        One for each worker of the env.

    Raises
    ------
    MemoryError
        From here on, if a device has not enough memory for a task.

    Examples
    --------
    >>> import gymnasium, ata_gym
    >>> env = gymnasium.make("ata_gym/TaskAllocation-v0", pool=ata_gym.pools.deterministic([1.0, 2.0]), budget=3)
    >>> clock = DeviceClock(Trainer("quadratic", budget=3), [Worker("cpu"), Worker("cpu", work=2)])
    >>> env.unwrapped.run_on(clock)
    >>> _ = env.reset(seed=0)
    >>> feedback, *_ = env.step(np.array([2, 1]))
    >>> feedback["worker"], bool((feedback["time"] > 0).all()), clock.step() > 0
    (array([0, 0, 1]), True, True)
    """

    def __init__(self, trainer: Trainer, workers: Sequence[Worker]) -> None:
        self._trainer = trainer
        self._replicas = replicate(trainer, workers)
        self._workers = [(self._replicas[worker.device], worker.work) for worker in workers]
        self._losses: list[float] = []

    def __call__(
        self, laws: Laws, keys: Keys, episode: Ints, round_index: Ints, started: Ints, allocation: Ints, budget: int
    ) -> Outcome:
        """Run a round; the arguments are those of ``simulation.race_round`` with one row, the laws unused.

        Raises
        ------
        FloatingPointError
            If the loss of a task is NaN or infinite.
        """
        del laws
        self._losses = []
        for replica in self._replicas.values():
            replica.begin()
        times = self._run(allocation[0], budget)
        measured = trace([record or [1.0] for record in times]).laws  # who has no task takes none of these times
        outcome = race_round(measured, keys, episode, round_index, np.zeros_like(started), allocation, budget)
        return outcome._replace(started=started + outcome.started)

    def step(self) -> float:
        """Let the trainer take its step on the gradients of the round that was run; their mean loss."""
        budget = self._trainer.budget
        totals = [replica.total(self._trainer.device) for replica in self._replicas.values()]
        mean = [None if total is None else total / budget for total in functools.reduce(add, totals)]
        return self._trainer.advance(float(np.mean(self._losses[:budget])), mean)

    def _run(self, allocation: Ints, budget: int) -> list[list[float]]:
        """Run the tasks that start until B results are in, in this order, and give each worker's task times."""
        times: list[list[float]] = [[] for _ in allocation]
        free = [(0.0, int(i)) for i in np.flatnonzero(allocation)]  # since when a worker may start a task: a heap
        results = 0
        while results < budget:
            now, i = heapq.heappop(free)
            results += bool(times[i])
            if results < budget and len(times[i]) < allocation[i]:
                replica, work = self._workers[i]
                task = len(self._losses)
                seconds, loss = replica.run(task, work, keep=task < budget)
                times[i].append(seconds)
                self._losses.append(loss)
                heapq.heappush(free, (now + seconds, i))
        return times
