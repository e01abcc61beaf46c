"""One round of observation: memories of several lengths, restarts at changes, and counts in bins of time.

One kernel does it all, and works only on workers with news; the rest is copied. ``DistributionBelief`` says what it
computes.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import gufunc, inlined

Places = NDArray[np.int32]

FINISHED, CANCELLED, SUMS = 0, 1, 2  # the three counts in bins

# Where a row's numbers are: rounds since everybody began anew, rounds in all, the memory in force, by how much each
# shorter memory predicted better than the longest, squared errors of predictions and results in them, and rounds since
# a worker began anew.
SINCE, CLOCK, FORCE, GAINS = 0, 1, 2, 3
SPREAD, RESULTS, SETTLED, WHOLE_SPREAD, EVENTS, EXPOSURE, ALARM, ROW = 6, 7, 8, 9, 10, 11, 12, 13

# Where a slot's numbers are: first results and time of each memory in turn; then by how much each shorter memory
# predicted better than that in force, squared errors of predictions, results counted in bins, and when it began anew.
TESTS, SQUARES, MASS, RESTART = 8, 11, 12, 13
# Of a suspect, a worker that took far longer or less than usual: by how much its times were stretched, or 0 if it is
# none; the share of its past that was kept; when it became one; probes that found it as slow; results and time since.
STRETCH, KEPT, HIT, PROBES, SEEN, SPENT, OFF, DUE, WHOLE_SQUARES, TRACKS = 14, 15, 16, 17, 18, 19, 20, 21, 22, 23
_FIRST_PROBE = 5.0
_PROBING = 0.5
_OVERWHELMING = 4.5  # log-likelihood by which a round must be unlike the usual level
_ADOPTED = 8.0  # results at the new level with which it is the usual one

HORIZONS = (math.inf, 256.0, 32.0, 6.0)  # rounds with news of its worker that each memory reaches back
_MEMORIES = 4
_PAST = 256.0  # rounds over which the row's predictions are compared
_LIMIT = 12.0  # how much better a shorter memory must have predicted to replace that in force, or to restart a worker
_MOST = 4.0  # what a result may add to that: none is a change alone
_CLIP = 5.0  # in these comparisons a time counts at most for so many times its worker's level
_SPREADS = 5.0  # results that the row's dispersion counts for in a worker's own
_SHARPEST = 1.0 / 16.0  # the least dispersion
_BORROWED = 2.0  # results that the exponential distribution counts for in how long a cancelled task would have taken
_TOGETHER = 10.0  # workers that begin anew within so many rounds are one event
_SHARE = 1.0 / 3.0  # everybody begins anew if more than this share of the workers with a result do
IDLE = 100.0  # a worker without news for so many rounds is out of use
_SURPRISING = 3.0  # how much likelier a level of its own must be for a worker out of use to begin anew when tried
_RESTLESS = 32.0  # rounds in which a worker that began anew and is without news loses half of its evidence
_LEAST = 4.0  # results that age leaves of a worker's evidence

_MOMENTS = "float64[:],float64[:],float64[:],float64[:],float64[:],float64[:],float64[:]"
_STATE = f"{_MOMENTS},int32[:],int32[:],float64[:,:,:],float64[:,:],float64[:]"
_LAYOUT = "(n),(n),(n),(n),(n),(n),(n),(n),(s),(s,three,k),(s,t),(w)"


@inlined
def _bin(time: float, anchor: float, bins: int) -> int:
    if time <= 0.0 or anchor <= 0.0:
        return 0
    place = math.floor(2.0 * (math.log2(time) - math.log2(anchor))) + bins // 2
    return int(min(max(place, 0), bins - 1))


@inlined
def _level(tracks: Floats, s: int, h: int) -> float:
    """Time per result of a memory, where one result is as the longest memory expects it."""
    level: float = tracks[s, 1] / max(tracks[s, 0], 1.0)
    if h > 0:
        level = (tracks[s, 2 * h + 1] + level) / (tracks[s, 2 * h] + 1.0)
    return level


@inlined
def _scale(
    counts: Floats, totals: Floats, deviations: Floats, busy: Floats, cancellations: Floats,
    i: int, share: float, stretch: float,
) -> None:  # fmt: skip
    """Let a worker's past count ``share`` times as much, and its times be ``stretch`` times as long."""
    counts[i] *= share
    cancellations[i] *= share
    totals[i] *= share * stretch
    busy[i] *= share * stretch
    deviations[i] = deviations[i] * share * stretch * stretch if share > 0.0 else 0.0


