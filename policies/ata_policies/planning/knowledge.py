"""What is known of the workers of some rows, from their own times and their population; and where a search looks."""

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import copy, helper, kernel
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.retries import first_of
from ata_policies.beliefs.distributions.slices import blended
from ata_policies.beliefs.distributions.tails import Members, borrow_tails, members, own_slices, picked
from ata_policies.beliefs.moments import learn_shapes, mean_times

IDLE = 64  # workers beyond those that B tasks can go to at which a search looks
BETA = 1.5  # of the beta rule, from which a search begins: standard deviations to allow for, as the rule has by default
_LARGEST = 2.0**400  # the longest time, in units near the least mean: squares of times must not overflow
_FILLED_UP = 2.0**440  # the mean of workers that are none: beyond any mean, so that none of them gets a task
PLACES = 48  # components of the population
_PASSES = 20  # steps of expectation and maximisation
_LEAST_EVIDENCE = 0.5  # the least evidence of a worker with a result, in exponential times
_MOST_LEARNED_FROM = 512  # Workers; with more, every second one of them is looked at, or every third, and so on
_FAR = 6.0  # standard deviations beyond which a normal distribution has nothing that counts
_LIMIT = 500.0  # the largest exponent: its exponential is finite
_NOTHING = 60.0  # a likelihood that is smaller than the largest by the factor exp(60) is none
_LEFT = 0.5  # of the variance of what is known of a worker, after as many tasks again as it rests on


class Estimates(NamedTuple):
    """Estimates of the mean times of the n workers of E rows, each from the worker's own times."""

    location: Floats  # (E, n) logarithm of the time per task; 0 for a worker never tried
    evidence: Floats  # (E, n) how many exponential times tell as much: about 1 / variance of the logarithm; 0 for none


class Population(NamedTuple):
    """The logarithm of a mean time is normal around one of G places, with the distance of two places as deviation."""

    place: Floats  # (E, G) evenly spaced
    share: Floats  # (E, G) how likely each is
    hedge: Floats  # (E, G) how likely each is if the shares that were learned are doubted


class Posterior(NamedTuple):
    """What is known of the logarithm of each worker's mean time: its mean and standard deviation, (E, n) each."""

    location: Floats
    spread: Floats

    def mean(self) -> Floats:
        """Expected mean times, as if their logarithms were normal, of deviation 4 at most, (E, n)."""
        return np.asarray(np.exp(self.location + 0.5 * np.minimum(self.spread, 4.0) ** 2))


class Knowledge(NamedTuple):
    """What is known of the n workers of E rows."""

    belief: DistributionBelief  # the belief, of these rows alone
    counted: Members  # those with results whose times are counted in bins
    own: Floats  # (E, k, S) slices of their distributions as each one's own times say
    seen: Estimates  # what each worker's own times say
    population: Population  # what they say of the population that the workers come from
    posterior: Posterior  # what both together say of each worker
    shapes: Floats  # (E, n) 1 / (coefficient of variation)^2 of their task times

    def of(self, workers: Ints) -> tuple[Estimates, Posterior]:
        """What the own times of some workers say, (E, m), and what is known of them."""
        seen, posterior = ([picked(part, workers) for part in parts] for parts in (self.seen, self.posterior))
        return Estimates(*seen), Posterior(*posterior)


class Candidates(NamedTuple):
    """The m workers of each row at which a search looks; a row with fewer is filled up with workers of huge means."""

    members: Members
    times: Floats  # (E, m, S) equally likely task times, of the expected means
    doubt: Floats  # (E, m) squared relative deviation of what is known of the means
    spread: Floats  # (E, m) 1.5 standard deviations of a task time
    shapes: Floats  # (E, m + 1, S) their distributions over their means, and last the average of these


def learn_rows(belief: DistributionBelief, weight: float) -> Knowledge:
    """Bring together what the belief says, where at least one worker of each row has a result.

    Times are in a unit near the least mean, and at most 2**400 of it, so that squares do not overflow. The evidence of
    workers that are due for another trial, since they may have changed, is at most that of one exponential time.
    ``weight`` is that of ``learn_shapes``.
    """
    counted, own = own_slices(belief)
    moments = borrow_tails(belief, counted, own)
    counts, totals = moments.counts, moments.totals
    shapes = learn_shapes(moments.scaled(belief.mass() / np.where(counts > 0.0, counts, 1.0)), weight)
    least = np.where(totals > 0.0, mean_times(counts, totals), np.inf).min(axis=1)
    exponent = np.frexp(np.where(least < np.inf, least, 1.0))[1][:, None]
    seen = estimate_means(counts, np.minimum(np.ldexp(totals, -exponent), _LARGEST), shapes)
    seen = seen._replace(evidence=np.where(belief.stale(), np.minimum(seen.evidence, 1.0), seen.evidence))
    population = learn_population(seen)
    return Knowledge(belief, counted, own, seen, population, posterior(population, seen), shapes)


