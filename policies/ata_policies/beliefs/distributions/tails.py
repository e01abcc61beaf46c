"""Rare huge times: the mean of a worker whose tail is estimated partly from all workers."""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.slices import own_sample
from ata_policies.beliefs.moments import Moments

SLICES = 128  # slices of a worker's distribution
_LONG = 4.0  # the tail is the part of times beyond so many medians of their worker
_BORROWED = 100.0  # the results for which the tail of all workers counts beside a worker's own
_MOST = 1e6  # a longer tail counts as this one, so that means stay within range


def picked(values: Any, places: Ints) -> Any:
    """The values (E, n) at some places of each row, (E, ...)."""
    return values[np.arange(len(places)).reshape(-1, *[1] * (places.ndim - 1)), places]


class Members(NamedTuple):
    """Some of the n workers of each of E rows: m at most; a row with fewer is filled up with worker 0."""

    workers: Ints  # (E, m) in increasing order
    there: Mask  # (E, m) which places are theirs
    place: Ints  # (E, n) where any worker is among them; -1 for one that is not

    def of(self, values: Any) -> Any:
        """Their values, (E, m), among those of all workers, (E, n)."""
        return picked(values, self.workers)

    def among_all(self, values: Ints) -> Ints:
        """Their values, (E, m), as those of all workers, (E, n); others have 0."""
        return np.where(self.place >= 0, picked(values, self.place), 0)


def members(which: Mask) -> Members:
    """The workers for which ``which``, (E, n), is true."""
    number = which.sum(axis=1)[:, None]
    place, there = np.where(which, np.cumsum(which, axis=1) - 1, -1), np.arange(max(1, number.max())) < number
    workers = np.zeros(there.shape, np.int64)
    workers[there] = np.nonzero(which)[1]
    return Members(workers, there, place)


def own_slices(belief: DistributionBelief) -> tuple[Members, Floats]:
    """Those with results whose times are counted in bins, and own slices of their distributions, (E, m, S)."""
    counted = members((belief.slot >= 0) & (belief.counts > 0.0))
    return counted, own_sample(belief, SLICES, workers=counted.workers)


def borrow_tails(belief: DistributionBelief, counted: Members, own: Floats) -> Moments:
    """The moments, shape (E, n), with means in which a rare huge time counts less.

    With w_i the mean of a worker's times cut at 4 of its medians, its mean is w_i (1 + x_i). The tail x_i rests on few
    of its K_i results, so it is mixed with the tail x of all workers:

        mean_i = w_i (1 + (K_i x_i + 100 x) / (K_i + 100)),   x = sum_i K_i x_i / sum_i K_i.

    Coefficients of variation stay, because a mean is not known better than before. Workers whose times are not counted
    in bins keep their moments. Ours; a winsorised mean (Dixon and Tukey, 1968) whose bias is put back.

    >>> usual = np.tile([0, 1], 20)[None]
    >>> seen = DistributionBelief.empty(1, 2).observe(usual, np.ones((1, 40)), np.zeros((1, 2)))
    >>> seen = seen.observe(np.array([[0, 0]]), np.array([[1.0, 30.0]]), np.zeros((1, 2)))
    >>> moments = borrow_tails(seen, *own_slices(seen))
    >>> (seen.totals[0] / seen.counts[0]).round(1), moments.mean()[0].round(1)
    (array([2.3, 1. ]), array([1.9, 1.5]))
    """
    moments, tail = Moments(belief.counts, belief.totals, belief.deviations), np.where(counted.there, _tail(own), 0.0)
    number, common = counted.of(belief.counts), np.zeros((len(tail), 1))
    weight = number * (counted.of(belief.anchor) > 0.0)
    for e in np.flatnonzero(tail.any(axis=1)):
        weights = weight[e, counted.there[e]]
        common[e] = (tail[e, counted.there[e]] * weights).sum() / weights.sum()
    mixed = (number * tail + _BORROWED * common) / (number + _BORROWED)
    factor = np.where(counted.place >= 0, picked((1.0 + mixed) / (1.0 + tail), counted.place), 1.0)
    return Moments(moments.counts, moments.totals * factor, moments.deviations * factor**2)


@kernel("(s)->()")
def _tail(times: Floats, out: Floats) -> None:  # how much longer the mean is than that of the times cut at 4 medians
    size, whole, cut = len(times), 0.0, 0.0
    median = 0.5 * (times[(size - 1) // 2] + times[size // 2])
    for s in range(size):
        whole += times[s]
        cut += min(times[s], _LONG * median)
    out[0] = min((whole - cut) / cut, _MOST) if cut > 0.0 and whole < math.inf else 0.0
