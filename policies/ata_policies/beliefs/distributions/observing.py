"""One round of observation: memories of several lengths, restarts at changes, and counts in bins of time.

One kernel goes through its phases, and works only on workers with news; the rest is copied. What it computes is
said in ``DistributionBelief``.
"""

import math

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, kernel, phase
from ata_policies.beliefs.distributions.arrays import (
    CANCELLED,
    FINISHED,
    HORIZONS,
    MEMORIES,
    ROW,
    SLOT,
    SUMS,
    News,
    Past,
    Places,
    add_times,
    begin_anew,
    bin_of,
    counted_of,
    dispersion_of,
    gather,
    give_slots,
    level,
    rescale,
    trust_in,
    weigh,
)
from ata_policies.beliefs.distributions.suspects import Round, adopt, judge, wait_longer

_PAST = 256.0  # rounds over which the row's predictions are compared
_CHANCE = 20.0  # a shorter memory comes into force by chance in one of so many rows, times the number of workers
_LIMIT = 12.0  # how much better than that in force to restart a worker
_TOGETHER = 10.0  # workers that change within so many rounds are one event
_FEW = 3  # the least number of workers that are everybody, of more than these
_SHARE = 1.0 / 3.0  # everybody begins anew if more than this share of the workers with news do

_LAYOUT = "(n),(n),(n),(n),(n),(n),(n),(n),(s),(s,three,k),(s,t),(w)"


@phase
def _compare(past: Past, s: int, force: int, losses: Floats) -> int:
    tracks, best, most = past.tracks, 0, _LIMIT
    for h in range(force + 1, MEMORIES - 1):  # a memory of one round would often win by chance
        won = max(tracks[s, SLOT.tests + h - 1] + losses[force] - losses[h], 0.0)
        tracks[s, SLOT.tests + h - 1] = won
        if won > most:
            best, most = h, won
    return best


@phase
def _add_errors(past: Past, row: Floats, s: int, m: float, d: float, x: float, full: float) -> None:
    off = x / m - d
    past.tracks[s, SLOT.squares] += off * off
    row[ROW.spread] += off * off
    off = (math.log(full) - math.log(d * m)) * d if d > 0.0 and full > 0.0 else 0.0
    past.tracks[s, SLOT.log_squares] += off * off
    row[ROW.log_spread] += off * off
    row[ROW.results] += d


@phase
def _begin_from(
    past: Past, row: Floats, s: int, count: float, best: int, force: int, dispersion: float, gain: Floats
) -> tuple[float, float]:  # fmt: skip
    """Let the worker of slot s begin anew from a shorter memory; return the share of its past and the stretch."""
    tracks = past.tracks
    known, old = level(tracks, s, best), level(tracks, s, force)
    left = max(tracks[s, 2 * best], 1.0)
    for h in range(1, MEMORIES):  # what it has shown says nothing of the row
        gain[h] -= dispersion * tracks[s, SLOT.tests + h - 1]
    begin_anew(tracks, row, s, left, row[ROW.clock])
    for h in range(best):
        tracks[s, 2 * h], tracks[s, 2 * h + 1] = left, known * left
    return min(left / max(count, left), 1.0), known / old


@phase
def _all_changed(tracks: Floats, count: int, now: float) -> bool:
    recent, since = 0, max(now - _TOGETHER, 0.0)
    for s in range(len(tracks)):
        recent += tracks[s, SLOT.restart] > since or (tracks[s, SLOT.stretch] > 0.0 and tracks[s, SLOT.hit] > since)
    return recent > _SHARE * count and recent >= min(_FEW, len(tracks))


@phase
def _remember(past: Past, slot: Places, news: News, count: int, everybody: bool) -> None:
    tracks = past.tracks
    for j in range(count):
        s = slot[news.who[j]]
        if s >= 0 and (everybody or not news.apart[j]):
            share, stretch = counted_of(tracks, s)
            weigh(past, news.who[j], 1.0 / share, 1.0 / stretch)
            x = news.whole[j] if everybody or tracks[s, 0] == 0.0 else news.spent[j]
            for h in range(MEMORIES):
                stay = 1.0 - 1.0 / HORIZONS[h]
                tracks[s, 2 * h] = stay * tracks[s, 2 * h] + news.results[j]
                tracks[s, 2 * h + 1] = stay * tracks[s, 2 * h + 1] + x