def choose_candidates(known: Knowledge, there: Mask, last: Ints, budget: int) -> Candidates:
    """Of the workers with results that are ``there``, (E, n), the fastest, and those of the ``last`` plan."""
    mean, seen = known.posterior.mean(), there & (known.seen.evidence > 0.0)
    near = members(first_of(np.where(seen, mean, np.inf), np.int64(budget + IDLE)) | (seen & (last > 0)))
    mean = np.where(near.there, near.of(mean), _FILLED_UP)
    place = np.where(near.there, near.of(known.counted.place), -1)
    times = blended(known.own, place, np.where(near.there, known.belief.later(near.workers), 0.0), mean)
    doubt = np.minimum(np.expm1(near.of(known.posterior.spread) ** 2), 1.0)
    spread, shapes = BETA * mean / np.sqrt(near.of(known.shapes)), np.empty(np.add(times.shape, (0, 1, 0)))
    _fill_shapes(times, near.there, shapes)
    return Candidates(near, times, doubt, spread, shapes)


def estimate_means(counts: Floats, totals: Floats, shapes: Floats) -> Estimates:
    """Estimates from K tasks of total time S, if task times are gamma of shape c: S / K, with the evidence c K; (E, n).

    The evidence is 1/2 at least, or one result would count as none where times vary widely. The logarithm of a gamma
    time varies more than that says: its variance, trigamma(c), is 101 for c = 0.1.
    """
    known = counts > 0.0
    location = np.log(np.maximum(totals / np.where(known, counts, 1.0), 1e-100))
    return Estimates(np.where(known, location, 0.0), np.where(known, np.maximum(shapes * counts, _LEAST_EVIDENCE), 0.0))


def learn_population(seen: Estimates) -> Population:
    """Learn each row's population from at least one worker that was seen: a mixture at fixed places, with shares by EM.

    It is a discrete form of the nonparametric maximum likelihood of Kiefer and Wolfowitz (1956). The prior is ours: a
    normal distribution around the mean of the estimates, with their standard deviation, or 1 if that is less, has the
    weight of one worker. So after m workers of one kind, the next one is of another with a chance of about 1 / (m + 1).
    Shares of m workers are themselves off by about 1 / sqrt(m): with that doubt, the prior has the weight of sqrt(m)
    workers, so that no worker is taken to be slow for what the others are.

    >>> seen = Estimates(np.log([[1.0, 1.0, 20.0, 20.0]]), np.full((1, 4), 1000.0))
    >>> population = learn_population(seen)
    >>> float(population.share[population.place < np.log(4.0)].sum().round(1))
    0.5
    """
    ends = [_ends(location[evidence > 0.0]) for location, evidence in zip(*seen, strict=True)]
    number, centre, deviation, first, last = np.array(ends).T[:, :, None]
    place = first + np.arange(PLACES) * ((last - first) / (PLACES - 1))
    place[:, -1:] = last
    prior = np.exp(-0.5 * ((place - centre) / deviation) ** 2)
    prior /= prior.sum(axis=1, keepdims=True)
    share, doubt = _learn(*seen, place, prior), 1.0 / (1.0 + np.sqrt(number))
    return Population(place, share, (1.0 - doubt) * share + doubt * prior)


