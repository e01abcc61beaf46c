"""One round of observation: memories of several lengths, restarts at changes, and bins.

One kernel goes through its phases, and works only on workers with news; the rest is copied.
``DistributionBelief`` describes what it computes.
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
from ata_policies.beliefs.distributions.suspects import WorkerRound, adopt, judge, wait_longer

_PAST = 256.0
"""Rounds over which the row's predictions are compared."""
_CHANCE = 20.0
"""A shorter memory comes into force by chance in one of 20 n rows of n workers."""
_LIMIT = 12.0
"""How much better than the memory in force another one must be to restart a worker."""
_TOGETHER = 10.0
"""Workers that change within so many rounds are one event."""
_FEW = 3
"""The least number of changed workers for which everybody begins anew, if there are as many."""
_SHARE = 1.0 / 3.0
"""Everybody begins anew if more than this share of the workers with news change."""

_LAYOUT = "(n),(n),(n),(n),(n),(n),(n),(n),(s),(s,three,k),(s,t),(w)"


@phase
def _compare(past: Past, s: int, force: int, losses: Floats) -> int:
    """Update the tests of slot s; return the memory from which it begins anew, or 0 for none."""
    tracks = past.tracks
    best = 0
    highest = _LIMIT
    # without the last memory: one of a single round would often win by chance
    for h in range(force + 1, MEMORIES - 1):
        statistic = max(tracks[s, SLOT.tests + h - 1] + losses[force] - losses[h], 0.0)
        tracks[s, SLOT.tests + h - 1] = statistic
        if statistic > highest:
            best = h
            highest = statistic
    return best


@phase
def _add_errors(past: Past, row: Floats, s: int, m: float, d: float, x: float, full: float) -> None:
    """Add the squared errors of a prediction m for d results of time x, for slot s and the row.

    The error of the logarithm is of the time ``full``.
    """
    error = x / m - d
    past.tracks[s, SLOT.squares] += error * error
    row[ROW.spread] += error * error
    if d > 0.0 and full > 0.0:
        error = (math.log(full) - math.log(d * m)) * d
    else:
        error = 0.0
    past.tracks[s, SLOT.log_squares] += error * error
    row[ROW.log_spread] += error * error
    row[ROW.results] += d


@phase
def _begin_from(
    past: Past,
    row: Floats,
    s: int,
    count: float,
    best: int,
    force: int,
    dispersion: float,
    gain: Floats,
) -> tuple[float, float]:
    """Let the worker of slot s begin anew from a shorter memory.

    Returned are the share of its past that counts, and the stretch of its times.
    """
    tracks = past.tracks
    new_level = level(tracks, s, best)
    old_level = level(tracks, s, force)
    results = max(tracks[s, 2 * best], 1.0)
    # what this worker has shown says nothing of the row
    for h in range(1, MEMORIES):
        gain[h] -= dispersion * tracks[s, SLOT.tests + h - 1]
    begin_anew(tracks, row, s, results, row[ROW.clock])
    for h in range(best):
        tracks[s, 2 * h] = results
        tracks[s, 2 * h + 1] = new_level * results
    return min(results / max(count, results), 1.0), new_level / old_level


@phase
def _all_changed(tracks: Floats, count: int, now: float) -> bool:
    """Return whether so many workers changed within 10 rounds that everybody begins anew."""
    changed = 0
    since = max(now - _TOGETHER, 0.0)
    for s in range(len(tracks)):
        changed += tracks[s, SLOT.restart] > since or (
            tracks[s, SLOT.stretch] > 0.0 and tracks[s, SLOT.hit] > since
        )
    return changed > _SHARE * count and changed >= min(_FEW, len(tracks))


@phase
def _remember(past: Past, slot: Places, news: News, count: int, everybody: bool) -> None:
    """Add the news to all memories of their workers, except a suspect's news.

    The moments of these workers then hold all of their past: this undoes the last ``_recall``.
    """
    tracks = past.tracks
    for j in range(count):
        s = slot[news.who[j]]
        if s >= 0 and (everybody or not news.apart[j]):
            share, stretch = counted_of(tracks, s)
            weigh(past, news.who[j], 1.0 / share, 1.0 / stretch)
            # a worker without a past has no level at which its times could be cut
            if everybody or tracks[s, 0] == 0.0:
                x = news.whole[j]
            else:
                x = news.spent[j]
            for h in range(MEMORIES):
                discount = 1.0 - 1.0 / HORIZONS[h]
                tracks[s, 2 * h] = discount * tracks[s, 2 * h] + news.results[j]
                tracks[s, 2 * h + 1] = discount * tracks[s, 2 * h + 1] + x


