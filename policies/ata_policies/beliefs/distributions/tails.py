"""Rare huge times: the mean of a worker whose tail is estimated partly from all workers."""

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
_BORROWED = 100.0
"""The results for which the tail of all workers counts beside a worker's own."""
_LONGEST_TAIL = 1e6
"""The longest tail; a longer one counts as this one, so that means stay within range."""


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

    With w_i the mean of a worker's times cut at 4 of its medians, its mean is w_i (1 + x_i). The
    tail x_i rests on few of its K_i results, so it is mixed with the tail x of all workers:

        mean_i = w_i (1 + (K_i x_i + 100 x) / (K_i + 100)),   x = sum_i K_i x_i / sum_i K_i.

    Coefficients of variation stay, because a mean is not known better than before. Workers whose
    times are not counted in bins keep their moments. Ours; a winsorised mean (Dixon and Tukey,
    1968) whose bias is put back.

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
        (array([2.3, 1. ]), array([1.9, 1.5]))
    """
    moments = Moments(belief.counts, belief.totals, belief.deviations)
    tail = np.where(counted.present, _tail(slices), 0.0)
    results = counted.take(belief.counts)
    common_tail = np.zeros((len(tail), 1))
    # workers whose times are all 0 have no tail that others could borrow
    weight = results * (counted.take(belief.anchor) > 0.0)
    for row in np.flatnonzero(tail.any(axis=1)):
        weights = weight[row, counted.present[row]]
        common_tail[row] = (tail[row, counted.present[row]] * weights).sum() / weights.sum()
    mixed = (results * tail + _BORROWED * common_tail) / (results + _BORROWED)
    factor = np.where(counted.place >= 0, picked((1.0 + mixed) / (1.0 + tail), counted.place), 1.0)
    return Moments(moments.counts, moments.totals * factor, moments.deviations * factor**2)


@kernel("(s)->()")
def _tail(times: Floats, out: Floats) -> None:
    """Compute how much longer the mean is than the mean of the times cut at 4 medians."""
    size = len(times)
    total = 0.0
    cut_total = 0.0
    median = 0.5 * (times[(size - 1) // 2] + times[size // 2])
    for s in range(size):
        total += times[s]
        cut_total += min(times[s], _LONG * median)
    if cut_total > 0.0 and total < math.inf:
        out[0] = min((total - cut_total) / cut_total, _LONGEST_TAIL)
    else:
        out[0] = 0.0
