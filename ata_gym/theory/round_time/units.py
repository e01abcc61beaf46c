"""Pools in units of time in which nothing overflows."""

from __future__ import annotations

import math

import numpy as np

from ata_gym.pools.families import RECORDED
from ata_gym.pools.pool import Pool, from_distributions

_USUAL = 100  # times between 2**-100 and 2**100 stay as they are
_SLOWEST = 2.0**600  # Shifts, scales and recorded times end here, in the new unit


def rescaled(pool: Pool, time: float) -> tuple[Pool, float]:
    """The pool in a unit of time in which ``time`` is between 2**-100 and 2**100; and that unit, a power of two.

    The unit is 1 unless ``time`` is extreme (or infinite), so that the results for usual times keep their bits. Workers
    that are slower than ``time`` by a factor of 2**500 and more count as that slow.

    >>> from ata_gym.pools import exponential
    >>> extreme, unit = rescaled(exponential([2.0**1000, 2.0**1001]), 2.0**1000)
    >>> bool(unit == 2.0**901), (extreme.mean() / 2.0**99).tolist()
    (True, [1.0, 2.0])
    """
    exponent = math.frexp(time)[1]
    exponent -= max(-_USUAL, min(exponent, _USUAL))
    distributions, mean = pool.distributions, pool.mean()
    slowest = max(distributions.shift.max(), distributions.scale.max(), mean.max(where=mean < np.inf, initial=0.0))
    if exponent == 0 and slowest <= _SLOWEST:
        return pool, 1.0
    recorded = np.isin(distributions.family, RECORDED)
    with np.errstate(over="ignore", under="ignore"):
        shift, scale = np.ldexp(distributions.shift, -exponent), np.ldexp(distributions.scale, -exponent)
        table = distributions.table
        if recorded.any():  # their scale is a factor: the times are in the table
            table = np.minimum(table * np.repeat(scale[recorded], distributions.length[recorded]), _SLOWEST)
    scale = np.where(recorded, 1.0, np.clip(scale, np.nextafter(0.0, 1.0), _SLOWEST))
    changed = distributions._replace(shift=np.minimum(shift, _SLOWEST), scale=scale, table=table)
    return from_distributions(changed), 2.0**exponent