@phase
def _count(
    past: Past,
    slot: Places,
    worker: Ints,
    time: Floats,
    elapsed: Floats,
    news: News,
    count: int,
    everybody: bool,
) -> None:
    """Count results and cancelled tasks in moments and in bins, except a suspect's.

    In bins, times are divided by the stretch of their worker, so that its bins tell how times vary
    around their level.
    """
    size = past.bins.shape[2]
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0 and (everybody or not news.apart[news.place[i]]):
            x = time[r]
            s = slot[i]
            count_before = past.counts[i]
            if s >= 0:
                share, stretch = counted_of(past.tracks, s)
            else:
                share = 1.0
                stretch = 1.0
            if past.anchor[i] == 0.0:
                past.anchor[i] = x
            # Welford's update at the level of the whole past, with the weight of what counts of it
            past.counts[i] = count_before + 1.0
            if count_before > 0.0:
                gap = x / stretch - past.totals[i] / count_before
                past.deviations[i] += (
                    gap * gap * (share * count_before / (share * count_before + 1.0))
                )
            past.totals[i] += x
            past.busy[i] += x
            if s >= 0:
                b = bin_of(x / stretch, past.anchor[i], size)
                past.bins[s, FINISHED, b] += 1.0
                if past.anchor[i] > 0.0:
                    past.bins[s, SUMS, b] += min(x / stretch / past.anchor[i], 1e300)
                else:
                    past.bins[s, SUMS, b] += 0.0
                past.tracks[s, SLOT.mass] += 1.0
    for j in range(count):
        i = news.who[j]
        x = elapsed[i]
        s = slot[i]
        if x > 0.0 and (everybody or not news.apart[j]):
            if past.anchor[i] == 0.0:
                past.anchor[i] = x
            past.busy[i] += x
            past.cancellations[i] += 1.0
            if s >= 0:
                stretch = counted_of(past.tracks, s)[1]
                b = bin_of(x / stretch, past.anchor[i], size)
                past.bins[s, CANCELLED, b] += 1.0


@phase
def _choose_memory(tracks: Floats, row: Floats, gain: Floats, elapsed: Floats) -> int:
    """Add the gains of the round to the row's, and return the memory that comes into force."""
    lead = math.log(_CHANCE * len(tracks))
    # what is expected of a cancelled task depends on the tasks before it: ask for a larger lead
    if elapsed[np.argmax(elapsed)] > 0.0:
        lead = max(lead, _LIMIT)
    best = 0
    highest = lead * (row[ROW.log_spread] + 1.0) / (row[ROW.results] + 1.0)
    for h in range(1, MEMORIES):
        row[ROW.gains + h - 1] = (1.0 - 1.0 / _PAST) * row[ROW.gains + h - 1] + gain[h]
        if row[ROW.gains + h - 1] > highest:
            best = h
            highest = row[ROW.gains + h - 1]
    # the tests of workers compare with the memory in force
    if best != row[ROW.force]:
        tracks[:, SLOT.tests : SLOT.squares] = 0.0
    row[ROW.force] = best
    return best


@phase
def _recall(past: Past, owner: Places, last: Floats, now: float, force: int) -> None:
    """Let the moments of each worker count as much, at the level, as the memory in force holds."""
    tracks = past.tracks
    for s in range(len(owner)):
        i = owner[s]
        if i < 0 or tracks[s, 0] == 0.0 or tracks[s, SLOT.stretch] > 0.0:
            continue
        # for workers with news _remember has done this: all of the past counts again
        if last[i] != now:
            share, stretch = counted_of(tracks, s)
            weigh(past, i, 1.0 / share, 1.0 / stretch)
        share = stretch = 1.0
        if force > 0:
            share = min((tracks[s, 2 * force] + 1.0) / tracks[s, 0], 1.0)
            stretch = level(tracks, s, force) / level(tracks, s, 0)
        if not 0.0 < stretch < math.inf:
            stretch = 1.0
        weigh(past, i, share, stretch)
        tracks[s, SLOT.counted] = share
        tracks[s, SLOT.longer] = stretch


