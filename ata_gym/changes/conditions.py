"""The conditions of a round: what changes make of a pool's laws."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ata_gym.pools.laws import Laws
    from ata_gym.pools.pool import Pool

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Hazards(NamedTuple):
    """What is in a round besides the laws, as the kernels read it."""

    noise: Floats
    """(E, n, 5): share of outliers, their shortest and longest time, factor of a task's own normal noise, and what is
    added to that; (n, 5) if alike in all rows"""
    dies: Floats
    """(E, n) when each worker dies, as in ``Conditions``"""
    deadline: float
    """as in ``Conditions``"""


@cache
def calm(n: int) -> Hazards:
    """No hazards: n workers that live, whose tasks have only noise of their own; read-only."""
    noise, dies = np.tile([0.0, 0.0, 0.0, 1.0, 0.0], (n, 1)), np.full(n, np.inf)
    noise.flags.writeable = dies.flags.writeable = False
    return Hazards(noise, dies, 0.0)


class Conditions(NamedTuple):
    """What E rows of n workers are like in one round. They are fixed when it starts; one worker at least lives on."""

    law: Ints
    """(E, n) the worker of the pool whose law each worker has"""
    factor: Floats
    """(E, n) multiplies its task times"""
    common: Floats
    """(E, n) standard normal noise that all tasks of a worker share in the round"""
    dies: Floats
    """(E, n) when it dies, counted from the round's start; 0: it is away, inf: it does not"""
    signal: Floats
    """(E, n, 2) its load of cpu and memory, from 0 to 1; 0 where nothing loads it"""
    round: Ints
    """(E,) which round it is, counted from 0"""
    weight: float = 0.0
    """share of the common noise in the variance of a task's noise, made normal"""
    share: float = 0.0
    """share of the tasks that are outliers"""
    low: float = 0.0
    """how many medians of its law the shortest outlier takes"""
    high: float = 0.0
    """how many the longest one takes"""
    deadline: float = 0.0
    """from this time of the round on, tasks of dead workers are handed on"""

    @classmethod
    def unchanged(cls, round: Ints, n: int) -> Conditions:
        """What n workers of a pool without changes are like in these rounds, shape (E,)."""
        rows = len(round)
        law = np.broadcast_to(np.arange(n), (rows, n))
        ones, never = np.ones((rows, n)), np.full((rows, n), np.inf)
        return cls(law, ones, np.zeros((rows, n)), never, np.zeros((rows, n, 2)), round)

    def row(self, e: int) -> Conditions:
        """Those of one row, without the row axis."""
        return Conditions._make(part[e] if isinstance(part, np.ndarray) else part for part in self)

    def with_survivor(self) -> Conditions:
        """The same, but who would die last (the first of equals) lives on: somebody can always finish the round."""
        if np.isinf(self.dies).any(axis=1).all():
            return self
        dies = self.dies.copy()
        last = np.argmax(dies, axis=1)
        dies[np.arange(len(dies)), last] = np.inf
        return self._replace(dies=dies)

    def laws(self, laws: Laws) -> Laws:
        """The laws of the round from those of the pool, with a row axis: a factor times a law is a law."""
        law = self.law[:1] if self.law.strides[0] == 0 else self.law  # one row will do for rows that are alike
        return laws._replace(
            family=laws.family[law],
            shift=laws.shift[law] * self.factor,
            scale=laws.scale[law] * self.factor,
            shape=laws.shape[law],
            first=laws.first[law],
            length=laws.length[law],
            limit=laws.limit[law],
        )

    def hazards(self, median: Floats) -> Hazards:
        """The hazards of the round; ``median``, shape (n,), is that of the pool's workers."""
        if not self.weight and not self.share:
            return Hazards(calm(len(median)).noise, self.dies, self.deadline)
        noise = np.empty((*self.factor.shape, 5))
        usual = median[self.law] * self.factor
        noise[..., 0] = self.share
        noise[..., 1], noise[..., 2] = self.low * usual, self.high * usual
        noise[..., 3], noise[..., 4] = (1 - self.weight) ** 0.5, self.weight**0.5 * self.common
        return Hazards(noise, self.dies, self.deadline)

    def means(self, pool: Pool) -> Floats:
        """Exact mean task time of each worker in the round, shape (E, n), of tasks that are run to their end.

        It is infinite for a worker that is away from the start. The law of a trace that is replayed by round is a
        point, the recorded time of the round. A trace replayed by task has the mean of its record.
        """
        usual = (1 - self.share) * pool.mean_in(self.round)
        if self.share:
            usual += self.share * (self.low + self.high) / 2 * pool.median()
        return np.where(self.dies == 0.0, np.inf, np.take_along_axis(usual, self.law, axis=-1) * self.factor)
