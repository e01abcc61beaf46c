"""Workers of unequal speeds on one machine, and what happens to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss
from ata_gym.typing import Floats
from ata_gym.utils.validation import real, whole_number

_LONGEST = 1500.0
"""Seconds of a task or a stall. After 1800 the other processes give up waiting, as torch's process groups do."""


class Training(NamedTuple):
    """What every policy trains."""

    problem: str = "digits"
    data: Path | None = None
    seed: int = 0


@dataclass(frozen=True)
class Emulation:
    """Task times of workers in each round, which are counted from 1.

    Something may happen from the second round on, since the rounds before it are what policies are measured by.

    >>> emulation = Emulation(4, (0.01, 0.02), rounds=10, change_at=6, stall=(3, 1, 5.0), away=(8, 9, 0))
    >>> emulation.task_times(1).tolist(), emulation.task_times(6).tolist(), emulation.task_times(8).tolist()
    ([0.01, 0.02], [0.02, 0.01], [inf, 0.01])
    >>> round(emulation.least(1), 3)  # 3 tasks and 1 task
    0.03
    """

    budget: int
    times: tuple[float, ...]  # seconds that a task takes, for each worker
    rounds: int
    change_at: int | None = None  # the round from which on the workers have each other's times, in reverse order
    stall: tuple[int, int, float] | None = None
    """A round, a worker, and the seconds for which it hangs in its first task of that round."""
    away: tuple[int, int, int] | None = None  # the first and the last round of an absence, and whose

    def __post_init__(self) -> None:
        whole_number("budget", self.budget)
        whole_number("rounds", self.rounds)
        if not self.times:
            raise ValueError("there must be at least one worker: give its task time")
        for time in self.times:
            real("each task time", time, up_to=_LONGEST)
        last_worker = len(self.times) - 1
        if self.change_at is not None:
            whole_number("the round of change_at", self.change_at, 2, self.rounds)
        if self.away is not None:
            first, last, worker = self.away
            whole_number("the first round of away", first, 2, self.rounds)
            whole_number("the last round of away", last, first, self.rounds)
            whole_number("the worker of away", worker, 0, last_worker)
            if not last_worker:
                raise ValueError("away leaves nobody there: give the task times of at least two workers")
        if self.stall is not None:
            number, worker, seconds = self.stall
            whole_number("the round of stall", number, 2, self.rounds)
            whole_number("the worker of stall", worker, 0, last_worker)
            real("the seconds of stall", seconds, up_to=_LONGEST)
            if self.absent(number) == worker:
                raise ValueError(f"worker {worker} cannot stall in round {number}, as it is away then")

    def task_times(self, number: int) -> Floats:
        """Seconds that a task of each worker takes in a round, (n,); infinite for who is away."""
        changed = self.change_at is not None and number >= self.change_at
        times = np.array(self.times[::-1] if changed else self.times)
        absent = self.absent(number)
        if absent is not None:
            times[absent] = np.inf
        return times

    def absent(self, number: int) -> int | None:
        """Who is away in a round."""
        return self.away[2] if self.away is not None and self.away[0] <= number <= self.away[1] else None

    def stalls(self, number: int, worker: int) -> float:
        """Seconds for which a worker hangs in a round."""
        return self.stall[2] if self.stall is not None and self.stall[:2] == (number, worker) else 0.0

    def least(self, number: int) -> float:
        """The least time of a round: that of the best split of B whole tasks, if all else took no time."""
        times = self.task_times(number)
        there = times[np.isfinite(times)]
        return float(proxy_loss(allocate(there, self.budget), there))


def task_times(speeds: Sequence[float], fastest: float) -> tuple[float, ...]:
    """Task times in proportion to ``speeds``, of which the least stands for ``fastest`` seconds.

    >>> task_times([1, 1, 2, 4], 0.01)
    (0.01, 0.01, 0.02, 0.04)
    """
    least = min(real("each relative task time", speed) for speed in speeds)
    return tuple(fastest * speed / least for speed in speeds)
