"""The arrays that a round is observed in: where numbers are, what is past and counts less, and what is new. Ours."""

import math
from typing import NamedTuple, TypeAlias

import numpy as np

from ata_gym.typing import Floats, Ints, Ints32, Mask
from ata_gym.utils.compiled import inlined, phase
from ata_gym.utils.validation import LARGEST_COUNT

Places: TypeAlias = Ints32

FINISHED, CANCELLED, SUMS = 0, 1, 2  # the three counts in bins


class RowPlaces(NamedTuple):
    """Where a row's numbers are."""

    since: int = 0  # rounds since everybody began anew
    clock: int = 1  # rounds in all
    force: int = 2  # the memory in force
    gains: int = 3  # by how much each shorter memory predicted better than the longest
    spread: int = 6  # squared errors of predictions
    results: int = 7  # results in these predictions
    settled: int = 8  # rounds since a worker began anew
    log_spread: int = 9  # squared errors of logarithms
    events: int = 10  # changes that lasted
    exposure: int = 11  # rounds of workers
    alarm: int = 12  # when a worker was last found to be a suspect, or to be none any more
    size: int = 13


class SlotPlaces(NamedTuple):
    """Where a slot's numbers are, after results and time of each memory in turn."""

    tests: int = 8  # by how much each shorter memory predicted better than that in force
    squares: int = 11  # squared errors of predictions
    mass: int = 12  # results counted in bins
    restart: int = 13  # when it began anew
    log_squares: int = 14  # squared errors of logarithms
    stretch: int = 15  # of a suspect: how much longer its times are than usual; 0 for any other worker
    kept: int = 16  # the share of its past that was kept
    hit: int = 17  # the round since when
    surprise: int = 18  # the squared error of that round
    probes: int = 19  # rounds that found it as slow since then
    seen: int = 20  # results since then
    spent: int = 21  # their time
    due: int = 22  # the round in which it is to be probed
    counted: int = 23  # which share of the results of all rounds counts; 0 for all as is
    longer: int = 24  # how much longer their times are taken to be; 0 for all as is
    size: int = 25


ROW, SLOT = RowPlaces(), SlotPlaces()
HORIZONS = (math.inf, 16.0, 4.0, 1.0)  # rounds with news of its worker that each memory reaches back
MEMORIES = 4
LEAST_SHARE = 1.0 / LARGEST_COUNT  # of a past: less never counts, though a state from outside may say so
_SPREADS = 5.0  # results that the squared errors of the row count for in a worker's own
_SHARPEST = 1.0 / 16.0  # the least dispersion, since what is expected of a cancelled task is off by its bin
_CLIP = 5.0  # where memories are compared, a time counts at most for so many times its worker's level
_BORROWED = 2.0  # results that the exponential distribution counts for in how long a cancelled task would have taken


class Past(NamedTuple):
    """What a row remembers of its workers, in arrays that are changed in place."""

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
    """The bin of a time."""
    if time <= 0.0 or anchor <= 0.0:
        return 0
    place = math.floor(2.0 * (math.log2(time) - math.log2(anchor))) + bins // 2
    return int(min(max(place, 0), bins - 1))


@inlined
def level(tracks: Floats, s: int, h: int) -> float:
    """Time per result of a memory, where one result is as the longest memory expects it."""
    found: float = tracks[s, 1] / max(tracks[s, 0], 1.0)
    if h > 0:
        found = (tracks[s, 2 * h + 1] + found) / (tracks[s, 2 * h] + 1.0)
    return found


@inlined
def counted_of(tracks: Floats, s: int) -> tuple[float, float]:
    """Which share of the past of slot s counts, and the stretch of its times."""
    whole = tracks[s, SLOT.counted] < LEAST_SHARE
    return (1.0, 1.0) if whole else (tracks[s, SLOT.counted], tracks[s, SLOT.longer])


@inlined
def dispersion_of(squares: float, results: float, row_squares: float, row_results: float) -> float:
    """Squared errors per result of a worker, in part those of its row."""
    common = (row_squares + 1.0) / (row_results + 1.0)
    found: float = max((squares + _SPREADS * common) / (results + _SPREADS), _SHARPEST)
    return found


@inlined
def trust_in(results: float, cancellations: float) -> float:
    """How much the times count of a worker of whose tasks only a share is finished: (2 share - 1)+."""
    found: float = max(2.0 * results / (results + cancellations) - 1.0, 0.0)
    return found


@phase
def begin_anew(tracks: Floats, row: Floats, s: int, left: float, now: float) -> None:
    """Let the worker of slot s begin anew: its errors count for ``left`` results, and no memory has gained yet."""
    share = left / max(tracks[s, 0], left)
    tracks[s, SLOT.squares] *= share
    tracks[s, SLOT.log_squares] *= share
    tracks[s, SLOT.tests : SLOT.squares] = 0.0
    tracks[s, SLOT.restart] = now
    tracks[s, SLOT.counted] = tracks[s, SLOT.longer] = 0.0
    row[ROW.events] += 1.0


