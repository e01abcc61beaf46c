"""The population that the workers come from: a mixture, what it says of each, what a trial tells.

See ``Population`` in ``knowledge``.
"""

import math

import numpy as np

from ata_gym.typing import Floats, Mask
from ata_gym.utils.compiled import copy, dot, helper, inlined, kernel, phase

_PASSES = 20  # steps of expectation and maximisation
# workers from which a population is learned; of more, every second one counts, or every third, ...
_MOST_LEARNED_FROM = 512
# standard deviations beyond which a normal distribution has nothing that counts
_MOST_DEVIATIONS = 6.0
# the largest standard deviation of the logarithm of a mean that counts in the expected mean
_LARGEST_DEVIATION = 4.0
_LARGEST_EXPONENT = 500.0  # the largest exponent: its exponential is finite
# a likelihood that is smaller than the largest by the factor exp(60) is none
_NEGLIGIBLE_EXPONENT = 60.0
# the part of the variance that is left when the tasks behind an estimate are doubled
_VARIANCE_LEFT = 0.5


@helper()
def _weights(location: float, evidence: float, place: Floats, share: Floats, out: Floats) -> None:
    """Fill in the chance that a worker is of each component, given its own times."""
    distance = place[1] - place[0]
    # the likelihood of K gamma times is proportional to exp(-a (d + exp(-d))), where d is the place
    # minus the location; the width of the component leaves ``a`` of the evidence
    a = evidence / (1.0 + evidence * distance * distance)
    largest = -math.inf
    total = 0.0
    in_range = location - place[0] < _LARGEST_EXPONENT
    # places are evenly spaced, so that exp(-d) is the last one times a factor: no exp in the loop
    ratio = math.exp(min(location - place[0], _LARGEST_EXPONENT))
    factor = math.exp(-distance)
    for g in range(len(place)):
        d = max(place[g] - location, -_LARGEST_EXPONENT)
        out[g] = -a * (d + (ratio if in_range else math.exp(-d)))
        ratio *= factor
        if share[g] > 0.0 and out[g] > largest:
            largest = out[g]
    for g in range(len(place)):
        if out[g] > largest - _NEGLIGIBLE_EXPONENT:
            out[g] = share[g] * math.exp(min(out[g] - largest, 0.0))
        else:
            out[g] = 0.0
        total += out[g]
    for g in range(len(place)):
        out[g] /= total


@inlined
def _fill_places(location: Floats, steps: Floats, place: Floats, prior: Floats) -> None:
    """Fill in the places, around the estimates of some workers, and the prior at them."""
    centre = 0.0
    first_place = last_place = location[0]
    for i in range(len(location)):
        centre += location[i]
        first_place = min(first_place, location[i])
        last_place = max(last_place, location[i])
    centre /= len(location)
    squares = 0.0
    for i in range(len(location)):
        squares += (location[i] - centre) ** 2
    deviation = max(1.0, math.sqrt(squares / len(location)))
    first_place = min(centre - 3.0 * deviation, first_place)
    last_place = max(centre + 3.0 * deviation, last_place)
    total = 0.0
    for g in range(len(place)):
        place[g] = first_place + steps[g] * ((last_place - first_place) / (len(place) - 1))
        if g == len(place) - 1:
            place[g] = last_place
        prior[g] = math.exp(-0.5 * ((place[g] - centre) / deviation) ** 2)
        total += prior[g]
    for g in range(len(place)):
        prior[g] /= total


