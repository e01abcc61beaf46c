"""The allocation of least expected cost on what is known of the workers so far."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.optimal.local_search import Search, local_search
from ata_gym.typing import Floats, Ints
from ata_policies.beliefs.distributions.bins import DistributionBelief, sample
from ata_policies.beliefs.distributions.population import (
    Estimates,
    Population,
    Posterior,
    estimate_means,
    learn_population,
    posterior,
)
from ata_policies.beliefs.distributions.tails import borrow_tails
from ata_policies.beliefs.moments import learn_shapes

SLICES = 128
"""Of a worker's distribution."""
MOVES = 60
"""Most steps of a search; the next plan begins where it ended."""
_IDLE = 64
"""Workers beyond the B fastest that a search looks at."""
_BETA = 1.5
_LARGEST = 2.0**400


class Knowledge(NamedTuple):
    """What is known of the n workers of one row."""

    belief: DistributionBelief
    """Of the row alone."""
    seen: Estimates
    population: Population
    posterior: Posterior
    shapes: Floats
    """(n,) 1 / (coefficient of variation)^2 of their task times"""


class Candidates(NamedTuple):
    """The m workers that a search looks at."""

    workers: Ints
    """(m,)"""
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
        """Those of any workers, (k, S); where one is not looked at, the average."""
        shapes = self.shapes()
        place = np.minimum(np.searchsorted(self.workers, workers), self.workers.size - 1)
        return np.where((self.workers[place] == workers)[:, None], shapes[place], shapes.mean(axis=0))


def knowledge(belief: DistributionBelief, weight: float) -> Knowledge:
    """Bring together what the belief of one row says; at least one worker has a result.

    Times are in a unit near the least mean, and at most 2**400 of it, so that squares do not overflow.

    Of workers that are due for another try, since they may have changed, no more counts than one exponential time.
    Rare huge times count in part as those of all workers (``borrow_tails``).
    """
    moments = borrow_tails(belief)
    counts, totals = moments.counts, moments.totals
    shapes = learn_shapes(moments, weight)
    means = totals[totals > 0.0] / counts[totals > 0.0]
    exponent = math.frexp(float(means.min()) if means.size else 1.0)[1]
    seen = estimate_means(counts, np.minimum(np.ldexp(totals, -exponent), _LARGEST), shapes)
    seen = seen._replace(evidence=np.where(belief.stale()[0], np.minimum(seen.evidence, 1.0), seen.evidence))
    population = learn_population(seen)
    return Knowledge(belief, seen, population, posterior(population, seen), shapes)


def candidates(known: Knowledge, workers: Ints, keep: Ints, budget: int) -> Candidates:
    """The fastest of the ``workers``, which have results: those that can be of use, and those of ``keep``."""
    mean = known.posterior.mean()
    fastest = workers[np.argsort(mean[workers], kind="stable")[: budget + _IDLE]]
    near = np.union1d(fastest, keep)
    times = sample(known.belief.of(near[None]), SLICES)[0]
    centre = times.mean(axis=1)
    times *= np.divide(mean[near], centre, out=np.ones_like(centre), where=centre > 0.0)[:, None]
    doubt = np.minimum(np.expm1(known.posterior.spread[near] ** 2), 1.0)
    return Candidates(near, times, doubt, _BETA * mean[near] / np.sqrt(known.shapes[near]))


def search(among: Candidates, start: Ints, budget: int, price: float, luck: float) -> Search:
    """Search from the last allocation, (m,), and from the beta rule on the m fastest workers, m changing by ``luck``.

    Without a last allocation, from the beta rule on all of them.
    """
    mean, begun = among.times.mean(axis=1), int(start.sum()) == budget
    used = int((start > 0).sum())
    most = max(1, min(mean.size, int(used * (0.4 + luck)) + 1)) if begun else mean.size
    fastest = np.argsort(mean, kind="stable")[:most]
    anew = np.zeros(mean.size, np.int64)
    anew[fastest] = allocate_by_cost(mean[fastest], among.spread[fastest], budget)
    starts = [start, anew] if begun else [anew]
    found = [local_search(among.times, one, price, doubt=among.doubt, moves=MOVES) for one in starts]
    return min(found, key=lambda one: one.cost)


def gain_of_strangers(
    known: Knowledge, among: Candidates, found: Search, strangers: int, budget: int, price: float
) -> float:
    """What so many workers that were never tried would gain together in a round, if they are as the population is.

    They are quantiles of it. Each alone may gain nothing where several workers are about as busy as the busiest.
    """
    levels = (np.arange(strangers) + 0.5) / strangers
    mean = np.exp(np.interp(levels, np.cumsum(known.population.share), known.population.place))
    mean = mean[mean < found.cost][:_IDLE]
    if mean.size == 0:
        return 0.0
    used, shape = found.allocation > 0, among.shapes().mean(axis=0)
    times = np.concatenate([among.times[used], mean[:, None] * shape])
    spread = np.append(among.spread[used], _BETA * mean * shape.std())
    start = allocate_by_cost(times.mean(axis=1), spread, budget)
    doubt = np.append(among.doubt[used], np.zeros(mean.size))
    return max(found.cost - local_search(times, start, price, doubt=doubt, moves=MOVES // 2).cost, 0.0)
