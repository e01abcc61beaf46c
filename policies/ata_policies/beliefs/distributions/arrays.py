"""The arrays in which a round is observed: where numbers are, what is past, and what is new.

The past counts less where workers change. Ours.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np

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
    """Rounds since everybody began anew."""
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
    size: int = 13
    """The number of places."""


class SlotPlaces(NamedTuple):
    """The places of a slot's numbers in the array ``tracks``.

    The first eight are the results and the time of each memory in turn.
    """

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
    kept: int = 16
    """The share of a suspect's past that was kept."""
    hit: int = 17
    """The round in which it became a suspect."""
    surprise: int = 18
    """The squared error of this round."""
    probes: int = 19
    """Rounds since then that found it still unlike its usual level."""
    seen: int = 20
    """Results since then."""
    spent: int = 21
    """Their time."""
    due: int = 22
    """The round in which it is to be probed."""
    counted: int = 23
    """The share of the results of all rounds that counts; 0 if all count unchanged."""
    longer: int = 24
    """How many times longer their times count; 0 if all count unchanged."""
    size: int = 25
    """The number of places."""


ROW = RowPlaces()
SLOT = SlotPlaces()
HORIZONS = (math.inf, 16.0, 4.0, 1.0)
"""The rounds with news of its worker that each memory reaches back."""
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


class Past(NamedTuple):
    """What a row remembers of its workers, in arrays that are changed in place.

    The fields are rows of the same fields of ``DistributionBelief``, without the leading axis E.
    """

    counts: Floats
    totals: Floats
    deviations: Floats
    busy: Floats
    cancellations: Floats
    anchor: Floats
    bins: Floats
    tracks: Floats


@inlined
def bin_of(time: float, anchor: float, bins: int) -> int:
    """Return the bin of a time, from 0 to ``bins`` - 1; the first and the last bin are open."""
    if time <= 0.0 or anchor <= 0.0:
        return 0
    place = math.floor(2.0 * (math.log2(time) - math.log2(anchor))) + bins // 2
    return int(min(max(place, 0), bins - 1))


@inlined
def level(tracks: Floats, s: int, h: int) -> float:
    """Return the time per result of memory h at slot s.

    One of its results is what the longest memory, h = 0, expects.
    """
    time_per_result: float = tracks[s, 1] / max(tracks[s, 0], 1.0)
    if h > 0:
        time_per_result = (tracks[s, 2 * h + 1] + time_per_result) / (tracks[s, 2 * h] + 1.0)
    return time_per_result


@inlined
def counted_of(tracks: Floats, s: int) -> tuple[float, float]:
    """Return which share of the past of slot s counts, and the stretch of its times."""
    in_full = tracks[s, SLOT.counted] < LEAST_SHARE
    if in_full:
        return (1.0, 1.0)
    return (tracks[s, SLOT.counted], tracks[s, SLOT.longer])


@inlined
def dispersion_of(squares: float, results: float, row_squares: float, row_results: float) -> float:
    """Return the squared errors per result of a worker, in part from all workers of its row."""
    common = (row_squares + 1.0) / (row_results + 1.0)
    dispersion: float = max((squares + _SPREADS * common) / (results + _SPREADS), _SHARPEST)
    return dispersion


@inlined
def trust_in(results: float, cancellations: float) -> float:
    """Return how much a worker's times count, (2 share - 1)+ for its share of finished tasks."""
    trust: float = max(2.0 * results / (results + cancellations) - 1.0, 0.0)
    return trust


@phase
def begin_anew(tracks: Floats, row: Floats, s: int, left: float, now: float) -> None:
    """Let the worker of slot s begin anew in the round ``now``.

    Its errors count for ``left`` results, and no memory has predicted better than another yet.
    """
    share = left / max(tracks[s, 0], left)
    tracks[s, SLOT.squares] *= share
    tracks[s, SLOT.log_squares] *= share
    tracks[s, SLOT.tests : SLOT.squares] = 0.0
    tracks[s, SLOT.restart] = now
    tracks[s, SLOT.counted] = tracks[s, SLOT.longer] = 0.0
    row[ROW.events] += 1.0