@kernel("(n),(n),(g)->(g),(g),(g)")
def fill_population(
    location: Floats, evidence: Floats, steps: Floats, place: Floats, share: Floats, hedge: Floats
) -> None:
    """Fill in the fields of ``Population``: the shares from the prior on, by 20 steps of EM.

    Args:
        location: (n,) see ``Estimates``.
        evidence: (n,) see ``Estimates``.
        steps: (G,) the numbers of the places, from 0 on.
        place: Overwritten, as all that follow.
        share: Overwritten.
        hedge: Overwritten.
    """
    tried = np.flatnonzero(evidence)
    tried = tried[:: -(-len(tried) // _MOST_LEARNED_FROM)]
    n = len(tried)
    g = len(place)
    prior = np.empty(g)
    _fill_places(location[tried], steps, place, prior)
    # the likelihoods do not depend on the shares, so they are computed once
    ones = np.ones(g)
    likelihoods = np.empty((n, g))
    for i in range(n):
        _weights(location[tried[i]], evidence[tried[i]], place, ones, likelihoods[i])
    copy(prior, share)
    for _ in range(_PASSES):
        total = prior.copy()
        for i in range(n):
            chance = 1.0 / dot(share, likelihoods[i])
            for k in range(g):
                total[k] += share[k] * likelihoods[i, k] * chance
        for k in range(g):
            share[k] = total[k] / (n + 1.0)
    doubt = 1.0 / (1.0 + math.sqrt(n))
    for k in range(g):
        hedge[k] = (1.0 - doubt) * share[k] + doubt * prior[k]


@kernel("(n),(n),(g),(g)->(n),(n),(n)")
def fill_posterior(
    location: Floats,
    evidence: Floats,
    place: Floats,
    share: Floats,
    out: Floats,
    spread: Floats,
    mean: Floats,
) -> None:
    """Fill in the fields of ``Posterior``."""
    width = (place[1] - place[0]) ** 2
    weights = np.empty(len(place))
    untried = -1  # a worker never tried: all of them are the same
    for i in range(len(location)):
        if evidence[i] == 0.0:
            if untried >= 0:
                out[i] = out[untried]
                spread[i] = spread[untried]
                mean[i] = mean[untried]
                continue
            untried = i
        _weights(location[i], evidence[i], place, share, weights)
        # within a component, both normal: the weight of the worker's own times, and the variance
        own_weight = width * evidence[i] / (1.0 + width * evidence[i])
        inside = width / (1.0 + width * evidence[i])
        first_moment = 0.0
        second_moment = 0.0
        for g in range(len(place)):
            if weights[g] > 0.0:
                centre = place[g] + own_weight * (location[i] - place[g])
                first_moment += weights[g] * centre
                second_moment += weights[g] * centre * centre
        out[i] = first_moment
        spread[i] = math.sqrt(max(second_moment - first_moment * first_moment, 0.0) + inside)
        mean[i] = math.exp(out[i] + 0.5 * min(spread[i], _LARGEST_DEVIATION) ** 2)


@phase
def _alike(limits: Floats, i: int, other: int) -> bool:
    """Return whether two workers have the same limits."""
    level = 0
    while level < len(limits) and limits[level, i] == limits[level, other]:
        level += 1
    return level == len(limits)


@kernel("(n),(n),(g),(g),(g),(l,n),(n)->(l,n)")
def fill_value(
    location: Floats,
    evidence: Floats,
    place: Floats,
    share: Floats,
    hedge: Floats,
    limits: Floats,
    idle: Mask,
    out: Floats,
) -> None:
    """Fill in the value of knowing each worker better; see ``value_of_trying``."""
    width = (place[1] - place[0]) ** 2
    weights = np.empty(len(place))
    log_mean = np.empty(len(place))
    mean = np.empty(len(place))
    untried = -1  # a worker never tried: all of them of the same limits have the same value
    for i in range(len(location)):
        if evidence[i] == 0.0:
            if untried >= 0 and idle[i] == idle[untried] and _alike(limits, i, untried):
                for level in range(len(limits)):
                    out[level, i] = out[level, untried]
                continue
            untried = i
        _weights(location[i], evidence[i], place, hedge if evidence[i] > 0.0 else share, weights)
        own_weight = width * evidence[i] / (1.0 + width * evidence[i])
        inside = width / (1.0 + width * evidence[i])
        deviation = math.sqrt(inside * _VARIANCE_LEFT)
        expected = 0.0
        count = 0  # components that count; the others are left out
        for g in range(len(place)):
            log_mean[count] = place[g] + own_weight * (location[i] - place[g]) + 0.5 * inside
            mean[count] = math.exp(min(log_mean[count], _LARGEST_EXPONENT))
            weights[count] = weights[g]
            expected += weights[count] * mean[count]
            count += weights[count] > 1e-9
        for level in range(len(limits)):
            limit = limits[level, i]
            out[level, i] = 0.0
            if not 0.0 < limit < math.inf:
                continue
            # what counts is the part of the mean beyond the limit, on the side where it is not
            # expected: above the limit for a worker that would be used, below it for any other
            if expected < limit and not idle[i]:
                side = -1.0
            else:
                side = 1.0
            useful = math.log(limit)
            for g in range(count):
                z = side * (useful - log_mean[g] + 0.5 * deviation * deviation) / deviation
                if z > -_MOST_DEVIATIONS:
                    gain = side * (1.0 - mean[g] / limit)
                    # beyond that, the mean is on that side for certain
                    if z < _MOST_DEVIATIONS + deviation:
                        inner = 0.5 * math.erfc(-z / math.sqrt(2.0))
                        shifted = 0.5 * math.erfc((side * deviation - z) / math.sqrt(2.0))
                        gain = side * (inner - mean[g] / limit * shifted)
                    out[level, i] += weights[g] * max(gain, 0.0)
