"""One round of observation: memories of several lengths, restarts at changes, and bins.

One kernel goes through its phases, and works only on workers with feedback; the rest is copied.
``DistributionBelief`` describes what it computes.
"""

import math

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import copy, copy_rows, kernel, phase
from ata_policies.beliefs.distributions.adjustments.age import count_ages, forget_slow_starts
from ata_policies.beliefs.distributions.adjustments.common_factor import (
    Ratios,
    find_factor,
    follow,
)
from ata_policies.beliefs.distributions.adjustments.persistence import (
    LEAST_LEAD,
    choose_memory,
    learn_deviations,
    learn_weights,
    persistence_of,
    recall,
    returned,
)
from ata_policies.beliefs.distributions.adjustments.slots import give_slots
from ata_policies.beliefs.distributions.arrays import (
    CANCELLED,
    COMPARED_ROUNDS,
    FINISHED,
    HORIZONS,
    MEMORIES,
    ROW,
    SLOT,
    SUMS,
    YOUNG,
    Feedback,
    Places,
    RowBelief,
    WorkerTotals,
    add_times,
    begin_anew,
    bin_of,
    count_results,
    counted_of,
    dispersion_of,
    lead_of,
    level,
    make_room,
    rescale,
    trust_in,
    weigh,
)
from ata_policies.beliefs.distributions.suspects import (
    NEW_LEVEL,
    USUAL,
    WorkerRound,
    adopt,
    begin_all_anew,
    judge,
    wait_longer,
)

_ROUNDS_OF_EVENT = 10.0
"""Workers that change within so many rounds are one event."""
_LEAST_CHANGED = 3
"""The least number of changed workers for which all workers begin anew, if there are as many."""
_CHANGED_SHARE = 1.0 / 3.0
"""All workers begin anew if more than this share of the workers with feedback change."""

_LAYOUT = "(n),(n),(n),(n),(n),(n),(n),(n),(s),(s,three,k),(s,t),(w)"


@phase
def _compare(belief: RowBelief, s: int, force: int, losses: Floats) -> int:
    """Update the tests of slot s; return the memory from which it begins anew, or 0 for none."""
    tracks = belief.tracks
    best = 0
    highest = LEAST_LEAD
    # without the last memory: one of a single round would often win by chance
    for h in range(force + 1, MEMORIES - 1):
        statistic = max(tracks[s, SLOT.tests + h - 1] + losses[h], 0.0)
        tracks[s, SLOT.tests + h - 1] = statistic
        if statistic > highest:
            best = h
            highest = statistic
    return best


@phase
def _add_errors(belief: RowBelief, s: int, m: float, d: float, x: float, full_time: float) -> None:
    """Add the squared errors of a prediction m for d results of time x, for slot s and the row.

    The error of the logarithm is of the time ``full_time``.
    """
    tracks = belief.tracks
    row = belief.row
    error = x / m - d
    tracks[s, SLOT.squares] += error * error
    row[ROW.spread] += error * error
    if d > 0.0 and full_time > 0.0:
        error = (math.log(full_time) - math.log(d * m)) * d
    else:
        error = 0.0
    tracks[s, SLOT.log_squares] += error * error
    row[ROW.log_spread] += error * error
    row[ROW.results] += d


