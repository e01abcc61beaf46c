"""Rare huge times: the mean of a worker whose tail is partly from all workers."""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.slices import own_sample
from ata_policies.beliefs.moments import Moments

SLICES = 128
"""Slices of a worker's distribution."""
_LONG = 4.0
"""The tail is the part of times beyond so many medians of their worker."""


def picked(values: Any, places: Ints) -> Any:
    """Return the values at some places of each row.

    Args:
        values: (E, n) the values.
        places: (E, ...) the places, from 0 to n - 1; the result has this shape.
    """
    return values[np.arange(len(places)).reshape(-1, *[1] * (places.ndim - 1)), places]


class Members(NamedTuple):
    """Some of the n workers of each of E rows, at most m.

    A row with fewer workers is filled up with worker 0.
    """

    workers: Ints
    """(E, m) the workers in increasing order."""
    present: Mask
    """(E, m) which places are not filled up."""
    place: Ints
    """(E, n) the place of each worker among the members; -1 for a worker that is none."""

    def take(self, values: Any) -> Any:
        """Return the members' values, (E, m), from the values of all workers, (E, n)."""
        return picked(values, self.workers)

    def scatter(self, values: Ints) -> Ints:
        """Return values of all workers, (E, n), from the members' values, (E, m); others have 0."""
        return np.where(self.place >= 0, picked(values, self.place), 0)


def members(mask: Mask) -> Members:
    """Return the workers for which a mask, (E, n), is true."""
    counts = mask.sum(axis=1)[:, None]
    place = np.where(mask, np.cumsum(mask, axis=1) - 1, -1)
    present = np.arange(max(1, counts.max())) < counts
    workers = np.zeros(present.shape, np.int64)
    workers[present] = np.nonzero(mask)[1]
    return Members(workers, present, place)


def own_slices(belief: DistributionBelief) -> tuple[Members, Floats]:
    """Return the workers that are counted in bins, and slices of their distributions, (E, m, S).

    They have results and a slot. The slices are from their own results only.
    """
    counted = members((belief.slot >= 0) & (belief.counts > 0.0))
    return counted, own_sample(belief, SLICES, workers=counted.workers)


def borrow_tails(belief: DistributionBelief, counted: Members, slices: Floats) -> Moments:
    """Return the moments, (E, n), with means in which a rare huge time counts less.

    With w_i the mean of a worker's times cut at 4 of its medians, and m_i the mean of all K_i of
    them, its tail is x_i = ln(m_i / w_i). It rests on few results, and so is mixed with the tail x
    of all workers, the average with the weights K_i - 1:

        ln mean_i = ln m_i + rho (1 - t_i) (x - x_i),   t_i = tau^2 / (tau^2 + v / (K_i - 1)),

    where v is the variance of the tail by one result (delta method; all workers), and tau^2 the
    variance between the tails of the workers (DerSimonian and Laird, 1986). The tail is a control
    variate:

        rho = cov(ln m, ln m - ln w) / var(ln m - ln w),

    cut to 0 to 1, is the share of an error of the tail that is an error of the mean. It is near 1
    for Pareto times and 0 for gamma times, whose median is known worse than their mean.

    Coefficients of variation stay, because a mean is not known better than before. Workers whose
    times are not counted in bins keep their moments. Ours; after a winsorised mean (Dixon and
    Tukey, 1968) whose bias is put back.

    Args:
        belief: What is known of n workers.
        counted: The workers that are counted in bins, see ``own_slices``.
        slices: (E, m, S) their own slices.

    Example:
        >>> worker = np.tile([0, 1], 20)[None]
        >>> zeros = np.zeros((1, 2))
        >>> belief = DistributionBelief.empty(1, 2).observe(worker, np.ones((1, 40)), zeros)
        >>> belief = belief.observe(np.array([[0, 0]]), np.array([[1.0, 30.0]]), zeros)
        >>> moments = borrow_tails(belief, *own_slices(belief))
        >>> (belief.totals[0] / belief.counts[0]).round(1), moments.mean()[0].round(1)
        (array([2.3, 1. ]), array([2. , 1.2]))
    """
    moments = Moments(belief.counts, belief.totals, belief.deviations)
    tail, covariance, variance = _tail(slices)
    # workers whose times are all 0 have no tail that others could borrow
    has_tail = counted.present & (counted.take(belief.anchor) > 0.0)
    results = np.where(has_tail, np.maximum(counted.take(belief.counts) - 1.0, 0.0), 0.0)
    total = np.maximum(results.sum(axis=1, keepdims=True), 1e-9)
    common_tail, common_covariance, common_variance = (
        (np.where(has_tail, part, 0.0) * results).sum(axis=1, keepdims=True) / total
        for part in (tail, covariance, variance)
    )
    common_variance = np.maximum(common_variance, 1e-9)
    share = np.clip(common_covariance / common_variance, 0.0, 1.0)
    own = _own_weight(tail - common_tail, results / common_variance)
    factor = np.exp(share * (1.0 - own) * (common_tail - tail))
    factor = np.where(counted.place >= 0, picked(factor, counted.place), 1.0)
    return Moments(moments.counts, moments.totals * factor, moments.deviations * factor**2)


