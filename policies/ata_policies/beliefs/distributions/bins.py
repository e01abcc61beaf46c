"""What is known of each worker's whole distribution: a belief from finished and cancelled tasks, and samples of it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.theory.simulated.slices import exponential_sample
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc, inlined
from ata_policies.beliefs.moments import Moments

Counts = NDArray[np.uint32]

BINS = 32  # bins of task times per worker, each sqrt 2 times as wide as the one before; together a range of 65,536
ANCHORED = 16  # the bin that begins at a worker's first time
_TRUST = 16.0  # results after the first with which a worker's own distribution counts as much as that of all workers


class DistributionBelief(NamedTuple):
    """Results and cancelled tasks of each worker, counted in bins of time; exact moments besides.

    A worker's bin b begins at ``anchor * 2 ** ((b - 16) / 2)``; the first and the last bin are open. The belief never
    grows.
    """

    counts: Floats  # (E, n) results K_i
    totals: Floats  # (E, n) their times added up
    deviations: Floats  # (E, n) their squared deviations from their mean added up
    busy: Floats  # (E, n) time of the results and of the cancelled tasks, added up
    anchor: Floats  # (E, n) the worker's first time above 0; 0 before it
    finished: Counts  # (E, n, bins) results by their time
    cancelled: Counts  # (E, n, bins) cancelled tasks by how long they had run
    sums: Floats  # (E, n, bins) times of the results added up

    @classmethod
    def empty(cls, rows: int, n: int) -> DistributionBelief:
        """Nothing seen yet."""
        bins = (rows, n, BINS)
        counts, totals, deviations, busy, anchor = np.zeros((5, rows, n))
        finished, cancelled = np.zeros((2, *bins), np.uint32)
        return cls(counts, totals, deviations, busy, anchor, finished, cancelled, np.zeros(bins))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats) -> DistributionBelief:
        """Return the belief after some results and cancelled tasks; the arguments are those of ``Belief.observe``."""
        with np.errstate(over="ignore"):  # of squares
            moments = Moments(*self[:3]).observe(worker, duration)
        return DistributionBelief(*moments, *_observe(*self[3:], worker, duration, elapsed))

    def rows(self, which: Any) -> DistributionBelief:
        """The belief of some rows only; ``which`` is any index of the row axis that keeps it."""
        return DistributionBelief(*(part[which] for part in self))

    def mean(self) -> Floats:
        """Time spent per result, shape (E, n): the mean, if no task was cancelled; NaN for a worker never tried.

        A worker without a result counts as if its first came now.
        """
        known = np.where(self.untried(), np.nan, self.busy)
        return known / np.maximum(self.counts, 1.0)

    def untried(self) -> Mask:
        """Which workers have never finished a task, nor had one cancelled, shape (E, n)."""
        never: Mask = (self.counts == 0.0) & (self.busy == 0.0)
        return never

    def trust(self) -> Floats:
        """The share of each worker's own distribution in its sample, shape (E, n); the rest is that of all workers."""
        later = np.maximum(self.counts - 1.0, 0.0)
        return later / (later + _TRUST)


@inlined
def _bin(time: float, anchor: float, bins: int) -> int:
    if time <= 0.0 or anchor <= 0.0:
        return 0
    place = math.floor(2.0 * (math.log2(time) - math.log2(anchor))) + ANCHORED
    return int(min(max(place, 0), bins - 1))


_PARTS = "float64[:],float64[:],uint32[:,:],uint32[:,:],float64[:,:]"
_LAYOUT = "(n),(n),(n,k),(n,k),(n,k)"


@gufunc(f"void({_PARTS},int64[:],float64[:],float64[:],{_PARTS})", f"{_LAYOUT},(r),(r),(n)->{_LAYOUT}")
def _observe(
    busy: Floats, anchor: Floats, finished: Counts, cancelled: Counts, sums: Floats,
    worker: Ints, time: Floats, elapsed: Floats,
    new_busy: Floats, new_anchor: Floats, new_finished: Counts, new_cancelled: Counts, new_sums: Floats,
) -> None:  # fmt: skip
    n, bins = finished.shape
    new_busy[:], new_anchor[:] = busy, anchor
    new_finished[:], new_cancelled[:], new_sums[:] = finished, cancelled, sums
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            x = time[r]
            if new_anchor[i] == 0.0:
                new_anchor[i] = x
            b = _bin(x, new_anchor[i], bins)
            new_busy[i] += x
            new_finished[i, b] += np.uint32(1)
            new_sums[i, b] += x
    for i in range(n):
        if elapsed[i] > 0.0:
            if new_anchor[i] == 0.0:
                new_anchor[i] = elapsed[i]
            new_busy[i] += elapsed[i]
            new_cancelled[i, _bin(elapsed[i], new_anchor[i], bins)] += np.uint32(1)


def own_sample(belief: DistributionBelief, size: int) -> Floats:
    """Means of equally likely slices of each worker's own estimated distribution, shape (E, n, size), increasing.

    The chance of each bin is the life table's (Kaplan-Meier's in bins; Cutler and Ederer, 1958): a share

        h_b = d_b / (r_b - c_b / 2)

    of the tasks that outlast the bins before b ends in b, with d_b results and c_b cancelled tasks in the bin and r_b
    tasks that got so far. Within a bin, times are uniform around the exact mean of its results: as wide as the bin,
    times a factor at most 1 that gives the results of all bins together their exact variance. Tasks that outlast all
    results go on for an exponential time, of mean ``belief.mean()``, from the last time seen (the lower end of its
    bin). Without cancelled tasks the mean of the sample is the mean of the results. Ours, save the life table.

    Workers never tried get NaN.
    """
    out = np.empty((*belief.counts.shape, size))
    with np.errstate(over="ignore"):
        slices(belief.finished, belief.cancelled, belief.sums, belief.deviations, belief.anchor, belief.mean(), out)
    return out


