"""Samples of each worker's distribution: equally likely slices.

They are from the life table of its own results, and from the shape of the others' distributions.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import helper, inlined, kernel
from ata_policies.beliefs.distributions.arrays import Places
from ata_policies.beliefs.distributions.bins import TRUST, DistributionBelief

_RESULTS_BEYOND = 8.0
"""A slice rests on so many times the results that lie beyond it."""
_WEIGHTLESS = 1e-9
"""The share of all results below which a bin counts as empty: rounding leaves as much."""


def own_sample(
    belief: DistributionBelief,
    size: int,
    tail: Floats | None = None,
    workers: Ints | None = None,
) -> Floats:
    """Return means of equally likely slices of each worker's own distribution, (E, n, size).

    They increase along a worker. The chance of each bin is from the life table (Kaplan-Meier's
    estimator in bins; Cutler and Ederer, 1958): a share

        h_b = d_b / (r_b - c_b / 2)

    of the tasks that outlast the bins before b ends in b, with d_b results and c_b cancelled tasks
    in the bin and r_b tasks that reach it. Within a bin, times are uniform around the exact mean of
    its results: as wide as the bin, times a factor of at most 1 that gives all results their exact
    variance. Tasks that outlast all results take an exponential time longer, from the last time
    seen (the lower end of its bin). Without cancelled tasks the mean of the sample is the mean of
    the results; workers never tried get NaN. Ours, except the life table.

    Args:
        belief: What is known of the workers.
        size: The number of slices.
        tail: (E, n) the mean of the exponential times; by default ``belief.mean()``.
        workers: (E, m) whose slices are returned, (E, m, size); None: all workers.
    """
    if tail is None:
        mean = belief.mean()
    else:
        mean = tail
    if workers is None:
        selected = np.broadcast_to(np.arange(mean.shape[1]), mean.shape)
    else:
        selected = workers
    out = np.empty((*selected.shape, size))
    moments = belief.counts, belief.totals, belief.deviations, belief.anchor
    with np.errstate(all="ignore"):
        _slices(belief.bins, belief.slot, *moments, mean, selected, out)
    return out


def sample(belief: DistributionBelief, size: int, slices: Floats | None = None) -> Floats:
    """Return means of equally likely slices of each worker's distribution, (E, n, size).

    They increase along a worker. A worker seen rarely borrows the shape (time / mean) of its
    distribution from the workers of its row. With K_i results, own slices q_i of mean m_i, and the
    slices e of the exponential distribution of mean 1,

        t_i(s) = s (K_i - 1)+ / (s (K_i - 1)+ + 16),
        common = (e / 17 + sum_i t_i(1) q_i / m_i) / (1 / 17 + sum_i t_i(1)),
        sample_i ~ t_i(s) q_i / m_i + (1 - t_i(s)) common,   s = min(1, 8 (1 - level)),

    slice by slice, at the mean m_i. Few results lie beyond a high level, so the longest slices
    borrow most. e counts as one worker with two results. Workers never tried get NaN. Ours.

    Args:
        belief: What is known of the workers.
        size: The number of slices.
        slices: (E, n, size) their own slices; by default ``own_sample(belief, size)``.

    Example:
        >>> belief = DistributionBelief.empty(1, 3)
        >>> times = np.array([[3.0, 5.0, 4.0, 12.0]])
        >>> belief = belief.observe(np.array([[0, 0, 0, 1]]), times, np.zeros((1, 3)))
        >>> sample(belief, 4).mean(axis=2)
        array([[ 4., 12., nan]])
    """
    if slices is None:
        slices = own_sample(belief, size)
    return blended(slices, np.arange(slices.shape[1]), belief.later(), slices.mean(axis=2))


def blended(slices: Floats, place: Ints, later: Floats, mean: Floats) -> Floats:
    """Return the distributions of ``sample`` for workers of given means, (E, m, size).

    Args:
        slices: (E, k, size) own slices.
        place: (m,) where each worker's own slices are, from 0 to k - 1; -1 for none.
        later: (E, m) the workers' results after the first.
        mean: (E, m) the workers' means.
    """
    common = common_shape(slices, place, later / (later + TRUST))
    return np.asarray(_blend(slices, place, later, mean, common))


def common_shape(slices: Floats, place: Ints, weight: Floats) -> Floats:
    """Return the weighted mean of the shapes q_i / m_i and the exponential shape e, (E, size).

    Args:
        slices: (E, k, size) own slices q.
        place: (m,) where each worker's own slices are, from 0 to k - 1; -1 for none.
        weight: (E, m) the weight of each worker; e has the weight 1 / 17.
    """
    return np.asarray(_common(slices, place, weight, exponential_sample(slices.shape[2])))


@helper()
def _fill_shape(slices: Floats, place: int, out: Floats) -> float:
    """Write the shape of own slices, or ones without any; return the mean of the slices."""
    out[:] = 1.0
    if place < 0:
        return 1.0
    mean = slices[place].mean()
    if mean > 0.0:
        for s in range(len(out)):
            out[s] = slices[place, s] / mean
    return float(mean)


@kernel("(k,s),(m),(m),(s)->(s)")
def _common(slices: Floats, place: Ints, weight: Floats, exponential: Floats, out: Floats) -> None:
    """Compute the common shape of a row, see ``common_shape``."""
    shape = np.empty(len(out))
    prior = 1.0 / (1.0 + TRUST)
    total = 0.0
    out[:] = 0.0
    for i in range(len(place)):
        _fill_shape(slices, place[i], shape)
        total += weight[i]
        for s in range(len(out)):
            out[s] += weight[i] * shape[s]
    for s in range(len(out)):
        out[s] = (prior * exponential[s] + out[s]) / (prior + total)


@kernel("(k,s),(m),(m),(m),(s)->(m,s)")
def _blend(
    slices: Floats,
    place: Ints,
    later: Floats,
    mean: Floats,
    common: Floats,
    out: Floats,
) -> None:
    """Mix each worker's shape with the common one, slice by slice, at the worker's mean."""
    size = len(common)
    shape = np.empty(len(common))
    for i in range(len(place)):
        slices_mean = _fill_shape(slices, place[i], shape)
        total = 0.0
        for s in range(size):
            results = later[i] * min(1.0, _RESULTS_BEYOND * (1.0 - (s + 0.5) / size))
            trust = results / (results + TRUST)
            out[i, s] = trust * shape[s] + (1.0 - trust) * common[s]
            total += out[i, s]
        # a mixture with weights that differ by slice may be out of order; the common shape is not
        if later[i] > 0.0:
            sort_slices(out[i])
        if slices_mean != 0.0:
            scale = mean[i] * size / total
        else:
            scale = 0.0
        for s in range(size):
            out[i, s] *= scale


@lru_cache(maxsize=8)
def exponential_sample(size: int) -> Floats:
    """Return means of ``size`` equally likely slices of the exponential distribution of mean 1.

    They increase, (size,). Two slices have the means 1 - ln 2 and 1 + ln 2.

    Example:
        >>> exponential_sample(2).round(4)
        array([0.3069, 1.6931])
    """
    # the integral of -ln v up to each level v gives the mean between two levels
    above = 1.0 - np.arange(size + 1) / size
    areas = above - above * np.log(np.where(above > 0.0, above, 1.0))
    return np.asarray(size * -np.diff(areas))


class Pieces(NamedTuple):
    """The parts of a distribution in the order of time."""

    chance: Floats
    """The chance of a time in each part."""
    centre: Floats
    """The mean of each part."""
    half: Floats
    """How far times are from the part's mean, at most; within a part they are uniform."""


