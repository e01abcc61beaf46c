"""Suspects: workers whose last round was far longer or shorter than usual, probed until it is clear why. Ours."""

import math
from typing import NamedTuple

from ata_gym.typing import Floats
from ata_gym.utils.compiled import phase
from ata_policies.beliefs.distributions.arrays import (
    LEAST_SHARE,
    MEMORIES,
    ROW,
    SLOT,
    Past,
    begin_anew,
    dispersion_of,
    level,
    rescale,
    trust_in,
)

_RARE = 50_000.0  # rounds of a worker to a change, where none was seen yet
_PROBING = 0.5  # the share of the time until a probe that it may cost
_LONGEST = 1e6  # rounds between two probes, at most
_MOST = 1e30  # a round that is so many times longer or shorter than usual is not judged
_ADOPTED = 8.0  # results after which a new level is the usual one


class Round(NamedTuple):
    """A worker's part in a round."""

    results: float
    time: float  # of these results, and of what a cancelled task took beyond what is expected
    longest: float  # the longest time of a result
    usual: float  # the time of the round if nobody were a suspect


@phase
def judge(past: Past, row: Floats, i: int, s: int, force: int, now: float, own: Round) -> int:
    """Judge a round of worker i, in slot s, that has at least one result: 1 for a suspect, 2 if it begins anew, else 0.

    With d results of mean x, K results known of mean m, and the variance phi of the logarithm of a time, a round is
    unlike the usual level if

        min(ln(r)^2 / 2, r - 1 - ln r) / (phi (1 / d + 1 / K)) > ln((w + 50,000) / (c + 1)),   r = x / m,

    where c changes have lasted in w rounds of workers. For r > 1 that is the log-normal likelihood ratio, and for r < 1
    that of gamma times, which may be very short. The longest of several results is left out if x > m, since one long
    task is no change.
    """
    tracks, d = past.tracks, own.results
    usual, stretch = level(tracks, s, force), tracks[s, SLOT.stretch]
    times = own.time / (d * usual)
    if not 1.0 / _MOST < times < _MOST:
        return 1 if stretch > 0.0 else 0
    ratio = math.log(times)
    if stretch > 0.0:
        if abs(ratio) <= abs(ratio - math.log(stretch)):
            _acquit(past, row, i, s, now)
            return 0
        found: int = _probed(past, i, s, usual, own)
        return found
    known, time = d, own.time
    if d > 1.0 and ratio > 0.0:
        known, time = d - 1.0, own.time - own.longest
    typical = math.log(time / (known * usual)) if time > 0.0 else 0.0
    spread = dispersion_of(tracks[s, SLOT.log_squares], tracks[s, 0], row[ROW.log_spread], row[ROW.results])
    trust = trust_in(past.counts[i], past.cancellations[i])
    apart = min(0.5 * typical * typical, math.exp(typical) - 1.0 - typical)
    unlike = trust * apart / (spread * (1.0 / known + 1.0 / max(tracks[s, 2 * force], 0.5)))
    if typical * ratio <= 0.0 or unlike <= math.log((row[ROW.exposure] + _RARE) / (row[ROW.events] + 1.0)):
        return 0
    kept = min(d / past.counts[i], 1.0)
    rescale(past, i, s, kept, times)
    tracks[s, SLOT.stretch], tracks[s, SLOT.kept], tracks[s, SLOT.hit] = times, kept, now
    tracks[s, SLOT.surprise] = d * d * ratio * ratio
    tracks[s, SLOT.probes], tracks[s, SLOT.seen], tracks[s, SLOT.spent] = 0.0, d, own.time
    tracks[s, SLOT.due] = now + _pause(own)
    row[ROW.alarm] = now
    return 1


@phase
def _pause(own: Round) -> float:  # rounds until the first probe: one, or more where a round with it is long
    longer = own.time / own.results / own.usual if own.usual > 0.0 else 0.0
    return min(max(1.0, (longer - 1.0) / _PROBING), _LONGEST)


@phase
def _acquit(past: Past, row: Floats, i: int, s: int, now: float) -> None:
    tracks = past.tracks
    rescale(past, i, s, 1.0 / max(tracks[s, SLOT.kept], LEAST_SHARE), 1.0 / tracks[s, SLOT.stretch])
    if tracks[s, SLOT.probes] == 0.0:
        row[ROW.log_spread] += tracks[s, SLOT.surprise]
        tracks[s, SLOT.log_squares] += tracks[s, SLOT.surprise]
    tracks[s, SLOT.stretch], row[ROW.alarm] = 0.0, now
    for other in range(len(tracks)):  # those that became suspects with it are probed at once
        if tracks[other, SLOT.stretch] > 0.0 and tracks[other, SLOT.hit] == tracks[s, SLOT.hit]:
            tracks[other, SLOT.due] = now


@phase
def _probed(past: Past, i: int, s: int, usual: float, own: Round) -> int:
    tracks = past.tracks
    tracks[s, SLOT.seen] += own.results
    tracks[s, SLOT.spent] += own.time
    stretch = tracks[s, SLOT.spent] / tracks[s, SLOT.seen] / usual
    rescale(past, i, s, 1.0, stretch / tracks[s, SLOT.stretch])
    tracks[s, SLOT.stretch] = stretch
    return 2 if tracks[s, SLOT.seen] >= _ADOPTED else 1


@phase
def wait_longer(tracks: Floats, row: Floats, s: int, now: float, own: Round) -> None:
    """Let those that became suspects with the worker in slot s, which was probed in vain, wait twice as long."""
    pause = min(_pause(own) * 2.0 ** (tracks[s, SLOT.probes] + 1.0), _LONGEST)
    until, first = now + pause, tracks[s, SLOT.probes] == 0.0
    for other in range(len(tracks)):
        if tracks[other, SLOT.stretch] > 0.0 and tracks[other, SLOT.hit] == tracks[s, SLOT.hit]:
            tracks[other, SLOT.due] = until
            tracks[other, SLOT.probes] += 1.0
            row[ROW.events] += first


@phase
def adopt(past: Past, row: Floats, i: int, s: int, now: float) -> None:
    """Take the level of a suspect, which has lasted, for its usual one."""
    tracks = past.tracks
    seen, time = tracks[s, SLOT.seen], tracks[s, SLOT.spent]
    rescale(past, i, s, min(seen / past.counts[i], 1.0 / tracks[s, SLOT.kept]), 1.0)
    begin_anew(tracks, row, s, seen, now)
    for h in range(MEMORIES):
        tracks[s, 2 * h], tracks[s, 2 * h + 1] = seen, time
    tracks[s, SLOT.stretch] = 0.0