def _own_weight(difference: Floats, precision: Floats) -> Floats:
    """Return the weight t of each worker's tail beside the tail of all, see ``borrow_tails``.

    Args:
        difference: (E, m) by how much it is larger.
        precision: (E, m) 1 / its variance, (K - 1) / v; 0 where it has none.
    """
    total = np.maximum(precision.sum(axis=1, keepdims=True), 1e-9)
    # by chance alone, the squares have the sum ``degrees``
    squares = (precision * difference**2).sum(axis=1, keepdims=True)
    degrees = (precision > 0.0).sum(axis=1, keepdims=True) - 1.0
    scale = total - (precision**2).sum(axis=1, keepdims=True) / total
    between = np.maximum(squares - degrees, 0.0) / np.maximum(scale, 1e-9)
    return np.asarray(between * precision / (between * precision + 1.0))


@kernel("(s)->(),(),()")
def _tail(times: Floats, tail: Floats, covariance: Floats, variance: Floats) -> None:
    """Compute a worker's tail, and by one result its covariance with the mean and its variance."""
    size = len(times)
    quarter = size // 4
    tail[0] = covariance[0] = variance[0] = 0.0
    mean = times.mean()
    median = 0.5 * (times[(size - 1) // 2] + times[size // 2])
    cut_mean = 0.0
    beyond = 0.0
    for s in range(size):
        cut_mean += min(times[s], _LONG * median) / size
        beyond += (times[s] > _LONG * median) / size
    # of extreme times nothing is borrowed
    if not (beyond > 0.0 and cut_mean > 0.0 and mean / cut_mean < math.inf):
        return
    tail[0] = math.log(mean / cut_mean)
    # to first order, what a time changes in the logarithms of the median, of the cut mean (by
    # itself, and by the limit) and of the mean; around the median, the logarithm of the time rises
    # with the level as it does between the quartiles
    if not times[quarter] > 0.0:
        return
    quartiles = times[size - 1 - quarter] / times[quarter]
    if not quartiles < math.inf:
        return
    slope = 2.0 * math.log(quartiles)
    by_limit = _LONG * beyond * median / cut_mean
    for s in range(size):
        if 2 * s < size:
            of_median = -0.5 * slope
        else:
            of_median = 0.5 * slope
        of_cut = min(times[s], _LONG * median) / cut_mean - 1.0 + by_limit * of_median
        of_mean = times[s] / mean - 1.0
        covariance[0] += of_mean * (of_mean - of_cut) / size
        variance[0] += (of_mean - of_cut) ** 2 / size
