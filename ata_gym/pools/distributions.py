"""The distributions of a pool's workers as plain arrays, and their moments."""

from typing import NamedTuple

import numpy as np

from ata_gym.pools.families import FAMILIES, RECORDED
from ata_gym.typing import Floats, Ints

NO_LIMIT = np.iinfo(np.int64).max
"""The limit of a worker whose times do not end."""


class Distributions(NamedTuple):
    """The distributions of n workers as plain arrays, as the kernels read them.

    Task times are ``shift + scale * Z``.
    """

    family: Ints
    """The place of each worker's family in the table of families, shape (n,)."""
    shift: Floats
    """The shift of each worker's times, shape (n,), in units of time."""
    scale: Floats
    """The scale, shape (n,), in units of time; for traces a factor on the recorded times."""
    shape: Floats
    """The shape parameter of ``Z``, shape (n,); 1 where it has none."""
    table: Floats
    """All recorded times, worker after worker, shape (m,); [0.] where nothing is recorded."""
    record_start: Ints
    """Where the worker's record begins in ``table``, shape (n,); 0 where nothing is recorded."""
    length: Ints
    """The number of the worker's recorded times, shape (n,); 1 where nothing is recorded."""
    limit: Ints
    """The tasks or rounds after which the episode ends, shape (n,).

    It is ``length`` where the end of the record ends the episode, else the largest int64.
    """


def offsets(codes: Ints, length: Ints) -> Ints:
    """Where the records begin in a table that holds them one after the other, shape (n,).

    Args:
        codes: The code of each worker's family, shape (n,).
        length: The number of each worker's recorded times, shape (n,).
    """
    recorded = np.isin(codes, RECORDED)
    return np.where(recorded, np.cumsum(length * recorded) - length, 0)


class Moments(NamedTuple):
    """Moments of the task times of n workers, each of shape (n,), in units of time.

    They are inf where they are infinite.
    """

    mean: Floats
    """The means."""
    sd: Floats
    """The standard deviations."""
    lowest: Floats
    """The infimum of the task times."""


def moments(distributions: Distributions) -> Moments:
    """Moments of ``shift + scale * Z`` for every worker.

    A record counts as an empirical distribution.
    """
    mean, sd, lowest = (np.empty_like(distributions.scale) for _ in range(3))
    for code, family in enumerate(FAMILIES):
        members = distributions.family == code
        if members.any():
            with np.errstate(over="ignore", divide="ignore"):
                mean[members] = family.mean(distributions.shape[members])
                sd[members] = family.sd(distributions.shape[members])
            lowest[members] = family.lowest
    recorded = np.flatnonzero(np.isin(distributions.family, RECORDED))
    if recorded.size:
        first = distributions.record_start[recorded]
        length = distributions.length[recorded]
        largest = np.maximum.reduceat(distributions.table, first)
        # Times are divided by a power of two, which is exact, so that no square overflows.
        unit = np.ldexp(1.0, np.frexp(largest)[1] - 1)
        table = distributions.table / np.repeat(unit, length)
        lowest[recorded] = np.minimum.reduceat(table, first)
        # The mean stays within the record, so that rounding makes no constant record vary.
        mean[recorded] = np.clip(
            np.add.reduceat(table, first) / length,
            lowest[recorded],
            largest / unit,
        )
        squares = (table - np.repeat(mean[recorded], length)) ** 2
        sd[recorded] = np.sqrt(np.add.reduceat(squares, first) / length)
        for column in (mean, sd, lowest):
            column[recorded] *= unit
    shift = distributions.shift
    scale = distributions.scale
    with np.errstate(over="ignore"):
        return Moments(shift + scale * mean, scale * sd, shift + scale * lowest)


def medians(distributions: Distributions) -> Floats:
    """Medians of ``shift + scale * Z``, shape (n,), in units of time.

    A record counts as an empirical distribution.
    """
    median = np.empty_like(distributions.scale)
    for code, family in enumerate(FAMILIES):
        members = distributions.family == code
        if not family.trace and members.any():
            shape = distributions.shape[members]
            if family.in_scipy is None:
                median[members] = 1.0
            else:
                median[members] = family.distribution(shape).median()
    for i in np.flatnonzero(np.isin(distributions.family, RECORDED)):
        first = distributions.record_start[i]
        median[i] = np.median(distributions.table[first : first + distributions.length[i]])
    return np.asarray(distributions.shift + distributions.scale * median)