@kernel(f"{_LAYOUT},(r),(r),(n)->{_LAYOUT}")
def observe_round(
    counts: Floats,
    totals: Floats,
    deviations: Floats,
    busy: Floats,
    cancellations: Floats,
    anchor: Floats,
    last: Floats,
    slot: Places,
    owner: Places,
    bins: Floats,
    tracks: Floats,
    row: Floats,
    worker: Ints,
    time: Floats,
    elapsed: Floats,
    new_counts: Floats,
    new_totals: Floats,
    new_deviations: Floats,
    new_busy: Floats,
    new_cancellations: Floats,
    new_anchor: Floats,
    new_last: Floats,
    new_slot: Places,
    new_owner: Places,
    new_bins: Floats,
    new_tracks: Floats,
    new_row: Floats,
) -> None:
    """Compute the belief after a round, see ``DistributionBelief``; without news it stays.

    The first twelve arguments are a row of a belief, then come the results of the round, ``worker``
    and ``time``, (R,) each, and ``elapsed``, (n,). The last twelve are the new belief.
    """
    # phase 1: the belief as it was
    n = len(counts)
    slots = len(owner)
    for i in range(n):
        new_counts[i] = counts[i]
        new_totals[i] = totals[i]
        new_deviations[i] = deviations[i]
        new_busy[i] = busy[i]
        new_cancellations[i] = cancellations[i]
        new_anchor[i] = anchor[i]
        new_last[i] = last[i]
        new_slot[i] = slot[i]
    copy(owner, new_owner)
    copy(row, new_row)
    for s in range(slots):
        copy(tracks[s], new_tracks[s])
        for kind in range(bins.shape[1]):
            copy(bins[s, kind], new_bins[s, kind])

    # phase 2: who has news, in which slot, of what time
    now = row[ROW.clock] + 1.0
    force = int(row[ROW.force])
    past = Past(
        new_counts,
        new_totals,
        new_deviations,
        new_busy,
        new_cancellations,
        new_anchor,
        new_bins,
        new_tracks,
    )
    news = News(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.bool_),
    )
    count = gather(worker, elapsed, new_last, now, news)
    # an observation without news is from a reset: there is no round before the first
    if count == 0:
        return
    new_row[ROW.since] = row[ROW.since] + 1.0
    new_row[ROW.clock] = now
    new_row[ROW.settled] = row[ROW.settled] + 1.0
    if slots < n:
        give_slots(
            past,
            new_slot,
            new_owner,
            new_last,
            now,
            worker,
            time,
            news,
            count,
            np.empty(slots),
        )
    add_times(past, new_slot, worker, time, elapsed, news, count)

    # phase 3: compare each worker's news with what was expected, and find suspects and restarts
    gain = np.zeros(MEMORIES)
    losses = np.empty(MEMORIES)
    restarted = 0
    usual = 0.0
    for j in range(count):
        s = new_slot[news.who[j]]
        if s >= 0 and new_tracks[s, 0] > 0.0:
            usual = max(usual, news.results[j] * level(new_tracks, s, force))
    for j in range(count):
        i = news.who[j]
        d = news.results[j]
        x = news.spent[j]
        s = new_slot[news.who[j]]
        if s < 0:
            continue
        new_row[ROW.exposure] += 1.0
        # only results can clear a suspect: a cancelled task alone says too little
        news.apart[j] = new_tracks[s, SLOT.stretch] > 0.0
        if d > 0.0 and news.full[j] > 0.0 and level(new_tracks, s, force) > 0.0:
            verdict = judge(
                past,
                new_row,
                i,
                s,
                force,
                now,
                WorkerRound(d, news.full[j], news.longest[j], usual),
            )
            news.apart[j] = verdict > 0
            if verdict == 2:
                adopt(past, new_row, i, s, now)
                restarted += 1
        if news.apart[j]:
            continue
        dispersion = dispersion_of(
            new_tracks[s, SLOT.squares],
            new_tracks[s, 0],
            row[ROW.spread],
            row[ROW.results],
        )
        share = 1.0
        stretch = 1.0
        if new_tracks[s, 0] > 0.0:
            weight = trust_in(new_counts[i], new_cancellations[i])
            for h in range(MEMORIES):
                m = level(new_tracks, s, h)
                if m > 0.0:
                    losses[h] = weight * (d * math.log(m) + x / m)
                else:
                    losses[h] = 0.0
                gain[h] += losses[0] - losses[h]
            losses /= dispersion
            best = _compare(past, s, force, losses)
            m = level(new_tracks, s, force)
            if m > 0.0:
                _add_errors(past, new_row, s, m, d, x, news.full[j])
            if best > 0:
                share, stretch = _begin_from(
                    past,
                    new_row,
                    s,
                    new_counts[i],
                    best,
                    force,
                    dispersion,
                    gain,
                )
                restarted += 1
        if share < 1.0 or stretch != 1.0:
            rescale(past, i, s, share, stretch)
    # suspects that were probed in vain in this round wait longer
    for j in range(count):
        s = new_slot[news.who[j]]
        if (
            news.apart[j]
            and news.results[j] > 0.0
            and new_tracks[s, SLOT.hit] < now
            and new_tracks[s, SLOT.due] <= now
        ):
            part = WorkerRound(news.results[j], news.full[j], news.longest[j], usual)
            wait_longer(new_tracks, new_row, s, now, part)

    # phase 4: everybody begins anew where enough workers changed
    if restarted > 0:
        new_row[ROW.settled] = 0.0
    changed = restarted > 0 or new_row[ROW.alarm] == now
    everybody = changed and _all_changed(new_tracks, count, now)
    if everybody:
        new_counts[:] = 0.0
        new_totals[:] = 0.0
        new_deviations[:] = 0.0
        new_busy[:] = 0.0
        new_cancellations[:] = 0.0
        new_anchor[:] = 0.0
        new_bins[:] = 0.0
        new_tracks[:] = 0.0
        new_row[ROW.since] = 0.0
        new_row[ROW.force] = 0.0
        new_row[ROW.gains : ROW.spread] = 0.0
        new_row[ROW.settled] = 0.0
        gain[:] = 0.0
        force = 0

    # phase 5: add the news to memories, moments and bins, and let the memory in force count
    _remember(past, new_slot, news, count, everybody)
    _count(past, new_slot, worker, time, elapsed, news, count, everybody)
    force = _choose_memory(new_tracks, new_row, gain, elapsed)
    _recall(past, new_owner, new_last, now, force)
