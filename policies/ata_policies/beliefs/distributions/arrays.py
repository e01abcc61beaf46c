"""The arrays in which a round is observed: the belief of a row, and the feedback of the round.

The past counts less where workers change. Ours.
"""

import math
from typing import NamedTuple, TypeAlias

from ata_gym.typing import Floats, Ints, Ints32, Mask
from ata_gym.utils.compiled import inlined, phase
from ata_gym.utils.validation import LARGEST_COUNT

Places: TypeAlias = Ints32

# what the second axis of ``bins`` holds: results, cancelled tasks, and the results' times
FINISHED = 0
CANCELLED = 1
SUMS = 2


class RowPlaces(NamedTuple):
    """The places of a row's numbers in the array ``row``."""

    since: int = 0
    """Rounds since all workers began anew."""
    clock: int = 1
    """Rounds in all."""
    force: int = 2
    """The memory in force, by its place in ``HORIZONS``."""
    gains: int = 3
    """By how much each of three shorter memories predicted better than the longest."""
    spread: int = 6
    """Squared errors of predictions."""
    results: int = 7
    """Results in these predictions."""
    settled: int = 8
    """Rounds since a worker began anew."""
    log_spread: int = 9
    """Squared errors of logarithms."""
    events: int = 10
    """Changes that lasted."""
    exposure: int = 11
    """Rounds of workers."""
    alarm: int = 12
    """The round in which a worker last became a suspect, or ceased to be one."""
    factor: int = 13
    """How many times longer than usual all workers took in the last round; 0 before the first."""
    factors: int = 14
    """Rounds in which all workers took longer, or less long, than usual."""
    confirmed: int = 15
    """How often workers that came into use shared a factor above 1, since one was refuted."""
    probe_due: int = 16
    """The round from which on a worker out of use is to be asked whether it shares a factor."""
    refuted: int = 17
    """The round in which workers that came into use last refuted a factor; 0 for never."""
    factor_squares: int = 18
    """The squared logarithms of these factors added up."""
    steps: int = 19
    """The absolute differences of the logarithms of successive times of a worker, added up.

    A step from one level to another counts once, so that this says how times vary around levels.
    """
    differences: int = 20
    """How many these differences are."""
    products: int = 21
    """Products of a worker's deviations in the same round, and in rounds 1 and 2 apart."""
    deviations: int = 24
    """How many of each were added up."""
    deviation_results: int = 25
    """Results in the rounds of these deviations."""
    gram: int = 26
    """Products of the deviations of two shorter memories, (3, 3)."""
    moments: int = 35
    """Products of these deviations and the next deviation of their worker, (3,)."""
    predicted: int = 38
    """The squares of the latter."""
    predictions: int = 39
    """Their number."""
    weights: int = 40
    """The weights of the shorter memories in the prediction of the next deviation, (3,)."""
    return_gain: int = 43
    """By how much this prediction was better than the longest memory."""
    returns: int = 44
    """1 if this prediction counts, else 0."""
    size: int = 45
    """The number of places."""


class SlotPlaces(NamedTuple):
    """The places of a slot's numbers in the array ``tracks``.

    The first eight are the results and the time of each memory in turn: the numbers of memory h are
    2 h places beyond the numbers of the longest one.
    """

    results: int = 0
    """Results of the longest memory."""
    time: int = 1
    """Their time."""
    tests: int = 8
    """By how much each shorter memory predicted better than the memory in force."""
    squares: int = 11
    """Squared errors of predictions."""
    mass: int = 12
    """Results counted in bins."""
    restart: int = 13
    """The round in which the worker began anew."""
    log_squares: int = 14
    """Squared errors of logarithms."""
    stretch: int = 15
    """How many times longer a suspect's times are than usual; 0 for any other worker."""
    kept_share: int = 16
    """The share of a suspect's past that was kept."""
    suspected: int = 17
    """The round in which it became a suspect."""
    surprise: int = 18
    """The squared error of this round."""
    probes: int = 19
    """Rounds since then that found it still unlike its usual level."""
    suspect_results: int = 20
    """Results since then."""
    suspect_time: int = 21
    """Their time."""
    due: int = 22
    """The round in which it is to be probed."""
    counted_share: int = 23
    """The share of the results of all rounds that counts; 0 if all count unchanged."""
    counted_stretch: int = 24
    """How many times longer their times count; 0 if all count unchanged."""
    deviation: int = 25
    """The logarithm of its last round's time over the level of its longest memory."""
    deviation_before: int = 26
    """The same of its round with results before that one."""
    streak: int = 27
    """Its last rounds with results, without a gap and since it began anew."""
    age: int = 28
    """Results in all; beginning anew leaves this and the times by age as they are."""
    last_time: int = 29
    """The time of the last result."""
    steps: int = 30
    """The absolute differences of the logarithms of its successive times, added up."""
    first_logs: int = 31
    """The logarithms of the times of its first 64 results; 0 for a time of 0."""
    size: int = 95
    """The number of places."""


