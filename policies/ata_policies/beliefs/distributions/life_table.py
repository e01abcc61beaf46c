"""Slices of a distribution from counts in bins: the life table, which knows cancelled tasks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import gufunc, helper, inlined

_WEIGHTLESS = 1e-9  # the share of all results that is left in a bin where rounding alone has left something


class Pieces(NamedTuple):
    """The parts of a distribution in the order of time."""

    chance: Floats  # how likely a time is in each of them
    centre: Floats  # its mean
    half: Floats  # how far its times are from its mean, at most; within a piece they are uniform


@gufunc(
    "void(float64[:,:,:], int32[:], float64[:], float64[:], float64[:], float64[:], float64[:], int64[:],"
    " float64[:,:])",
    "(v,three,k),(n),(n),(n),(n),(n),(n),(m),(m,s)",
    (8,),
)
def slices(
    counted: Any, slot: Any, count: Floats, times: Floats, deviation: Floats, anchor: Floats, mean: Floats,
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
    """Fill in the means of the slices of one worker."""
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
    """Keep the bins with results as the first pieces; return how many, and the chance to outlast all results."""
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
        while need > 0.0 and piece < number:
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
