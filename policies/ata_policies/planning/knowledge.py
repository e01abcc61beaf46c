"""What is known of the workers of some rows, and which of them a search considers.

A worker is known from its own times, and from the population of all workers.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, helper, kernel
from ata_policies.beliefs.distributions.adjustments.age import SlowStart
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.beliefs.distributions.slices import blended
from ata_policies.beliefs.distributions.tails import (
    SLICES,
    Members,
    borrow_tails,
    members,
    own_slices,
    picked,
)
from ata_policies.beliefs.moments import LatencyBelief, learn_shapes, mean_times
from ata_policies.planning.completion_times import Latencies

IDLE = 64  # workers that a search considers beyond the B workers that B tasks can go to
# standard deviations that the beta rule allows for where a search begins from it: its own default
BETA = 1.5
# the longest time, in units near the least mean: squares of times must not overflow
_LARGEST_TIME = 2.0**400
# the mean at places that hold no worker: beyond any mean, so that none of them gets a task
_FILLED_UP = 2.0**440
PLACES = 48  # components of the population
_PASSES = 20  # steps of expectation and maximisation
# workers from which a population is learned; of more, every second one counts, or every third, ...
_MOST_LEARNED_FROM = 512
# standard deviations beyond which a normal distribution has nothing that counts
_MOST_DEVIATIONS = 6.0
_LARGEST_EXPONENT = 500.0  # the largest exponent: its exponential is finite
# a likelihood that is smaller than the largest by the factor exp(60) is none
_NEGLIGIBLE_EXPONENT = 60.0
# the part of the variance that is left when the tasks behind an estimate are doubled
_VARIANCE_LEFT = 0.5


class Estimates(NamedTuple):
    """Estimates of the mean times of the n workers of E rows, each from the worker's own times."""

    location: Floats
    """(E, n) logarithm of the time per task; 0 for a worker never tried."""
    evidence: Floats
    """(E, n) how many exponential times tell as much; 0 for a worker never tried.

    About 1 / variance of the logarithm.
    """


class Population(NamedTuple):
    """A mixture of normal distributions of the logarithm of a mean time.

    Its G components lie around places; the standard deviation of each is the distance of two
    neighbouring places.
    """

    place: Floats
    """(E, G) evenly spaced."""
    share: Floats
    """(E, G) how likely each component is."""
    hedge: Floats
    """(E, G) how likely each component is if the shares that were learned are doubted."""


class Posterior(NamedTuple):
    """What is known of the logarithm of each worker's mean time."""

    location: Floats
    """(E, n) its mean."""
    spread: Floats
    """(E, n) its standard deviation."""

    def mean(self) -> Floats:
        """Return expected mean times, (E, n), as if their logarithms were normal.

        Their standard deviation counts as 4 at most.
        """
        return np.asarray(np.exp(self.location + 0.5 * np.minimum(self.spread, 4.0) ** 2))


class Knowledge(NamedTuple):
    """What is known of the n workers of E rows."""

    belief: DistributionBelief
    """The belief, of these rows alone."""
    counted: Members
    """The k workers with results whose times are counted in bins."""
    slices: Floats
    """(E, k, S) slices of their distributions, each by the worker's own times alone."""
    estimates: Estimates
    """What each worker's own times say."""
    population: Population
    """What all times say of the population that the workers come from."""
    posterior: Posterior
    """What own times and population together say of each worker, once it is no longer young."""
    start: SlowStart
    """How much longer their next tasks take, since they are young."""
    shapes: Floats
    """(E, n) 1 / (coefficient of variation)^2 of their task times."""
    latencies: Latencies
    """What is known of their latencies."""

    def take(self, workers: Ints) -> tuple[Estimates, Posterior]:
        """Return what the own times of some workers, (E, m), say, and what is known of them."""
        estimates, posterior = (
            [picked(field, workers) for field in table]
            for table in (self.estimates, self.posterior)
        )
        return Estimates(*estimates), Posterior(*posterior)

    def next_mean(self) -> Floats:
        """Return the expected time of each worker's next task, (E, n)."""
        return self.posterior._replace(location=self.posterior.location + self.start.coming).mean()


class Candidates(NamedTuple):
    """The m workers of each row that a search considers.

    A row with fewer is filled up with workers of huge means.
    """

    members: Members
    """Which workers they are."""
    times: Floats
    """(E, m, S) equally likely task times, which have the expected means."""
    doubt: Floats
    """(E, m) squared relative deviation of what is known of the means."""
    spread: Floats
    """(E, m) 1.5 standard deviations of a task time."""
    shapes: Floats
    """(E, m + 1, S) their times over their means, and last the average of all of them."""
    latency: Floats
    """(E, m, S) equally likely latencies, in an order that the task times do not share."""


