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
            tracks[s, SLOT.first_times + int(age)] = feedback.time[r]


@phase
def _first_logs(tracks: Floats, s: int, logs: Floats) -> int:
    """Write the logarithms of a slot's first times into ``logs``, (64,), and return their number.

    A time of 0, or an infinite one, counts as 1.
    """
    number = int(min(tracks[s, SLOT.age], YOUNG))
    for age in range(number):
        time = tracks[s, SLOT.first_times + age]
        logs[age] = 0.0
        if 0.0 < time < math.inf:
            logs[age] = math.log(time)
    return number


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
def _most_fell(tracks: Floats, first: int, fall: float, logs: Floats) -> bool:
    """Return whether most workers with more results fell after so many, by half as much at least.

    A worker whose first time happened to be long is rare. ``logs`` is work space, (64,).
    """
    fell = 0
    number = 0
    for s in range(len(tracks)):
        young = _first_logs(tracks, s, logs)
        if young > first:
            number += 1
            fell += logs[:first].mean() - logs[first:young].mean() >= 0.5 * fall
    return 2 * fell > number


@phase
def _slow_start(logs: Floats, most: float, spread: float, limit: float) -> int:
    """Return after how many of a worker's first results its times are clearly shorter, or 0.

    Args:
        logs: (age,) the logarithms of its times, all of them.
        most: The results that count.
        spread: Their variance.
        limit: What the statistic of ``forget_slow_starts`` must exceed.
    """
    age = len(logs)
    total = logs.sum()
    best = limit
    found = 0
    first_total = 0.0
    # the mean of the bin of age that is being filled, its end, and the least mean of those before
    bin_total = 0.0
    begin = 0
    end = 1
    least = math.inf
    for first in range(1, age):
        if first - 1 == end:
            least = min(least, bin_total / (end - begin))
            bin_total = 0.0
            begin = end
            end *= 2
        bin_total += logs[first - 1]
        first_total += logs[first - 1]
        later = age - first
        later_mean = (total - first_total) / later
        gain = first_total / first - later_mean
        statistic = 0.5 * gain * gain / (spread * (1.0 / later + 1.0 / first))
        if later < most and gain > 0.0 and statistic > best and least - later_mean >= 0.5 * gain:
            best = statistic
            found = first
    return found


@phase
def forget_slow_starts(belief: RowBelief, totals: WorkerTotals, count: int, work: Floats) -> None:
    """Let the first results of a young worker no longer count where later ones are far shorter.

    With K results at first, and d later ones whose logarithms are by g less in the mean, the first
    ones are forgotten where g > 0 and g^2 / (2 phi (1 / d + 1 / K)) > ln(140 n), for K = 1, 2, 3,
    ... results. Cuts near each other are nearly one test, so 7 octaves of K count as 7. Each bin of
    age before the last of these results must be slower by g / 2, since a single long time among
    them is no slow start. The logarithm's variance phi is that of successive times, so that a
    single long time, or a fall itself, has little weight in it. Most of the other workers with as
    many results must have fallen after them, too. ``work`` is work space, (2, 64).
    """
    # a single worker is compared with none: all of its results count
    if len(belief.slot) < 2:
        return
    tracks = belief.tracks
    row = belief.row
    logs = work[0]
    limit = math.log(CHANCE * AGES * len(belief.slot))
    for j in range(count):
        i = totals.worker[j]
        s = belief.slot[i]
        if s < 0 or totals.set_aside[j]:
            continue
        age = tracks[s, SLOT.age]
        # only while all its times are known, and cancelled tasks say nothing
        if age > YOUNG or belief.cancellations[i] > 0.0 or tracks[s, SLOT.stretch] > 0.0:
            continue
        spread = spread_of_steps(
            tracks[s, SLOT.steps], age - 1.0, row[ROW.steps], row[ROW.differences]
        )
        number = _first_logs(tracks, s, logs)
        first = _slow_start(logs[:number], belief.counts[i], spread, limit)
        if first == 0:
            continue
        fall = logs[:first].mean() - logs[first:number].mean()
        time = tracks[s, SLOT.first_times + first : SLOT.first_times + number].sum()
        if time > 0.0 and _most_fell(tracks, first, fall, work[1]):
            _forget_first(belief, i, s, float(number - first), time)


@phase
def _mean_logs(tracks: Floats, logs: Floats, means: Floats) -> None:
    """Write the mean logarithm of each slot's times in each bin of age into ``means``, (s, 7).

    Bins are of tasks 1, 2, 3 to 4, 5 to 8, ..., 33 to 64; one that is not full is 0.
    ``logs`` is work space, (64,).
    """
    for s in range(len(tracks)):
        number = _first_logs(tracks, s, logs)
        begin = 0
        end = 1
        for b in range(AGES):
            means[s, b] = 0.0
            if end <= number:
                means[s, b] = logs[begin:end].mean()
            begin = end
            end *= 2


@phase
def _clear_fall(tracks: Floats, row: Floats, means: Floats, b: int, falls: Floats) -> float:
    """Return the mean fall from bin b of age to the next one, or 0 if it is not clear.

    Args:
        tracks: The numbers of the slots.
        row: The numbers of the row.
        means: The mean logarithms of the slots' times in each bin, of ``_mean_logs``.
        b: The bin.
        falls: Work space for a number for each slot.
    """
    size = max(2.0 ** (b - 1), 1.0)
    next_size = 2.0**b
    workers = 0
    expected = 0.0
    for s in range(len(tracks)):
        age = tracks[s, SLOT.age]
        if age < 2.0 * next_size:
            continue
        falls[workers] = means[s, b] - means[s, b + 1]
        spread = spread_of_steps(
            tracks[s, SLOT.steps], age - 1.0, row[ROW.steps], row[ROW.differences]
        )
        expected += spread * (1.0 / size + 1.0 / next_size)
        workers += 1
    if workers == 0:
        return 0.0
    mean = falls[:workers].mean()
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
    A result of bin b takes exp(d_b + d_(b + 1) + ...) times as long as later ones, unless the
    worker's own times have shown where in bin b its slow start ends.

    Args:
        tracks: What is known by slot.
        row: What is known of the row.
        counts: The results of each slot's worker that count: the last ones.
        out: The logarithm of the factor of each slot; 0 for workers whose results are no slower
            than later ones are.
    """
    falls = np.empty(len(tracks))
    means = np.empty((len(tracks), AGES))
    _mean_logs(tracks, np.empty(YOUNG), means)
    # how much slower a result of each bin is than one of the last bin, in logarithms
    later = np.zeros(AGES)
    for back in range(AGES - 1):
        b = AGES - 2 - back
        later[b] = later[b + 1] + _clear_fall(tracks, row, means, b, falls)
    for s in range(len(tracks)):
        age = tracks[s, SLOT.age]
        # the results that count are those of the ages from here on
        first = max(age - counts[s], 0.0)
        excess = 0.0
        start = 0.0
        for b in range(AGES - 1):
            end = 2.0**b
            counted = min(age, end) - start
            if counted > 0.0 and first <= start:
                fall = min(later[b], _LARGEST_EXPONENT)
                excess += counted / (age - first) * math.expm1(fall)
            start = end
        out[s] = math.log1p(excess)
