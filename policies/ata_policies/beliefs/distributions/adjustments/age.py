"""How much faster workers get after their first tasks, pooled over the workers of a row.

Compilation, autotuning, cold caches and downloads slow the first tasks of a worker down. Ours.
"""

import math

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel, phase
from ata_policies.beliefs.distributions.arrays import (
    AGES,
    CHANCE,
    MEMORIES,
    ROW,
    SLOT,
    YOUNG,
    Feedback,
    RowBelief,
    WorkerTotals,
    dispersion_of,
    spread_of_steps,
)

_LARGEST_EXPONENT = 500.0
"""The largest exponent: its exponential is finite."""


@phase
def count_ages(belief: RowBelief, feedback: Feedback) -> None:
    """Add the results of a round to the times of their workers by age, in tasks."""
    for r in range(len(feedback.worker)):
        i = feedback.worker[r]
        if i < 0 or belief.slot[i] < 0:
            continue
        tracks = belief.tracks
        s = belief.slot[i]
        age = tracks[s, SLOT.age]
        tracks[s, SLOT.age] = age + 1.0
        before = tracks[s, SLOT.last_time]
        if before > 0.0 and feedback.time[r] > 0.0:
            step = math.log(feedback.time[r] / before)
            if abs(step) < math.inf:
                belief.row[ROW.steps] += abs(step)
                tracks[s, SLOT.steps] += abs(step)
                belief.row[ROW.differences] += 1.0
        tracks[s, SLOT.last_time] = feedback.time[r]
        if age < YOUNG:
            b = 0
            end = 1.0
            while age >= end:
                b += 1
                end *= 2.0
            tracks[s, SLOT.ages + b] += feedback.time[r]
            if 0.0 < feedback.time[r] < math.inf:
                tracks[s, SLOT.age_logs + b] += math.log(feedback.time[r])


@phase
def _forget_first(belief: RowBelief, i: int, s: int, results: float, time: float) -> None:
    """Let only the last results of worker i, in slot s, count: so many, of this time in all."""
    tracks = belief.tracks
    row = belief.row
    mean = time / results
    spread = dispersion_of(0.0, 0.0, row[ROW.spread], row[ROW.results])
    belief.counts[i] = results
    belief.totals[i] = belief.busy[i] = time
    belief.deviations[i] = results * spread * mean * mean
    belief.anchor[i] = mean
    belief.bins[s] = 0.0
    tracks[s, SLOT.tests : SLOT.restart] = 0.0
    tracks[s, SLOT.log_squares] = 0.0
    tracks[s, SLOT.counted_share] = tracks[s, SLOT.counted_stretch] = 0.0
    for h in range(MEMORIES):
        tracks[s, SLOT.results + 2 * h] = results
        tracks[s, SLOT.time + 2 * h] = time


@phase
def _most_fell(tracks: Floats, last_bin: int, fall: float) -> bool:
    """Return whether most workers with as many results fell after them, by half as much at least.

    The first results end with this bin. A worker whose first time happened to be long is rare.
    """
    fell = 0
    number = 0
    first = 2.0**last_bin
    for s in range(len(tracks)):
        later = min(tracks[s, SLOT.age], YOUNG) - first
        if later <= 0.0:
            continue
        first_logs = 0.0
        all_logs = 0.0
        for b in range(AGES):
            all_logs += tracks[s, SLOT.age_logs + b]
            if b <= last_bin:
                first_logs += tracks[s, SLOT.age_logs + b]
        number += 1
        fell += first_logs / first - (all_logs - first_logs) / later >= 0.5 * fall
    return 2 * fell > number


