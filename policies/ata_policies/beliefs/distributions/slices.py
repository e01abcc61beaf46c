"""Samples of each worker's distribution: equally likely slices, from the life table and from the others' shape."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import helper, inlined, kernel
from ata_policies.beliefs.distributions.arrays import Places
from ata_policies.beliefs.distributions.bins import TRUST, DistributionBelief

_SEEN_BEYOND = 8.0  # a slice rests on so many times the results that lie beyond it
_WEIGHTLESS = 1e-9  # the share of all results that is left in a bin where rounding alone has left something


def own_sample(
    belief: DistributionBelief, size: int, tail: Floats | None = None, workers: Ints | None = None
) -> Floats:
    """Means of equally likely slices of each worker's own estimated distribution, shape (E, n, size), increasing.

    The chance of each bin is the life table's (Kaplan-Meier's in bins; Cutler and Ederer, 1958): a share

        h_b = d_b / (r_b - c_b / 2)

    of the tasks that outlast the bins before b ends in b, with d_b results and c_b cancelled tasks in the bin and r_b
    tasks that reach it. Within a bin, times are uniform around the exact mean of its results: as wide as the bin, times
    a factor of at most 1 that gives all results their exact variance. Tasks that outlast all results take an
    exponential time longer, of mean ``tail`` (E, n), by default ``belief.mean()``, from the last time seen (the lower
    end of its bin). Without cancelled tasks the mean of the sample is the mean of the results; workers never tried get
    NaN. Ours, except the life table.
    """
    mean = belief.mean() if tail is None else tail
    which = np.broadcast_to(np.arange(mean.shape[1]), mean.shape) if workers is None else workers
    out = np.empty((*which.shape, size))
    moments = belief.counts, belief.totals, belief.deviations, belief.anchor
    with np.errstate(all="ignore"):
        _slices(belief.bins, belief.slot, *moments, mean, which, out)
    return out


def sample(belief: DistributionBelief, size: int, own: Floats | None = None) -> Floats:
    """Means of equally likely slices of each worker's distribution, shape (E, n, size), increasing along a worker.

    A worker seen rarely borrows the shape (time / mean) of its distribution from the workers of its row. With K_i
    results, own slices q_i of mean m_i, and the slices e of the exponential distribution of mean 1,

        t_i(s) = s (K_i - 1)+ / (s (K_i - 1)+ + 16),
        common = (e / 17 + sum_i t_i(1) q_i / m_i) / (1 / 17 + sum_i t_i(1)),
        sample_i ~ t_i(s) q_i / m_i + (1 - t_i(s)) common,   s = min(1, 8 (1 - level)),

    slice by slice, at the mean m_i. Few results lie beyond a high level, so the longest slices borrow most. e counts as
    one worker with two results. Workers never tried get NaN. Ours.

    >>> seen = DistributionBelief.empty(1, 3)
    >>> times = np.array([[3.0, 5.0, 4.0, 12.0]])
    >>> seen = seen.observe(np.array([[0, 0, 0, 1]]), times, np.zeros((1, 3)))
    >>> sample(seen, 4).mean(axis=2)
    array([[ 4., 12., nan]])
    """
    own = own_sample(belief, size) if own is None else own
    return blended(own, np.arange(own.shape[1]), belief.later(), own.mean(axis=2))


def blended(own: Floats, place: Ints, later: Floats, mean: Floats) -> Floats:
    """The distributions of ``sample`` from own slices (E, k, size), for workers of given means (E, m).

    Their own slices are at ``place`` (m,), -1 for none, and ``later`` (E, m) are their results after the first.
    """
    common = common_shape(own, place, later / (later + TRUST))
    return np.asarray(_blend(own, place, later, mean, common))


def common_shape(own: Floats, place: Ints, weight: Floats) -> Floats:
    """The weighted mean of the shapes q_i / m_i of workers (E, m) and of that of e, (E, size); see ``blended``."""
    return np.asarray(_common(own, place, weight, exponential_sample(own.shape[2])))


@helper()
def _fill_shape(own: Floats, place: int, out: Floats) -> float:
    out[:] = 1.0
    mean = own[place].mean() if place >= 0 else 1.0
    if place >= 0 and mean > 0.0:
        for s in range(len(out)):
            out[s] = own[place, s] / mean
    return mean


@kernel("(k,s),(m),(m),(s)->(s)")
def _common(own: Floats, place: Ints, weight: Floats, exponential: Floats, out: Floats) -> None:
    shape, prior, total = np.empty(len(out)), 1.0 / (1.0 + TRUST), 0.0
    out[:] = 0.0
    for i in range(len(place)):
        _fill_shape(own, place[i], shape)
        total += weight[i]
        for s in range(len(out)):
            out[s] += weight[i] * shape[s]
    for s in range(len(out)):
        out[s] = (prior * exponential[s] + out[s]) / (prior + total)


@kernel("(k,s),(m),(m),(m),(s)->(m,s)")
def _blend(own: Floats, place: Ints, later: Floats, mean: Floats, common: Floats, out: Floats) -> None:
    size, shape = len(common), np.empty(len(common))
    for i in range(len(place)):
        here, total = _fill_shape(own, place[i], shape), 0.0
        for s in range(size):
            rests_on = later[i] * min(1.0, _SEEN_BEYOND * (1.0 - (s + 0.5) / size))
            trust = rests_on / (rests_on + TRUST)
            out[i, s] = trust * shape[s] + (1.0 - trust) * common[s]
            total += out[i, s]
        if later[i] > 0.0:  # the common shape is sorted
            sort_slices(out[i])
        scale = mean[i] * size / total if here != 0.0 else 0.0
        for s in range(size):
            out[i, s] *= scale


@lru_cache(maxsize=8)
def exponential_sample(size: int) -> Floats:
    """Means of ``size`` equally likely slices of the exponential distribution of mean 1, shape (size,), increasing.

    >>> exponential_sample(2).round(4)  # 1 - ln 2 and 1 + ln 2
    array([0.3069, 1.6931])
    """
    above = 1.0 - np.arange(size + 1) / size
    areas = above - above * np.log(np.where(above > 0.0, above, 1.0))
    return np.asarray(size * -np.diff(areas))


class Pieces(NamedTuple):
    """The parts of a distribution in the order of time."""

    chance: Floats  # how likely a time is in each of them
    centre: Floats  # its mean
    half: Floats  # how far its times are from its mean, at most; within a piece they are uniform


@kernel("(v,three,k),(n),(n),(n),(n),(n),(n),(m),(m,s)", (8,))
def _slices(
    counted: Floats, slot: Places, count: Floats, times: Floats, deviation: Floats, anchor: Floats, mean: Floats,
    workers: Ints, out: Floats,
) -> None:  # fmt: skip
    """Fill in the means of equally likely slices of some workers' distributions of given mean, see ``own_sample``.

    ``counted`` has the results, the cancelled tasks and the results' times in units of ``anchor``, by bin, at each
    worker's ``slot``; where that is -1, the distribution is exponential. ``count``, ``times`` and ``deviation`` are the
    results' moments.
    """
    bins, size = counted.shape[2], out.shape[1]
    pieces = Pieces(np.empty(bins + 1), np.empty(bins + 1), np.empty(bins + 1))
    exponential = np.empty(size)
    pieces.chance[0] = 1.0
    _cut(pieces, 1, True, 0.0, 1.0, exponential)
    for w in range(len(workers)):
        i = workers[w]
        if slot[i] >= 0:
            here, moments = counted[slot[i]], (count[i], times[i], deviation[i])
            _fill(here[0], here[1], here[2], moments, anchor[i], mean[i], pieces, out[w])
        else:
            for s in range(size):
                out[w, s] = mean[i] * exponential[s]


@helper()
def _fill(
    finished: Floats, cancelled: Floats, sums: Floats, moments: tuple[float, float, float], anchor: float, mean: float,
    pieces: Pieces, out: Floats,
) -> None:  # fmt: skip
    bins = len(finished)
    if math.isnan(mean):
        out[:] = math.nan
        return
    known, time = 0.0, 0.0
    for b in range(bins):
        known += finished[b]
        time += sums[b]
    count = max(moments[0], 1e-300)
    average = moments[1] / count
    unit = average * known / time if time > 0.0 else anchor  # the times' total is exact, the bins' are rounded
    squares = moments[2] * (known / count)
    least = _WEIGHTLESS * known
    start, factor, at_risk = _place(finished, cancelled, sums, anchor, unit, average, squares, least, pieces)
    number, alive = _weigh(finished, cancelled, at_risk, least, factor, pieces)
    if alive > 0.0:
        if number > 0:
            start = max(start, pieces.centre[number - 1] + pieces.half[number - 1])
        pieces.chance[number] = alive
        number += 1
    _cut(pieces, number, alive > 0.0, start, mean, out)
    sort_slices(out)


@inlined
def sort_slices(out: Floats) -> None:
    """Insert each slice where it belongs: neighbouring bins may overlap a little; NaN of extreme times is last."""
    for s in range(1, len(out)):
        mean, at = out[s], s
        while at > 0 and (out[at - 1] > mean or math.isnan(out[at - 1])):
            out[at] = out[at - 1]
            at -= 1
        out[at] = mean


@inlined
def _place(
    finished: Floats, cancelled: Floats, sums: Floats, anchor: float, unit: float, average: float, squares: float,
    least: float, pieces: Pieces,
) -> tuple[float, float, float]:  # fmt: skip
    """Fill in where the results of each bin are, if their times are uniform and as wide as the bin.

    Returned are where the times beyond all results begin, the factor that gives all results their exact variance, and
    the number of tasks.
    """
    start, room, at_risk, anchored = 0.0, 0.0, 0.0, len(finished) // 2
    for b in range(len(finished)):
        d = finished[b] if finished[b] > least else 0.0
        if d + cancelled[b] == 0.0:
            continue
        at_risk += d + cancelled[b]
        low = anchor * 2.0 ** (0.5 * (b - anchored)) if b > 0 else 0.0
        if cancelled[b] > 0:
            start = max(start, low)
        if d > 0.0:
            high = anchor * 2.0 ** (0.5 * (b + 1 - anchored))
            centre = unit * (sums[b] / d)
            half = min(0.5 * (high - low), centre)  # into the next bin, if the mean is near it
            squares -= d * (centre - average) ** 2
            room += d * half * half / 3.0
            start = max(start, centre)
            pieces.centre[b], pieces.half[b] = centre, half
    if not (room < math.inf and squares < math.inf):  # the squares of extreme times have overflowed
        return start, 1.0, at_risk
    return start, math.sqrt(min(max(squares, 0.0) / room, 1.0)) if room > 0.0 else 0.0, at_risk


@inlined
def _weigh(
    finished: Floats, cancelled: Floats, at_risk: float, least: float, factor: float, pieces: Pieces
) -> tuple[int, float]:
    number, alive = 0, 1.0
    for b in range(len(finished)):
        d, c = finished[b] if finished[b] > least else 0.0, cancelled[b]
        if d > 0.0 and alive > 0.0:
            share = min(d / (at_risk - 0.5 * c), 1.0)
            pieces.chance[number] = alive * share
            pieces.centre[number], pieces.half[number] = pieces.centre[b], pieces.half[b] * factor
            alive *= 1.0 - share
            number += 1
        at_risk -= d + c
    return number, alive


@inlined
def _cut(pieces: Pieces, number: int, tail: bool, start: float, mean: float, out: Floats) -> None:
    """Cut the first ``number`` pieces into equally likely slices, and fill in their means.

    With a ``tail`` the last piece is what outlasts all results: exponential times of this mean, from ``start`` on.
    """
    chances, centre, half = pieces
    size = len(out)
    piece, used = 0, 0.0  # how much of the piece's chance the slices before took
    for s in range(size):
        need, total = 1.0 / size, 0.0
        while need > 0.0 and piece < number:  # each pass uses up the piece, or nothing more is needed
            chance, last = chances[piece], piece == number - 1
            take = need if last else min(need, chance - used)
            begin = min(used / chance, 1.0)
            end = min((used + take) / chance, 1.0)
            if last and tail:
                # the mean of start - mean ln v over v from 1 - end to 1 - begin, times how likely it is
                v, w = 1.0 - end, 1.0 - begin
                area = (w - w * math.log(w) if w > 0.0 else 0.0) - (v - v * math.log(v) if v > 0.0 else 0.0)
                total += take * start + chance * mean * area
            else:
                total += take * (centre[piece] + half[piece] * (begin + end - 1.0))
            need -= take
            used += take
            if not last and used >= chance:
                piece, used = piece + 1, 0.0
        out[s] = total * size