ROW = RowPlaces()
SLOT = SlotPlaces()
HORIZONS = (math.inf, 16.0, 4.0, 1.0)
"""The rounds with feedback of its worker that each memory reaches back."""
YOUNG = 64
"""Tasks after which a worker is as fast as it gets by its age."""
AGES = YOUNG.bit_length()
"""Bins of these ages: the first task, and twice as many in all with each bin."""
CHANCE = 20.0
"""What happens by chance once in 20 workers is not taken for more than chance."""
COMPARED_ROUNDS = 256.0
"""Rounds over which the row's predictions are compared, and what is usual is taken."""
LONGEST_PAUSE = 1e6
"""Rounds between two probes, at most."""
MEMORIES = 4
"""The number of memories."""
LEAST_SHARE = 1.0 / LARGEST_COUNT
"""The least share of a past: less never counts, though a state from outside may hold less."""
_SPREADS = 5.0
"""Results that the squared errors of the row count for in a worker's own."""
_SHARPEST = 1.0 / 16.0
"""The least dispersion, since what is expected of a cancelled task has the error of its bin."""
_CLIP = 5.0
"""Where memories are compared, a time counts at most so many times its worker's level."""
_BORROWED = 2.0
"""Results that the exponential distribution counts for in the rest of a cancelled task."""


class RowBelief(NamedTuple):
    """The belief of a row: the fields of ``DistributionBelief``, without the leading axis E."""

    counts: Floats
    totals: Floats
    deviations: Floats
    busy: Floats
    cancellations: Floats
    anchor: Floats
    last: Floats
    slot: Places
    owner: Places
    bins: Floats
    tracks: Floats
    row: Floats


class Feedback(NamedTuple):
    """The feedback of a round."""

    worker: Ints
    """(R,) whose result each one is; -1 means no result."""
    time: Floats
    """(R,) the task times."""
    elapsed: Floats
    """(n,) how long each worker's cancelled task had run; 0 where none was cancelled."""


class WorkerTotals(NamedTuple):
    """The totals of a round by worker: entry j is of the j-th worker with feedback.

    Each array has room for all n workers. A worker has feedback if it has a result or a cancelled
    task.
    """

    worker: Ints
    """The j-th worker."""
    entry: Ints
    """(n,) the entry j of each worker with feedback."""
    results: Floats
    """Its results."""
    clipped_time: Floats
    """Its time, in which a single time counts at most 5 levels of its worker."""
    time: Floats
    """The time of the results and of the cancelled task."""
    full_time: Floats
    """Its time, in which a cancelled task counts the time expected beyond a whole task."""
    longest_time: Floats
    """The longest time of a result."""
    set_aside: Mask
    """Whether its feedback is not learned from, since the worker is a suspect."""


@inlined
def bin_of(time: float, anchor: float, bins: int) -> int:
    """Return the bin of a time, from 0 to ``bins`` - 1; the first and the last bin are open."""
    if time <= 0.0 or anchor <= 0.0:
        return 0
    place = math.floor(2.0 * (math.log2(time) - math.log2(anchor))) + bins // 2
    return int(min(max(place, 0), bins - 1))


