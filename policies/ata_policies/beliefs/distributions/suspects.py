"""Suspects: workers whose last round was far longer or shorter than usual.

They are probed until it is clear why. Ours.
"""

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

_RARE = 50_000.0
"""Rounds of a worker to a change, where none was seen yet."""
_PROBING = 0.5
"""The share of the time until a probe that the probe may cost."""
_LONGEST = 1e6
"""Rounds between two probes, at most."""
_LARGEST_RATIO = 1e30
"""A round that is so many times longer or shorter than usual is not judged."""
_ADOPTED = 8.0
"""Results after which a new level is the usual one."""


class WorkerRound(NamedTuple):
    """A worker's part in a round."""

    results: float
    """Results d."""
    time: float
    """The time of these results, and the time of a cancelled task beyond what is expected."""
    longest: float
    """The longest time of a result."""
    usual: float
    """The time of the round if nobody were a suspect."""


@phase
def judge(past: Past, row: Floats, i: int, s: int, force: int, now: float, own: WorkerRound) -> int:
    """Judge a round of worker i, in slot s: 1 for a suspect, 2 if it begins anew, else 0.

    The worker has at least one result in the round. With d results of mean x, K results known of
    mean m, r = x / m, and the variance phi of the logarithm of a time, a round is unlike the usual
    level if

        min(ln(r)^2 / 2, r - 1 - ln r) / (phi (1 / d + 1 / K)) > ln((w + 50,000) / (c + 1)),

    where c changes have lasted in w rounds of workers. For r > 1 the left side is the log-normal
    likelihood ratio. For r < 1 it is the likelihood ratio of gamma times, which may be very short.
    The longest of several results is left out if x > m, since one long task is no change.

    Args:
        past: What the row remembers; it is changed in place.
        row: The numbers of the row; they are changed in place.
        i: The worker.
        s: Its slot.
        force: The memory in force.
        now: The round.
        own: The worker's part in the round.
    """
    tracks = past.tracks
    d = own.results
    usual = level(tracks, s, force)
    stretch = tracks[s, SLOT.stretch]
    times = own.time / (d * usual)
    if not 1.0 / _LARGEST_RATIO < times < _LARGEST_RATIO:
        if stretch > 0.0:
            return 1
        return 0
    ratio = math.log(times)
    # a suspect is as usual again if the round is nearer to the usual level than to the new one
    if stretch > 0.0:
        if abs(ratio) <= abs(ratio - math.log(stretch)):
            _acquit(past, row, i, s, now)
            return 0
        verdict: int = _probed(past, i, s, usual, own)
        return verdict
    results = d
    time = own.time
    if d > 1.0 and ratio > 0.0:
        results = d - 1.0
        time = own.time - own.longest
    if time > 0.0:
        typical = math.log(time / (results * usual))
    else:
        typical = 0.0
    spread = dispersion_of(
        tracks[s, SLOT.log_squares],
        tracks[s, 0],
        row[ROW.log_spread],
        row[ROW.results],
    )
    trust = trust_in(past.counts[i], past.cancellations[i])
    distance = min(0.5 * typical * typical, math.exp(typical) - 1.0 - typical)
    statistic = trust * distance / (spread * (1.0 / results + 1.0 / max(tracks[s, 2 * force], 0.5)))
    limit = math.log((row[ROW.exposure] + _RARE) / (row[ROW.events] + 1.0))
    # without its longest result, a long round may look short
    if typical * ratio <= 0.0 or statistic <= limit:
        return 0
    # the past counts for as many results as the round had, at the level of the round
    share = min(d / past.counts[i], 1.0)
    rescale(past, i, s, share, times)
    tracks[s, SLOT.stretch] = times
    tracks[s, SLOT.kept] = share
    tracks[s, SLOT.hit] = now
    tracks[s, SLOT.surprise] = d * d * ratio * ratio
    tracks[s, SLOT.probes] = 0.0
    tracks[s, SLOT.seen] = d
    tracks[s, SLOT.spent] = own.time
    tracks[s, SLOT.due] = now + _pause(own)
    row[ROW.alarm] = now
    return 1


@phase
def _pause(part: WorkerRound) -> float:
    """Return the rounds until the first probe: one, or more where a round with it is long."""
    if part.usual > 0.0:
        ratio = part.time / part.results / part.usual
    else:
        ratio = 0.0
    return min(max(1.0, (ratio - 1.0) / _PROBING), _LONGEST)


@phase
def _acquit(past: Past, row: Floats, i: int, s: int, now: float) -> None:
    """Let a suspect be as usual again, with the past that was kept aside."""
    tracks = past.tracks
    rescale(past, i, s, 1.0 / max(tracks[s, SLOT.kept], LEAST_SHARE), 1.0 / tracks[s, SLOT.stretch])
    # a single round unlike all others says how times vary; what lasted for some probes does not
    if tracks[s, SLOT.probes] == 0.0:
        row[ROW.log_spread] += tracks[s, SLOT.surprise]
        tracks[s, SLOT.log_squares] += tracks[s, SLOT.surprise]
    tracks[s, SLOT.stretch] = 0.0
    row[ROW.alarm] = now
    # workers that became suspects in the same round are probed at once
    for slot in range(len(tracks)):
        if tracks[slot, SLOT.stretch] > 0.0 and tracks[slot, SLOT.hit] == tracks[s, SLOT.hit]:
            tracks[slot, SLOT.due] = now


@phase
def _probed(past: Past, i: int, s: int, usual: float, part: WorkerRound) -> int:
    """Add a round to what a suspect has shown; return 2 if it now begins anew, else 1."""
    tracks = past.tracks
    tracks[s, SLOT.seen] += part.results
    tracks[s, SLOT.spent] += part.time
    stretch = tracks[s, SLOT.spent] / tracks[s, SLOT.seen] / usual
    rescale(past, i, s, 1.0, stretch / tracks[s, SLOT.stretch])
    tracks[s, SLOT.stretch] = stretch
    if tracks[s, SLOT.seen] >= _ADOPTED:
        return 2
    return 1


@phase
def wait_longer(tracks: Floats, row: Floats, s: int, now: float, own: WorkerRound) -> None:
    """Let suspects of one round wait twice as long after a probe of slot s in vain.

    They are the workers that became suspects in the same round as the worker in slot s.
    """
    pause = min(_pause(own) * 2.0 ** (tracks[s, SLOT.probes] + 1.0), _LONGEST)
    due = now + pause
    is_first = tracks[s, SLOT.probes] == 0.0
    for slot in range(len(tracks)):
        if tracks[slot, SLOT.stretch] > 0.0 and tracks[slot, SLOT.hit] == tracks[s, SLOT.hit]:
            tracks[slot, SLOT.due] = due
            tracks[slot, SLOT.probes] += 1.0
            row[ROW.events] += is_first


@phase
def adopt(past: Past, row: Floats, i: int, s: int, now: float) -> None:
    """Make the level of a suspect, which has lasted, its usual level."""
    tracks = past.tracks
    results = tracks[s, SLOT.seen]
    time = tracks[s, SLOT.spent]
    rescale(past, i, s, min(results / past.counts[i], 1.0 / tracks[s, SLOT.kept]), 1.0)
    begin_anew(tracks, row, s, results, now)
    for h in range(MEMORIES):
        tracks[s, 2 * h] = results
        tracks[s, 2 * h + 1] = time
    tracks[s, SLOT.stretch] = 0.0