@phase
def weigh(past: Past, i: int, share: float, stretch: float) -> None:
    """Let the past of worker i count ``share`` times, and its times ``stretch`` times, as much.

    Its bins keep their weight: they say how its times vary, and not how long they are.
    """
    past.counts[i] *= share
    past.cancellations[i] *= share
    past.totals[i] *= share * stretch
    past.busy[i] *= share * stretch
    if share > 0.0:
        past.deviations[i] = past.deviations[i] * share * stretch * stretch
    else:
        past.deviations[i] = 0.0
    past.anchor[i] *= stretch


@phase
def rescale(past: Past, i: int, s: int, share: float, stretch: float) -> None:
    """Let the past count less and its times be longer, in the bins of slot s too, see ``weigh``.

    A negative s means that the worker has no slot.
    """
    weigh(past, i, share, stretch)
    if s >= 0 and share != 1.0:
        past.tracks[s, SLOT.mass] *= share
        for count in range(past.bins.shape[1]):
            for b in range(past.bins.shape[2]):
                past.bins[s, count, b] *= share


class News(NamedTuple):
    """What is new of the workers with news in a round: entry j is of the j-th such worker.

    Each array has room for all n workers; a worker has news if it has a result or a cancelled task.
    """

    who: Ints
    """The j-th worker."""
    place: Ints
    """(n,) the entry j of each worker with news."""
    results: Floats
    """Its results."""
    spent: Floats
    """Its time, in which a single time counts at most 5 levels of its worker."""
    whole: Floats
    """The time of the results and of the cancelled task."""
    full: Floats
    """Its time, in which a cancelled task counts the time expected beyond a whole task."""
    longest: Floats
    """The longest time of a result."""
    apart: Mask
    """Whether it is kept apart, since the worker is a suspect."""


@inlined
def _clipped(tracks: Floats, s: int, time: float) -> float:
    """Return a time, cut at 5 levels of the worker in slot s, if it has a slot and results."""
    if s >= 0 and tracks[s, 0] > 0.0:
        limit: float = _CLIP * max(level(tracks, s, 0), level(tracks, s, 1))
        return min(time, limit)
    return time


@phase
def gather(worker: Ints, elapsed: Floats, last: Floats, now: float, news: News) -> int:
    """Count the results of each worker with news, and return how many such workers there are.

    Args:
        worker: (R,) whose result each one is; -1 means no result.
        elapsed: (n,) how long each worker's cancelled task had run; 0 where none was cancelled.
        last: (n,) the last round with news of each worker; it is changed in place.
        now: The round.
        news: Where the news go; other fields of its entries become 0.
    """
    count = 0
    # first all results, then all cancelled tasks
    for k in range(len(worker) + len(elapsed)):
        if k < len(worker):
            i = worker[k]
        else:
            i = k - len(worker)
        if i < 0 or (k >= len(worker) and not elapsed[i] > 0.0):
            continue
        if last[i] != now:
            last[i] = now
            news.place[i] = count
            news.who[count] = i
            news.results[count] = news.spent[count] = news.whole[count] = 0.0
            news.full[count] = news.longest[count] = 0.0
            news.apart[count] = False
            count += 1
        if k < len(worker):
            news.results[news.place[i]] += 1.0
    return count