@gufunc(f"void({_STATE},int64[:],float64[:],float64[:],{_STATE})", f"{_LAYOUT},(r),(r),(n)->{_LAYOUT}")
def observe_round(
    counts: Floats, totals: Floats, deviations: Floats, busy: Floats, cancellations: Floats, anchor: Floats,
    last: Floats, slot: Places, owner: Places, bins: Floats, tracks: Floats, row: Floats,
    worker: Ints, time: Floats, elapsed: Floats,
    new_counts: Floats, new_totals: Floats, new_deviations: Floats, new_busy: Floats, new_cancellations: Floats,
    new_anchor: Floats, new_last: Floats, new_slot: Places, new_owner: Places, new_bins: Floats, new_tracks: Floats,
    new_row: Floats,
) -> None:  # fmt: skip
    """The belief after a round, see ``DistributionBelief``; without news, the belief as it was."""
    n, slots, size = len(counts), len(owner), bins.shape[2]
    new_counts[:], new_totals[:], new_deviations[:], new_busy[:] = counts, totals, deviations, busy
    new_cancellations[:], new_anchor[:], new_last[:] = cancellations, anchor, last
    new_slot[:], new_owner[:], new_bins[:], new_tracks[:], new_row[:] = slot, owner, bins, tracks, row

    now = row[CLOCK] + 1.0
    who, news = np.empty(n, np.int64), 0  # workers with something new, and what: results, cancelled, time
    place, results, spent, whole = np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n)
    full, longest, apart = np.empty(n), np.empty(n), np.zeros(n, np.bool_)
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            if new_last[i] != now:
                new_last[i], place[i], who[news] = now, news, i
                results[news] = spent[news] = whole[news] = full[news] = longest[news] = 0.0
                news += 1
            results[place[i]] += 1.0
    for i in range(n):
        if elapsed[i] > 0.0 and new_last[i] != now:
            new_last[i], place[i], who[news] = now, news, i
            results[news] = spent[news] = whole[news] = full[news] = longest[news] = 0.0
            news += 1
    if news == 0:  # there is no round before the first
        return
    new_row[SINCE], new_row[CLOCK], new_row[SETTLED] = row[SINCE] + 1.0, now, row[SETTLED] + 1.0
    force = int(row[FORCE])
    horizon = HORIZONS[force]
    keep = 1.0 - 1.0 / horizon

    # who has a slot
    mean = np.empty(0)
    if slots < n:
        for j in range(news):
            i = who[j]
            if new_slot[i] < 0 and results[j] > 0.0:
                s = 0
                while s < slots and new_owner[s] >= 0:
                    s += 1
                if s == slots:
                    if len(mean) == 0:
                        mean = np.empty(slots)
                        for k in range(slots):
                            o = new_owner[k]
                            mean[k] = busy[o] / max(counts[o], 1.0) if last[o] < now and new_last[o] < now else 0.0
                    s = int(np.argmax(mean))
                    first = math.inf
                    for r in range(len(worker)):
                        if worker[r] == i:
                            first = min(first, time[r])
                    if mean[s] <= first:
                        continue
                    new_slot[new_owner[s]] = -1
                    mean[s] = 0.0
                new_owner[s], new_slot[i] = i, s
                new_bins[s], new_tracks[s] = 0.0, 0.0

    # clipped times, for the comparison of memories
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            x, s = time[r], new_slot[i]
            if s >= 0 and new_tracks[s, 0] > 0.0:
                x = min(x, _CLIP * max(_level(new_tracks, s, 0), _level(new_tracks, s, _MEMORIES - 1)))
            spent[place[i]] += x
            whole[place[i]] += time[r]
            full[place[i]] += time[r]
            longest[place[i]] = max(longest[place[i]], time[r])
    for j in range(news):
        i = who[j]
        if elapsed[i] > 0.0:
            x, s = elapsed[i], new_slot[i]
            if s >= 0 and new_tracks[s, 0] > 0.0:
                m, ends = _level(new_tracks, s, 0), _BORROWED
                rest = m * ends  # how much longer tasks last, after they have lasted for x
                first = _bin(x, anchor[i], size)
                for b in range(first, size):
                    d, c = new_bins[s, FINISHED, b], new_bins[s, CANCELLED, b] if b > first else 0.0
                    centre = anchor[i] * 2.0 ** (0.5 * (b - size // 2) + 0.25)
                    rest += max(new_bins[s, SUMS, b] * anchor[i] - d * x, 0.0) + c * max(centre - x, 0.0)
                    ends += d
                x += rest / ends - m  # E[X | X > x] - m: for exponential times, x
                full[j] += max(x, 0.0)
                x = min(max(x, 0.0), _CLIP * max(m, _level(new_tracks, s, _MEMORIES - 1)))
            spent[j] += x
            whole[j] += elapsed[i]

    # how well each memory predicted
    common = (row[SPREAD] + 1.0) / (row[RESULTS] + 1.0)
    gain = np.zeros(_MEMORIES)
    restarted, active, returned, failed, until = 0, 0, 0.0, 0.0, 0.0
    usual_time = 0.0
    for j in range(news):
        s = new_slot[who[j]]
        if s >= 0 and new_tracks[s, 0] > 0.0:
            usual_time = max(usual_time, results[j] * _level(new_tracks, s, force))
    for j in range(news):
        i, d, x = who[j], results[j], spent[j]
        s = new_slot[i]
        active += d > 0.0
        if s < 0:
            continue
        new_row[EXPOSURE] += 1.0
        share, stretch, anew = 1.0, 1.0, False
        dispersion = max((new_tracks[s, SQUARES] + _SPREADS * common) / (new_tracks[s, 0] + _SPREADS), _SHARPEST)
        m = _level(new_tracks, s, force)
        if new_tracks[s, 0] > 0.0 and d > 0.0 and m > 0.0 and full[j] > 0.0:
            weight = max(2.0 * new_counts[i] / (new_counts[i] + new_cancellations[i]) - 1.0, 0.0)
            whole_common = (row[WHOLE_SPREAD] + 1.0) / (row[RESULTS] + 1.0)
            phi = max((new_tracks[s, WHOLE_SQUARES] + _SPREADS * whole_common) / (new_tracks[s, 0] + _SPREADS), _SHARPEST)
            ratio = math.log(full[j] / (d * m))
            some, y = d, full[j]
            if d > 1.0 and ratio > 0.0:  # a single long time is no change
                some, y = d - 1.0, full[j] - longest[j]
            rest = math.log(y / (some * m)) if y > 0.0 else 0.0
            unlike = weight * 0.5 * rest * rest / (phi * (1.0 / some + 1.0 / max(new_tracks[s, 2 * force], 0.5)))
            if rest * ratio < 0.0:
                unlike = 0.0
            old = new_tracks[s, STRETCH]
            if old > 0.0:
                if abs(ratio) <= abs(ratio - math.log(old)):
                    kept = new_tracks[s, KEPT]
                    _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, 1.0 / kept, 1.0 / old)
                    new_bins[s] /= kept
                    new_tracks[s, MASS] /= kept
                    new_anchor[i] /= old
                    new_tracks[s, STRETCH] = 0.0
                    returned = new_tracks[s, HIT]
                    new_row[ALARM] = now
                    if new_tracks[s, PROBES] == 0.0:
                        new_row[WHOLE_SPREAD] += new_tracks[s, OFF]
                        new_tracks[s, WHOLE_SQUARES] += new_tracks[s, OFF]
                else:
                    apart[j] = True
                    cost = max(full[j] / d / usual_time - 1.0, 0.0) / _PROBING
                    failed, until = new_tracks[s, HIT], now + max(_FIRST_PROBE, cost) * 2.0 ** (new_tracks[s, PROBES] + 1.0)
                    new_tracks[s, SEEN] += d
                    new_tracks[s, SPENT] += full[j]
                    f = new_tracks[s, SPENT] / new_tracks[s, SEEN] / m
                    _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, 1.0, f / old)
                    new_anchor[i] *= f / old
                    new_tracks[s, STRETCH] = f
                    if new_tracks[s, SEEN] >= _ADOPTED:
                        new_tracks[s, STRETCH] = 0.0
                        more = min(new_tracks[s, SEEN] / new_counts[i], 1.0 / new_tracks[s, KEPT])
                        _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, more, 1.0)
                        new_bins[s] *= more
                        new_tracks[s, MASS] *= more
                        new_tracks[s, WHOLE_SQUARES] *= new_tracks[s, SEEN] / max(new_tracks[s, 0], new_tracks[s, SEEN])
                        new_tracks[s, SQUARES] *= new_tracks[s, SEEN] / max(new_tracks[s, 0], new_tracks[s, SEEN])
                        for h in range(_MEMORIES):
                            new_tracks[s, 2 * h] = new_tracks[s, SEEN]
                            new_tracks[s, 2 * h + 1] = new_tracks[s, SPENT]
                        new_tracks[s, TESTS:SQUARES] = 0.0
                        new_tracks[s, RESTART] = now
                        restarted += 1
            elif unlike > _OVERWHELMING + math.log((row[EXPOSURE] + 1000.0) / (row[EVENTS] + 1.0)):
                apart[j] = True
                f, kept = full[j] / (d * m), min(max(d, 1.0) / new_counts[i], 1.0)
                _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, kept, f)
                new_bins[s] *= kept
                new_tracks[s, MASS] *= kept
                new_anchor[i] *= f
                new_tracks[s, STRETCH], new_tracks[s, KEPT], new_tracks[s, HIT] = f, kept, now
                new_tracks[s, PROBES], new_tracks[s, SEEN], new_tracks[s, SPENT] = 0.0, d, full[j]
                new_tracks[s, OFF] = d * d * ratio * ratio
                cost = max(full[j] / d / usual_time - 1.0, 0.0) / _PROBING
                new_tracks[s, DUE] = now + max(_FIRST_PROBE, cost)
                new_row[ALARM] = now
            if apart[j]:
                continue
        elif new_tracks[s, STRETCH] > 0.0:  # a cancelled task says nothing that is clear
            apart[j] = True
            continue
        m = _level(new_tracks, s, 0) if new_tracks[s, 0] > 0.0 else busy[i]
        if last[i] > 0.0 and now - last[i] > IDLE and 0.0 < x < d * m:  # is it much faster than it was long ago?
            ratio = x / (d * m)
            anew = d * (ratio - 1.0 - math.log(ratio)) >= _SURPRISING * dispersion
        if new_tracks[s, 0] > 0.0:
            weight = max(2.0 * new_counts[i] / (new_counts[i] + new_cancellations[i]) - 1.0, 0.0)
            loss, step = np.empty(_MEMORIES), _MOST * max(d, 1.0)
            for h in range(_MEMORIES):
                m = _level(new_tracks, s, h)
                loss[h] = weight * (d * math.log(m) + x / m) / dispersion if m > 0.0 else 0.0
                gain[h] += min(max(loss[0] - loss[h], -_MOST), _MOST)
            best, most = 0, _LIMIT
            for h in range(force + 1, _MEMORIES):
                won = max(new_tracks[s, TESTS + h - 1] + min(max(loss[force] - loss[h], -step), step), 0.0)
                new_tracks[s, TESTS + h - 1] = won
                if won > most:
                    best, most = h, won
            m = _level(new_tracks, s, force)
            if m > 0.0:
                off = x / m - d
                new_tracks[s, SQUARES] += off * off
                new_row[SPREAD] += off * off
                off = math.log(full[j] / (d * m)) * d if d > 0.0 and full[j] > 0.0 else 0.0
                new_tracks[s, WHOLE_SQUARES] += off * off
                new_row[WHOLE_SPREAD] += off * off
                new_row[RESULTS] += d
            if best > 0 and not anew:
                known, old = _level(new_tracks, s, best), _level(new_tracks, s, force)
                left = max(new_tracks[s, 2 * best], 1.0)
                share, stretch = min(left / max(new_counts[i], left), 1.0), known / old
                new_tracks[s, WHOLE_SQUARES] *= left / max(new_tracks[s, 0], left)
                new_tracks[s, SQUARES] *= left / max(new_tracks[s, 0], left)
                for h in range(best):
                    new_tracks[s, 2 * h], new_tracks[s, 2 * h + 1] = left, known * left
                for h in range(force + 1, _MEMORIES):  # what it has shown says nothing of the row
                    gain[h] -= new_tracks[s, TESTS + h - 1]
                new_tracks[s, TESTS:SQUARES] = 0.0
                new_tracks[s, RESTART] = now
                restarted += 1
                new_row[EVENTS] += 1.0
        if anew:  # nothing but this round counts
            _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, 0.0, 1.0)
            new_bins[s], new_tracks[s], new_anchor[i] = 0.0, 0.0, 0.0
            new_tracks[s, RESTART] = now - _TOGETHER  # it tells nothing of the others
        if keep < 1.0 and new_tracks[s, STRETCH] == 0.0:
            share *= keep
        if share < 1.0 or stretch != 1.0:
            _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, share, stretch)
            new_bins[s] *= share
            new_tracks[s, MASS] *= share
            new_anchor[i] *= stretch

    if returned > 0.0:  # those that became suspects together are probed at once
        for s in range(slots):
            if new_tracks[s, STRETCH] > 0.0 and new_tracks[s, HIT] == returned:
                new_tracks[s, DUE] = now
    if failed > 0.0:
        for s in range(slots):
            if new_tracks[s, STRETCH] > 0.0 and new_tracks[s, HIT] == failed:
                new_tracks[s, DUE] = until
                new_row[EVENTS] += new_tracks[s, PROBES] == 0.0
                new_tracks[s, PROBES] += 1.0

    # everybody begins anew
    everybody = False
    if restarted > 0:
        new_row[SETTLED] = 0.0
    if restarted > 0 or new_row[ALARM] == now:
        recent = 0
        for s in range(slots):
            recent += new_tracks[s, RESTART] > max(now - _TOGETHER, 0.0) or (new_tracks[s, STRETCH] > 0.0 and new_tracks[s, HIT] > now - 3.0)
        everybody = recent > _SHARE * active and (recent > 2 or active <= 2)
    if everybody:
        new_counts[:] = new_totals[:] = new_deviations[:] = new_busy[:] = new_cancellations[:] = new_anchor[:] = 0.0
        new_bins[:], new_tracks[:], new_row[SINCE], new_row[FORCE] = 0.0, 0.0, 0.0, 0.0
        new_row[GAINS:SPREAD], gain[:] = 0.0, 0.0
        force = 0
        horizon = HORIZONS[0]

    # what the memories hold
    for j in range(news):
        s = new_slot[who[j]]
        if s >= 0 and (everybody or not apart[j]):
            x = whole[j] if everybody or new_tracks[s, 0] == 0.0 else spent[j]
            for h in range(_MEMORIES):
                stay = 1.0 - 1.0 / HORIZONS[h]
                new_tracks[s, 2 * h] = stay * new_tracks[s, 2 * h] + results[j]
                new_tracks[s, 2 * h + 1] = stay * new_tracks[s, 2 * h + 1] + x

    # results and cancelled tasks
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0 and (everybody or not apart[place[i]]):
            x, s, before = time[r], new_slot[i], new_counts[i]
            if new_anchor[i] == 0.0:
                new_anchor[i] = x
            new_counts[i] = before + 1.0
            if before > 0.0:
                gap = x - new_totals[i] / before
                new_deviations[i] += gap * gap * (before / new_counts[i])
            new_totals[i] += x
            new_busy[i] += x
            if s >= 0:
                b = _bin(x, new_anchor[i], size)
                new_bins[s, FINISHED, b] += 1.0
                new_bins[s, SUMS, b] += min(x / new_anchor[i], 1e300) if new_anchor[i] > 0.0 else 0.0
                new_tracks[s, MASS] += 1.0
    for j in range(news):
        i = who[j]
        x, s = elapsed[i], new_slot[i]
        if x > 0.0 and (everybody or not apart[j]):
            if new_anchor[i] == 0.0:
                new_anchor[i] = x
            new_busy[i] += x
            new_cancellations[i] += 1.0
            if s >= 0:
                new_bins[s, CANCELLED, _bin(x, new_anchor[i], size)] += 1.0

    # which memory is in force
    best = 0
    for h in range(1, _MEMORIES):
        new_row[GAINS + h - 1] = (1.0 - 1.0 / _PAST) * new_row[GAINS + h - 1] + gain[h]
        if new_row[GAINS + h - 1] > (new_row[GAINS + best - 1] if best > 0 else 0.0):
            best = h
    here = new_row[GAINS + force - 1] if force > 0 else 0.0
    if best != force and (new_row[GAINS + best - 1] if best > 0 else 0.0) > here + (_LIMIT if best > force else 0.0):
        new_row[FORCE] = best
        if best > force:
            for s in range(slots):
                i, left = new_owner[s], max(new_tracks[s, 2 * best], 1.0)
                if i >= 0 and new_counts[i] > left and new_tracks[s, STRETCH] == 0.0:
                    share, stretch = left / new_counts[i], _level(new_tracks, s, best) / _level(new_tracks, s, force)
                    if not 0.0 < stretch < math.inf:
                        stretch = 1.0
                    _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, share, stretch)
                    new_bins[s] *= share
                    new_tracks[s, MASS] *= share
                    new_anchor[i] *= stretch
                    new_tracks[s, TESTS:SQUARES] = 0.0

    # what is old of workers without news counts less where it is known to change: in the row, or of the worker
    for i in range(n):
        s = new_slot[i]
        restless = s >= 0 and new_tracks[s, RESTART] > 0.0
        if s >= 0 and new_tracks[s, STRETCH] > 0.0:
            continue
        if new_last[i] < now and new_counts[i] > _LEAST and (force > 0 or restless):
            age = now - new_last[i] + (min(horizon, _RESTLESS) if restless else horizon)
            share = (age - 1.0) / age
            _scale(new_counts, new_totals, new_deviations, new_busy, new_cancellations, i, share, 1.0)
            if s >= 0:
                new_bins[s] *= share
                new_tracks[s, MASS] *= share
