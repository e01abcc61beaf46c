"""How levels move from round to round, and where they return to in the long run.

A level is the logarithm of a worker's time per result. What is learned is common to the workers of
a row. Ours; least squares on the deviations of several memories, and moments of an AR(1) process.
"""

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import inlined, phase
from ata_policies.beliefs.distributions.arrays import (
    CHANCE,
    COMPARED_ROUNDS,
    MEMORIES,
    ROW,
    SLOT,
    RowBelief,
    WorkerTotals,
    counted_of,
    level,
    weigh,
)

LEAST_LEAD = 12.0
"""How much better than the memory in force another one must be to restart a worker."""
_SURE = 1e-3
"""The least variance of a prediction, as a part of the variance of the levels."""


class Persistence(NamedTuple):
    """How the levels of the workers of a row move around what they are in the long run."""

    correlation: float
    """The correlation of a level with the level one round later."""
    variance: float
    """The variance of the logarithm of a level."""
    noise: float
    """The variance of the logarithm of a task time at a known level."""
    error: float
    """The variance of the error of the level predicted for the round after one with results."""


@inlined
def _deviation(tracks: Floats, s: int, h: int, usual: float) -> float:
    """Return the logarithm of the level of memory h at slot s over the level ``usual``."""
    return math.log(level(tracks, s, h)) - math.log(usual)


@phase
def learn_deviations(
    belief: RowBelief, last: Floats, totals: WorkerTotals, count: int, discount: float
) -> None:
    """Add what the round shows of how levels move to what is known of the row.

    The deviation y of a worker is the logarithm of its round's time over the level of its longest
    memory; z_h is the deviation of the level of memory h before the round. Added are y^2, y z_h and
    z_h z_k of workers with results in the round before, and products of three deviations in a row.
    Suspects, and workers that begin anew, are left out.

    Args:
        belief: The belief of the row, with the memories as they were before the round.
        last: (n,) the last round with feedback of each worker before this one.
        totals: The totals of the round by worker.
        count: The number of workers with feedback.
        discount: How much the past counts.
    """
    tracks = belief.tracks
    row = belief.row
    round = row[ROW.clock]
    for place in range(ROW.products, ROW.predictions + 1):
        row[place] *= discount
    for j in range(count):
        i = totals.worker[j]
        s = belief.slot[i]
        d = totals.results[j]
        if s < 0 or d == 0.0:
            continue
        usual = level(tracks, s, 0)
        x = totals.full_time[j]
        left_out = totals.set_aside[j] or tracks[s, SLOT.restart] == round
        if left_out or not (usual > 0.0 and 0.0 < x < math.inf):
            tracks[s, SLOT.streak] = 0.0
            continue
        y = math.log(x) - math.log(d * usual)
        if last[i] != round - 1.0 or tracks[s, SLOT.restart] >= last[i]:
            tracks[s, SLOT.streak] = 0.0
        if tracks[s, SLOT.streak] >= 1.0:
            for h in range(1, MEMORIES):
                z = _deviation(tracks, s, h, usual)
                row[ROW.moments + h - 1] += y * z
                for k in range(1, MEMORIES):
                    place = ROW.gram + (MEMORIES - 1) * (h - 1) + k - 1
                    row[place] += z * _deviation(tracks, s, k, usual)
            row[ROW.predicted] += y * y
            row[ROW.predictions] += 1.0
        if tracks[s, SLOT.streak] >= 2.0:
            row[ROW.products] += y * y
            row[ROW.products + 1] += y * tracks[s, SLOT.deviation]
            row[ROW.products + 2] += y * tracks[s, SLOT.deviation_before]
            row[ROW.deviations] += 1.0
            row[ROW.deviation_results] += d
        tracks[s, SLOT.streak] += 1.0
        tracks[s, SLOT.deviation_before] = tracks[s, SLOT.deviation]
        tracks[s, SLOT.deviation] = y


@phase
def learn_weights(row: Floats, matrix: Floats, right: Floats) -> None:
    """Learn with which weights the deviations of the shorter memories predict the next one.

    They solve (G + r I) w = g + r e, where G and g are sums of z_h z_k and of y z_h, r is the mean
    of y^2, and e is 1 for the memory in force and 0 for the others: a ridge regression whose prior
    is the memory in force, with a standard deviation of 1 for each weight.

    Args:
        row: The numbers of the row; the weights are changed in place.
        matrix: (3, 3) work space.
        right: (3,) work space.
    """
    size = MEMORIES - 1
    force = int(row[ROW.force])
    ridge = row[ROW.predicted] / max(row[ROW.predictions], 1.0) + 1e-300
    for h in range(size):
        right[h] = row[ROW.moments + h]
        for k in range(size):
            matrix[h, k] = row[ROW.gram + size * h + k]
        matrix[h, h] += ridge
        if h == force - 1:
            right[h] += ridge
    # elimination; the matrix is positive definite, but for rounding where nothing deviates
    for h in range(size):
        if not matrix[h, h] > 0.0:
            return
        for k in range(h + 1, size):
            factor = matrix[k, h] / matrix[h, h]
            for m in range(h, size):
                matrix[k, m] -= factor * matrix[h, m]
            right[k] -= factor * right[h]
    for back in range(size):
        h = size - 1 - back
        total = right[h]
        for k in range(h + 1, size):
            total -= matrix[h, k] * row[ROW.weights + k]
        row[ROW.weights + h] = total / matrix[h, h]


