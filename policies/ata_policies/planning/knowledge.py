"""What is known of the workers of some rows, and which of them a search considers.

A worker is known from its own times, and from the population of all workers.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
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
)
from ata_policies.beliefs.moments import LatencyBelief, learn_shapes
from ata_policies.planning.completion_times import Latencies
from ata_policies.planning.population import fill_population, fill_posterior, fill_value

IDLE = 64  # workers that a search considers beyond the B workers that B tasks can go to
# standard deviations that the beta rule allows for where a search begins from it: its own default
BETA = 1.5
# the longest time, in units near the least mean: squares of times must not overflow
_LARGEST_TIME = 2.0**400
# the mean at places that hold no worker: beyond any mean, so that none of them gets a task
_FILLED_UP = 2.0**440
# the numbers of the places at which the components of the population lie
_PLACES = np.arange(48.0)


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
    mean: Floats
    """(E, n) expected mean times, as if these logarithms were normal.

    Their standard deviation counts as 4 at most.
    """


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

    def next_mean(self) -> Floats:
        """Return the expected time of each worker's next task, (E, n)."""
        return np.asarray(self.posterior.mean * np.exp(self.start.coming))


class Candidates(NamedTuple):
    """The m workers of each row that a search considers.

    A row with fewer is filled up with workers of huge means.
    """

    members: Members
    """Which workers they are."""
    mean: Floats
    """(E, m) their expected means."""
    times: Floats
    """(E, m, S) equally likely task times, which have these means."""
    doubt: Floats
    """(E, m) squared relative deviation of what is known of the means."""
    spread: Floats
    """(E, m) 1.5 standard deviations of a task time."""
    shapes: Floats
    """(E, m + 1, S) their times over their means, and last the average of all of them."""
    mean_latency: Floats
    """(E, m) their mean latencies."""
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
    # evidence stays: what is not known of the fall is alike for all workers of an age
    start = belief.slow_start()
    stale = belief.stale()
    counts = moments.counts
    shapes = learn_shapes(
        moments.scaled(belief.mass() / np.where(counts > 0.0, counts, 1.0)),
        weight,
    )
    estimates, exponent = estimate_means(counts, moments.totals, shapes, stale, start.past)
    latencies = Latencies.from_belief(latency.take_rows(rows), exponent, SLICES)
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
    # the first plan may use any B workers; a later one seldom needs half as many again
    most = np.where(used > 0, np.maximum(used + used // 2, 2 * IDLE), budget)
    number = np.minimum(most, budget) + IDLE
    near = members(
        first_of(np.where(tried, mean, np.inf), number) | (tried & (last > 0)),
    )
    mean, place, doubt, spread, mean_latency = _of_candidates(
        near.workers,
        near.present,
        mean,
        knowledge.counted.place,
        knowledge.posterior.spread,
        knowledge.shapes,
        knowledge.latencies.mean,
    )
    later = np.where(near.present, knowledge.belief.later(near.workers), 0.0)
    times = blended(knowledge.slices, place, later, mean)
    shapes = np.empty(np.add(times.shape, (0, 1, 0)))
    _fill_shapes(times, near.present, shapes)
    latency = mean_latency[:, :, None] * knowledge.latencies.shape[:, None]
    return Candidates(near, mean, times, doubt, spread, shapes, mean_latency, latency)


def estimate_means(
    counts: Floats, totals: Floats, shapes: Floats, stale: Mask, past: Floats
) -> tuple[Estimates, Ints]:
    """Estimate mean times as S / K, with the evidence c K, from K tasks of total time S.

    Task times count as gamma of shape c. The logarithm of a gamma time varies more than that says:
    its variance, trigamma(c), is 101 for c = 0.1.

    Args:
        counts: (E, n) the numbers K; 0 for a worker never tried.
        totals: (E, n) the total times S.
        shapes: (E, n) the shapes c.
        stale: (E, n) workers that are due for another trial: their evidence is worth one
            exponential time at most.
        past: (E, n) the logarithm of the factor on the mean of each worker's times, which is
            divided out.

    Returns:
        The estimates, and the exponents of their units, (E, 1): a power of two changes no bits.
    """
    location, evidence, exponent = _estimate(counts, totals, shapes, stale, past)
    return Estimates(location, evidence), exponent[:, None]


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
    return Population(*fill_population(*estimates, _PLACES))


def posterior(population: Population, estimates: Estimates) -> Posterior:
    """Return the posterior from the population and each worker's own times.

    For a worker never tried it is from the population alone.
    """
    return Posterior(*fill_posterior(*estimates, population.place, population.share))


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
    return np.asarray(fill_value(*estimates, *population, limit, idle))


@kernel("(n),(n),(n),(n),(n)->(n),(n),()")
def _estimate(
    counts: Floats,
    totals: Floats,
    shapes: Floats,
    stale: Mask,
    past: Floats,
    location: Floats,
    evidence: Floats,
    exponent: Ints,
) -> None:
    """Fill in the estimates, and the exponent of their unit; see ``estimate_means``."""
    least = math.inf
    for i in range(len(counts)):
        if counts[i] > 0.0 and totals[i] > 0.0:
            least = min(least, totals[i] / counts[i])
    exponent[0] = math.frexp(least if least < math.inf else 1.0)[1]
    for i in range(len(counts)):
        location[i] = evidence[i] = 0.0
        if counts[i] > 0.0:
            total = min(math.ldexp(totals[i], -exponent[0]), _LARGEST_TIME)
            location[i] = math.log(max(total / counts[i], 1e-100))
            evidence[i] = shapes[i] * counts[i]
            if stale[i]:
                evidence[i] = min(evidence[i], 1.0)
            if evidence[i] > 0.0:
                location[i] -= past[i]


@kernel("(m),(m),(n),(n),(n),(n),(n)->(m),(m),(m),(m),(m)")
def _of_candidates(
    workers: Ints,
    present: Mask,
    means: Floats,
    places: Ints,
    log_spreads: Floats,
    shapes: Floats,
    latencies: Floats,
    mean: Floats,
    place: Ints,
    doubt: Floats,
    spread: Floats,
    latency: Floats,
) -> None:
    """Fill in what is known of the candidates, and the places of their slices; -1 for none.

    Beside the fields of ``Candidates``, arguments are over all workers.
    """
    for m in range(len(workers)):
        i = workers[m]
        mean[m] = means[i] if present[m] else _FILLED_UP
        place[m] = places[i] if present[m] else -1
        doubt[m] = min(math.expm1(log_spreads[i] * log_spreads[i]), 1.0)
        spread[m] = BETA * mean[m] / math.sqrt(shapes[i])
        latency[m] = latencies[i]


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
