"""Laws of task times as equally likely slices: what a plan by simulation starts from."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.legendre import leggauss

from ata_gym.checks import whole_number
from ata_gym.pools import Pool
from ata_gym.pools.families import FAMILIES
from ata_gym.simulation import Floats

_NODES = 16


def exponential_sample(size: int) -> Floats:
    """Means of ``size`` equally likely slices of the exponential law of mean 1, shape (size,), increasing.

    >>> exponential_sample(2).round(4)  # 1 - ln 2 and 1 + ln 2
    array([0.3069, 1.6931])
    """
    above = 1.0 - np.arange(size + 1) / size
    areas = above - above * np.log(np.where(above > 0.0, above, 1.0))
    slices: Floats = size * -np.diff(areas)
    return slices


def known_sample(pool: Pool, size: int) -> Floats:
    """Means of ``size`` equally likely slices of each worker's law of task times, shape (n, size), increasing.

    Each row has its worker's mean. A trace counts as an empirical law; what its tasks have to do with each other is
    lost. Where a mean is infinite, the last slice is a finite stand-in, by quadrature.

    Raises
    ------
    ValueError
        If the size is not a whole number of at least 1.

    Examples
    --------
    >>> from ata_gym.pools import exponential, uniform
    >>> known_sample(exponential([1.0]) + uniform(0.0, 8.0), 4).round(2)
    array([[0.14, 0.48, 1.  , 2.39],
           [1.  , 3.  , 5.  , 7.  ]])
    """
    size = whole_number("size", size)
    laws, mean = pool.laws, pool.mean()
    standard: dict[tuple[int, float], Floats] = {}
    result = np.empty((pool.n, size))
    for i in range(pool.n):
        family = FAMILIES[int(laws.family[i])]
        kind = (int(laws.family[i]), float(i) if family.trace else float(laws.shape[i]))
        if kind not in standard:
            standard[kind] = _recorded(pool.record(i), size) if family.trace else _standard(pool, i, size)
        result[i] = laws.shift[i] + laws.scale[i] * standard[kind]
        rest = size * mean[i] - result[i, :-1].sum()  # the tail, which no quadrature gets right
        if size * mean[i] < np.inf:
            result[i, -1] = max(rest, result[i, -2]) if size > 1 else rest
    return result


def _standard(pool: Pool, i: int, size: int) -> Floats:
    """Slices of the law of ``Z`` of a worker whose family is no trace, each by quadrature of the quantiles."""
    if FAMILIES[int(pool.laws.family[i])].in_scipy is None:
        return np.ones(size)
    nodes, weights = leggauss(_NODES)
    levels = (np.arange(size)[:, None] + 0.5 * (nodes + 1.0)) / size
    quantiles: Floats = np.asarray(pool.standard(i).ppf(levels)) @ (0.5 * weights)
    return quantiles


def _recorded(record: Floats, size: int) -> Floats:
    """Slices of the law in which each of the recorded times is equally likely."""
    ordered = np.sort(record)
    below = np.append(0.0, np.cumsum(ordered)) / ordered.size
    edges = np.arange(size + 1) / size * ordered.size
    return size * np.diff(np.interp(edges, np.arange(ordered.size + 1), below))