def _ends(location: Floats) -> tuple[float, ...]:
    """How many are learned from, their centre and deviation, and where the places of the population begin and end."""
    location = location[:: -(-location.size // _MOST_LEARNED_FROM)]
    centre = location.mean()
    deviation = max(1.0, math.sqrt(((location - centre) ** 2).mean()))
    first, last = min(centre - 3.0 * deviation, location.min()), max(centre + 3.0 * deviation, location.max())
    return location.size, centre, deviation, first, last


def posterior(population: Population, seen: Estimates) -> Posterior:
    """The posterior from the population and each worker's own times; for a worker never tried, the population alone."""
    return Posterior(*_posterior(*seen, population.place, population.share))


def value_of_trying(population: Population, seen: Estimates, limit: Floats) -> Floats:
    """The value of knowing each worker better, (E, L, n), if one of mean M gains (1 - M / u)+, for L ``limit``s u.

        E[(1 - M / u)+] - (1 - E[M] / u)+,

    where M is the expected mean after the variance within each component has fallen by half, as it does when the tasks
    behind the estimate are doubled. For workers that were tried the components count with doubt (``Population``). It is
    the knowledge gradient (Frazier, Powell and Dayanik, 2008). Where E[M] > u it is E[(1 - M / u)+], the possible gain
    of a worker that is not used.
    """
    return np.asarray(_value(*seen, *population, limit))


@kernel("(m,s),(m),(k,s)", (2,))
def _fill_shapes(times: Floats, there: Mask, out: Floats) -> None:
    m, size = times.shape
    out[m] = 0.0
    for i in range(there.sum()):
        mean = times[i].mean()
        for s in range(size):
            out[i, s] = times[i, s] / mean if mean > 0.0 else 1.0
            out[m, s] += out[i, s]
    for s in range(size):
        out[m, s] /= there.sum()


@helper()
def _weights(location: float, evidence: float, place: Floats, share: Floats, out: Floats) -> None:
    apart = place[1] - place[0]
    a = evidence / (1.0 + evidence * apart * apart)
    most, total, within = -math.inf, 0.0, location - place[0] < _LIMIT
    ratio, factor = math.exp(min(location - place[0], _LIMIT)), math.exp(-apart)  # places are evenly spaced
    for g in range(len(place)):
        d = max(place[g] - location, -_LIMIT)
        out[g] = -a * (d + (ratio if within else math.exp(-d)))
        ratio *= factor
        if share[g] > 0.0 and out[g] > most:
            most = out[g]
    for g in range(len(place)):
        out[g] = share[g] * math.exp(min(out[g] - most, 0.0)) if out[g] > most - _NOTHING else 0.0
        total += out[g]
    for g in range(len(place)):
        out[g] /= total


@kernel("(n),(n),(g),(g)->(g)")
def _learn(location: Floats, evidence: Floats, place: Floats, prior: Floats, share: Floats) -> None:
    known = np.flatnonzero(evidence)
    known = known[:: -(-len(known) // _MOST_LEARNED_FROM)]
    n, g = len(known), len(place)
    ones, near, weights = np.ones(g), np.empty((n, g)), np.empty(g)
    for i in range(n):
        _weights(location[known[i]], evidence[known[i]], place, ones, near[i])
    copy(prior, share)
    for _ in range(_PASSES):
        total = prior.copy()
        for i in range(n):
            most = 0.0
            for k in range(g):
                weights[k] = share[k] * near[i, k]
                most += weights[k]
            for k in range(g):
                total[k] += weights[k] / most
        for k in range(g):
            share[k] = total[k] / (n + 1.0)


@kernel("(n),(n),(g),(g)->(n),(n)")
def _posterior(location: Floats, evidence: Floats, place: Floats, share: Floats, out: Floats, spread: Floats) -> None:
    width, weights = (place[1] - place[0]) ** 2, np.empty(len(place))
    never = -1  # a worker never tried: all of them are the same
    for i in range(len(location)):
        if evidence[i] == 0.0:
            if never >= 0:
                out[i], spread[i] = out[never], spread[never]
                continue
            never = i
        _weights(location[i], evidence[i], place, share, weights)
        own = width * evidence[i] / (1.0 + width * evidence[i])
        inside = width / (1.0 + width * evidence[i])
        first, second = 0.0, 0.0
        for g in range(len(place)):
            if weights[g] > 0.0:
                centre = place[g] + own * (location[i] - place[g])
                first += weights[g] * centre
                second += weights[g] * centre * centre
        out[i] = first
        spread[i] = math.sqrt(max(second - first * first, 0.0) + inside)


@kernel("(n),(n),(g),(g),(g),(l)->(l,n)")
def _value(
    location: Floats, evidence: Floats, place: Floats, share: Floats, hedge: Floats, limits: Floats, out: Floats
) -> None:
    width, weights = (place[1] - place[0]) ** 2, np.empty(len(place))
    log_mean, mean = np.empty(len(place)), np.empty(len(place))
    for i in range(len(location)):
        _weights(location[i], evidence[i], place, hedge if evidence[i] > 0.0 else share, weights)
        own, inside = width * evidence[i] / (1.0 + width * evidence[i]), width / (1.0 + width * evidence[i])
        deviation, expected = math.sqrt(inside * _LEFT), 0.0
        some = 0  # components that count; the others are left out
        for g in range(len(place)):
            log_mean[some] = place[g] + own * (location[i] - place[g]) + 0.5 * inside
            mean[some], weights[some] = math.exp(min(log_mean[some], _LIMIT)), weights[g]
            expected += weights[some] * mean[some]
            some += weights[some] > 1e-9
        for level in range(len(limits)):
            limit, out[level, i] = limits[level], 0.0
            if not 0.0 < limit < math.inf:
                continue
            side, useful = -1.0 if expected < limit else 1.0, math.log(limit)  # below it, it may still be above it
            for g in range(some):
                z = side * (useful - log_mean[g] + 0.5 * deviation * deviation) / deviation
                if z > -_FAR:
                    gain = side * (1.0 - mean[g] / limit)
                    if z < _FAR + deviation:  # else the mean is on this side
                        inner = 0.5 * math.erfc(-z / math.sqrt(2.0))
                        shifted = 0.5 * math.erfc((side * deviation - z) / math.sqrt(2.0))
                        gain = side * (inner - mean[g] / limit * shifted)
                    out[level, i] += weights[g] * max(gain, 0.0)
