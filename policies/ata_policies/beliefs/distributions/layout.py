"""Where the numbers of a ``DistributionBelief`` are in its arrays, and how what is past is made to count less. Ours."""

from __future__ import annotations

import math
from typing import NamedTuple

from ata_gym.typing import Floats
from ata_gym.utils.compiled import inlined, phase

FINISHED, CANCELLED, SUMS = 0, 1, 2  # the three counts in bins

# Where a row's numbers are: rounds since everybody began anew, rounds in all, the memory in force, by how much each
# shorter memory predicted better than the longest, squared errors of predictions and results in them, rounds since a
# worker began anew; squared errors of logarithms, changes that lasted, rounds of workers, and when a worker was last
# found to be a suspect, or to be none any more.
SINCE, CLOCK, FORCE, GAINS = 0, 1, 2, 3
SPREAD, RESULTS, SETTLED = 6, 7, 8
LOG_SPREAD, EVENTS, EXPOSURE, ALARM, ROW = 9, 10, 11, 12, 13

# Where a slot's numbers are: first results and time of each memory in turn; then by how much each shorter memory
# predicted better than that in force, squared errors of predictions, results counted in bins, when it began anew, and
# squared errors of logarithms.
TESTS, SQUARES, MASS, RESTART, LOG_SQUARES = 8, 11, 12, 13, 14

# Of a suspect: how much longer its times are than usual, 0 for any other worker; the share of its past that was kept;
# the round since when; the squared error of that round; rounds that found it as slow since then; results and time since
# then; and the round in which it is to be probed.
STRETCH, KEPT, HIT, SURPRISE, PROBES, SEEN, SPENT, DUE, TRACKS = 15, 16, 17, 18, 19, 20, 21, 22, 23

HORIZONS = (math.inf, 256.0, 32.0, 6.0)  # rounds with news of its worker that each memory reaches back
MEMORIES = 4
TOGETHER = 10.0  # workers that begin anew within so many rounds are one event


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


@phase
def rescale(past: Past, i: int, s: int, share: float, stretch: float) -> None:
    """Let the past of worker i, in slot s or none, count ``share`` times as much; its times be so many times longer."""
    past.counts[i] *= share
    past.cancellations[i] *= share
    past.totals[i] *= share * stretch
    past.busy[i] *= share * stretch
    past.deviations[i] = past.deviations[i] * share * stretch * stretch if share > 0.0 else 0.0
    past.anchor[i] *= stretch
    if s >= 0 and share != 1.0:
        past.tracks[s, MASS] *= share
        for count in range(past.bins.shape[1]):
            for b in range(past.bins.shape[2]):
                past.bins[s, count, b] *= share
