"""What trials gain and cost: which workers are tried together in the coming round."""

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, helper, inlined, kernel

# the largest logarithm of a mean that may be drawn: its exponential is finite
_LARGEST_LOG_MEAN = 600.0


@inlined
def tasks_to_know(shape: float, spread: float, ratio: float) -> float:
    """Return how many tasks it takes until a worker is known much better.

    It is known twice as well then, or told from a worker whose mean is less by the ratio r >= 1.
    """
    divergence = max(spread * spread, ratio - 1.0 - math.log(ratio))
    return max(1.0 / (shape * max(divergence, 1e-12)), 1.0)


class TrialTimes(NamedTuple):
    """From what the times of the tasks of a trial are drawn."""

    location: Floats
    """(n,) the expected logarithm of the mean of each worker's next task."""
    spread: Floats
    """(n,) its standard deviation."""
    latency: Floats
    """(n,) mean latencies."""
    prices: Floats
    """(n,) what a unit of each worker's time costs."""
    place: Ints
    """(n,) whose shape a worker has; -1 for the last one, the average of all."""
    shapes: Floats
    """(m + 1, S) equally likely times, over their means."""
    latency_shape: Floats
    """(S,) equally likely latencies, over their mean."""
    quantiles: Floats
    """(S,) equally likely values of the normal distribution."""
    shuffled: Ints
    """(3 B, S) shuffles: two for each worker of a trial, and after these, one for each."""


@helper("reassoc", "nsz")
def _wait(round_time: Floats, slowest: Floats) -> float:
    """Return how long a round is expected to wait for the slowest worker of a trial."""
    total = 0.0
    for q in range(len(round_time)):
        for s in range(len(slowest)):
            total += max(slowest[s] - round_time[q], 0.0)
    return total / (len(round_time) * len(slowest))


@helper()
def _fill_costs(
    drawn: TrialTimes, workers: Ints, removed: Ints, round_time: Floats, out: Floats
) -> None:
    """Fill in what the first ``removed[k]`` of some workers add to the cost of a round, for each k.

    It stays where there are fewer workers. A worker's mean, its time over the mean, and its latency
    are shuffled, each on its own.
    """
    size = len(drawn.quantiles)
    slowest = np.zeros(size)
    mean = np.empty(size)
    work = 0.0
    for level in range(1, len(removed)):
        if removed[level] > len(workers):
            break
        # ``slowest`` and ``work`` go on from the level before, so that each worker is added once
        for j in range(removed[level - 1], removed[level]):
            i = workers[j]
            # workers never tried are all alike
            if j == 0 or not _is_same(drawn, i, workers[j - 1]):
                for s in range(size):
                    log_mean = drawn.location[i] + drawn.spread[i] * drawn.quantiles[s]
                    mean[s] = math.exp(min(log_mean, _LARGEST_LOG_MEAN))
            total = 0.0
            for s in range(size):
                time = mean[drawn.shuffled[2 * j, s]]
                time *= drawn.shapes[drawn.place[i], drawn.shuffled[2 * j + 1, s]]
                late = drawn.shuffled[2 * len(drawn.shuffled) // 3 + j, s]
                time += drawn.latency[i] * drawn.latency_shape[late]
                total += time
                slowest[s] = max(slowest[s], time)
            work += drawn.prices[i] * (total / size)
        out[level] = _wait(round_time[level], slowest) + work


@inlined
def _is_same(drawn: TrialTimes, i: int, other: int) -> bool:
    """Return whether the means of two workers are drawn alike."""
    same: bool = (
        drawn.location[i] == drawn.location[other] and drawn.spread[i] == drawn.spread[other]
    )
    return same


@inlined
def _fill_newest_first(workers: Ints, untried: Mask, order: Ints) -> bool:
    """Fill in the places of prospects, those never tried first; return whether any moved."""
    filled = 0
    moved = False
    for is_old in range(2):
        for p in range(len(order)):
            if untried[workers[p]] == (is_old == 0):
                moved = moved or filled != p
                order[filled] = p
                filled += 1
    return moved


@kernel(
    "(l),(l,q),(l),(l,m),(m),(),(j),(j),(j),(j),(u),(n),(n),(n),(n),(n),(n),(n),(c,s),(s),(s),(k,s),"
    "(),(),()->(n),()"
)
def choose_trial(
    removed: Ints,
    round_time: Floats,
    cost: Floats,
    remaining: Ints,
    members: Ints,
    number: Ints,
    workers: Ints,
    value: Floats,
    share: Floats,
    tasks: Floats,
    value_in_use: Floats,
    untried: Mask,
    time_shapes: Floats,
    location: Floats,
    spread: Floats,
    latency: Floats,
    prices: Floats,
    place: Ints,
    shapes: Floats,
    latency_shape: Floats,
    quantiles: Floats,
    shuffled: Ints,
    new: Ints,
    joint_gain: Floats,
    rounds_left: Floats,
    allocation: Ints,
    rounds: Floats,
) -> None:
    """Choose the trial that gains most, and fill in what ``explore`` returns.

    The first five arguments are of ``Reduced`` and of the candidates, the next five of
    ``_Prospects``; from ``location`` on they are the fields of ``TrialTimes``. There are ``new``
    workers never tried.
    """
    drawn = TrialTimes(
        location, spread, latency, prices, place, shapes, latency_shape, quantiles, shuffled
    )
    # what is left to gain once the workers in use are known, as a share
    remaining_share = 1.0
    for u in range(len(value_in_use)):
        remaining_share *= 1.0 - min(value_in_use[u] / cost[0], 1.0)
    joint_per_task = 0.0
    for i in range(len(untried)):
        if untried[i]:
            joint_per_task = joint_gain[0] / tasks_to_know(time_shapes[i], spread[i], 1.0)
            break
    size = min(number[0], len(shuffled) // 3)
    order = np.arange(number[0])
    trial = np.empty(size, np.int64)
    costs = np.zeros(len(removed))
    best_net = 0.0
    best_level = 0
    for newest_first in (False, True):
        if newest_first and (new[0] < 2 or not _fill_newest_first(workers, untried, order)):
            break
        _fill_costs(drawn, workers[order[:size]], removed, round_time, costs)
        # a trial of k workers takes the place of k tasks, for each k of ``removed``
        level = 1
        product = 1.0
        so_far = 0
        total = 0.0
        weighted = 0.0
        for k in range(size):
            p = order[k]
            product *= 1.0 - min(value[p] / cost[0], 1.0)
            so_far += untried[workers[p]]
            total += value[p]
            weighted += value[p] * share[p]
            if removed[level] > k + 1:
                continue
            gain = cost[0] * (1.0 - product)
            # a part of the new workers gains in proportion, and counts only if it is at least half
            if new[0] > 1 and 2 * so_far >= new[0]:
                gain = max(gain, joint_per_task * so_far / new[0])
            gain *= remaining_share * (weighted / (total if total > 0.0 else 1.0))
            net = rounds_left[0] * gain - (costs[level] + cost[level]) + cost[0]
            if net > best_net:
                best_net = net
                best_level = level
                copy(order[: removed[level]], trial)
            level += 1
    allocation[:] = 0
    rounds[0] = math.inf
    for i in range(len(members)):
        worker = members[i]
        allocation[worker] += remaining[best_level, i]
        if remaining[0, i] > 0:
            needed = tasks_to_know(time_shapes[worker], spread[worker], 1.0)
            rounds[0] = min(rounds[0], needed / remaining[0, i])
    for k in range(removed[best_level]):
        allocation[workers[trial[k]]] = 1
        rounds[0] = min(rounds[0], tasks[trial[k]])
