"""Which workers are available where workers come and go: a worker that owes results is not. Ours."""

from typing import NamedTuple, Self

import numpy as np

from ata_gym.typing import Bits, Floats, Ints, Mask
from ata_gym.utils.ranges import Tasks, Wholes
from ata_policies.beliefs.moments import Totals

PAUSE, LONGEST = 8, 64
"""The rounds in which a worker that is away gets nothing: by default so many at first, and so many at most."""
_NEVER = 2**40  # rounds until a worker that has left is probed


def results_of(worker: Ints, n: int) -> Floats:
    """How many results each worker has in a round, (E, n); ``worker`` (E, R) says whose each result is."""
    return Totals.empty(len(worker), n).observe(worker, np.zeros(worker.shape)).counts


def signs_of_life(worker: Ints, elapsed: Floats, running: Bits | None = None) -> Mask:
    """Which workers gave a result in the last step, had a task cancelled, or are running one, shape (E, n).

    In a race a worker with tasks, and in dispatch a worker that was to start a task, shows one of these signs at the
    next step, unless it is away or dies. The arguments are those of the observation.

    >>> signs_of_life(np.array([[0, 0]]), np.array([[0.0, 2.0, 0.0]]))
    array([[ True,  True, False]])
    """
    signs = (elapsed > 0.0) | (results_of(worker, elapsed.shape[1]) > 0.0)
    return signs if running is None else signs | (running > 0)


class Availability(NamedTuple):
    """A worker that gave fewer results than it had tasks is away, until it gives all of them again.

    It is probed after ``pause`` rounds. Each probe without a result delays the round until the deadline, so the pause
    doubles then, up to ``longest``. If all workers seem to be away, all count as there.
    """

    asked: Tasks  # (E, n) tasks of the last allocation
    away: Mask  # (E, n) whether the worker owes results of the last allocation in which it had a task
    pause: Wholes  # (E, n) rounds between two probes
    wait: Wholes  # (E, n) rounds until the next probe

    @classmethod
    def full(cls, rows: int, n: int, pause: int) -> Self:
        """All workers are there."""
        zeros = np.zeros((rows, n), np.int64)
        return cls(zeros, zeros > 0, np.full_like(zeros, pause), zeros)

    def after(self, results: Floats | Mask, pause: int, longest: int) -> "Availability":
        """The availability after a round in which each worker gave so many results, or signs of life, (E, n)."""
        owing = results < self.asked
        back = (self.asked > 0) & ~owing
        away = (self.away & ~back) | owing
        unanswered = self.away & owing
        pauses = np.where(back, pause, np.where(unanswered, np.minimum(2 * self.pause, longest), self.pause))
        wait = np.where(owing, pauses, np.maximum(self.wait - 1, 0))
        return Availability(self.asked, away & ~away.all(axis=1, keepdims=True), pauses, wait)

    def note_absences(self, absent: Mask, back: Mask) -> "Availability":
        """The availability where ``absent`` workers have left, and those that are ``back`` are probed, (n,) each."""
        away = self.away | absent | back
        wait = np.where(absent, _NEVER, np.where(back, 1, self.wait))
        return Availability(np.where(absent | back, 0, self.asked), away, self.pause, wait)

    def available(self) -> Mask:
        """Which workers may get tasks: those that are there, and those to be probed, shape (E, n)."""
        return ~(self.away & (self.wait > 0))
