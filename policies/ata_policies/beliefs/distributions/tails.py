"""Rare huge times: the mean of a worker whose tail is estimated partly from all workers."""

from __future__ import annotations

import numpy as np

from ata_policies.beliefs.distributions.bins import DistributionBelief, own_sample
from ata_policies.beliefs.moments import Moments

_SLICES = 128
_LONG = 4.0  # the tail is the part of times beyond so many medians of their worker
_BORROWED = 100.0  # the results for which the tail of all workers counts beside a worker's own

_MOST = 1e6  # a longer tail counts as this one, so that means stay within range


def borrow_tails(belief: DistributionBelief) -> Moments:
    """The moments of one row, shape (n,), with means in which a rare huge time counts less.

    With w_i the mean of a worker's times cut at 4 of its medians, its mean is w_i (1 + x_i). The tail x_i rests on few
    of its K_i results, so it is mixed with the tail x of all workers:

        mean_i = w_i (1 + (K_i x_i + 100 x) / (K_i + 100)),   x = sum_i K_i x_i / sum_i K_i.

    Coefficients of variation stay, because a mean is not known better than before. Workers whose times are not counted
    in bins keep their moments. Ours; a winsorised mean (Dixon and Tukey, 1968) whose bias is put back.

    >>> usual = np.tile([0, 1], 20)[None]
    >>> seen = DistributionBelief.empty(1, 2).observe(usual, np.ones((1, 40)), np.zeros((1, 2)))
    >>> seen = seen.observe(np.array([[0]]), np.array([[30.0]]), np.zeros((1, 2)))
    >>> moments = borrow_tails(seen)
    >>> (seen.totals[0] / seen.counts[0]).round(1), (moments.totals / moments.counts).round(1)
    (array([2.4, 1. ]), array([1.9, 1.4]))
    """
    moments = Moments(belief.counts[0], belief.totals[0], belief.deviations[0])
    workers = np.flatnonzero((belief.slot[0] >= 0) & (moments.counts > 0.0) & (belief.anchor[0] > 0.0))
    if workers.size == 0:
        return moments
    own, number = own_sample(belief.of(workers[None]), _SLICES)[0], moments.counts[workers]
    median = own[:, (_SLICES - 1) // 2 : _SLICES // 2 + 1].mean(axis=1, keepdims=True)
    whole, cut = own.mean(axis=1), np.minimum(own, _LONG * median).mean(axis=1)
    tail = np.divide(whole - cut, cut, out=np.zeros_like(cut), where=(cut > 0.0) & (whole < np.inf))
    tail = np.minimum(tail, _MOST)
    if not (tail > 0.0).any():
        return moments
    common = np.average(tail, weights=number)
    mixed = (number * tail + _BORROWED * common) / (number + _BORROWED)
    factor = np.ones_like(moments.totals)
    factor[workers] = (1.0 + mixed) / (1.0 + tail)
    return Moments(moments.counts, moments.totals * factor, moments.deviations * factor**2)