@kernel("(v,three,k),(n),(n),(n),(n),(n),(n),(m),(m,s)", (8,))
def _slices(
    counted: Floats,
    slot: Places,
    count: Floats,
    times: Floats,
    deviation: Floats,
    anchor: Floats,
    mean: Floats,
    workers: Ints,
    out: Floats,
) -> None:
    """Fill in the means of equally likely slices of some workers' distributions of given mean.

    See ``own_sample``. ``counted`` has the results, the cancelled tasks and the results' times in
    units of ``anchor``, by bin, at each worker's ``slot``; where the slot is -1, the distribution
    is exponential. ``count``, ``times`` and ``deviation`` are the results' moments.
    """
    bins = counted.shape[2]
    size = out.shape[1]
    pieces = Pieces(np.empty(bins + 1), np.empty(bins + 1), np.empty(bins + 1))
    exponential = np.empty(size)
    pieces.chance[0] = 1.0
    _cut(pieces, 1, True, 0.0, 1.0, exponential)
    for w in range(len(workers)):
        i = workers[w]
        if slot[i] >= 0:
            counts = counted[slot[i]]
            moments = (count[i], times[i], deviation[i])
            _fill(counts[0], counts[1], counts[2], moments, anchor[i], mean[i], pieces, out[w])
        else:
            for s in range(size):
                out[w, s] = mean[i] * exponential[s]


