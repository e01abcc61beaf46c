"""Slices of a distribution from counts in bins: the life table, which knows cancelled tasks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import gufunc


@gufunc(
    "void(float64[:,:], float64[:], float64[:], float64[:], float64[:], float64[:], float64[:])",
    "(three,k),(),(),(),(),(),(s)",
    (6,),
)
def slices(
    counted: Any, count: Floats, times: Floats, deviation: Floats, anchor: Floats, mean: Floats, out: Floats
) -> None:
    """Fill in the means of equally likely slices of a worker's distribution of given mean.

    The chance of each bin is the life table's, see ``own_sample``. ``counted`` has the results, the cancelled tasks and
    the results' times in units of ``anchor``, by bin; ``count``, ``times`` and ``deviation`` are the results' moments.
    """
    finished, cancelled, sums = counted
    bins, size = len(finished), len(out)
    anchored = bins // 2
    if math.isnan(mean[0]):
        out[:] = math.nan
        return
    at_risk, room, known, time = 0.0, 0.0, 0.0, 0.0
    for b in range(bins):
        known += finished[b]
        time += sums[b]
    average = times[0] / max(count[0], 1e-300)
    unit = average * known / time if time > 0.0 else anchor[0]  # the times' total is exact, the bins' are rounded
    faded = 1e-9 * known  # what is left of so little has no weight
    within = deviation[0] * (known / max(count[0], 1e-300))
    chance, centre, half = np.zeros(bins + 1), np.zeros(bins + 1), np.zeros(bins + 1)
    start = 0.0  # where the times beyond all results begin
    for b in range(bins):
        low = anchor[0] * 2.0 ** (0.5 * (b - anchored)) if b > 0 else 0.0
        high = anchor[0] * 2.0 ** (0.5 * (b + 1 - anchored))
        d = finished[b] if finished[b] > faded else 0.0
        at_risk += d + cancelled[b]
        if cancelled[b] > 0:
            start = max(start, low)
        if d > 0.0:
            centre[b] = unit * (sums[b] / d)
            half[b] = min(0.5 * (high - low), centre[b])  # into the next bin, if the mean is near it
            within -= d * (centre[b] - average) ** 2
            room += d * half[b] * half[b] / 3.0
            start = max(start, centre[b])
    factor = math.sqrt(min(max(within, 0.0) / room, 1.0)) if room > 0.0 else 0.0
    if not (room < math.inf and within < math.inf):  # the squares of extreme times have overflowed
        factor = 1.0
    pieces, alive = 0, 1.0
    for b in range(bins):
        d, c = finished[b] if finished[b] > faded else 0.0, cancelled[b]
        if d > 0.0 and alive > 0.0:
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
        while need > 0.0 and piece < pieces:
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
