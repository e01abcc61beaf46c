"""How the conditions of a batch of rows change from round to round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ata_gym.changes.change import Change, RoundContext
from ata_gym.changes.conditions import Conditions
from ata_gym.pools import Pool
from ata_gym.pools.distributions import Distributions
from ata_gym.simulation.disturbances import Disturbances
from ata_gym.typing import Floats, Ints, Keys, Mask


class ChangeProcess:
    """The conditions of E rows of n workers in the coming round (or in the one that has begun).

    ``catalogue`` are the distributions that workers can have. Without changes they are always these.
    """

    distributions: Distributions  # of the round
    disturbances: Disturbances | None = None  # of the round; None without changes
    conditions: Conditions  # from which both follow
    memories: list[Floats]  # what each change remembers, (E, slots, n)

    def __init__(self, catalogue: Pool, changes: Sequence[Change], rows: int, n: int) -> None:
        self._n, self._changes = n, changes
        self._timed = any(change.timed for change in changes)
        self._unchanged = self.distributions = catalogue.distributions
        self._median = catalogue.median() if changes else None
        self.conditions = Conditions.unchanged(np.zeros(rows, np.int64), n)
        self.memories = [np.zeros((rows, change.slots, n)) for change in changes]

    def start_episode(self, which: Mask | slice, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows at the start of their episodes."""
        for k, change in enumerate(self._changes):
            fresh = change.first(RoundContext(keys, episode, round, k, self._n))
            self.memories[k] = self.memories[k].copy()  # conditions hold views of the old one
            self.memories[k][which] = fresh[which]
        self.update_conditions(round)

    def next_round(self, rows: Mask | None, keys: Keys, episode: Ints, round: Ints) -> None:
        """Put some rows (None: all) at the start of their next ``round``."""
        same = not self._timed
        for k, change in enumerate(self._changes):
            memory = self.memories[k]
            after = change.next(RoundContext(keys, episode, round, k, self._n), memory)
            if after is not memory:
                self.memories[k] = after if rows is None else np.where(rows[:, None, None], after, memory)
                same = False
        if same:
            self.conditions = self.conditions._replace(round=round.copy())
        else:
            self.update_conditions(round)

    def update_conditions(self, round: Ints) -> None:
        """Derive the conditions from the memories."""
        if self._median is None:
            return
        conditions = Conditions.unchanged(round.copy(), self._n)
        for change, memory in zip(self._changes, self.memories, strict=True):
            conditions = change.apply(conditions, memory)
        self.conditions = conditions.with_survivor()
        self.distributions = self.conditions.distributions(self._unchanged)
        self.disturbances = self.conditions.disturbances(self._median)
