"""The laws of a pool's workers as plain arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools.families import RECORDED, FloatArray

IntArray = NDArray[np.int64]

NEVER = np.iinfo(np.int64).max
"""The limit of a worker whose times never end."""


class Laws(NamedTuple):
    """The laws of n workers as plain arrays: what the kernels read. Task times are ``shift + scale * Z``."""

    family: IntArray
    """(n,) place of the family in the table of families"""
    shift: FloatArray
    """(n,) in units of time"""
    scale: FloatArray
    """(n,) in units of time; for traces a factor on the recorded times"""
    shape: FloatArray
    """(n,) shape parameter of ``Z``; 1 where it has none"""
    table: FloatArray
    """(m,) all recorded times, worker after worker; [0.] where nothing is recorded"""
    first: IntArray
    """(n,) where the worker's record begins in ``table``; 0 where nothing is recorded"""
    length: IntArray
    """(n,) recorded times of the worker; 1 where nothing is recorded"""
    limit: IntArray
    """(n,) ``length`` where the end of the record ends the episode, else the largest int64"""


def offsets(codes: IntArray, length: IntArray) -> IntArray:
    """Where the records begin in a table that holds them one after the other, shape (n,)."""
    recorded = np.isin(codes, RECORDED)
    return np.where(recorded, np.cumsum(length * recorded) - length, 0)