def learn_rows(
    belief: DistributionBelief, latency: LatencyBelief, rows: Any, weight: float
) -> Knowledge:
    """Bring together what the belief says of the workers of some rows.

    At least one worker of each row must have a result. Times are in a unit near the least mean, and
    at most 2**400 of it, so that squares do not overflow. Workers that are due for another trial,
    since they may have changed, have the evidence of one exponential time at most.

    Args:
        belief: What was learned, of all rows.
        latency: What was learned of latencies, of all rows.
        rows: The E rows.
        weight: Tasks that the other workers' shapes count for in a worker's own (``learn_shapes``).
    """
    belief = belief.take_rows(rows)
    counted, own_times = own_slices(belief)
    moments = borrow_tails(belief, counted, own_times)
    counts = moments.counts
    totals = moments.totals
    shapes = learn_shapes(
        moments.scaled(belief.mass() / np.where(counts > 0.0, counts, 1.0)),
        weight,
    )
    # a power of two as the unit changes no bits
    least_mean = np.where(totals > 0.0, mean_times(counts, totals), np.inf).min(axis=1)
    exponent = np.frexp(np.where(least_mean < np.inf, least_mean, 1.0))[1][:, None]
    latencies = Latencies.from_belief(latency.take_rows(rows), exponent, SLICES)
    estimates = estimate_means(
        counts, np.minimum(np.ldexp(totals, -exponent), _LARGEST_TIME), shapes
    )
    estimates = estimates._replace(
        evidence=np.where(belief.stale(), np.minimum(estimates.evidence, 1.0), estimates.evidence),
    )
    # evidence stays: what is not known of the fall is alike for all workers of an age
    start = belief.slow_start()
    tried = estimates.evidence > 0.0
    estimates = estimates._replace(
        location=np.where(tried, estimates.location - start.past, estimates.location),
    )
    population = learn_population(estimates)
    return Knowledge(
        belief,
        counted,
        own_times,
        estimates,
        population,
        posterior(population, estimates),
        start,
        shapes,
        latencies,
    )


