"""What the times of all workers of a round have in common.

A shared file system, network or power cap slows all workers down together. Ours.
"""

import math
from typing import NamedTuple

from ata_gym.typing import Floats, Mask
from ata_gym.utils.compiled import phase
from ata_policies.beliefs.distributions.arrays import (
    CHANCE,
    COMPARED_ROUNDS,
    LONGEST_PAUSE,
    MEMORIES,
    ROW,
    SLOT,
    YOUNG,
    Feedback,
    RowBelief,
    WorkerTotals,
    dispersion_of,
    level,
    weigh,
)

_LOG_BIAS = 0.4
"""How far the centre of the logarithm of gamma times is below the logarithm of their mean.

It is in units of their squared coefficient of variation: from 0.38 to 0.44, where that is at most
2, by quadrature.
"""
_HALVINGS = 40
"""Steps of the search for the centre."""


class Ratios(NamedTuple):
    """How many times longer than usual the workers of a round took, entry by entry.

    Each array has room for all n workers.
    """

    log_ratio: Floats
    """The logarithm of the worker's time over its level."""
    variance: Floats
    """The variance of that, by what is known of the worker."""
    young: Mask
    """Whether the worker may still be getting faster by its age."""
    bias: Floats
    """The squared coefficient of variation of the mean of its results."""
    doubt: Floats
    """The part of the variance that is due to its usual level."""
    fresh: Mask
    """Whether the worker had no feedback in the round before."""


@phase
def _fill(
    belief: RowBelief, last: Floats, feedback: Feedback, totals: WorkerTotals, ratios: Ratios
) -> int:
    """Fill in the ratios of the workers whose usual level is known; return how many they are."""
    tracks = belief.tracks
    row = belief.row
    force = int(row[ROW.force])
    time = ratios.log_ratio
    for i in range(len(belief.slot)):
        time[i] = 0.0
    for r in range(len(feedback.worker)):
        if feedback.worker[r] >= 0:
            time[totals.entry[feedback.worker[r]]] += feedback.time[r]
    size = 0
    for j in range(len(belief.slot)):
        # entries beyond the last one have no time; the ratios filled in are never ahead of it
        if time[j] <= 0.0:
            continue
        i = totals.worker[j]
        s = belief.slot[i]
        if s < 0 or tracks[s, SLOT.results] == 0.0:
            continue
        usual = level(tracks, s, force)
        d = totals.results[j]
        ratio = time[j] / d / usual
        if not 0.0 < ratio < math.inf:
            continue
        known_results = max(tracks[s, SLOT.results + 2 * force], 0.5)
        results = tracks[s, SLOT.results]
        log_spread = dispersion_of(
            tracks[s, SLOT.log_squares], results, row[ROW.log_spread], row[ROW.results]
        )
        spread = dispersion_of(tracks[s, SLOT.squares], results, row[ROW.spread], row[ROW.results])
        ratios.log_ratio[size] = math.log(ratio)
        ratios.variance[size] = log_spread * (1.0 / d + 1.0 / known_results)
        ratios.bias[size] = spread / d
        ratios.doubt[size] = log_spread / max(results, 1.0)
        ratios.young[size] = tracks[s, SLOT.age] < YOUNG
        ratios.fresh[size] = last[i] < row[ROW.clock]
        size += 1
    return size


@phase
def _centre(ratios: Ratios, size: int, scale: float) -> float:
    """Return Huber's centre of the first ratios, which counts one standard deviation at most.

    Args:
        ratios: The ratios.
        size: How many there are.
        scale: The variance, in units of the variances of the ratios, from which the bias follows.
    """
    low = math.inf
    high = -math.inf
    for k in range(size):
        value = ratios.log_ratio[k] + _LOG_BIAS * scale * ratios.bias[k]
        low = min(low, value)
        high = max(high, value)
    for _ in range(_HALVINGS):
        centre = 0.5 * (low + high)
        balance = 0.0
        for k in range(size):
            deviation = math.sqrt(ratios.variance[k])
            value = ratios.log_ratio[k] + _LOG_BIAS * scale * ratios.bias[k]
            balance += min(max((value - centre) / deviation, -1.0), 1.0) / deviation
        if balance > 0.0:
            low = centre
        else:
            high = centre
    return 0.5 * (low + high)


@phase
def _scale(ratios: Ratios, size: int, centre: float) -> float:
    """Return the variance around a centre, in units of what was expected.

    It is from the mean absolute deviation; the expected one counts as much as one worker.
    """
    total = 0.0
    for k in range(size):
        total += abs(ratios.log_ratio[k] - centre) / math.sqrt(ratios.variance[k])
    mean = total / size
    return ((size - 1.0) * 0.5 * math.pi * mean * mean + 1.0) / size


@phase
def _is_shared(row: Floats, ratios: Ratios, size: int, centre: float) -> bool:
    """Return whether workers that come into use in this round have the factor too.

    Their log-likelihood ratio for exp(centre) against 1 must be at least -ln(k + 1), after k rounds
    in which it was above 0. Each of these doubles the rounds to the next probe.
    """
    evidence = 0.0
    for k in range(size):
        if ratios.fresh[k]:
            gain = centre * (ratios.log_ratio[k] - 0.5 * centre)
            evidence += gain / ratios.variance[k]
    if evidence < -math.log(row[ROW.confirmed] + 1.0):
        row[ROW.confirmed] = 0.0
        row[ROW.probe_due] = 0.0
        row[ROW.refuted] = row[ROW.clock] + 1.0
        return False
    if evidence > 0.0 and centre > 0.0:
        row[ROW.confirmed] += 1.0
        pause = min(2.0 ** row[ROW.confirmed], LONGEST_PAUSE)
        row[ROW.probe_due] = row[ROW.clock] + 1.0 + pause
    return True


