"""How the conditions of a batch of rows go on from round to round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes.change import Now
from ata_gym.changes.conditions import Conditions, Floats, Hazards, Ints

if TYPE_CHECKING:
    from ata_gym.kernels import Keys
    from ata_gym.pools.laws import Laws
    from ata_gym.pools.pool import Pool


class Course:
    """The conditions of the coming round (or of the one under way) of E rows, and what the changes remember.

    A pool without changes has no hazards, and its own laws for ever.
    """

    laws: Laws
    """The laws of the round."""
    hazards: tuple[Hazards] | tuple[()] = ()
    """Its hazards, if the pool changes."""
    faulty: bool
    """Whether workers may die."""

    def __init__(self, pool: Pool, rows: int) -> None:
        self._pool, self._changes = pool, pool.changes
        self._timed = any(change.timed for change in pool.changes)
        self.faulty = any(change.faulty for change in pool.changes)
        self.laws = pool.laws
        self.conditions = Conditions.unchanged(np.zeros(rows, np.int64), pool.n)
        self.memories: list[Floats] = [np.zeros((rows, change.slots, pool.n)) for change in pool.changes]
        if pool.changes:
            self._median = pool.median()

    def begin(self, which: NDArray[Any] | slice, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows at the start of their episodes."""
        rows = np.zeros(len(keys), np.bool_)
        rows[which] = True
        for k, change in enumerate(self._changes):
            fresh = change.first(Now(keys, episode, round, k, self._pool.n))
            self.memories[k] = np.where(rows[:, None, None], fresh, self.memories[k])
        self.look(round)

    def go_on(self, rows: NDArray[np.bool_] | None, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows (None: all) at the start of their next ``round``."""
        same = not self._timed
        for k, change in enumerate(self._changes):
            memory = self.memories[k]
            after = change.next(Now(keys, episode, round, k, self._pool.n), memory)
            if after is not memory:
                self.memories[k] = after if rows is None else np.where(rows[:, None, None], after, memory)
                same = False
        if same:
            self.conditions = self.conditions._replace(round=round.copy())
        else:
            self.look(round)

    def look(self, round: Ints) -> None:
        """Work out the conditions from what is remembered."""
        if not self._changes:
            return
        conditions = Conditions.unchanged(round.copy(), self._pool.n)
        for change, memory in zip(self._changes, self.memories, strict=True):
            conditions = change.apply(conditions, memory, round)
        self.conditions = conditions.with_survivor()
        self.laws, self.hazards = self.conditions.laws(self._pool.laws), (self.conditions.hazards(self._median),)
