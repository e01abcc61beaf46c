"""Workers of unequal speeds on one machine, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss
from ata_gym.typing import Floats
from ata_gym.utils.validation import real, whole_number


@dataclass(frozen=True)
class Emulation:
    """Task times of workers in each round, which are counted from 1.

    ValueError if a number is out of range.

    >>> emulation = Emulation(4, (0.01, 0.02), rounds=10, change_at=6, stall=(3, 1, 5.0), away=(8, 9, 0))
    >>> emulation.task_times(1).tolist(), emulation.task_times(6).tolist(), emulation.task_times(8).tolist()
    ([0.01, 0.02], [0.02, 0.01], [inf, 0.01])
    >>> round(emulation.least(1), 3)  # 3 tasks and 1 task
    0.03
    """

    budget: int
    times: tuple[float, ...]
    """Seconds that a task takes, for each worker."""
    rounds: int
    change_at: int | None = None
    """The round from which on the workers have each other's times, in reverse order."""
    stall: tuple[int, int, float] | None = None
    """A round, a worker, and the seconds for which it hangs in its first task of that round."""
    away: tuple[int, int, int] | None = None
    """The first and the last round of an absence, and whose."""

    def __post_init__(self) -> None:
        whole_number("budget", self.budget)
        whole_number("rounds", self.rounds)
        if not self.times:
            raise ValueError("there must be at least one worker: give its task time")
        for time in self.times:
            real("each task time", time)
        if self.stall is not None:
            self._check_event("stall", self.stall[:1], self.stall[1])
        if self.away is not None:
            self._check_event("away", self.away[:2], self.away[2])

    def _check_event(self, name: str, rounds: Iterable[int], worker: int) -> None:
        for number in rounds:
            whole_number(name, number, 0)
        if not 0 <= worker < len(self.times):
            raise ValueError(f"{name} must name a worker from 0 to {len(self.times) - 1}, not {worker}")

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

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From its fields, as JSON may have held them."""
        pairs = ((key, tuple(value) if isinstance(value, list) else value) for key, value in config.items())
        given: dict[str, Any] = dict(pairs)
        return cls(**given)


def task_times(speeds: Sequence[float], fastest: float) -> tuple[float, ...]:
    """Task times in proportion to ``speeds``, of which the least stands for ``fastest`` seconds.

    >>> task_times([1, 1, 2, 4], 0.01)
    (0.01, 0.01, 0.02, 0.04)
    """
    least = min(real("each relative task time", speed) for speed in speeds)
    return tuple(fastest * speed / least for speed in speeds)