@phase
def make_room(belief: RowBelief, i: int, s: int, time: float) -> None:
    """Move the bins of worker i, in slot s, up until the last one holds a time, if it is longer.

    A first time may be far shorter than all others, which would then share the last bin.
    """
    size = belief.bins.shape[2]
    anchor = belief.anchor[i]
    if not 0.0 < anchor < time < math.inf:
        return
    beyond = math.floor(2.0 * (math.log2(time) - math.log2(anchor))) - (size - 1 - size // 2)
    if beyond <= 0:
        return
    # by a power of two, which changes no bits of the times in units of the anchor
    octaves = (beyond + 1) // 2
    moved = min(2 * octaves, size - 1)
    for count in range(belief.bins.shape[1]):
        bins = belief.bins[s, count]
        bins[0] = bins[: moved + 1].sum()
        for b in range(1, size):
            bins[b] = bins[b + moved] if b + moved < size else 0.0
    for b in range(size):
        belief.bins[s, SUMS, b] = math.ldexp(belief.bins[s, SUMS, b], -octaves)
    belief.anchor[i] = math.ldexp(anchor, octaves)


@inlined
def level(tracks: Floats, s: int, h: int) -> float:
    """Return the time per result of memory h at slot s.

    One of its results is what the longest memory, h = 0, expects.
    """
    time_per_result: float = tracks[s, SLOT.time] / max(tracks[s, SLOT.results], 1.0)
    if h > 0:
        time = tracks[s, SLOT.time + 2 * h] + time_per_result
        time_per_result = time / (tracks[s, SLOT.results + 2 * h] + 1.0)
    return time_per_result


@inlined
def lead_of(m: float, other: float, d: float, x: float) -> float:
    """Return by how much a level predicts d results of time x better than the level ``other``.

    It is the lesser of the log-likelihood ratios of gamma and of Poisson times.
    """
    ratio = math.log(other / m)
    return min(d * ratio + x / other - x / m, d * (1.0 - m / other) - x / other * ratio)


@inlined
def counted_of(tracks: Floats, s: int) -> tuple[float, float]:
    """Return which share of the past of slot s counts, and the stretch of its times."""
    in_full = tracks[s, SLOT.counted_share] < LEAST_SHARE
    if in_full:
        return (1.0, 1.0)
    return (tracks[s, SLOT.counted_share], tracks[s, SLOT.counted_stretch])


@inlined
def dispersion_of(squares: float, results: float, row_squares: float, row_results: float) -> float:
    """Return the squared errors per result of a worker, in part from all workers of its row."""
    common = (row_squares + 1.0) / (row_results + 1.0)
    dispersion: float = max((squares + _SPREADS * common) / (results + _SPREADS), _SHARPEST)
    return dispersion


@inlined
def spread_of_steps(steps: float, number: float, row_steps: float, row_number: float) -> float:
    """Return the variance of the logarithm of a worker's time, from successive times.

    Normal differences of this mean absolute size have twice this variance. Those of the row count
    as much as 5 of the worker's own.

    Args:
        steps: The absolute differences of the worker, added up.
        number: How many they are.
        row_steps: Those of the row.
        row_number: How many they are.
    """
    usual = (row_steps + 1.0) / (row_number + 1.0)
    mean = (steps + _SPREADS * usual) / (number + _SPREADS)
    return 0.25 * math.pi * mean * mean


@inlined
def trust_in(results: float, cancellations: float) -> float:
    """Return how much a worker's times count, (2 share - 1)+ for its share of finished tasks."""
    trust: float = max(2.0 * results / (results + cancellations) - 1.0, 0.0)
    return trust


@phase
def begin_anew(tracks: Floats, row: Floats, s: int, results: float, round: float) -> None:
    """Let the worker of slot s begin anew in the round ``round``.

    Its errors count for ``results`` results, and no memory has predicted better than another yet.
    """
    share = results / max(tracks[s, SLOT.results], results)
    tracks[s, SLOT.squares] *= share
    tracks[s, SLOT.log_squares] *= share
    tracks[s, SLOT.tests : SLOT.squares] = 0.0
    tracks[s, SLOT.restart] = round
    tracks[s, SLOT.counted_share] = tracks[s, SLOT.counted_stretch] = 0.0
    row[ROW.events] += 1.0


@phase
def weigh(belief: RowBelief, i: int, share: float, stretch: float) -> None:
    """Let the past of worker i count ``share`` times, and its times ``stretch`` times, as much.

    Its bins keep their weight: they say how its times vary, and not how long they are.
    """
    belief.counts[i] *= share
    belief.cancellations[i] *= share
    belief.totals[i] *= share * stretch
    belief.busy[i] *= share * stretch
    if share > 0.0:
        belief.deviations[i] = belief.deviations[i] * share * stretch * stretch
    else:
        belief.deviations[i] = 0.0
    belief.anchor[i] *= stretch


@phase
def rescale(belief: RowBelief, i: int, s: int, share: float, stretch: float) -> None:
    """Let the past count less and its times be longer, in the bins of slot s too, see ``weigh``.

    A negative s means that the worker has no slot.
    """
    weigh(belief, i, share, stretch)
    if s >= 0 and share != 1.0:
        belief.tracks[s, SLOT.mass] *= share
        for count in range(belief.bins.shape[1]):
            for b in range(belief.bins.shape[2]):
                belief.bins[s, count, b] *= share


@inlined
def _clipped(tracks: Floats, s: int, time: float) -> float:
    """Return a time, cut at 5 levels of the worker in slot s, if it has a slot and results."""
    if s >= 0 and tracks[s, SLOT.results] > 0.0:
        limit: float = _CLIP * max(level(tracks, s, 0), level(tracks, s, 1))
        return min(time, limit)
    return time


@phase
def count_results(feedback: Feedback, last: Floats, round: float, totals: WorkerTotals) -> int:
    """Count the results of each worker with feedback; return how many such workers there are.

    Args:
        feedback: The feedback of the round.
        last: (n,) the last round with feedback of each worker; it is changed in place.
        round: The round.
        totals: Overwritten with the workers and their results; other fields become 0.
    """
    worker = feedback.worker
    elapsed = feedback.elapsed
    count = 0
    # first all results, then all cancelled tasks
    for k in range(len(worker) + len(elapsed)):
        if k < len(worker):
            i = worker[k]
        else:
            i = k - len(worker)
        if i < 0 or (k >= len(worker) and not elapsed[i] > 0.0):
            continue
        if last[i] != round:
            last[i] = round
            totals.entry[i] = count
            totals.worker[count] = i
            totals.results[count] = totals.clipped_time[count] = totals.time[count] = 0.0
            totals.full_time[count] = totals.longest_time[count] = 0.0
            totals.set_aside[count] = False
            count += 1
        if k < len(worker):
            totals.results[totals.entry[i]] += 1.0
    return count


@phase
def _beyond(belief: RowBelief, i: int, s: int, age: float) -> float:
    """Return how much longer than a mean task a task of worker i takes that outlasts this age."""
    bins = belief.bins.shape[2]
    m = level(belief.tracks, s, 0)
    results = _BORROWED
    time_beyond = m * results
    first_bin = bin_of(age, belief.anchor[i], bins)
    for b in range(first_bin, bins):
        d = belief.bins[s, FINISHED, b]
        if b > first_bin:
            c = belief.bins[s, CANCELLED, b]
        else:
            c = 0.0
        # the time beyond the age: exact for results, from the centre of the bin for cancelled tasks
        centre = belief.anchor[i] * 2.0 ** (0.5 * (b - bins // 2) + 0.25)
        exact = max(belief.bins[s, SUMS, b] * belief.anchor[i] - d * age, 0.0)
        time_beyond += exact + c * max(centre - age, 0.0)
        results += d
    excess: float = max(age + time_beyond / results - m, 0.0)
    return excess


@phase
def add_times(belief: RowBelief, feedback: Feedback, totals: WorkerTotals, count: int) -> None:
    """Add up the times of each worker with feedback.

    Args:
        belief: The belief of the row.
        feedback: The feedback of the round.
        totals: The totals of the round by worker; their times are filled in.
        count: The number of workers with feedback.
    """
    time = feedback.time
    for r in range(len(feedback.worker)):
        i = feedback.worker[r]
        if i >= 0:
            j = totals.entry[i]
            s = belief.slot[i]
            totals.clipped_time[j] += _clipped(belief.tracks, s, time[r])
            totals.time[j] += time[r]
            totals.full_time[j] += time[r]
            totals.longest_time[j] = max(totals.longest_time[j], time[r])
    for j in range(count):
        i = totals.worker[j]
        if feedback.elapsed[i] > 0.0:
            x = feedback.elapsed[i]
            s = belief.slot[i]
            if s >= 0 and belief.tracks[s, SLOT.results] > 0.0:
                x = _beyond(belief, i, s, x)
                totals.full_time[j] += x
            totals.clipped_time[j] += _clipped(belief.tracks, s, x)
            totals.time[j] += feedback.elapsed[i]
