"""Rare huge times: the mean of a worker whose tail is estimated partly from all workers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import gufunc
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.slices import own_sample
from ata_policies.beliefs.moments import Moments

SLICES = 128  # slices of a worker's distribution
_LONG = 4.0  # the tail is the part of times beyond so many medians of their worker
_BORROWED = 100.0  # the results for which the tail of all workers counts beside a worker's own
_MOST = 1e6  # a longer tail counts as this one, so that means stay within range


class Slices(NamedTuple):
    """Own slices of the distributions of workers of one row: of those with results whose times are counted in bins."""

    workers: Ints  # (k,) in increasing order
    times: Floats  # (k, S) from ``own_sample``

    def places_of(self, workers: Ints) -> Ints:
        """Where the slices of any workers are, (m,); -1 for one that has none."""
        return places_among(self.workers, workers)


def places_among(sorted_workers: Ints, workers: Ints) -> Ints:
    """Where any workers (m,) are among some that are in increasing order; -1 for one that is not."""
    place = np.searchsorted(sorted_workers, workers)
    found = np.append(sorted_workers, -1)[place] == workers
    return np.where(found, place, -1)


def own_slices(belief: DistributionBelief) -> Slices:
    """Own slices of the distributions in one row."""
    workers = np.flatnonzero((belief.slot[0] >= 0) & (belief.counts[0] > 0.0))
    return Slices(workers, own_sample(belief, SLICES, workers=workers[None])[0])


def borrow_tails(belief: DistributionBelief, own: Slices | None = None) -> Moments:
    """The moments of one row, shape (n,), with means in which a rare huge time counts less.

    With w_i the mean of a worker's times cut at 4 of its medians, its mean is w_i (1 + x_i). The tail x_i rests on few
    of its K_i results, so it is mixed with the tail x of all workers:

        mean_i = w_i (1 + (K_i x_i + 100 x) / (K_i + 100)),   x = sum_i K_i x_i / sum_i K_i.

    Coefficients of variation stay, because a mean is not known better than before. Workers whose times are not counted
    in bins keep their moments. Ours; a winsorised mean (Dixon and Tukey, 1968) whose bias is put back.

    >>> usual = np.tile([0, 1], 20)[None]
    >>> seen = DistributionBelief.empty(1, 2).observe(usual, np.ones((1, 40)), np.zeros((1, 2)))
    >>> seen = seen.observe(np.array([[0, 0]]), np.array([[1.0, 30.0]]), np.zeros((1, 2)))
    >>> moments = borrow_tails(seen)
    >>> (seen.totals[0] / seen.counts[0]).round(1), (moments.totals / moments.counts).round(1)
    (array([2.3, 1. ]), array([1.9, 1.5]))
    """
    own = own_slices(belief) if own is None else own
    moments, tail = Moments(belief.counts[0], belief.totals[0], belief.deviations[0]), _tail(own.times)
    if not (tail > 0.0).any():
        return moments
    number = moments.counts[own.workers]
    common = np.average(tail, weights=number * (belief.anchor[0, own.workers] > 0.0))
    mixed = (number * tail + _BORROWED * common) / (number + _BORROWED)
    factor = np.ones_like(moments.totals)
    factor[own.workers] = (1.0 + mixed) / (1.0 + tail)
    return Moments(moments.counts, moments.totals * factor, moments.deviations * factor**2)


@gufunc("void(float64[:], float64[:])", "(s)->()")
def _tail(times: Floats, out: Floats) -> None:
    """How much longer the mean is than that of the times cut at 4 medians."""
    size, whole, cut = len(times), 0.0, 0.0
    median = 0.5 * (times[(size - 1) // 2] + times[size // 2])
    for s in range(size):
        whole += times[s]
        cut += min(times[s], _LONG * median)
    out[0] = min((whole - cut) / cut, _MOST) if cut > 0.0 and whole < math.inf else 0.0