@phase
def weigh(past: Past, i: int, share: float, stretch: float) -> None:
    """Let the past of worker i count ``share`` times as much, and its times be so many times longer.

    Its bins keep their weight: they say how its times vary, and not how long they are.
    """
    past.counts[i] *= share
    past.cancellations[i] *= share
    past.totals[i] *= share * stretch
    past.busy[i] *= share * stretch
    past.deviations[i] = past.deviations[i] * share * stretch * stretch if share > 0.0 else 0.0
    past.anchor[i] *= stretch


@phase
def rescale(past: Past, i: int, s: int, share: float, stretch: float) -> None:
    """As ``weigh``, with the bins of the worker's slot s, if any."""
    weigh(past, i, share, stretch)
    if s >= 0 and share != 1.0:
        past.tracks[s, SLOT.mass] *= share
        for count in range(past.bins.shape[1]):
            for b in range(past.bins.shape[2]):
                past.bins[s, count, b] *= share


class News(NamedTuple):
    """What is new of the j-th worker that has something new, and where."""

    who: Ints
    place: Ints  # (n,) where a worker's news are
    results: Floats
    spent: Floats  # time, where a single one counts at most 5 levels of its worker
    whole: Floats  # time of the results and of the cancelled task
    full: Floats  # time, where a cancelled task counts as long as is expected beyond a whole task
    longest: Floats  # of the results
    apart: Mask  # whether it is kept apart, since the worker is a suspect


@inlined
def _clipped(tracks: Floats, s: int, time: float) -> float:
    if s >= 0 and tracks[s, 0] > 0.0:
        most: float = _CLIP * max(level(tracks, s, 0), level(tracks, s, 1))
        return min(time, most)
    return time


@phase
def gather(worker: Ints, elapsed: Floats, last: Floats, now: float, news: News) -> int:
    """Count the results of each worker that has something new, and return how many such workers there are."""
    count = 0
    for k in range(len(worker) + len(elapsed)):
        i = worker[k] if k < len(worker) else k - len(worker)
        if i < 0 or (k >= len(worker) and not elapsed[i] > 0.0):
            continue
        if last[i] != now:
            last[i], news.place[i], news.who[count] = now, count, i
            news.results[count] = news.spent[count] = news.whole[count] = 0.0
            news.full[count] = news.longest[count] = 0.0
            news.apart[count] = False
            count += 1
        if k < len(worker):
            news.results[news.place[i]] += 1.0
    return count


@phase
def give_slots(
    past: Past, slot: Places, owner: Places, before: Floats, now: float, worker: Ints, time: Floats, news: News,
    count: int, mean: Floats,
) -> None:  # fmt: skip
    """Give slots to workers with results that have none: free ones, then those of slower workers without news."""
    known = False
    for j in range(count):
        i = news.who[j]
        if slot[i] >= 0 or news.results[j] == 0.0:
            continue
        s = 0
        while s < len(owner) and owner[s] >= 0:
            s += 1
        if s == len(owner):
            if not known:
                known = True
                for k in range(len(owner)):
                    o = owner[k]
                    mean[k] = past.busy[o] / max(past.counts[o], 1.0) if before[o] < now else 0.0
            s = int(np.argmax(mean))
            first = math.inf
            for r in range(len(worker)):
                if worker[r] == i:
                    first = min(first, time[r])
            if mean[s] <= first:
                continue
            if past.tracks[s, SLOT.stretch] > 0.0:  # nothing says any more that it is a suspect
                rescale(past, owner[s], s, 1.0 / past.tracks[s, SLOT.kept], 1.0 / past.tracks[s, SLOT.stretch])
            slot[owner[s]] = -1
            mean[s] = 0.0
        owner[s], slot[i] = i, s
        past.tracks[s], past.bins[s] = 0.0, 0.0


@phase
def _beyond(past: Past, i: int, s: int, age: float) -> float:
    bins = past.bins.shape[2]
    m, ends = level(past.tracks, s, 0), _BORROWED
    rest = m * ends
    first = bin_of(age, past.anchor[i], bins)
    for b in range(first, bins):
        d, c = past.bins[s, FINISHED, b], past.bins[s, CANCELLED, b] if b > first else 0.0
        centre = past.anchor[i] * 2.0 ** (0.5 * (b - bins // 2) + 0.25)
        rest += max(past.bins[s, SUMS, b] * past.anchor[i] - d * age, 0.0) + c * max(centre - age, 0.0)
        ends += d
    longer: float = max(age + rest / ends - m, 0.0)
    return longer


@phase
def add_times(
    past: Past, slot: Places, worker: Ints, time: Floats, elapsed: Floats, news: News, count: int
) -> None:  # fmt: skip
    """Add up the times of each worker with news."""
    for r in range(len(worker)):
        i = worker[r]
        if i >= 0:
            j, s = news.place[i], slot[i]
            news.spent[j] += _clipped(past.tracks, s, time[r])
            news.whole[j] += time[r]
            news.full[j] += time[r]
            news.longest[j] = max(news.longest[j], time[r])
    for j in range(count):
        i = news.who[j]
        if elapsed[i] > 0.0:
            x, s = elapsed[i], slot[i]
            if s >= 0 and past.tracks[s, 0] > 0.0:
                x = _beyond(past, i, s, x)
                news.full[j] += x
            news.spent[j] += _clipped(past.tracks, s, x)
            news.whole[j] += elapsed[i]
