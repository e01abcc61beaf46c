"""What is known of the workers of one row, and where a search for the best allocation looks."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints
from ata_policies.beliefs.distributions.bins import DistributionBelief, sample
from ata_policies.beliefs.distributions.tails import borrow_tails
from ata_policies.beliefs.moments import learn_shapes
from ata_policies.planning.population import (
    Estimates,
    Population,
    Posterior,
    estimate_means,
    learn_population,
    posterior,
)

IDLE = 64
"""Workers beyond those that B tasks can go to at which a search looks."""
BETA = 1.5
"""Of the beta rule, from which a search begins: standard deviations to allow for, as the rule has by default."""
_SLICES = 128
"""Slices of a worker's distribution."""
_LARGEST = 2.0**400
"""The longest time, in units near the least mean: squares of times must not overflow."""


class Knowledge(NamedTuple):
    """What is known of the n workers of one row."""

    belief: DistributionBelief
    """The belief, of this row alone."""
    seen: Estimates
    """What each worker's own times say."""
    population: Population
    """What they say of the population that the workers come from."""
    posterior: Posterior
    """What both together say of each worker."""
    shapes: Floats
    """(n,) 1 / (coefficient of variation)^2 of their task times"""


class Candidates(NamedTuple):
    """The m workers at which a search looks."""

    workers: Ints
    """(m,) in increasing order"""
    times: Floats
    """(m, S) equally likely task times, of the expected means"""
    doubt: Floats
    """(m,) squared relative deviation of what is known of the means"""
    spread: Floats
    """(m,) 1.5 standard deviations of a task time"""

    def shapes(self) -> Floats:
        """Their distributions over their means, (m, S)."""
        mean = self.times.mean(axis=1, keepdims=True)
        return np.asarray(np.divide(self.times, mean, out=np.ones_like(self.times), where=mean > 0.0))

    def shapes_of(self, workers: Ints) -> Floats:
        """The distributions over their means of any workers, (k, S); the average for one that is no candidate."""
        shapes = self.shapes()
        place = np.minimum(np.searchsorted(self.workers, workers), self.workers.size - 1)
        return np.where((self.workers[place] == workers)[:, None], shapes[place], shapes.mean(axis=0))


def learn_row(belief: DistributionBelief, weight: float) -> Knowledge:
    """Bring together what the belief of one row says, where at least one worker has a result.

    Times are in a unit near the least mean, and at most 2**400 of it, so that squares do not overflow. The evidence of
    workers that are due for another trial, since they may have changed, is at most that of one exponential time. Rare
    huge times count in part as those of all workers (``borrow_tails``). ``weight`` is that of ``learn_shapes``.
    """
    moments, stale = borrow_tails(belief), belief.stale()[0]
    counts, totals = moments.counts, moments.totals
    shapes = learn_shapes(moments, weight)
    means = totals[totals > 0.0] / counts[totals > 0.0]
    exponent = math.frexp(float(means.min()) if means.size else 1.0)[1]
    seen = estimate_means(counts, np.minimum(np.ldexp(totals, -exponent), _LARGEST), shapes)
    seen = seen._replace(evidence=np.where(stale, np.minimum(seen.evidence, 1.0), seen.evidence))
    population = learn_population(seen)
    return Knowledge(belief, seen, population, posterior(population, seen), shapes)


def choose_candidates(known: Knowledge, workers: Ints, used: Ints, budget: int) -> Candidates:
    """The fastest of the ``workers``, which have results, and those that are ``used`` so far."""
    mean = known.posterior.mean()
    fastest = workers[np.argsort(mean[workers], kind="stable")[: budget + IDLE]]
    near = np.union1d(fastest, used)
    times = sample(known.belief.of(near[None]), _SLICES)[0]
    centre = times.mean(axis=1)
    times *= np.divide(mean[near], centre, out=np.ones_like(centre), where=centre > 0.0)[:, None]
    doubt = np.minimum(np.expm1(known.posterior.spread[near] ** 2), 1.0)
    return Candidates(near, times, doubt, BETA * mean[near] / np.sqrt(known.shapes[near]))
