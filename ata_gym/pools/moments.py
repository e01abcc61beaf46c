"""Exact moments of the task times of each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ata_gym.pools.families import FAMILIES, RECORDED

if TYPE_CHECKING:
    from ata_gym.pools.families import FloatArray
    from ata_gym.pools.laws import Laws


class Moments(NamedTuple):
    """Of n workers, in units of time; inf where infinite."""

    mean: FloatArray
    """(n,)"""
    sd: FloatArray
    """(n,)"""
    lowest: FloatArray
    """(n,) infimum of the task times"""


def moments(laws: Laws) -> Moments:
    """Moments of ``shift + scale * Z`` for every worker; a record counts as an empirical law."""
    mean, sd, lowest = (np.empty_like(laws.scale) for _ in range(3))
    for code, family in enumerate(FAMILIES):
        mine = laws.family == code
        if family.mean is not None and family.sd is not None and mine.any():
            with np.errstate(over="ignore", divide="ignore"):
                mean[mine], sd[mine] = family.mean(laws.shape[mine]), family.sd(laws.shape[mine])
            lowest[mine] = family.lowest
    recorded = np.flatnonzero(np.isin(laws.family, RECORDED))
    if recorded.size:
        first, length = laws.first[recorded], laws.length[recorded]
        lowest[recorded] = np.minimum.reduceat(laws.table, first)
        # within the record, so that rounding makes no constant record vary
        mean[recorded] = np.clip(
            np.add.reduceat(laws.table, first) / length, lowest[recorded], np.maximum.reduceat(laws.table, first)
        )
        squares = (laws.table - np.repeat(mean[recorded], length)) ** 2
        sd[recorded] = np.sqrt(np.add.reduceat(squares, first) / length)
    with np.errstate(over="ignore"):
        return Moments(laws.shift + laws.scale * mean, laws.scale * sd, laws.shift + laws.scale * lowest)


def medians(laws: Laws) -> FloatArray:
    """Medians of ``shift + scale * Z``, shape (n,); a record counts as an empirical law."""
    median = np.empty_like(laws.scale)
    for code, family in enumerate(FAMILIES):
        mine = laws.family == code
        if family.median is not None:
            median[mine] = family.median(laws.shape[mine])
    for i in np.flatnonzero(np.isin(laws.family, RECORDED)):
        median[i] = np.median(laws.table[laws.first[i] : laws.first[i] + laws.length[i]])
    return np.asarray(laws.shift + laws.scale * median)