@phase
def forget_slow_starts(belief: RowBelief, totals: WorkerTotals, count: int) -> None:
    """Let the first results of a young worker no longer count where later ones are far shorter.

    With K results at first, and d later ones whose logarithms are by g less in the mean, the first
    ones are forgotten where g > 0 and g^2 / (2 phi (1 / d + 1 / K)) > ln(140 n), for K = 1, 2, 4,
    ... results. Each bin of these but the last one must be slower by g / 2, since a single long
    time among them is no slow start. The logarithm's variance phi is that of successive times, so
    that a single long time, or a fall itself, has little weight in it. Most of the other workers
    with as many results must have fallen after them, too.
    """
    # a single worker is compared with none: all of its results count
    if len(belief.slot) < 2:
        return
    tracks = belief.tracks
    row = belief.row
    limit = math.log(CHANCE * AGES * len(belief.slot))
    for j in range(count):
        i = totals.worker[j]
        s = belief.slot[i]
        if s < 0 or totals.set_aside[j]:
            continue
        age = tracks[s, SLOT.age]
        # only while all results are in the bins, and cancelled tasks say nothing
        if age > YOUNG or belief.cancellations[i] > 0.0 or tracks[s, SLOT.stretch] > 0.0:
            continue
        spread = spread_of_steps(
            tracks[s, SLOT.steps], age - 1.0, row[ROW.steps], row[ROW.differences]
        )
        all_time = 0.0
        all_logs = 0.0
        for b in range(AGES):
            all_time += tracks[s, SLOT.ages + b]
            all_logs += tracks[s, SLOT.age_logs + b]
        first_time = 0.0
        first_logs = 0.0
        first = 1.0
        size = 1.0
        # the least mean logarithm of the bins before this one
        least = math.inf
        best = limit
        results = 0.0
        time = 0.0
        last_bin = 0
        fall = 0.0
        for b in range(AGES - 1):
            first_time += tracks[s, SLOT.ages + b]
            first_logs += tracks[s, SLOT.age_logs + b]
            later = age - first
            if 0.0 < later < belief.counts[i] and all_time > first_time:
                later_log = (all_logs - first_logs) / later
                gain = first_logs / first - later_log
                statistic = 0.5 * gain * gain / (spread * (1.0 / later + 1.0 / first))
                if gain > 0.0 and statistic > best and least - later_log >= 0.5 * gain:
                    best = statistic
                    results = later
                    time = all_time - first_time
                    last_bin = b
                    fall = gain
            least = min(least, tracks[s, SLOT.age_logs + b] / size)
            size = first
            first *= 2.0
        if results > 0.0 and _most_fell(tracks, last_bin, fall):
            _forget_first(belief, i, s, results, time)


@phase
def _clear_fall(tracks: Floats, row: Floats, b: int, falls: Floats) -> float:
    """Return the mean fall from bin b of age to the next one, or 0 if it is not clear.

    Args:
        tracks: The numbers of the slots.
        row: The numbers of the row.
        b: The bin.
        falls: Work space for a number for each slot.
    """
    size = max(2.0 ** (b - 1), 1.0)
    next_size = 2.0**b
    workers = 0
    total = 0.0
    expected = 0.0
    for s in range(len(tracks)):
        age = tracks[s, SLOT.age]
        if age < 2.0 * next_size:
            continue
        logs = tracks[s, SLOT.age_logs + b] / size
        falls[workers] = logs - tracks[s, SLOT.age_logs + b + 1] / next_size
        spread = spread_of_steps(
            tracks[s, SLOT.steps], age - 1.0, row[ROW.steps], row[ROW.differences]
        )
        expected += spread * (1.0 / size + 1.0 / next_size)
        total += falls[workers]
        workers += 1
    if workers == 0:
        return 0.0
    mean = total / workers
    squares = 0.0
    for k in range(workers):
        squares += (falls[k] - mean) ** 2
    variance = (squares + expected / workers) / workers
    limit = math.log(CHANCE * AGES * len(tracks))
    if mean > 0.0 and mean * mean > 2.0 * limit * variance / workers:
        return mean
    return 0.0


@kernel("(s,t),(r),(s)->(s)")
def slowness_of_age(tracks: Floats, row: Floats, counts: Floats, out: Floats) -> None:
    """Compute how much slower than later the results that count were, since they were early ones.

    Between a bin of age b and the next one, the mean d_b over the workers that are through both, of
    the difference of the mean logarithms of their times, counts if it is above 0 so clearly that
    d_b^2 / (2 s_b^2) > ln(140 n). Its squared error s_b^2 is the variance between workers over
    their number, where what is expected by how each worker's times vary counts as one worker more.
    A result of bin b takes exp(d_b + d_(b + 1) + ...) times as long as later ones.

    Args:
        tracks: What is known by slot.
        row: What is known of the row.
        counts: The results of each slot's worker that count: the last ones.
        out: The logarithm of the factor of each slot; 0 for workers whose results are no slower
            than later ones are.
    """
    falls = np.empty(len(tracks))
    # how much slower a result of each bin is than one of the last bin, in logarithms
    later = np.zeros(AGES)
    for back in range(AGES - 1):
        b = AGES - 2 - back
        later[b] = later[b + 1] + _clear_fall(tracks, row, b, falls)
    for s in range(len(tracks)):
        age = tracks[s, SLOT.age]
        # the results that count are those of the ages from here on
        first = max(age - counts[s], 0.0)
        excess = 0.0
        start = 0.0
        for b in range(AGES - 1):
            end = 2.0**b
            counted = min(age, end) - max(first, start)
            if counted > 0.0:
                fall = min(later[b], _LARGEST_EXPONENT)
                excess += counted / (age - first) * math.expm1(fall)
            start = end
        out[s] = math.log1p(excess)