def sample(belief: DistributionBelief, size: int) -> Floats:
    """Means of equally likely slices of each worker's distribution, shape (E, n, size), increasing along a worker.

    A worker seen rarely borrows the shape (time / mean) of its distribution from the workers of its row. With K_i
    results, own slices q_i of mean m_i, and the slices e of the exponential distribution of mean 1,

        t_i = (K_i - 1)+ / ((K_i - 1)+ + 16),
        common = (e / 17 + sum_i t_i q_i / m_i) / (1 / 17 + sum_i t_i),
        sample_i = m_i (t_i q_i / m_i + (1 - t_i) common),

    slice by slice, so that means stay as they are; e counts for one worker of two results. Workers never tried get NaN,
    as they have no distribution yet. Ours.

    >>> seen = DistributionBelief.empty(1, 3)
    >>> times = np.array([[3.0, 5.0, 4.0, 12.0]])
    >>> seen = seen.observe(np.array([[0, 0, 0, 1]]), times, np.zeros((1, 3)))
    >>> sample(seen, 4).mean(axis=2)
    array([[ 4., 12., nan]])
    """
    own = own_sample(belief, size)
    trust = belief.trust()
    shape, common = own_shapes(own, trust)
    blended = trust[:, :, None] * shape + (1.0 - trust)[:, :, None] * common[:, None, :]
    distribution: Floats = own.mean(axis=2, keepdims=True) * blended
    return distribution


def own_shapes(own: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """The workers' own shapes q_i / m_i, and what they have in common, shape (E, size), if they have these weights."""
    mean = own.mean(axis=2, keepdims=True)
    shape = np.divide(own, mean, out=np.ones_like(own), where=mean > 0.0)
    prior = 1.0 / (1.0 + _TRUST)
    total = prior * exponential_sample(own.shape[2]) + (weight[:, :, None] * shape).sum(axis=1)
    return shape, total / (prior + weight.sum(axis=1))[:, None]


@gufunc(
    "void(uint32[:], uint32[:], float64[:], float64[:], float64[:], float64[:], float64[:])",
    "(k),(k),(k),(),(),(),(s)",
    (6,),
)
def slices(
    finished: Counts, cancelled: Counts, sums: Floats, deviation: Floats, anchor: Floats, mean: Floats, out: Floats
) -> None:
    """Fill in the means of equally likely slices of a worker's distribution, as :func:`own_sample`, of given mean."""
    bins, size = len(finished), len(out)
    if math.isnan(mean[0]):
        out[:] = math.nan
        return
    at_risk, within, room = 0.0, deviation[0], 0.0
    average = sums.sum() / max(float(finished.sum()), 1.0)
    chance, centre, half = np.zeros(bins + 1), np.zeros(bins + 1), np.zeros(bins + 1)
    start = 0.0  # where the times beyond all results begin
    for b in range(bins):
        low = anchor[0] * 2.0 ** (0.5 * (b - ANCHORED)) if b > 0 else 0.0
        high = anchor[0] * 2.0 ** (0.5 * (b + 1 - ANCHORED))
        d = float(finished[b])
        at_risk += d + float(cancelled[b])
        if cancelled[b] > 0:
            start = max(start, low)
        if d > 0.0:
            centre[b] = sums[b] / d
            half[b] = min(0.5 * (high - low), centre[b])  # into the next bin, if the mean is near it
            within -= d * (centre[b] - average) ** 2
            room += d * half[b] * half[b] / 3.0
            start = max(start, centre[b])
    factor = math.sqrt(min(max(within, 0.0) / room, 1.0)) if room > 0.0 else 0.0
    if not (room < math.inf and within < math.inf):  # the squares of extreme times have overflowed
        factor = 1.0
    pieces, alive = 0, 1.0
    for b in range(bins):
        d, c = float(finished[b]), float(cancelled[b])
        if d > 0.0:
            share = min(d / (at_risk - 0.5 * c), 1.0)
            chance[pieces], centre[pieces], half[pieces] = alive * share, centre[b], half[b] * factor
            alive *= 1.0 - share
            pieces += 1
        at_risk -= d + c
    tail = alive > 0.0
    if tail:
        if pieces > 0:
            start = max(start, centre[pieces - 1] + half[pieces - 1])
        chance[pieces] = alive
        pieces += 1
    piece, used = 0, 0.0  # how much of the piece's chance the slices before took
    for s in range(size):
        need, total = 1.0 / size, 0.0
        while need > 0.0:
            last = piece == pieces - 1
            take = need if last else min(need, chance[piece] - used)
            begin = min(used / chance[piece], 1.0)
            end = min((used + take) / chance[piece], 1.0)
            if last and tail:
                # the mean of start - mean ln v over v from 1 - end to 1 - begin, times how likely it is
                v, w = 1.0 - end, 1.0 - begin
                area = (w - w * math.log(w) if w > 0.0 else 0.0) - (v - v * math.log(v) if v > 0.0 else 0.0)
                total += take * start + chance[piece] * mean[0] * area
            else:
                total += take * (centre[piece] + half[piece] * (begin + end - 1.0))
            need -= take
            used += take
            if not last and used >= chance[piece]:
                piece, used = piece + 1, 0.0
        out[s] = total * size
    out.sort()  # neighbouring bins may overlap a little
