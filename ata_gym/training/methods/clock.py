"""The clock of a method: which workers compute, whose task ends next, and how long they have been busy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools import Pool
from ata_gym.pools.families import CODES
from ata_gym.simulation.keys import stream_keys
from ata_gym.simulation.task_times import task_times
from ata_gym.typing import Floats, Ints


class WorkerClock:
    """The workers of a pool, each idle or busy with one task.

    Task j of worker i takes the time that it has in the envs, in episode 0 of the same seed, where the number of server
    updates when it starts is its round; a task that was cancelled counts in j. After its worker's ``time_limit``,
    shape (n,) or one for all, a task is given up.

    When all busy workers start together after an update, a period begins. Times are counted from there, and runtime and
    worker time of the periods are added up, as an env does with its rounds: the floats are the same.

    >>> from ata_gym.pools import deterministic
    >>> clock = WorkerClock(deterministic([2.0, 3.0]), seed=0, time_limit=2.5)
    >>> clock.start([0, 1], update=0)
    >>> clock.next(), clock.next(), clock.runtime, clock.total_worker_time
    ((0, True), (1, False), 2.5, 4.5)
    """

    def __init__(self, pool: Pool, seed: int, time_limit: Floats | float = np.inf) -> None:
        self._distributions, self._key = pool.distributions, stream_keys(seed)  # the stream of the task times of an env
        self._limit = np.broadcast_to(np.asarray(time_limit, np.float64), pool.n)
        self.started = np.zeros(pool.n, np.int64)  # tasks that each worker has started
        self.update = np.zeros(pool.n, np.int64)  # server updates when each worker's last task started
        self.over = False  # whether a task was started for which the pool's recorded times did not suffice
        self._ends, self._finishes = np.full(pool.n, np.inf), np.zeros(pool.n, np.bool_)
        self._past_runtime = self._past_worker_time = self._now = 0.0
        self._period = 0  # updates when it began
        self._idle_since, self._idled = np.zeros((2, pool.n))  # start of the idle time; idle time before

    @property
    def busy(self) -> NDArray[np.bool_]:
        """(n,) which workers are computing."""
        busy: NDArray[np.bool_] = np.isfinite(self._ends)
        return busy

    @property
    def runtime(self) -> float:
        """The time since the start."""
        return self._past_runtime + self._now

    @property
    def total_worker_time(self) -> float:
        """How long all workers were busy until now, cancelled tasks included."""
        worked = np.where(self.busy, self._now, self._idle_since) - self._idled
        return self._past_worker_time + float(np.cumsum(worked)[-1])  # one after the other, as an env adds them up

    def start(self, workers: Ints | list[int], update: int) -> None:
        """Let ``workers`` start a task each, after ``update`` server updates; the tasks that they ran are cancelled."""
        chosen = np.asarray(workers, np.int64)
        others = self.busy
        others[chosen] = False
        if not others.any() and update > self._period:
            self._period = update
            self._past_runtime, self._past_worker_time = self.runtime, self.total_worker_time
            self._now = 0.0
            self._idle_since[:] = self._idled[:] = 0.0
        idle = chosen[~self.busy[chosen]]
        self._idled[idle] += self._now - self._idle_since[idle]
        task = self.started[chosen]
        rows = np.where(self._distributions.family[chosen] == CODES["trace-by-round"], update, task)
        self.over |= bool((rows >= self._distributions.limit[chosen]).any())
        time, limit = task_times(self._distributions, self._key, 0, update, chosen, task), self._limit[chosen]
        self._ends[chosen] = self._now + np.minimum(time, limit)
        self._finishes[chosen] = time <= limit
        self.started[chosen] += 1
        self.update[chosen] = update

    def next(self) -> tuple[int, bool]:
        """Go on to the next end of a task: its worker, who is idle now, and whether the task was not given up.

        If several end at one moment, it is the task of the lowest worker. If all are idle, it raises ``RuntimeError``.
        """
        worker = int(self._ends.argmin())
        end = float(self._ends[worker])
        if end == np.inf:
            raise RuntimeError("all workers are idle: the method started no task, or one whose time is infinite")
        self._now = self._idle_since[worker] = end
        self._ends[worker] = np.inf
        return worker, bool(self._finishes[worker])