@phase
def _count(
    past: Past, slot: Places, worker: Ints, time: Floats, elapsed: Floats, news: News, count: int, everybody: bool
) -> None:  # fmt: skip
    size = past.bins.shape[2]
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0 and (everybody or not news.apart[news.place[i]]):
            x, s, before = time[r], slot[i], past.counts[i]
            share, stretch = counted_of(past.tracks, s) if s >= 0 else (1.0, 1.0)
            if past.anchor[i] == 0.0:
                past.anchor[i] = x
            past.counts[i] = before + 1.0
            if before > 0.0:
                gap = x / stretch - past.totals[i] / before
                past.deviations[i] += gap * gap * (share * before / (share * before + 1.0))
            past.totals[i] += x
            past.busy[i] += x
            if s >= 0:
                b = bin_of(x / stretch, past.anchor[i], size)
                past.bins[s, FINISHED, b] += 1.0
                past.bins[s, SUMS, b] += min(x / stretch / past.anchor[i], 1e300) if past.anchor[i] > 0.0 else 0.0
                past.tracks[s, SLOT.mass] += 1.0
    for j in range(count):
        i = news.who[j]
        x, s = elapsed[i], slot[i]
        if x > 0.0 and (everybody or not news.apart[j]):
            if past.anchor[i] == 0.0:
                past.anchor[i] = x
            past.busy[i] += x
            past.cancellations[i] += 1.0
            if s >= 0:
                past.bins[s, CANCELLED, bin_of(x / counted_of(past.tracks, s)[1], past.anchor[i], size)] += 1.0


@phase
def _choose_memory(tracks: Floats, row: Floats, gain: Floats, elapsed: Floats) -> int:
    lead = math.log(_CHANCE * len(tracks))
    if elapsed[np.argmax(elapsed)] > 0.0:  # what is expected of a cancelled task depends on those before it
        lead = max(lead, _LIMIT)
    best, most = 0, lead * (row[ROW.log_spread] + 1.0) / (row[ROW.results] + 1.0)
    for h in range(1, MEMORIES):
        row[ROW.gains + h - 1] = (1.0 - 1.0 / _PAST) * row[ROW.gains + h - 1] + gain[h]
        if row[ROW.gains + h - 1] > most:
            best, most = h, row[ROW.gains + h - 1]
    if best != row[ROW.force]:
        tracks[:, SLOT.tests : SLOT.squares] = 0.0  # they compare with the memory in force
    row[ROW.force] = best
    return best


@phase
def _recall(past: Past, owner: Places, last: Floats, now: float, force: int) -> None:
    tracks = past.tracks
    for s in range(len(owner)):
        i = owner[s]
        if i < 0 or tracks[s, 0] == 0.0 or tracks[s, SLOT.stretch] > 0.0:
            continue
        if last[i] != now:  # else all of it counts
            share, stretch = counted_of(tracks, s)
            weigh(past, i, 1.0 / share, 1.0 / stretch)
        share = stretch = 1.0
        if force > 0:
            share = min((tracks[s, 2 * force] + 1.0) / tracks[s, 0], 1.0)
            stretch = level(tracks, s, force) / level(tracks, s, 0)
        if not 0.0 < stretch < math.inf:
            stretch = 1.0
        weigh(past, i, share, stretch)
        tracks[s, SLOT.counted], tracks[s, SLOT.longer] = share, stretch


