"""The timeline of a round of one row: when each worker ran a task, and how the task ended."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Floats, Ints, Mask

KINDS = ("done", "cancelled", "lost", "running")
"""The ways in which a task ends.

It gives a result, is cancelled at the round's end, is lost as its worker dies, or (in dispatch) has
not ended yet.
"""
DONE, CANCELLED, LOST, RUNNING = range(4)


class Timeline(NamedTuple):
    """The last round of a row of n workers, in dispatch maybe not over yet.

    Times count from the round's start.
    """

    round: int
    """The number of the round, counted from 1.

    It is 0 if no round has begun, and then there are no segments.
    """
    budget: int
    """The results B that the round needs."""
    round_over: bool
    """Whether all B results are in."""
    worker: Ints
    """The worker of each segment, shape (k,).

    Workers are in ascending order, and the segments of a worker in the order of their starts.
    """
    start: Floats
    """When the task of each segment was started, shape (k,)."""
    end: Floats
    """When the task gave its result, was cancelled or was lost, shape (k,).

    For a running task it is the present.
    """
    kind: NDArray[np.int8]
    """The kind of each segment, an index of ``KINDS``, shape (k,)."""
    time: float
    """The round time; in dispatch, so far."""
    worker_time: float
    """How long all workers were busy in the round."""
    runtime: float
    """The round times of the episode added up, with this one."""
    total_worker_time: float
    """The worker times of the episode added up, with this one."""
    price: float
    """The price of one unit of worker time in units of runtime."""
    tasks: Ints
    """The allocation, or in dispatch the tasks started in the round, shape (n,)."""
    estimate: Floats
    """The estimates of the mean task times, shape (n,); NaN where there is none."""
    is_lower_bound: Mask
    """Whether the estimate is only a lower bound, shape (n,).

    It is then the time spent on tasks without a result.
    """
    mean: Floats
    """The exact mean task times in the round, shape (n,).

    They are inf for workers that are away from its start.
    """
    death_time: Floats
    """When each worker dies, shape (n,); 0 if it is away, inf if it lives."""
    present: Mask
    """The places that hold a worker, shape (n,)."""
    longest: float
    """The longest of the last round times of the episode, so that an axis seldom changes."""

    @classmethod
    def empty(cls, n: int, budget: int) -> Self:
        """The timeline before the first round of n workers with budget B."""
        no_workers = np.zeros(0, np.int64)
        no_times = np.zeros(0)
        zeros = np.zeros(n)
        return cls(
            0,
            budget,
            False,
            no_workers,
            no_times,
            no_times,
            no_workers.astype(np.int8),
            0.0,
            0.0,
            0.0,
            0.0,
            0.0,
            zeros.astype(np.int64),
            zeros,
            zeros > 0,
            zeros,
            zeros,
            zeros == 0,
            0.0,
        )

    def _time_by_worker(self, mask: Mask) -> Floats:
        time = (self.end - self.start)[mask]
        return np.bincount(self.worker[mask], time, minlength=len(self.tasks)).astype(np.float64)

    @property
    def busy(self) -> Floats:
        """How long each worker was busy, shape (n,)."""
        return self._time_by_worker(self.kind >= 0)

    @property
    def wasted_time(self) -> Floats:
        """How long each worker was busy with cancelled and lost tasks, shape (n,)."""
        return self._time_by_worker((self.kind == CANCELLED) | (self.kind == LOST))

    @property
    def away(self) -> Mask:
        """The workers that are away from the round's start, shape (n,)."""
        return np.asarray(self.present & (self.death_time == 0.0))

    @property
    def results(self) -> int:
        """The number of results that are in."""
        return int((self.kind == DONE).sum())

    @property
    def last_worker(self) -> int:
        """The worker of the last result (of equals the highest); -1 if there is no result."""
        done = self.kind == DONE
        if done.any():
            return int(self.worker[done & (self.end >= self.end[done].max())].max())
        return -1

    def busiest(self, count: int) -> Ints:
        """The ``count`` busiest workers (of equals the lowest), or all, in ascending order."""
        present = np.flatnonzero(self.present)
        if len(present) <= count:
            return present
        return np.sort(present[np.argsort(-self.busy[present], kind="stable")[:count]])

    def summary_without(self, workers: Ints) -> str:
        """A line on all workers but these; "" if there are no others."""
        hidden = self.present.copy()
        hidden[workers] = False
        busy = int((self.busy[hidden] > 0).sum())
        away = int(self.away[hidden].sum())
        count = int(hidden.sum())
        if away:
            away_text = f", {away:,} away"
        else:
            away_text = ""
        if count:
            return f"+ {count:,} workers: {busy:,} busy, {count - busy - away:,} idle{away_text}"
        return ""

    def headings(self) -> tuple[str, str]:
        """Two lines: the round and its time, then worker time, runtime and price."""
        if self.round == 0:
            return (
                "No round was played yet",
                f"a round needs {_results(self.budget)} of {self.present.sum():,} workers",
            )
        if self.round_over:
            first = (
                f"Round {self.round:,}: {number(self.time)} until {_results(self.budget)} were in"
            )
        else:
            first = (
                f"Round {self.round:,}, after {number(self.time)}: {self.results:,} of"
                f" {_results(self.budget)}"
            )
        if self.price:
            price = f", price {number(self.price)}"
        else:
            price = ""
        return (
            first,
            f"worker time {number(self.worker_time)}, runtime so far {number(self.runtime)}{price}",
        )


def number(value: float) -> str:
    """A time in four digits, or in whole thousands.

    Example:
        >>> number(4.94719), number(123456.7), number(2e6)
        ('4.947', '123,457', '2e+06')
    """
    if 1e3 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _results(count: int) -> str:
    if count == 1:
        return "1 result"
    return f"{count:,} results"
