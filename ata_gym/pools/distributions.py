"""The distributions of a pool's workers as plain arrays, and their moments."""

from typing import NamedTuple

import numpy as np

from ata_gym.pools.families import FAMILIES, RECORDED
from ata_gym.typing import Floats, Ints

NEVER = np.iinfo(np.int64).max  # the limit of a worker whose times never end


class Distributions(NamedTuple):
    """The distributions of n workers as plain arrays: what the kernels read. Task times are ``shift + scale * Z``."""

    family: Ints  # (n,) place of the family in the table of families
    shift: Floats  # (n,) in units of time
    scale: Floats  # (n,) in units of time; for traces a factor on the recorded times
    shape: Floats  # (n,) shape parameter of ``Z``; 1 where it has none
    table: Floats  # (m,) all recorded times, worker after worker; [0.] where nothing is recorded
    first: Ints  # (n,) where the worker's record begins in ``table``; 0 where nothing is recorded
    length: Ints  # (n,) recorded times of the worker; 1 where nothing is recorded
    limit: Ints  # (n,) ``length`` where the end of the record ends the episode, else the largest int64


def offsets(codes: Ints, length: Ints) -> Ints:
    """Where the records begin in a table that holds them one after the other, shape (n,)."""
    recorded = np.isin(codes, RECORDED)
    return np.where(recorded, np.cumsum(length * recorded) - length, 0)


class Moments(NamedTuple):
    """Moments of the task times of n workers, each of shape (n,), in units of time; inf where they are infinite."""

    mean: Floats
    sd: Floats
    lowest: Floats  # the infimum of the task times


def moments(distributions: Distributions) -> Moments:
    """Moments of ``shift + scale * Z`` for every worker; a record counts as an empirical distribution."""
    mean, sd, lowest = (np.empty_like(distributions.scale) for _ in range(3))
    for code, family in enumerate(FAMILIES):
        mine = distributions.family == code
        if mine.any():
            with np.errstate(over="ignore", divide="ignore"):
                mean[mine], sd[mine] = family.mean(distributions.shape[mine]), family.sd(distributions.shape[mine])
            lowest[mine] = family.lowest
    recorded = np.flatnonzero(np.isin(distributions.family, RECORDED))
    if recorded.size:
        first, length = distributions.first[recorded], distributions.length[recorded]
        largest = np.maximum.reduceat(distributions.table, first)
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)  # a power of two, so that no square overflows
        table = distributions.table / np.repeat(unit, length)
        lowest[recorded] = np.minimum.reduceat(table, first)
        # within the record, so that rounding makes no constant record vary
        mean[recorded] = np.clip(np.add.reduceat(table, first) / length, lowest[recorded], largest / unit)
        squares = (table - np.repeat(mean[recorded], length)) ** 2
        sd[recorded] = np.sqrt(np.add.reduceat(squares, first) / length)
        for column in (mean, sd, lowest):
            column[recorded] *= unit
    shift, scale = distributions.shift, distributions.scale
    with np.errstate(over="ignore"):
        return Moments(shift + scale * mean, scale * sd, shift + scale * lowest)


def medians(distributions: Distributions) -> Floats:
    """Medians of ``shift + scale * Z``, shape (n,); a record counts as an empirical distribution."""
    median = np.empty_like(distributions.scale)
    for code, family in enumerate(FAMILIES):
        mine = distributions.family == code
        if not family.trace and mine.any():
            shape = distributions.shape[mine]
            median[mine] = 1.0 if family.in_scipy is None else family.distribution(shape).median()
    for i in np.flatnonzero(np.isin(distributions.family, RECORDED)):
        first = distributions.first[i]
        median[i] = np.median(distributions.table[first : first + distributions.length[i]])
    return np.asarray(distributions.shift + distributions.scale * median)
