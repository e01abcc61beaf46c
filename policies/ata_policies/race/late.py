"""Races that take far longer than usual: the workers left out of them may have become the faster ones."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.ranges import Times, Within

_FAR = 4.0  # standard deviations of a race of exponential task times, above its mean
_RACES = 16.0  # races that the usual time is an average of
_DOUBT = 8  # races in which all workers take part after one that took far longer


class Doubt(NamedTuple):
    """Whether a race in which few workers take part is still right, for E rows. Ours.

    It is not where the last race took more than 1 + 4 / sqrt(B) times as long as usual: for exponential times the
    coefficient of variation is 1 / sqrt(B). Then all workers race 8 times, so that what has changed is seen at once.
    The usual time is an average of the last 16 or so, each of which counts at most four times the usual.

    >>> def race(seconds):
    ...     return np.array([[0, 0, 0, 0]]), np.full((1, 4), seconds / 4), np.zeros((1, 2))
    >>> doubt = Doubt.start(1).after(*race(40.0))
    >>> doubt = doubt.after(*race(100.0))
    >>> doubt.all_race(), doubt.after(*race(200.0)).all_race()
    (array([False]), array([ True]))
    """

    usual: Times  # (E,) the usual time of a race; 0 before the first
    races: Annotated[Ints, Within(0, _DOUBT)]  # (E,) how often all workers are still to race

    @classmethod
    def start(cls, rows: int) -> Doubt:
        """No race has been seen."""
        return cls(np.zeros(rows), np.zeros(rows, np.int64))

    def after(self, worker: Ints, duration: Floats, elapsed: Floats) -> Doubt:
        """After one more race: ``worker`` and ``duration`` (E, B) and ``elapsed`` (E, n) of the observation."""
        took: Floats = _round_time(worker, duration, elapsed)
        first = self.usual == 0.0
        far = ~first & (took > self.usual * (1.0 + _FAR / math.sqrt(worker.shape[1])))
        counted = np.where(first, took, np.minimum(took, 4.0 * self.usual))
        usual = self.usual + (counted - self.usual) / np.where(first, 1.0, _RACES)
        return Doubt(np.where(took > 0.0, usual, self.usual), np.where(far, _DOUBT, np.maximum(self.races - 1, 0)))

    def all_race(self) -> Mask:
        """Where all workers are to race, shape (E,)."""
        return np.asarray(self.races > 0)


@gufunc("void(int64[:], float64[:], float64[:], float64[:])", "(r),(r),(n)->()")
def _round_time(worker: Ints, duration: Floats, elapsed: Floats, out: Floats) -> None:
    busy = elapsed.copy()
    out[0] = 0.0
    for r in range(len(worker)):
        if worker[r] >= 0:
            busy[worker[r]] += duration[r]
    for i in range(len(busy)):
        out[0] = max(out[0], busy[i])
