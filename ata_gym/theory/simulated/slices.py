"""Distributions of task times as equally likely values: the input of simulated rounds."""

import numpy as np
from numpy.polynomial.legendre import leggauss

from ata_gym.pools.families import FAMILIES
from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.typing import Floats
from ata_gym.utils.validation import whole_number

_NODES = 16  # of the quadrature within a slice
_LARGEST_FLOAT = np.finfo(np.float64).max


def slice_means(pool: Pool, size: int) -> Floats:
    """Means of equally likely slices of each worker's distribution of task times.

    Each row has its worker's mean. A trace counts as an empirical distribution of independent
    tasks. Where a mean is infinite, the last slice has a finite value, by quadrature.

    Args:
        pool: The workers.
        size: The number of slices.

    Returns:
        The means, shape (n, size), increasing in each row, in the pool's unit of time.

    Raises:
        ValueError: If the size is not a whole number of at least 1.

    Example:
        >>> from ata_gym.pools import exponential, uniform
        >>> slice_means(exponential([1.0]) + uniform(0.0, 8.0), 4).round(2)
        array([[0.14, 0.48, 1.  , 2.39],
               [1.  , 3.  , 5.  , 7.  ]])
    """
    size = whole_number("size", size)
    distributions = checked_pool(pool).distributions
    mean = pool.mean()
    standard: dict[tuple[int, float], Floats] = {}
    result = np.empty((pool.n, size))
    for i, code in enumerate(distributions.family.tolist()):
        trace = FAMILIES[code].trace
        # Workers of a family and shape share their slices, up to shift and scale.
        kind = (code, float(i) if trace else float(distributions.shape[i]))
        if kind not in standard:
            if trace:
                standard[kind] = _recorded(pool.record(i), size)
            else:
                standard[kind] = _standard(pool, i, size)
        with np.errstate(over="ignore"):
            times = np.minimum(
                distributions.shift[i] + distributions.scale[i] * standard[kind],
                _LARGEST_FLOAT,
            )
            # The unit keeps the sum below from overflow.
            if mean[i] < np.inf:
                unit = max(1.0, mean[i] / 2.0**900)
            else:
                unit = 1.0
            last_total = size * (mean[i] / unit) - (times[:-1] / unit).sum()
            # The last slice follows from the mean: no quadrature is exact for a tail.
            if mean[i] < np.inf:
                last_time = last_total * unit
                if size > 1:
                    # Rounding may not put it before the slice below.
                    last_time = max(last_time, times[-2])
                times[-1] = min(last_time, _LARGEST_FLOAT)
        result[i] = times
    return result


def _standard(pool: Pool, i: int, size: int) -> Floats:
    """Slices of the standard distribution of a worker without a trace.

    Each is an integral of quantiles over 1 / ``size`` of the probability, by quadrature.
    """
    if FAMILIES[pool.distributions.family[i]].in_scipy is None:
        return np.ones(size)
    nodes, weights = leggauss(_NODES)
    # From the interval (-1, 1) to the parts of (0, 1).
    levels = (np.arange(size)[:, None] + 0.5 * (nodes + 1.0)) / size
    quantiles = pool.standard(i).ppf(levels)
    return np.asarray(quantiles @ (0.5 * weights))


def _recorded(record: Floats, size: int) -> Floats:
    """Slices of the empirical distribution of a record."""
    ordered = np.sort(record)
    below = np.append(0.0, np.cumsum(ordered)) / ordered.size
    edges = np.arange(size + 1) / size * ordered.size
    return size * np.diff(np.interp(edges, np.arange(ordered.size + 1), below))
