"""Keys of the random numbers: one per row and purpose, and fresh ones derived from them."""

from __future__ import annotations

import numpy as np

from ata_gym.simulation import kernels
from ata_gym.typing import Floats, Ints, Keys


def stream_keys(seed: int, rows: int = 1, stream: int = 0) -> Keys:
    """Keys of ``rows`` rows, shape (rows,); row e has the key of seed ``seed + e``, hashed, for the purpose ``stream``.

    >>> bool(stream_keys(3, rows=2)[1] == stream_keys(4)[0])
    True
    """
    hashes = [np.random.SeedSequence(seed + e, spawn_key=(stream,)) for e in range(rows)]
    return np.array([h.generate_state(1, np.uint64)[0] for h in hashes], np.uint64)


def derive_keys(keys: Keys, episode: Ints | int, index: Ints | int) -> Keys:
    """Fresh keys from ``keys``, one for each (episode, index); the three broadcast together."""
    fresh: Keys = kernels.derive_key(keys, np.asarray(episode, np.int64), np.asarray(index, np.int64))
    return fresh


def permutations(stream: int, number: int, size: int, group: int = 0) -> Ints:
    """Random orders of ``size`` things, shape (number, size), the same in each call; those of each group differ.

    >>> permutations(stream=9, number=2, size=3).sum(axis=1)
    array([3, 3])
    """
    keys = derive_keys(stream_keys(0, stream=stream), group, np.arange(number))
    return np.argsort(uniforms(keys, size), axis=1)


def uniforms(keys: Keys, size: int) -> Floats:
    """The first ``size`` uniform numbers of each key, shape (..., size), strictly between 0 and 1.

    >>> uniforms(stream_keys(0, rows=2), 3).shape
    (2, 3)
    """
    numbers = np.empty((*np.shape(keys), size))
    kernels.fill_uniforms(keys, numbers)
    return numbers
