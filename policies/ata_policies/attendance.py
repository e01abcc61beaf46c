"""Who seems to be there, where workers come and go: calling the roll by who owes results. Ours."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.simulation import Floats, Ints


class Attendance(NamedTuple):
    """Who gave fewer results than it had tasks is away, until it gives all of them again.

    In a round that nobody dies in that never happens: a worker in use that gave too little was away or died, and others
    had to do its work.
    """

    asked: Ints
    """(E, n) tasks of the last allocation."""
    away: NDArray[np.bool_]
    """(E, n) whether the worker owes results of the last allocation that it had a task in."""
    pause: Ints
    """(E, n) rounds between two probes."""
    wait: Ints
    """(E, n) rounds until the next probe."""

    @classmethod
    def full(cls, rows: int, n: int, pause: int) -> Attendance:
        """Everybody is there."""
        zeros = np.zeros((rows, n), np.int64)
        return cls(zeros, zeros > 0, np.full_like(zeros, pause), zeros)

    def after(self, results: Floats, pause: int, longest: int) -> Attendance:
        """What is known after a round in which each worker gave so many results, shape (E, n).

        Who is away is to be probed after ``pause`` rounds; with each vain probe the pause doubles, up to ``longest``,
        for it costs everybody the deadline. If nobody seems to be there, everybody is taken to be.

        >>> roll = Attendance.full(1, 2, pause=2)._replace(asked=np.array([[1, 2]]))
        >>> roll = roll.after(np.array([[2.0, 1.0]]), pause=2, longest=16)  # worker 0 did a task of worker 1
        >>> roll.away, roll.wait
        (array([[False,  True]]), array([[0, 2]]))
        """
        owing = results < self.asked
        back = (self.asked > 0) & ~owing
        away = (self.away & ~back) | owing
        vain = self.away & owing
        pauses = np.where(back, pause, np.where(vain, np.minimum(2 * self.pause, longest), self.pause))
        wait = np.where(owing, pauses, np.maximum(self.wait - 1, 0))
        nobody = away.all(axis=1, keepdims=True)
        return Attendance(self.asked, away & ~nobody, pauses, wait)