@helper()
def _fill(
    finished: Floats,
    cancelled: Floats,
    sums: Floats,
    moments: tuple[float, float, float],
    anchor: float,
    mean: float,
    pieces: Pieces,
    out: Floats,
) -> None:
    """Fill in the slices of one worker from its counts in bins, see ``_slices``."""
    bins = len(finished)
    if math.isnan(mean):
        out[:] = math.nan
        return
    results = 0.0
    time = 0.0
    for b in range(bins):
        results += finished[b]
        time += sums[b]
    count = max(moments[0], 1e-300)
    average = moments[1] / count
    # the total of the times is exact, the bins' sums are rounded: their unit is what agrees
    if time > 0.0:
        unit = average * results / time
    else:
        unit = anchor
    squares = moments[2] * (results / count)
    threshold = _WEIGHTLESS * results
    start, factor, at_risk = _place(
        finished,
        cancelled,
        sums,
        anchor,
        unit,
        average,
        squares,
        threshold,
        pieces,
    )
    number, alive = _weigh(finished, cancelled, at_risk, threshold, factor, pieces)
    if alive > 0.0:
        if number > 0:
            start = max(start, pieces.centre[number - 1] + pieces.half[number - 1])
        pieces.chance[number] = alive
        number += 1
    _cut(pieces, number, alive > 0.0, start, mean, out)
    sort_slices(out)


@inlined
def sort_slices(out: Floats) -> None:
    """Sort the slices by insertion; neighbouring bins may overlap a little.

    NaN, from extreme times, is last.
    """
    for s in range(1, len(out)):
        mean = out[s]
        place = s
        while place > 0 and (out[place - 1] > mean or math.isnan(out[place - 1])):
            out[place] = out[place - 1]
            place -= 1
        out[place] = mean


@inlined
def _place(
    finished: Floats,
    cancelled: Floats,
    sums: Floats,
    anchor: float,
    unit: float,
    average: float,
    squares: float,
    threshold: float,
    pieces: Pieces,
) -> tuple[float, float, float]:
    """Fill in where the results of each bin are, if their times are uniform over its width.

    Returned are where the times beyond all results begin, the factor that gives all results their
    exact variance, and the number of tasks.
    """
    start = 0.0
    uniform_squares = 0.0
    at_risk = 0.0
    middle = len(finished) // 2
    for b in range(len(finished)):
        if finished[b] > threshold:
            d = finished[b]
        else:
            d = 0.0
        if d + cancelled[b] == 0.0:
            continue
        at_risk += d + cancelled[b]
        if b > 0:
            low = anchor * 2.0 ** (0.5 * (b - middle))
        else:
            low = 0.0
        if cancelled[b] > 0:
            start = max(start, low)
        if d > 0.0:
            high = anchor * 2.0 ** (0.5 * (b + 1 - middle))
            centre = unit * (sums[b] / d)
            # times may reach into the next bin if the mean is near it, but not below 0
            half = min(0.5 * (high - low), centre)
            # what is left of the squared deviations, and what uniform times would add to them
            squares -= d * (centre - average) ** 2
            uniform_squares += d * half * half / 3.0
            start = max(start, centre)
            pieces.centre[b] = centre
            pieces.half[b] = half
    # the squares of extreme times have overflowed
    if not (uniform_squares < math.inf and squares < math.inf):
        return start, 1.0, at_risk
    if uniform_squares > 0.0:
        factor = math.sqrt(min(max(squares, 0.0) / uniform_squares, 1.0))
    else:
        factor = 0.0
    return start, factor, at_risk


@inlined
def _weigh(
    finished: Floats,
    cancelled: Floats,
    at_risk: float,
    threshold: float,
    factor: float,
    pieces: Pieces,
) -> tuple[int, float]:
    """Give each piece its chance by the life table, and move pieces to the front.

    Returned are the number of pieces, and the chance of a time beyond all results.
    """
    number = 0
    alive = 1.0
    for b in range(len(finished)):
        if finished[b] > threshold:
            d = finished[b]
        else:
            d = 0.0
        c = cancelled[b]
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

    With a ``tail`` the last piece is what outlasts all results: exponential times of this mean,
    from ``start`` on.
    """
    chances, centre, half = pieces
    size = len(out)
    # ``used`` is how much of the piece's chance the slices before took
    piece = 0
    used = 0.0
    chance = chances[0] if number > 0 else 1.0
    inverse = 1.0 / chance
    for s in range(size):
        need = 1.0 / size
        total = 0.0
        # each pass uses up the piece, or nothing more is needed
        while need > 0.0 and piece < number:
            is_last = piece == number - 1
            if is_last:
                take = need
            else:
                take = min(need, chance - used)
            if is_last and tail:
                # the mean of start - mean ln v over v from 1 - end to 1 - begin, times how likely
                # it is
                v = 1.0 - min((used + take) / chance, 1.0)
                w = 1.0 - min(used / chance, 1.0)
                upper = w - w * math.log(w) if w > 0.0 else 0.0
                lower = v - v * math.log(v) if v > 0.0 else 0.0
                area = upper - lower
                total += take * start + chance * mean * area
            else:
                # twice the place in the piece of the middle of what is taken
                place = min((2.0 * used + take) * inverse, 2.0)
                total += take * (centre[piece] + half[piece] * (place - 1.0))
            need -= take
            used += take
            if not is_last and used >= chance:
                piece = piece + 1
                used = 0.0
                chance = chances[piece]
                inverse = 1.0 / chance
        out[s] = total * size