@phase
def find_factor(
    belief: RowBelief,
    last: Floats,
    feedback: Feedback,
    totals: WorkerTotals,
    ratios: Ratios,
    changed_share: float,
    least_changed: int,
    pause: float,
) -> float:
    """Return the factor that all workers of the round have in common, 1 if there is none.

    With r_i = ln(x_i / (d_i m_i)) for d_i results of time x_i of worker i, whose usual level is
    m_i, its logarithm c is Huber's centre of the r_i, whose variances are v_i = phi_i (1 / d_i +
    1 / K_i) as far as is known. The r_i vary as much around it as q v_i. So it has the variance
    V = q / (sum of 1 / v_i). It is common if

    - no more than a third of these workers are nearer to their usual level, so that no single
      worker, nor a half of them, makes it: they changed;
    - the r_i vary around it no more than expected, (m / 2) (q - 1 - ln q) <= ln(20 n) or q <= 1
      for m workers: where speeds are permuted, q is large;
    - the log-likelihood ratio of a factor, (k c^2 / V + ln(1 - k)) / 2 with k = T / (T + V), is
      above ln((w - e + 20 n) / (e + 1)), where e of w rounds had a factor, and T is their mean
      squared logarithm, with this one;
    - workers that come into use in this round have it too (``_is_shared``).

    Of a factor above 1, c is less here by sqrt(2 ln(n) l), where l is the mean variance of the
    levels: of n workers those that happened to look fast are in use, and look slower later. V also
    holds what the levels have in common, as if they were all off in the same way (workers
    are in use because they looked fast), and the part of q above 1. The factor is then shrunk by
    its uncertainty, to exp(k c). A round with a cancelled task has no factor, since such a task
    says too little, and none is looked for in the 10 rounds after one was refuted.

    Args:
        belief: The belief of the row; the rounds with a factor are counted in it.
        feedback: The feedback of the round.
        totals: The workers and their results.
        ratios: Work space.
        changed_share: A third above.
        least_changed: The least number of workers, if there are as many.
    """
    row = belief.row
    n = len(belief.slot)
    if row[ROW.refuted] > 0.0 and row[ROW.clock] - row[ROW.refuted] < pause:
        return 1.0
    for i in range(n):
        if feedback.elapsed[i] > 0.0:
            return 1.0
    size = _fill(belief, last, feedback, totals, ratios)
    if size < max(min(least_changed, n), 2):
        return 1.0
    scale = _scale(ratios, size, _centre(ratios, size, 0.0))
    centre = _centre(ratios, size, scale)
    precision = 0.0
    doubt = 0.0
    level_variance = 0.0
    unchanged = 0
    young = 0
    for k in range(size):
        ratios.log_ratio[k] += _LOG_BIAS * scale * ratios.bias[k]
        precision += 1.0 / ratios.variance[k]
        doubt += ratios.doubt[k] / ratios.variance[k]
        level_variance += ratios.doubt[k]
        young += ratios.young[k]
        unchanged += abs(ratios.log_ratio[k]) <= abs(ratios.log_ratio[k] - centre)
    scale = _scale(ratios, size, centre)
    variance = (scale * (1.0 + doubt) + (size - 1.0) * max(scale - 1.0, 0.0)) / precision
    # normal factors, whose variance is the mean of their squares so far, and normal errors
    square = centre * centre
    # of n workers those are in use that look fast: the errors of their levels are up to so large
    if centre > 0.0:
        chosen = math.sqrt(2.0 * math.log(n) * level_variance / size)
        square = max(centre - chosen, 0.0) ** 2
    spread = (row[ROW.factor_squares] + square) / (row[ROW.factors] + 1.0)
    kept = spread / (spread + variance)
    evidence = 0.5 * (kept * square / variance + math.log(1.0 - kept))
    without_factor = row[ROW.clock] - row[ROW.factors] + CHANCE * n
    if not evidence > math.log(without_factor / (row[ROW.factors] + 1.0)):
        return 1.0
    differ = 0.5 * size * (scale - 1.0 - math.log(scale))
    if unchanged >= changed_share * size or (scale > 1.0 and differ > math.log(CHANCE * n)):
        return 1.0
    # the first fall of young workers is put down to their age
    if centre < 0.0 and row[ROW.factors] == 0.0 and 2 * young > size:
        return 1.0
    if not _is_shared(row, ratios, size, centre):
        return 1.0
    row[ROW.factors] += 1.0
    row[ROW.factor_squares] += square
    return math.exp(kept * centre)


@phase
def follow(belief: RowBelief, factor: float, all_anew: bool) -> None:
    """Let what is usual follow the factor: all times are then the mean over up to 256 rounds.

    Where all workers begin anew, the round itself is what is usual.
    """
    row = belief.row
    row[ROW.factor] = factor
    if factor == 1.0:
        return
    if all_anew:
        stretch = factor
        row[ROW.factor] = 1.0
    else:
        stretch = 1.0 + (factor - 1.0) / min(row[ROW.since], COMPARED_ROUNDS)
        row[ROW.factor] = factor / stretch
    for i in range(len(belief.slot)):
        weigh(belief, i, 1.0, stretch)
    for s in range(len(belief.owner)):
        for h in range(MEMORIES):
            belief.tracks[s, SLOT.time + 2 * h] *= stretch
        belief.tracks[s, SLOT.suspect_time] *= stretch
        belief.tracks[s, SLOT.last_time] *= stretch
        for age in range(int(min(belief.tracks[s, SLOT.age], YOUNG))):
            belief.tracks[s, SLOT.first_logs + age] += math.log(stretch)
