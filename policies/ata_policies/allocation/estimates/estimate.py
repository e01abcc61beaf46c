"""The contract of an estimate: a score for each worker from what counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_policies.allocation.rules import Scores
from ata_policies.policy import Setting


class Estimate(ABC):
    """Hyperparameters of an estimate; subclasses are frozen dataclasses.

    Most score a belief with counts and totals, of any memory. An estimate with statistics of its own makes its belief
    itself (``start``), and has no other memory than everything.
    """

    squares: ClassVar[bool] = False
    """Whether it needs the squares of the task times."""
    gives_shape: ClassVar[bool] = False
    """Whether its scores tell the shapes of the task times."""
    own_statistics: ClassVar[str] = ""
    """What its own belief keeps, where counts, totals and squares do not do."""
    memory_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """Hyperparameters of a memory, by its name, that suit this estimate better than the memory's own."""
    nonstationary: ClassVar[bool] = False
    """Whether it is made for workers that change."""
    source: ClassVar[str] = "ours"
    constants: ClassVar[str] = "none"
    knows: ClassVar[str] = "nothing"
    assumes: ClassVar[str] = "nothing"

    def fit(self, setting: Setting) -> Self:
        """The estimate with the hyperparameters that follow from the setting filled in."""
        del setting
        return self

    def start(self, rows: int, n: int) -> Any:
        """The belief of an estimate with statistics of its own."""
        raise TypeError(f"{type(self).__name__} has no statistics of its own, {rows} rows, {n} workers")

    def keep(self, rows: int, n: int, seed: int) -> Any:
        """What it keeps between rounds beside the belief, before the first: a named tuple of arrays, or ()."""
        del rows, n, seed
        return ()

    def update(self, kept: Any, belief: Any) -> Any:
        """What it keeps after a round."""
        del belief
        return kept

    @abstractmethod
    def scores(self, belief: Any, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """The scores of all rows.

        Parameters
        ----------
        belief
            What counts.
        rounds
            (E,) the current round, or the number of rounds that count.
        keys
            (E,) the key of each row's randomness in the round.
        kept
            What ``update`` gave.
        """


def plain_means(belief: Any) -> Floats:
    """The mean of the times that count of each worker, shape (E, n); 0 for a worker never tried.

    >>> from ata_policies.beliefs.moments import Belief
    >>> plain_means(Belief(np.array([[2.0, 0.0]]), np.array([[6.0, 0.0]])))
    array([[3., 0.]])
    """
    means: Floats = np.divide(belief.totals, belief.counts, out=np.zeros_like(belief.totals), where=belief.counts > 0)
    return means
