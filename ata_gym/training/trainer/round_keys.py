"""The keys of rounds, derived ahead: a call costs more than its keys."""

from __future__ import annotations

import numpy as np

from ata_gym.simulation.keys import derive_keys
from ata_gym.typing import Ints, Keys

_AT_ONCE = 4096


class RoundKeys:
    """``derive_keys(key, k, indices)`` for the round k that is asked for.

    >>> key = np.uint64(3)
    >>> keys = RoundKeys(key, np.arange(5))
    >>> bool((keys[7] == derive_keys(key, 7, np.arange(5))).all())
    True
    """

    def __init__(self, key: Keys, indices: Ints) -> None:
        self._key, self._indices = key, indices
        self._first = 0
        self._keys = np.empty((0, indices.size), np.uint64)

    def __getitem__(self, round_index: int) -> Keys:
        """The keys of a round, shape (len(indices),)."""
        if not 0 <= round_index - self._first < len(self._keys):
            rounds = round_index + np.arange(max(1, _AT_ONCE // self._indices.size))
            self._first, self._keys = round_index, derive_keys(self._key, rounds[:, None], self._indices)
        keys: Keys = self._keys[round_index - self._first]
        return keys