@phase
def give_slots(
    past: Past,
    slot: Places,
    owner: Places,
    before: Floats,
    now: float,
    worker: Ints,
    time: Floats,
    news: News,
    count: int,
    mean: Floats,
) -> None:
    """Give slots to workers with results that have none.

    Free slots come first, then the slots of slower workers without news.

    Args:
        past: What the row remembers; it is changed in place.
        slot: (n,) the slot of each worker; it is changed in place.
        owner: (slots,) the worker of each slot; it is changed in place.
        before: (n,) the last round with news of each worker.
        now: The round.
        worker: (R,) whose result each one is; -1 means no result.
        time: (R,) the task times.
        news: The news of the round.
        count: The number of workers with news.
        mean: (slots,) room for the mean of each owner.
    """
    computed = False
    for j in range(count):
        i = news.who[j]
        if slot[i] >= 0 or news.results[j] == 0.0:
            continue
        s = 0
        while s < len(owner) and owner[s] >= 0:
            s += 1
        if s == len(owner):
            # means are computed once a round; owners with news keep their slots, by a mean of 0
            if not computed:
                computed = True
                for k in range(len(owner)):
                    o = owner[k]
                    if before[o] < now:
                        mean[k] = past.busy[o] / max(past.counts[o], 1.0)
                    else:
                        mean[k] = 0.0
            s = int(np.argmax(mean))
            shortest = math.inf
            for r in range(len(worker)):
                if worker[r] == i:
                    shortest = min(shortest, time[r])
            if mean[s] <= shortest:
                continue
            # without a slot nothing tells that it is a suspect: its past counts in full again
            if past.tracks[s, SLOT.stretch] > 0.0:
                rescale(
                    past,
                    owner[s],
                    s,
                    1.0 / past.tracks[s, SLOT.kept],
                    1.0 / past.tracks[s, SLOT.stretch],
                )
            slot[owner[s]] = -1
            mean[s] = 0.0
        owner[s] = i
        slot[i] = s
        past.tracks[s] = 0.0
        past.bins[s] = 0.0


@phase
def _beyond(past: Past, i: int, s: int, age: float) -> float:
    """Return how much longer than a mean task a task of worker i takes that outlasts this age."""
    bins = past.bins.shape[2]
    m = level(past.tracks, s, 0)
    results = _BORROWED
    time_beyond = m * results
    first_bin = bin_of(age, past.anchor[i], bins)
    for b in range(first_bin, bins):
        d = past.bins[s, FINISHED, b]
        if b > first_bin:
            c = past.bins[s, CANCELLED, b]
        else:
            c = 0.0
        # the time beyond the age: exact for results, from the centre of the bin for cancelled tasks
        centre = past.anchor[i] * 2.0 ** (0.5 * (b - bins // 2) + 0.25)
        exact = max(past.bins[s, SUMS, b] * past.anchor[i] - d * age, 0.0)
        time_beyond += exact + c * max(centre - age, 0.0)
        results += d
    excess: float = max(age + time_beyond / results - m, 0.0)
    return excess


@phase
def add_times(
    past: Past,
    slot: Places,
    worker: Ints,
    time: Floats,
    elapsed: Floats,
    news: News,
    count: int,
) -> None:
    """Add up the times of each worker with news, in the entries of ``news``.

    Args:
        past: What the row remembers.
        slot: (n,) the slot of each worker, -1 for none.
        worker: (R,) whose result each one is; -1 means no result.
        time: (R,) the task times.
        elapsed: (n,) how long each worker's cancelled task had run; 0 where none was cancelled.
        news: The news of the round; they are changed in place.
        count: The number of workers with news.
    """
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            j = news.place[i]
            s = slot[i]
            news.spent[j] += _clipped(past.tracks, s, time[r])
            news.whole[j] += time[r]
            news.full[j] += time[r]
            news.longest[j] = max(news.longest[j], time[r])
    for j in range(count):
        i = news.who[j]
        if elapsed[i] > 0.0:
            x = elapsed[i]
            s = slot[i]
            if s >= 0 and past.tracks[s, 0] > 0.0:
                x = _beyond(past, i, s, x)
                news.full[j] += x
            news.spent[j] += _clipped(past.tracks, s, x)
            news.whole[j] += elapsed[i]
