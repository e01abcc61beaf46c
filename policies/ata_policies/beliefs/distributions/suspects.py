"""Suspects: workers whose last round was far longer or shorter than usual.

They are probed until it is clear why. Ours.
"""

import math
from typing import NamedTuple

from ata_gym.typing import Floats
from ata_gym.utils.compiled import phase
from ata_policies.beliefs.distributions.arrays import (
    LEAST_SHARE,
    LONGEST_PAUSE,
    MEMORIES,
    ROW,
    SLOT,
    RowBelief,
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
_LARGEST_RATIO = 1e30
"""A round that is so many times longer or shorter than usual is not judged."""
_ADOPTED = 8.0
"""Results after which a new level is the usual one."""

# the verdicts on a round of a worker
USUAL = 0
SUSPECT = 1
NEW_LEVEL = 2


class WorkerRound(NamedTuple):
    """A worker's part in a round."""

    results: float
    """Results d."""
    time: float
    """The time of these results, and the time of a cancelled task beyond what is expected."""
    longest: float
    """The longest time of a result."""
    usual: float
    """The time of the round if no worker were a suspect."""


@phase
def judge(belief: RowBelief, i: int, s: int, force: int, round: float, part: WorkerRound) -> int:
    """Judge a round of worker i, in slot s: ``USUAL``, ``SUSPECT`` or ``NEW_LEVEL``.

    The worker has at least one result in the round. With d results of mean x, K results known of
    mean m, r = x / m, and the variance phi of the logarithm of a time, a round is unlike the usual
    level if

        (e + 1) / 2 ln(1 + 2 s / e) > ln((w + 50,000) / (c + 1)),
        s = min(ln(r)^2 / 2, r - 1 - ln r) / (phi (1 / d + 1 / K)),

    where c changes have lasted in w rounds of workers, and phi is known from e errors of the row:
    it is Student's likelihood ratio, near s where e is large. For r > 1 s is the log-normal
    likelihood ratio. For r < 1 it is the likelihood ratio of gamma times, which may be very short.
    The longest of several results is left out if x > m, since one long task is no change.

    Args:
        belief: The belief of the row; it is changed in place.
        i: The worker.
        s: Its slot.
        force: The memory in force.
        round: The round.
        part: The worker's part in the round.
    """
    tracks = belief.tracks
    d = part.results
    usual = level(tracks, s, force)
    stretch = tracks[s, SLOT.stretch]
    times = part.time / (d * usual)
    if not 1.0 / _LARGEST_RATIO < times < _LARGEST_RATIO:
        if stretch > 0.0:
            return SUSPECT
        return USUAL
    ratio = math.log(times)
    # a suspect is as usual again if the round is nearer to the usual level than to the new one
    if stretch > 0.0:
        if abs(ratio) <= abs(ratio - math.log(stretch)):
            _acquit(belief, i, s, round)
            return USUAL
        verdict: int = _probed(belief, i, s, usual, part)
        return verdict
    results = d
    time = part.time
    if d > 1.0 and ratio > 0.0:
        results = d - 1.0
        time = part.time - part.longest
    if time > 0.0:
        typical = math.log(time / (results * usual))
    else:
        typical = 0.0
    spread = dispersion_of(
        tracks[s, SLOT.log_squares],
        tracks[s, SLOT.results],
        belief.row[ROW.log_spread],
        belief.row[ROW.results],
    )
    trust = trust_in(belief.counts[i], belief.cancellations[i])
    distance = min(0.5 * typical * typical, math.exp(typical) - 1.0 - typical)
    known_results = max(tracks[s, SLOT.results + 2 * force], 0.5)
    statistic = distance / (spread * (1.0 / results + 1.0 / known_results))
    # the spread itself is known from so many errors only: Student's likelihood ratio
    errors = belief.row[ROW.results] + 1.0
    statistic = trust * 0.5 * (errors + 1.0) * math.log1p(2.0 * statistic / errors)
    limit = math.log((belief.row[ROW.exposure] + _RARE) / (belief.row[ROW.events] + 1.0))
    # without its longest result, a long round may look short
    if typical * ratio <= 0.0 or statistic <= limit:
        return USUAL
    # the past counts for as many results as the round had, at the level of the round
    share = min(d / belief.counts[i], 1.0)
    rescale(belief, i, s, share, times)
    tracks[s, SLOT.stretch] = times
    tracks[s, SLOT.kept_share] = share
    tracks[s, SLOT.suspected] = round
    tracks[s, SLOT.surprise] = d * d * ratio * ratio
    tracks[s, SLOT.probes] = 0.0
    tracks[s, SLOT.suspect_results] = d
    tracks[s, SLOT.suspect_time] = part.time
    tracks[s, SLOT.due] = round + _pause(part)
    belief.row[ROW.alarm] = round
    return SUSPECT


@phase
def _pause(part: WorkerRound) -> float:
    """Return the rounds until the first probe: one, or more where a round with it is long."""
    if part.usual > 0.0:
        ratio = part.time / part.results / part.usual
    else:
        ratio = 0.0
    return min(max(1.0, (ratio - 1.0) / _PROBING), LONGEST_PAUSE)


@phase
def _acquit(belief: RowBelief, i: int, s: int, round: float) -> None:
    """Let a suspect be as usual again, with the past that was kept aside."""
    tracks = belief.tracks
    rescale(
        belief,
        i,
        s,
        1.0 / max(tracks[s, SLOT.kept_share], LEAST_SHARE),
        1.0 / tracks[s, SLOT.stretch],
    )
    # a single round unlike all others says how times vary; what lasted for some probes does not
    if tracks[s, SLOT.probes] == 0.0:
        belief.row[ROW.log_spread] += tracks[s, SLOT.surprise]
        tracks[s, SLOT.log_squares] += tracks[s, SLOT.surprise]
    tracks[s, SLOT.stretch] = 0.0
    belief.row[ROW.alarm] = round
    # workers that became suspects in the same round are probed at once
    for slot in range(len(tracks)):
        if (
            tracks[slot, SLOT.stretch] > 0.0
            and tracks[slot, SLOT.suspected] == tracks[s, SLOT.suspected]
        ):
            tracks[slot, SLOT.due] = round


@phase
def _probed(belief: RowBelief, i: int, s: int, usual: float, part: WorkerRound) -> int:
    """Add a round to what a suspect has shown; return the verdict."""
    tracks = belief.tracks
    tracks[s, SLOT.suspect_results] += part.results
    tracks[s, SLOT.suspect_time] += part.time
    stretch = tracks[s, SLOT.suspect_time] / tracks[s, SLOT.suspect_results] / usual
    rescale(belief, i, s, 1.0, stretch / tracks[s, SLOT.stretch])
    tracks[s, SLOT.stretch] = stretch
    if tracks[s, SLOT.suspect_results] >= _ADOPTED:
        return NEW_LEVEL
    return SUSPECT


@phase
def wait_longer(belief: RowBelief, s: int, round: float, part: WorkerRound) -> None:
    """Let suspects of one round wait twice as long after a probe of slot s in vain.

    They are the workers that became suspects in the same round as the worker in slot s.
    """
    tracks = belief.tracks
    pause = min(_pause(part) * 2.0 ** (tracks[s, SLOT.probes] + 1.0), LONGEST_PAUSE)
    due = round + pause
    is_first = tracks[s, SLOT.probes] == 0.0
    for slot in range(len(tracks)):
        if (
            tracks[slot, SLOT.stretch] > 0.0
            and tracks[slot, SLOT.suspected] == tracks[s, SLOT.suspected]
        ):
            tracks[slot, SLOT.due] = due
            tracks[slot, SLOT.probes] += 1.0
            belief.row[ROW.events] += is_first


@phase
def adopt(belief: RowBelief, i: int, s: int, round: float) -> None:
    """Make the level of a suspect, which has lasted, its usual level."""
    tracks = belief.tracks
    results = tracks[s, SLOT.suspect_results]
    time = tracks[s, SLOT.suspect_time]
    rescale(belief, i, s, min(results / belief.counts[i], 1.0 / tracks[s, SLOT.kept_share]), 1.0)
    begin_anew(tracks, belief.row, s, results, round)
    for h in range(MEMORIES):
        tracks[s, SLOT.results + 2 * h] = results
        tracks[s, SLOT.time + 2 * h] = time
    tracks[s, SLOT.stretch] = 0.0


@phase
def begin_all_anew(belief: RowBelief, gain: Floats) -> None:
    """Forget all that was learned in the row, but which worker has which slot."""
    belief.counts[:] = 0.0
    belief.totals[:] = 0.0
    belief.deviations[:] = 0.0
    belief.busy[:] = 0.0
    belief.cancellations[:] = 0.0
    belief.anchor[:] = 0.0
    belief.bins[:] = 0.0
    belief.tracks[:, : SLOT.age] = 0.0
    belief.row[ROW.since] = 0.0
    belief.row[ROW.force] = 0.0
    belief.row[ROW.gains : ROW.spread] = 0.0
    belief.row[ROW.settled] = 0.0
    gain[:] = 0.0
