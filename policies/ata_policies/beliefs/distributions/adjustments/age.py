"""How much faster workers get after their first tasks, pooled over the workers of a row.

Compilation, autotuning, cold caches and downloads slow the first tasks of a worker down. Ours.
"""

import math
from typing import NamedTuple

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
    Places,
    RowBelief,
    WorkerTotals,
    dispersion_of,
    spread_of_steps,
)

_LARGEST_EXPONENT = 500.0
"""The largest exponent: its exponential is finite."""


class SlowStart(NamedTuple):
    """How much longer the first tasks of each worker take than its later ones, by their age."""

    past: Floats
    """(E, n) the logarithm of the factor on the mean of its results that count."""
    coming: Floats
    """(E, n) the logarithm of the factor on its next task."""
    tasks: Floats
    """(E, n) how many tasks are lost until it is as fast as it gets.

    A task that takes f times as long as later ones counts as 1 - 1 / f.
    """


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
            place = SLOT.first_logs + int(age)
            tracks[s, place] = 0.0
            if 0.0 < feedback.time[r] < math.inf:
                tracks[s, place] = math.log(feedback.time[r])


@phase
def _logs_end(tracks: Floats, s: int) -> int:
    """Return the place after the logarithm of a slot's last young result."""
    return SLOT.first_logs + int(min(tracks[s, SLOT.age], YOUNG))


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
def _others_fell(tracks: Floats, own: int, first: int, fall: float) -> bool:
    """Return whether others agree with the worker in slot ``own`` that its first times were slow.

    Most workers with more results must have fallen after as many, by half as much at least, since a
    worker whose first time happened to be long is rare. Where there is no other, one later result
    of its own is not enough.
    """
    fell = 0
    number = 0
    for s in range(len(tracks)):
        logs = tracks[s, SLOT.first_logs : _logs_end(tracks, s)]
        if s != own and len(logs) > first:
            number += 1
            fell += logs[:first].mean() - logs[first:].mean() >= 0.5 * fall
    if number == 0:
        has_two_later: bool = tracks[own, SLOT.age] > first + 1.0
        return has_two_later
    return 2 * fell > number


@phase
def _slow_start(
    logs: Floats, most: float, steps: float, row: Floats, limit: float, longest: Floats
) -> int:
    """Return after how many of a worker's first results its times are clearly shorter, or 0.

    Args:
        logs: (age,) the logarithms of its times, all of them.
        most: The results that count.
        steps: The absolute differences of successive ones, added up.
        row: The numbers of the row.
        limit: What the statistic of ``forget_slow_starts`` must exceed.
        longest: Work space for 64 numbers.
    """
    age = len(logs)
    longest[age - 1] = logs[age - 1]
    for back in range(1, age):
        longest[age - 1 - back] = max(logs[age - 1 - back], longest[age - back])
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
        first_mean = first_total / first
        gain = first_mean - later_mean
        # the fall itself does not tell how times vary
        step = abs(logs[first] - logs[first - 1])
        spread = spread_of_steps(
            max(steps - step, 0.0), age - 2.0, row[ROW.steps], row[ROW.differences]
        )
        statistic = 0.5 * gain * gain / (spread * (1.0 / later + 1.0 / first))
        # each bin of age is as likely to hold the end, and each place in it
        statistic -= math.log(end - begin)
        slower = longest[first] < first_mean and least - later_mean >= 0.5 * gain
        if later < most and slower and statistic > best:
            best = statistic
            found = first
    return found


@phase
def forget_slow_starts(belief: RowBelief, totals: WorkerTotals, count: int, work: Floats) -> None:
    """Let the first results of a young worker no longer count where later ones are far shorter.

    With K results at first, and d later ones whose logarithms are by g less in the mean, the first
    ones are forgotten where g > 0 and

        g^2 / (2 phi (1 / d + 1 / K)) > ln(140 n b),

    for K = 1, 2, 3, ... up to 63 results, of which the last is in a bin of b ages. Each bin before
    that one must be slower by g / 2, and no later result longer than they were in the mean, since
    one long time is no slow start, and one short time no end of it. The logarithm's variance phi is
    the variance of successive times, without the two times around the fall. The other workers must
    agree. ``work`` is work space, (64,).
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
        # only while all its times are known, and cancelled tasks say nothing
        if age > YOUNG or belief.cancellations[i] > 0.0 or tracks[s, SLOT.stretch] > 0.0:
            continue
        logs = tracks[s, SLOT.first_logs : _logs_end(tracks, s)]
        first = _slow_start(logs, belief.counts[i], tracks[s, SLOT.steps], row, limit, work)
        if first == 0:
            continue
        time = 0.0
        for log in logs[first:]:
            time += math.exp(log)
        fall = logs[:first].mean() - logs[first:].mean()
        if _others_fell(tracks, s, first, fall):
            _forget_first(belief, i, s, age - first, time)


@phase
def _mean_logs(tracks: Floats, means: Floats) -> None:
    """Write the mean logarithm of each slot's times in each bin of age into ``means``, (s, 7).

    Bins are of tasks 1, 2, 3 to 4, 5 to 8, ..., 33 to 64; one that is not full is 0.
    """
    for s in range(len(tracks)):
        logs = tracks[s, SLOT.first_logs : _logs_end(tracks, s)]
        begin = 0
        end = 1
        for b in range(AGES):
            means[s, b] = 0.0
            if end <= len(logs):
                means[s, b] = logs[begin:end].mean()
            begin = end
            end *= 2


@phase
def _falls(tracks: Floats, row: Floats, means: Floats, b: int, falls: Floats) -> bool:
    """Return whether times clearly fall from bin b of age to the next one.

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
        return False
    mean = falls[:workers].mean()
    squares = 0.0
    for k in range(workers):
        squares += (falls[k] - mean) ** 2
    variance = (squares + expected / workers) / workers
    limit = math.log(CHANCE * AGES * len(tracks))
    clear: bool = mean > 0.0 and mean * mean > 2.0 * limit * variance / workers
    return clear