@phase
def _begin_from(
    belief: RowBelief,
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
    tracks = belief.tracks
    row = belief.row
    new_level = level(tracks, s, best)
    old_level = level(tracks, s, force)
    results = max(tracks[s, SLOT.results + 2 * best], 1.0)
    # what this worker has shown says nothing of the row
    for h in range(1, MEMORIES):
        gain[h] -= dispersion * tracks[s, SLOT.tests + h - 1]
    begin_anew(tracks, row, s, results, row[ROW.clock])
    for h in range(best):
        tracks[s, SLOT.results + 2 * h] = results
        tracks[s, SLOT.time + 2 * h] = new_level * results
    return min(results / max(count, results), 1.0), new_level / old_level


@phase
def _all_changed(tracks: Floats, count: int, round: float) -> bool:
    """Return whether so many workers changed within 10 rounds that all begin anew."""
    changed = 0
    since = max(round - _ROUNDS_OF_EVENT, 0.0)
    for s in range(len(tracks)):
        changed += tracks[s, SLOT.restart] > since or (
            tracks[s, SLOT.stretch] > 0.0 and tracks[s, SLOT.suspected] > since
        )
    return changed > _CHANGED_SHARE * count and changed >= min(_LEAST_CHANGED, len(tracks))


@phase
def _remember(belief: RowBelief, totals: WorkerTotals, count: int, all_anew: bool) -> None:
    """Add the totals of the round to all memories of their workers, except a suspect's.

    The moments of these workers then hold all of their past: this undoes the last ``recall``.
    """
    tracks = belief.tracks
    for j in range(count):
        i = totals.worker[j]
        s = belief.slot[i]
        if s >= 0 and (all_anew or not totals.set_aside[j]):
            share, stretch = counted_of(tracks, s)
            weigh(belief, i, 1.0 / share, 1.0 / stretch)
            # a worker without a past has no level at which its times could be cut
            if all_anew or tracks[s, SLOT.results] == 0.0:
                x = totals.time[j]
            else:
                x = totals.clipped_time[j]
            for h in range(MEMORIES):
                discount = 1.0 - 1.0 / HORIZONS[h]
                results = discount * tracks[s, SLOT.results + 2 * h] + totals.results[j]
                tracks[s, SLOT.results + 2 * h] = results
                tracks[s, SLOT.time + 2 * h] = discount * tracks[s, SLOT.time + 2 * h] + x


@phase
def _count(
    belief: RowBelief,
    feedback: Feedback,
    totals: WorkerTotals,
    count: int,
    all_anew: bool,
) -> None:
    """Count results and cancelled tasks in moments and in bins, except a suspect's.

    In bins, times are divided by the stretch of their worker, so that its bins tell how times vary
    around their level.
    """
    size = belief.bins.shape[2]
    for r in range(len(feedback.worker)):
        i = feedback.worker[r]
        if i >= 0 and (all_anew or not totals.set_aside[totals.entry[i]]):
            x = feedback.time[r]
            s = belief.slot[i]
            count_before = belief.counts[i]
            if s >= 0:
                share, stretch = counted_of(belief.tracks, s)
            else:
                share = 1.0
                stretch = 1.0
            if belief.anchor[i] == 0.0:
                belief.anchor[i] = x
            # Welford's update at the level of the whole past, with the weight of what counts of it
            belief.counts[i] = count_before + 1.0
            if count_before > 0.0:
                gap = x / stretch - belief.totals[i] / count_before
                belief.deviations[i] += (
                    gap * gap * (share * count_before / (share * count_before + 1.0))
                )
            belief.totals[i] += x
            belief.busy[i] += x
            if s >= 0:
                make_room(belief, i, s, x / stretch)
                b = bin_of(x / stretch, belief.anchor[i], size)
                belief.bins[s, FINISHED, b] += 1.0
                if belief.anchor[i] > 0.0:
                    belief.bins[s, SUMS, b] += min(x / stretch / belief.anchor[i], 1e300)
                else:
                    belief.bins[s, SUMS, b] += 0.0
                belief.tracks[s, SLOT.mass] += 1.0
    for j in range(count):
        i = totals.worker[j]
        x = feedback.elapsed[i]
        s = belief.slot[i]
        if x > 0.0 and (all_anew or not totals.set_aside[j]):
            if belief.anchor[i] == 0.0:
                belief.anchor[i] = x
            belief.busy[i] += x
            belief.cancellations[i] += 1.0
            if s >= 0:
                stretch = counted_of(belief.tracks, s)[1]
                make_room(belief, i, s, x / stretch)
                b = bin_of(x / stretch, belief.anchor[i], size)
                belief.bins[s, CANCELLED, b] += 1.0


@phase
def _compare_workers(
    old_row: Floats,
    belief: RowBelief,
    last: Floats,
    totals: WorkerTotals,
    count: int,
    gain: Floats,
    losses: Floats,
) -> int:
    """Compare the round of each worker with what was expected; return how many begin anew.

    Suspects are found, and workers begin anew from a shorter memory.

    Args:
        old_row: The numbers of the row before the round.
        belief: The belief of the row; it is changed in place.
        last: (n,) the last round with feedback of each worker before this one.
        totals: The totals of the round by worker; it is filled in which are set aside.
        count: The number of workers with feedback.
        gain: (4,) by how much each memory predicted better than the longest; overwritten.
        losses: (4,) work space.
    """
    tracks = belief.tracks
    round = belief.row[ROW.clock]
    force = int(old_row[ROW.force])
    restarted = 0
    persistence = persistence_of(old_row)
    return_gain = 0.0
    usual = 0.0
    for j in range(count):
        s = belief.slot[totals.worker[j]]
        if s >= 0 and tracks[s, SLOT.results] > 0.0:
            usual = max(usual, totals.results[j] * level(tracks, s, force))
    for j in range(count):
        i = totals.worker[j]
        d = totals.results[j]
        x = totals.clipped_time[j]
        full_time = totals.full_time[j]
        s = belief.slot[i]
        if s < 0:
            continue
        belief.row[ROW.exposure] += 1.0
        # only results can clear a suspect: a cancelled task alone says too little
        totals.set_aside[j] = tracks[s, SLOT.stretch] > 0.0
        if d > 0.0 and full_time > 0.0 and level(tracks, s, force) > 0.0:
            part = WorkerRound(d, full_time, totals.longest_time[j], usual)
            verdict = judge(belief, i, s, force, round, part)
            totals.set_aside[j] = verdict != USUAL
            if verdict == NEW_LEVEL:
                adopt(belief, i, s, round)
                restarted += 1
        if totals.set_aside[j]:
            continue
        dispersion = dispersion_of(
            tracks[s, SLOT.squares],
            tracks[s, SLOT.results],
            old_row[ROW.spread],
            old_row[ROW.results],
        )
        share = 1.0
        stretch = 1.0
        if tracks[s, SLOT.results] > 0.0:
            weight = trust_in(belief.counts[i], belief.cancellations[i])
            longest = level(tracks, s, 0)
            in_force = level(tracks, s, force)
            for h in range(1, MEMORIES):
                m = level(tracks, s, h)
                if m > 0.0 and longest > 0.0 and in_force > 0.0:
                    gain[h] += weight * lead_of(m, longest, d, x)
                    losses[h] = weight * lead_of(m, in_force, d, x) / dispersion
                else:
                    losses[h] = 0.0
            idle = round - 1.0 - last[i]
            m = returned(tracks, old_row, s, force, idle, persistence)[1] * longest
            if m > 0.0 and longest > 0.0:
                return_gain += weight * lead_of(m, longest, d, x)
            best = _compare(belief, s, force, losses)
            m = level(tracks, s, force)
            if m > 0.0:
                _add_errors(belief, s, m, d, x, full_time)
            if best > 0:
                share, stretch = _begin_from(
                    belief, s, belief.counts[i], best, force, dispersion, gain
                )
                restarted += 1
        if share < 1.0 or stretch != 1.0:
            rescale(belief, i, s, share, stretch)
    past_gain = (1.0 - 1.0 / COMPARED_ROUNDS) * old_row[ROW.return_gain]
    belief.row[ROW.return_gain] = past_gain + return_gain
    # suspects that were probed in vain in this round wait longer
    for j in range(count):
        s = belief.slot[totals.worker[j]]
        if (
            totals.set_aside[j]
            and totals.results[j] > 0.0
            and tracks[s, SLOT.suspected] < round
            and tracks[s, SLOT.due] <= round
        ):
            part = WorkerRound(
                totals.results[j], totals.full_time[j], totals.longest_time[j], usual
            )
            wait_longer(belief, s, round, part)
    return restarted


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
    """Compute the belief after a round, see ``DistributionBelief``; without feedback it stays.

    NumPy hands each array to a kernel by itself; its phases take them together. The first twelve
    are the fields of a ``RowBelief``, then come the fields of a ``Feedback``, and the last twelve
    are the fields of the new ``RowBelief``.
    """
    # phase 1: the belief as it was
    n = len(counts)
    copy(counts, new_counts)
    copy(totals, new_totals)
    copy(deviations, new_deviations)
    copy(busy, new_busy)
    copy(cancellations, new_cancellations)
    copy(anchor, new_anchor)
    copy(last, new_last)
    copy(slot, new_slot)
    copy(owner, new_owner)
    copy(row, new_row)
    copy_rows(tracks, new_tracks)
    for s in range(len(owner)):
        copy_rows(bins[s], new_bins[s])

    # phase 2: which workers have feedback, in which slot, of what time
    feedback = Feedback(worker, time, elapsed)
    belief = RowBelief(
        new_counts,
        new_totals,
        new_deviations,
        new_busy,
        new_cancellations,
        new_anchor,
        new_last,
        new_slot,
        new_owner,
        new_bins,
        new_tracks,
        new_row,
    )
    round = row[ROW.clock] + 1.0
    worker_totals = WorkerTotals(
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n, np.bool_),
    )
    count = count_results(feedback, new_last, round, worker_totals)
    # an observation without feedback is from a reset: there is no round before the first
    if count == 0:
        return
    flags = np.empty((2, n), np.bool_)
    ratios = Ratios(np.empty(n), np.empty(n), flags[0], np.empty(n), np.empty(n), flags[1])
    factor = find_factor(
        belief,
        last,
        feedback,
        worker_totals,
        ratios,
        _CHANGED_SHARE,
        _LEAST_CHANGED,
        _ROUNDS_OF_EVENT,
    )
    feedback = Feedback(worker, time / factor, elapsed)
    new_row[ROW.since] = row[ROW.since] + 1.0
    new_row[ROW.clock] = round
    new_row[ROW.settled] = row[ROW.settled] + 1.0
    if len(owner) < n:
        give_slots(belief, round, feedback, worker_totals, count, np.empty(len(owner)))
    add_times(belief, feedback, worker_totals, count)

    # phase 3: compare each worker's round with what was expected, and find suspects and restarts
    gain = np.zeros(MEMORIES)
    restarted = _compare_workers(row, belief, last, worker_totals, count, gain, np.empty(MEMORIES))

    # how levels move is learned from the workers that are not suspects
    learn_deviations(belief, last, worker_totals, count, 1.0 - 1.0 / COMPARED_ROUNDS)
    learn_weights(new_row, np.empty((MEMORIES - 1, MEMORIES - 1)), np.empty(MEMORIES - 1))

    # phase 4: all workers begin anew where enough of them changed
    if restarted > 0:
        new_row[ROW.settled] = 0.0
    changed = restarted > 0 or new_row[ROW.alarm] == round
    all_anew = changed and _all_changed(new_tracks, count, round)
    if all_anew:
        begin_all_anew(belief, gain)

    # phase 5: add the feedback to memories, moments and bins, and let the memory in force count
    _remember(belief, worker_totals, count, all_anew)
    _count(belief, feedback, worker_totals, count, all_anew)
    count_ages(belief, feedback)
    forget_slow_starts(belief, worker_totals, count, np.empty(YOUNG))
    force = choose_memory(new_tracks, new_row, gain, elapsed)
    recall(belief, round, force)
    follow(belief, factor, all_anew)