@phase
def persistence_of(row: Floats) -> Persistence:
    """Return how levels move, from the products of deviations in rounds 0, 1 and 2 apart.

    It is the AR(1) process with noise that has these moments: covariances c_0, c_1 and c_2 give the
    correlation c_2 / c_1 and the variance c_1^2 / c_2 of the levels, and the noise is the rest of
    c_0. Without positive covariances levels do not return, which is a correlation of 1.
    """
    squares = row[ROW.products]
    first = row[ROW.products + 1]
    second = row[ROW.products + 2]
    number = row[ROW.deviations]
    if not (number > 0.0 and squares > 0.0 and first > 0.0 and second > 0.0):
        return Persistence(1.0, 1.0, 1.0, 1.0)
    correlation = min(second / first, 1.0)
    # no more than all of the variance is of the levels
    variance = min(first / correlation, squares) / number
    in_round = squares / number - variance
    noise = in_round * row[ROW.deviation_results] / number
    # what least squares leaves unexplained, without the noise of the round itself
    explained = 0.0
    for h in range(MEMORIES - 1):
        explained += row[ROW.weights + h] * row[ROW.moments + h]
    error = (row[ROW.predicted] - explained) / max(row[ROW.predictions], 1.0) - in_round
    error = max(error, _SURE * variance)
    return Persistence(correlation, variance, noise, min(error, variance))


@phase
def returned(
    tracks: Floats, row: Floats, s: int, force: int, idle: float, persistence: Persistence
) -> tuple[float, float]:
    """Return how many results tell the next level of slot s, and its stretch over the long run.

    With the correlation c, the deviation predicted after a round with results shrinks by the factor
    c^g in g rounds without, and the variance of its error grows to the variance of the levels. It
    counts as many results as would leave this variance, and at least one. A deviation is at most
    one standard deviation beyond all memories.

    Args:
        tracks: The numbers of the slots.
        row: The numbers of the row.
        s: The slot, of a worker with results.
        force: The memory in force, which counts where levels do not return.
        idle: The rounds g since the worker's last feedback.
        persistence: How the levels of the row move.
    """
    usual = level(tracks, s, 0)
    if not usual > 0.0:
        return tracks[s, SLOT.results], 1.0
    if persistence.correlation >= 1.0:
        return tracks[s, SLOT.results + 2 * force] + 1.0, level(tracks, s, force) / usual
    deviation = 0.0
    largest = 0.0
    for h in range(1, MEMORIES):
        z = _deviation(tracks, s, h, usual)
        deviation += row[ROW.weights + h - 1] * z
        largest = max(largest, abs(z))
    largest += math.sqrt(persistence.variance)
    deviation = min(max(deviation, -largest), largest)
    stretch = math.exp(deviation * persistence.correlation**idle)
    known = persistence.correlation ** (2.0 * idle)
    error = persistence.variance - (persistence.variance - persistence.error) * known
    return max((persistence.noise + persistence.error) / error, 1.0), stretch


@phase
def choose_memory(tracks: Floats, row: Floats, gain: Floats, elapsed: Floats) -> int:
    """Add the gains of the round to the row's, and return the memory that comes into force."""
    lead = math.log(CHANCE * len(tracks))
    # what is expected of a cancelled task depends on the tasks before it: ask for a larger lead
    if elapsed[np.argmax(elapsed)] > 0.0:
        lead = max(lead, LEAST_LEAD)
    best = 0
    highest = lead * (row[ROW.log_spread] + 1.0) / (row[ROW.results] + 1.0)
    for h in range(1, MEMORIES):
        row[ROW.gains + h - 1] = (1.0 - 1.0 / COMPARED_ROUNDS) * row[ROW.gains + h - 1] + gain[h]
        if row[ROW.gains + h - 1] > highest:
            best = h
            highest = row[ROW.gains + h - 1]
    # levels that return must have been predicted better than by every memory
    row[ROW.returns] = row[ROW.return_gain] > highest
    # the tests of workers compare with the memory in force
    if best != row[ROW.force]:
        tracks[:, SLOT.tests : SLOT.squares] = 0.0
    row[ROW.force] = best
    return best


@phase
def recall(belief: RowBelief, round: float, force: int) -> None:
    """Let the moments of each worker count as much, at the level, as the memory in force holds."""
    tracks = belief.tracks
    persistence = persistence_of(belief.row)
    for s in range(len(belief.owner)):
        i = belief.owner[s]
        if i < 0 or tracks[s, SLOT.results] == 0.0 or tracks[s, SLOT.stretch] > 0.0:
            continue
        # for workers with feedback _remember has done this: all of the past counts again
        if belief.last[i] != round:
            share, stretch = counted_of(tracks, s)
            weigh(belief, i, 1.0 / share, 1.0 / stretch)
        results = tracks[s, SLOT.results]
        stretch = 1.0
        if belief.row[ROW.returns] > 0.0:
            idle = round - belief.last[i]
            results, stretch = returned(tracks, belief.row, s, force, idle, persistence)
        elif force > 0:
            results = tracks[s, SLOT.results + 2 * force] + 1.0
            stretch = level(tracks, s, force) / level(tracks, s, 0)
        share = min(results / tracks[s, SLOT.results], 1.0)
        if not share > 0.0:
            share = 1.0
        if not 0.0 < stretch < math.inf:
            stretch = 1.0
        weigh(belief, i, share, stretch)
        tracks[s, SLOT.counted_share] = share
        tracks[s, SLOT.counted_stretch] = stretch