@phase
def _fit_falling(values: Floats, totals: Floats, sizes: Floats) -> None:
    """Replace values by the nearest ones that never rise, by pooling neighbours that do.

    ``totals`` and ``sizes`` are work space of as many numbers.
    """
    blocks = 0
    for a in range(len(values)):
        totals[blocks] = values[a]
        sizes[blocks] = 1.0
        blocks += 1
        while (
            blocks > 1
            and totals[blocks - 2] / sizes[blocks - 2] < totals[blocks - 1] / sizes[blocks - 1]
        ):
            totals[blocks - 2] += totals[blocks - 1]
            sizes[blocks - 2] += sizes[blocks - 1]
            blocks -= 1
    a = 0
    for block in range(blocks):
        for _ in range(int(sizes[block])):
            values[a] = totals[block] / sizes[block]
            a += 1


@phase
def _learn_course(
    tracks: Floats, row: Floats, falls: Floats, means: Floats, work: Floats, course: Floats
) -> bool:
    """Fill in how much longer tasks of each age take, and return whether any clearly do.

    ``falls``, (s,), ``means``, (s, 7), and ``work``, (2, 64), are work space.
    """
    _mean_logs(tracks, means)
    end = 0
    for b in range(AGES - 1):
        if _falls(tracks, row, means, b, falls):
            end = 2 ** (b + 1)
    course[:] = 0.0
    if end == 0:
        return False
    workers = 0
    for s in range(len(tracks)):
        logs = tracks[s, SLOT.first_logs : _logs_end(tracks, s)]
        if len(logs) >= end:
            workers += 1
            for a in range(end):
                course[a] += logs[a]
    for a in range(end):
        course[a] /= workers
    _fit_falling(course[:end], work[0], work[1])
    last = course[end - 1]
    for a in range(end):
        course[a] = min(course[a] - last, _LARGEST_EXPONENT)
    return True


@kernel("(s,t),(r),(n),(n)->(n),(n),(n)")
def find_slow_starts(
    tracks: Floats,
    row: Floats,
    slot: Places,
    counts: Floats,
    past: Floats,
    coming: Floats,
    tasks: Floats,
) -> None:
    """Compute the ``SlowStart`` of each worker.

    Times fall from a bin of age b to the next one if the mean d_b over the workers that are through
    both, of the difference of the mean logarithms of their times, is above 0 so clearly that
    d_b^2 / (2 s_b^2) > ln(140 n). Its squared error s_b^2 is the variance between workers over
    their number, where what is expected by how each worker's times vary counts as one worker more.
    Up to the end of the last bin that times fall to, the course of the logarithms of the times by
    age is their mean over the workers that are through it, fitted by least squares so that it never
    rises (Barlow, Bartholomew, Bremner and Brunk, 1972), less its last value.

    Args:
        tracks: What is known by slot.
        row: What is known of the row.
        slot: The slot of each worker; -1 for none.
        counts: The results of each worker that count: the last ones.
        past: ``SlowStart.past``.
        coming: ``SlowStart.coming``.
        tasks: ``SlowStart.tasks``.
    """
    past[:] = 0.0
    coming[:] = 0.0
    tasks[:] = 0.0
    course = np.empty(YOUNG)
    if not _learn_course(
        tracks,
        row,
        np.empty(len(tracks)),
        np.empty((len(tracks), AGES)),
        np.empty((2, YOUNG)),
        course,
    ):
        return
    for i in range(len(slot)):
        if slot[i] >= 0:
            age = tracks[slot[i], SLOT.age]
        elif counts[i] == 0.0:
            age = 0.0
        # of a worker that lost its slot the age is not known; it had results for long
        else:
            continue
        begin = int(max(age - counts[i], 0.0))
        end = int(min(age, YOUNG))
        excess = 0.0
        for a in range(begin, end):
            excess += math.expm1(course[a])
        past[i] = math.log1p(excess / max(age - begin, 1.0))
        if end < YOUNG:
            coming[i] = course[end]
        for a in range(end, YOUNG):
            tasks[i] -= math.expm1(-course[a])
