"""What happened in a round of one row: when each worker was busy with a task, and how the task ended."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Floats, Ints, Mask

KINDS = ("done", "cancelled", "lost", "running")
"""How a task ended: with a result; cancelled at the round's end; lost as its worker died; or it has not (dispatch)."""
DONE, CANCELLED, LOST, RUNNING = range(4)


class Timeline(NamedTuple):
    """The last round of a row of n workers, in dispatch maybe not over yet. Times count from the round's start."""

    round: int  # its number, counted from 1; 0 if none has begun, and then there are no segments
    budget: int  # results B that it needs
    over: bool  # whether all B results are in
    worker: Ints  # (k,) the worker of each segment, in ascending order, those of a worker in the order of their starts
    start: Floats  # (k,) when the task was started
    end: Floats  # (k,) when its result was in, or it was cancelled or lost; the present for a running task
    kind: NDArray[np.int8]  # (k,) which of ``KINDS``
    time: float  # the round time; in dispatch, so far
    worker_time: float  # how long all workers were busy in it
    runtime: float  # round times of the episode added up, with this one
    total_worker_time: float  # worker times of the episode added up, with this one
    price: float  # what one unit of worker time costs in units of runtime
    tasks: Ints  # (n,) the allocation; in dispatch, tasks started in the round
    estimate: Floats  # (n,) estimates of the mean task times; NaN where there is none
    at_least: Mask  # (n,) whether the estimate is only a lower bound: the time spent on tasks without a result
    mean: Floats  # (n,) exact mean task times in the round; inf for workers that are away from its start
    dies: Floats  # (n,) when each worker dies; 0: it is away, inf: it lives
    present: Mask  # (n,) places that hold a worker
    longest: float  # the longest of the last round times of the episode, so that an axis seldom changes

    @classmethod
    def empty(cls, n: int, budget: int) -> Self:
        """No round of n workers."""
        nobody, never, each = np.zeros(0, np.int64), np.zeros(0), np.zeros(n)
        return cls(
            0, budget, False, nobody, never, never, nobody.astype(np.int8), 0.0, 0.0, 0.0, 0.0, 0.0,
            each.astype(np.int64), each, each > 0, each, each, each == 0, 0.0,
        )  # fmt: skip

    def _time_on(self, which: Mask) -> Floats:
        time = (self.end - self.start)[which]
        return np.bincount(self.worker[which], time, minlength=len(self.tasks)).astype(np.float64)

    @property
    def busy(self) -> Floats:
        """How long each worker was busy, (n,)."""
        return self._time_on(self.kind >= 0)

    @property
    def wasted_by(self) -> Floats:
        """How long each worker was busy with tasks that gave no result and will give none, (n,)."""
        return self._time_on((self.kind == CANCELLED) | (self.kind == LOST))

    @property
    def away(self) -> Mask:
        """Workers that are away from the round's start, (n,)."""
        return np.asarray(self.present & (self.dies == 0.0))

    @property
    def results(self) -> int:
        """How many results are in."""
        return int((self.kind == DONE).sum())

    @property
    def last(self) -> int:
        """The worker of the last result (of equals the highest); -1 if there is no result."""
        done = self.kind == DONE
        return int(self.worker[done & (self.end >= self.end[done].max())].max()) if done.any() else -1

    def shown(self, most: int) -> Ints:
        """The workers to show, in ascending order: all, or the ``most`` busiest ones (of equals the lowest)."""
        there = np.flatnonzero(self.present)
        if len(there) <= most:
            return there
        return np.sort(there[np.argsort(-self.busy[there], kind="stable")[:most]])

    def about_rest(self, shown: Ints) -> str:
        """A line on the workers that are not shown; "" if all are shown."""
        rest = self.present.copy()
        rest[shown] = False
        busy = int((self.busy[rest] > 0).sum())
        away = int(self.away[rest].sum())
        count = int(rest.sum())
        away_too = f", {away:,} away" if away else ""
        return f"+ {count:,} workers: {busy:,} busy, {count - busy - away:,} idle{away_too}" if count else ""

    def headings(self) -> tuple[str, str]:
        """Two lines: the round and its time; worker time, runtime and price."""
        if self.round == 0:
            return "No round was played yet", f"a round needs {_results(self.budget)} of {self.present.sum():,} workers"
        if self.over:
            first = f"Round {self.round:,}: {number(self.time)} until {_results(self.budget)} were in"
        else:
            first = f"Round {self.round:,}, after {number(self.time)}: {self.results:,} of {_results(self.budget)}"
        price = f", price {number(self.price)}" if self.price else ""
        return first, f"worker time {number(self.worker_time)}, runtime so far {number(self.runtime)}{price}"


def number(value: float) -> str:
    """A time in four digits, or in whole thousands.

    >>> number(4.94719), number(123456.7), number(2e6)
    ('4.947', '123,457', '2e+06')
    """
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.4g}"


def _results(count: int) -> str:
    return f"{count:,} result{'s' * (count != 1)}"