@kernel(f"{_LAYOUT},(r),(r),(n)->{_LAYOUT}")
def observe_round(
    counts: Floats, totals: Floats, deviations: Floats, busy: Floats, cancellations: Floats, anchor: Floats,
    last: Floats, slot: Places, owner: Places, bins: Floats, tracks: Floats, row: Floats,
    worker: Ints, time: Floats, elapsed: Floats,
    new_counts: Floats, new_totals: Floats, new_deviations: Floats, new_busy: Floats, new_cancellations: Floats,
    new_anchor: Floats, new_last: Floats, new_slot: Places, new_owner: Places, new_bins: Floats, new_tracks: Floats,
    new_row: Floats,
) -> None:  # fmt: skip
    """The belief after a round, see ``DistributionBelief``; without news, the belief as it was."""
    n, slots = len(counts), len(owner)
    for i in range(n):
        new_counts[i], new_totals[i], new_deviations[i], new_busy[i] = counts[i], totals[i], deviations[i], busy[i]
        new_cancellations[i], new_anchor[i], new_last[i], new_slot[i] = cancellations[i], anchor[i], last[i], slot[i]
    copy(owner, new_owner)
    copy(row, new_row)
    for s in range(slots):
        copy(tracks[s], new_tracks[s])
        for kind in range(bins.shape[1]):
            copy(bins[s, kind], new_bins[s, kind])

    now, force = row[ROW.clock] + 1.0, int(row[ROW.force])
    past = Past(new_counts, new_totals, new_deviations, new_busy, new_cancellations, new_anchor, new_bins, new_tracks)
    news = News(
        np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n),
        np.empty(n, np.bool_),
    )  # fmt: skip
    count = gather(worker, elapsed, new_last, now, news)
    if count == 0:  # there is no round before the first
        return
    new_row[ROW.since], new_row[ROW.clock], new_row[ROW.settled] = row[ROW.since] + 1.0, now, row[ROW.settled] + 1.0
    if slots < n:
        give_slots(past, new_slot, new_owner, new_last, now, worker, time, news, count, np.empty(slots))
    add_times(past, new_slot, worker, time, elapsed, news, count)

    gain, losses, restarted, usual = np.zeros(MEMORIES), np.empty(MEMORIES), 0, 0.0
    for j in range(count):
        s = new_slot[news.who[j]]
        if s >= 0 and new_tracks[s, 0] > 0.0:
            usual = max(usual, news.results[j] * level(new_tracks, s, force))
    for j in range(count):
        i, d, x, s = news.who[j], news.results[j], news.spent[j], new_slot[news.who[j]]
        if s < 0:
            continue
        new_row[ROW.exposure] += 1.0
        news.apart[j] = new_tracks[s, SLOT.stretch] > 0.0  # a cancelled task says nothing that is clear of one
        if d > 0.0 and news.full[j] > 0.0 and level(new_tracks, s, force) > 0.0:
            verdict = judge(past, new_row, i, s, force, now, Round(d, news.full[j], news.longest[j], usual))
            news.apart[j] = verdict > 0
            if verdict == 2:
                adopt(past, new_row, i, s, now)
                restarted += 1
        if news.apart[j]:
            continue
        dispersion = dispersion_of(new_tracks[s, SLOT.squares], new_tracks[s, 0], row[ROW.spread], row[ROW.results])
        share, stretch = 1.0, 1.0
        if new_tracks[s, 0] > 0.0:
            weight = trust_in(new_counts[i], new_cancellations[i])
            for h in range(MEMORIES):
                m = level(new_tracks, s, h)
                losses[h] = weight * (d * math.log(m) + x / m) if m > 0.0 else 0.0
                gain[h] += losses[0] - losses[h]
            losses /= dispersion
            best, m = _compare(past, s, force, losses), level(new_tracks, s, force)
            if m > 0.0:
                _add_errors(past, new_row, s, m, d, x, news.full[j])
            if best > 0:
                share, stretch = _begin_from(past, new_row, s, new_counts[i], best, force, dispersion, gain)
                restarted += 1
        if share < 1.0 or stretch != 1.0:
            rescale(past, i, s, share, stretch)
    for j in range(count):
        s = new_slot[news.who[j]]
        if news.apart[j] and news.results[j] > 0.0 and new_tracks[s, SLOT.hit] < now and new_tracks[s, SLOT.due] <= now:
            own = Round(news.results[j], news.full[j], news.longest[j], usual)
            wait_longer(new_tracks, new_row, s, now, own)

    if restarted > 0:
        new_row[ROW.settled] = 0.0
    everybody = (restarted > 0 or new_row[ROW.alarm] == now) and _all_changed(new_tracks, count, now)
    if everybody:
        new_counts[:] = new_totals[:] = new_deviations[:] = new_busy[:] = new_cancellations[:] = new_anchor[:] = 0.0
        new_bins[:], new_tracks[:], new_row[ROW.since], new_row[ROW.force] = 0.0, 0.0, 0.0, 0.0
        new_row[ROW.gains : ROW.spread], new_row[ROW.settled], gain[:], force = 0.0, 0.0, 0.0, 0
    _remember(past, new_slot, news, count, everybody)
    _count(past, new_slot, worker, time, elapsed, news, count, everybody)
    _recall(past, new_owner, new_last, now, _choose_memory(new_tracks, new_row, gain, elapsed))