def choose_candidates(knowledge: Knowledge, available: Mask, last: Ints, budget: int) -> Candidates:
    """Choose the workers that a search considers: the fastest, and the workers of the last plan.

    Args:
        knowledge: What is known of the n workers.
        available: (E, n) the workers that may get tasks; only those with results are chosen.
        last: (E, n) the allocation of the last plan.
        budget: Tasks to share out, B. Of the fastest, B + 64 are chosen at first, and later 64 more
            than 1.5 times as many as are in use, but at least 192, or B + 64 if that is less.
    """
    mean = knowledge.next_mean()
    tried = available & (knowledge.estimates.evidence > 0.0)
    used = (last > 0).sum(axis=1)
    most = np.where(used > 0, np.maximum(used + used // 2, 2 * IDLE), budget)
    number = np.minimum(most, budget) + IDLE
    near = members(
        first_of(np.where(tried, mean, np.inf), number) | (tried & (last > 0)),
    )
    mean = np.where(near.present, near.take(mean), _FILLED_UP)
    # -1 for workers that have no slices of their own
    place = np.where(near.present, near.take(knowledge.counted.place), -1)
    times = blended(
        knowledge.slices,
        place,
        np.where(near.present, knowledge.belief.later(near.workers), 0.0),
        mean,
    )
    doubt = np.minimum(np.expm1(near.take(knowledge.posterior.spread) ** 2), 1.0)
    spread = BETA * mean / np.sqrt(near.take(knowledge.shapes))
    shapes = np.empty(np.add(times.shape, (0, 1, 0)))
    _fill_shapes(times, near.present, shapes)
    return Candidates(near, times, doubt, spread, shapes, knowledge.latencies.of(near.workers))


def estimate_means(counts: Floats, totals: Floats, shapes: Floats) -> Estimates:
    """Estimate mean times as S / K, with the evidence c K, from K tasks of total time S.

    Task times count as gamma of shape c. The logarithm of a gamma time varies more than that says:
    its variance, trigamma(c), is 101 for c = 0.1.

    Args:
        counts: (E, n) the numbers K; 0 for a worker never tried.
        totals: (E, n) the total times S.
        shapes: (E, n) the shapes c.
    """
    tried = counts > 0.0
    location = np.log(np.maximum(totals / np.where(tried, counts, 1.0), 1e-100))
    return Estimates(
        np.where(tried, location, 0.0),
        np.where(tried, shapes * counts, 0.0),
    )


def learn_population(estimates: Estimates) -> Population:
    """Learn each row's population: a mixture at fixed places, with shares by EM.

    At least one worker of each row must have a result. It is a discrete form of the nonparametric
    maximum likelihood of Kiefer and Wolfowitz (1956). The prior is ours: a normal distribution
    around the mean of the estimates, with their standard deviation, or 1 if that is less, has the
    weight of one worker. So after m workers of one kind, the next one is of another with a chance
    of about 1 / (m + 1). Shares of m workers are themselves off by about 1 / sqrt(m): with that
    doubt, the prior has the weight of sqrt(m) workers, so that no worker is taken to be slow for
    what the others are.

    Example:
        >>> estimates = Estimates(np.log([[1.0, 1.0, 20.0, 20.0]]), np.full((1, 4), 1000.0))
        >>> population = learn_population(estimates)
        >>> float(population.share[population.place < np.log(4.0)].sum().round(1))
        0.5
    """
    ends = [_ends(location[evidence > 0.0]) for location, evidence in zip(*estimates, strict=True)]
    number, centre, deviation, first_place, last_place = np.array(ends).T[:, :, None]
    place = first_place + np.arange(PLACES) * ((last_place - first_place) / (PLACES - 1))
    place[:, -1:] = last_place
    prior = np.exp(-0.5 * ((place - centre) / deviation) ** 2)
    prior /= prior.sum(axis=1, keepdims=True)
    share = _learn(*estimates, place, prior)
    doubt = 1.0 / (1.0 + np.sqrt(number))
    return Population(place, share, (1.0 - doubt) * share + doubt * prior)


def _ends(location: Floats) -> tuple[float, ...]:
    """Return number, centre and deviation of the workers learned from, and the outer places."""
    location = location[:: -(-location.size // _MOST_LEARNED_FROM)]
    centre = location.mean()
    deviation = max(1.0, math.sqrt(((location - centre) ** 2).mean()))
    first_place = min(centre - 3.0 * deviation, location.min())
    last_place = max(centre + 3.0 * deviation, location.max())
    return location.size, centre, deviation, first_place, last_place


def posterior(population: Population, estimates: Estimates) -> Posterior:
    """Return the posterior from the population and each worker's own times.

    For a worker never tried it is from the population alone.
    """
    return Posterior(*_posterior(*estimates, population.place, population.share))


def value_of_trying(
    population: Population, estimates: Estimates, limit: Floats, idle: Mask
) -> Floats:
    """Return the value of knowing each worker better, (E, L, n), for L limits u of each.

    A worker of mean M gains (1 - M / u)+, and the value is

        E[(1 - M / u)+] - (1 - E[M] / u)+,

    where M is the expected mean after the variance within each component has fallen by half, as it
    does when the tasks behind the estimate are doubled. For workers that were tried the components
    count with doubt (``Population``). It is the knowledge gradient (Frazier, Powell and Dayanik,
    2008). Where E[M] > u, or the worker is idle whatever its mean, it is E[(1 - M / u)+], the
    possible gain of a worker that is not used.

    Args:
        population: The population of each row.
        estimates: What the workers' own times say, (E, n).
        limit: (E, L, n) the limits u.
        idle: (E, n) the workers that are idle whatever their means.
    """
    return np.asarray(_value(*estimates, *population, limit, idle))


@kernel("(m,s),(m),(k,s)", (2,))
def _fill_shapes(times: Floats, filled: Mask, out: Floats) -> None:
    """Fill in the times over their means, and last their average; see ``Candidates.shapes``."""
    m, size = times.shape
    out[m] = 0.0
    # the workers of a row come first, before the places that are filled up
    for i in range(filled.sum()):
        mean = times[i].mean()
        for s in range(size):
            if mean > 0.0:
                out[i, s] = times[i, s] / mean
            else:
                out[i, s] = 1.0
            out[m, s] += out[i, s]
    for s in range(size):
        out[m, s] /= filled.sum()


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


@kernel("(n),(n),(g),(g)->(g)")
def _learn(location: Floats, evidence: Floats, place: Floats, prior: Floats, share: Floats) -> None:
    """Fill in the shares of the components by expectation and maximisation, from the prior on."""
    tried = np.flatnonzero(evidence)
    tried = tried[:: -(-len(tried) // _MOST_LEARNED_FROM)]
    n = len(tried)
    g = len(place)
    # the likelihoods do not depend on the shares, so they are computed once
    ones = np.ones(g)
    likelihoods = np.empty((n, g))
    weights = np.empty(g)
    for i in range(n):
        _weights(location[tried[i]], evidence[tried[i]], place, ones, likelihoods[i])
    copy(prior, share)
    for _ in range(_PASSES):
        total = prior.copy()
        for i in range(n):
            weight_sum = 0.0
            for k in range(g):
                weights[k] = share[k] * likelihoods[i, k]
                weight_sum += weights[k]
            for k in range(g):
                total[k] += weights[k] / weight_sum
        for k in range(g):
            share[k] = total[k] / (n + 1.0)


@kernel("(n),(n),(g),(g)->(n),(n)")
def _posterior(
    location: Floats,
    evidence: Floats,
    place: Floats,
    share: Floats,
    out: Floats,
    spread: Floats,
) -> None:
    """Fill in the mean and the standard deviation of the logarithm of each worker's mean time."""
    width = (place[1] - place[0]) ** 2
    weights = np.empty(len(place))
    untried = -1  # a worker never tried: all of them are the same
    for i in range(len(location)):
        if evidence[i] == 0.0:
            if untried >= 0:
                out[i] = out[untried]
                spread[i] = spread[untried]
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


@kernel("(n),(n),(g),(g),(g),(l,n),(n)->(l,n)")
def _value(
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
    for i in range(len(location)):
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
