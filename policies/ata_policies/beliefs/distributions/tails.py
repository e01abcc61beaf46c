"""Rare huge times: the mean of a worker whose tail is partly from all workers."""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, helper, inlined, kernel
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
    # The numbers of the rows, with an axis for each axis of ``places``.
    rows = np.arange(len(places)).reshape(-1, *[1] * (places.ndim - 1))
    return values[rows, places]


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
    most = int(np.count_nonzero(mask, axis=1).max(initial=1))
    workers = np.empty((len(mask), most), np.int64)
    present = np.empty(workers.shape, np.bool_)
    return Members(workers, present, _fill_members(mask, workers, present))


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
    number = counted.present.sum(axis=1)
    moments = belief.counts, belief.totals, belief.deviations
    totals, deviations = _borrow(slices, counted.workers, number, belief.anchor, *moments)
    return Moments(belief.counts, totals, deviations)


@kernel("(n),(m),(m)->(n)", (1, 2))
def _fill_members(mask: Mask, workers: Ints, present: Mask, place: Ints) -> None:
    """Fill in the fields of ``Members``."""
    number = 0
    for i in range(len(mask)):
        place[i] = -1
        if mask[i]:
            workers[number] = i
            place[i] = number
            number += 1
    for m in range(len(workers)):
        present[m] = m < number
        if m >= number:
            workers[m] = 0


class _Tail(NamedTuple):
    """A worker's tail, and what one result tells of it."""

    length: float
    """The logarithm of the mean over the mean of the times that are cut; 0 without a tail."""
    covariance: float
    """Its covariance with the logarithm of the mean, by one result."""
    variance: float
    """Its variance, by one result."""


@helper()
def _tail(times: Floats) -> _Tail:
    """Compute a worker's tail from equally likely times in increasing order."""
    size = len(times)
    quarter = size // 4
    median = 0.5 * (times[(size - 1) // 2] + times[size // 2])
    if not times[size - 1] > _LONG * median:
        return _Tail(0.0, 0.0, 0.0)
    mean = times.mean()
    cut_mean = 0.0
    beyond = 0.0
    for s in range(size):
        cut_mean += min(times[s], _LONG * median) / size
        beyond += (times[s] > _LONG * median) / size
    # of extreme times nothing is borrowed
    if not (cut_mean > 0.0 and mean / cut_mean < math.inf):
        return _Tail(0.0, 0.0, 0.0)
    length = math.log(mean / cut_mean)
    # to first order, what a time changes in the logarithms of the median, of the cut mean (by
    # itself, and by the limit) and of the mean; around the median, the logarithm of the time rises
    # with the level as it does between the quartiles
    if not times[quarter] > 0.0:
        return _Tail(length, 0.0, 0.0)
    quartiles = times[size - 1 - quarter] / times[quarter]
    if not quartiles < math.inf:
        return _Tail(length, 0.0, 0.0)
    slope = 2.0 * math.log(quartiles)
    by_limit = _LONG * beyond * median / cut_mean
    covariance = 0.0
    variance = 0.0
    for s in range(size):
        if 2 * s < size:
            of_median = -0.5 * slope
        else:
            of_median = 0.5 * slope
        of_cut = min(times[s], _LONG * median) / cut_mean - 1.0 + by_limit * of_median
        of_mean = times[s] / mean - 1.0
        covariance += of_mean * (of_mean - of_cut) / size
        variance += (of_mean - of_cut) ** 2 / size
    return _Tail(length, covariance, variance)


@inlined
def _variance_between(length: Floats, common: float, precision: Floats) -> float:
    """Return the variance tau^2 between the tails of the workers, see ``borrow_tails``.

    Args:
        length: (m,) the tails.
        common: The tail of all.
        precision: (m,) 1 / the variance of each, (K - 1) / v; 0 where it has none.
    """
    total = 0.0
    squared = 0.0
    # by chance alone, the squares have the sum ``degrees``
    squares = 0.0
    degrees = -1.0
    for p in range(len(length)):
        total += precision[p]
        squared += precision[p] * precision[p]
        squares += precision[p] * (length[p] - common) ** 2
        degrees += precision[p] > 0.0
    total = max(total, 1e-9)
    return max(squares - degrees, 0.0) / max(total - squared / total, 1e-9)


@kernel("(m,s),(m),(),(n),(n),(n),(n)->(n),(n)")
def _borrow(
    slices: Floats,
    workers: Ints,
    number: Ints,
    anchor: Floats,
    counts: Floats,
    totals: Floats,
    deviations: Floats,
    new_totals: Floats,
    new_deviations: Floats,
) -> None:
    """Fill in totals and squared deviations; the first ``number`` workers borrow a tail."""
    copy(totals, new_totals)
    copy(deviations, new_deviations)
    size = number[0]
    length = np.empty(size)
    results = np.zeros(size)
    total = 0.0
    common = 0.0
    covariance = 0.0
    variance = 0.0
    for p in range(size):
        i = workers[p]
        tail = _tail(slices[p])
        length[p] = tail.length
        # workers whose times are all 0 have no tail that others could borrow
        if anchor[i] > 0.0:
            results[p] = max(counts[i] - 1.0, 0.0)
            total += results[p]
            common += tail.length * results[p]
            covariance += tail.covariance * results[p]
            variance += tail.variance * results[p]
    total = max(total, 1e-9)
    common /= total
    variance = max(variance / total, 1e-9)
    share = min(max(covariance / total / variance, 0.0), 1.0)
    precision = results / variance
    between = _variance_between(length, common, precision)
    for p in range(size):
        i = workers[p]
        own = between * precision[p] / (between * precision[p] + 1.0)
        factor = math.exp(share * (1.0 - own) * (common - length[p]))
        new_totals[i] *= factor
        new_deviations[i] *= factor * factor
