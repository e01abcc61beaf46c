"""Who is tried for the sake of what is learned: workers that could gain more than their trial costs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.theory.allocation.beta_rule import beta_kernel
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc, helper
from ata_policies.planning.fewer_tasks import Reduced, remove_tasks
from ata_policies.planning.knowledge import BETA, IDLE, Candidates, Knowledge, value_of_trying
from ata_policies.planning.local_search import MOVES, Search, local_search

_TRIAL_TIMES = 4  # the stream of keys for the possible times of trials: no other use of ``permutations`` has it
_shuffled = lru_cache(maxsize=16)(permutations)
_CONSIDERED = 256  # workers at which is looked closely: those of the least quantile of what their mean may be
_OPTIMISM = 2.0  # standard deviations of that quantile below what is expected
_LARGEST = 600.0  # the largest logarithm of a mean that may be drawn: its exponential is finite


class Trials(NamedTuple):
    """Workers that are tried together, each with one task, and the allocation of the other tasks."""

    workers: Ints  # (J,) none or more
    allocation: Ints  # (n,) of B - J tasks
    rounds: float  # after which one of the workers, or of those in use, is known much better


class _Prospects(NamedTuple):
    """The j workers at which is looked closely."""

    workers: Ints  # (j,)
    location: Floats
    spread: Floats  # (j,) of the logarithms of their means
    tasks: Floats  # (j,) how many tasks tell what they are worth, at least 1
    value: Floats  # (j,) what they could gain per round, for each of these tasks
    untried: Mask  # (j,) whether they were never tried
    order: Ints  # (j,) the most valuable first, over what their task is expected to take


def explore(
    known: Knowledge, candidates: Candidates, found: Search, there: Mask, price: float, left: float, draws: Floats
) -> Trials:
    """Choose which idle workers that are ``there``, (n,), get a task in the coming round for what is learned.

    A worker of mean M gains G_k (1 - M / u_k)+ per round if it takes k of the B tasks of the allocation found
    (``remove_tasks``, without doubt: G_k is gained if it needs no time, and u_k is the limit). What it gains for each
    task of its trial is the greatest over k of

        v = G_k E[(1 - M / u_k)+] / l,   l = max(1, 1 / (c max(s^2, r - 1 - ln r))),   r = max(1, m / u_k),

    where m is its expected mean, s the deviation of its logarithm, and c the shape of its times. After l tasks it is
    known twice as well, or the likelihood tells a worker of mean m from one at the limit, as in a sequential test
    (Wald, 1945). Several workers gain no more than the whole cost V of a round, V (1 - prod_i (1 - v_i / V)), or, where
    nearly all have never been tried, what such workers would gain together (``gain_together``); and both are less by
    the factor prod_j (1 - v_j / V) over those in use, which become known without a trial. The best prefix of them is
    tried together, since a round waits only once for the slowest: with N rounds ``left`` the one of greatest

        N * what they gain - E[cost of a round with them] + E[cost without].

    Workers are ordered by their value over what their task is expected to take; or those never tried come first, if
    that is better. Equal ones come in the order of the ``draws``, (n,), and of those never tried B are considered.

    So a worker that would be useful is given up only where its times are about N times likelier if it is slow, which
    happens with a chance of order (ln N)^2 / N (Garivier and Cappé, 2011, theorem 10), and a slow one is tried O(ln N)
    times: where workers do not change, both cost O((ln N)^2). This is an argument, not a proof. Of very many workers
    most are never tried, as in many-armed bandits (Wang, Audibert and Munos, 2008). Ours, after the knowledge gradient
    (Frazier, Powell and Dayanik, 2008).
    """
    budget, used = int(found.allocation.sum()), candidates.workers[found.allocation > 0]
    never, idle = known.seen.evidence == 0.0, there.copy()
    idle[used] = False  # those in use become known without a trial
    tried, untried = np.flatnonzero(idle & ~never), np.flatnonzero(idle & never)
    number = min(budget, untried.size)
    together = gain_together(known, candidates, found, number, price) if number > 1 else 0.0
    if untried.size:
        together /= float(_tasks_to_know(known, untried[:1])[0])
        untried = untried[np.argpartition(draws[untried], min(budget, untried.size - 1))[:budget]]
    reduced = remove_tasks(replace(candidates, doubt=np.zeros_like(candidates.doubt)), found.allocation, price)
    whole = np.zeros((reduced.removed.size, there.size), np.int64)
    whole[:, candidates.workers] = reduced.allocation
    reduced = reduced._replace(allocation=whole)
    prospects = _prospects(known, reduced, np.sort(np.append(tried, untried)), draws)
    rest, soon = _known_by_use(known, reduced, used, draws)
    newest = prospects.order[np.argsort(~prospects.untried[prospects.order], kind="stable")]
    best, chosen = 0.0, Trials(prospects.workers[:0], whole[0], soon)
    for order in [prospects.order, newest] if number > 1 else [prospects.order]:
        place = order[:budget]
        gains = rest * _gains(prospects, place, float(reduced.cost[0]), together, number)
        costs = _costs(reduced, prospects, place, candidates, price)
        for level in range(1, reduced.removed.size):
            k = int(reduced.removed[level])
            if k > place.size:
                break
            net = left * gains[k - 1] - costs[level] + float(reduced.cost[0])
            if net > best:
                best, first = net, place[:k]
                chosen = Trials(prospects.workers[first], whole[level], min(soon, float(prospects.tasks[first].min())))
    return chosen


def gain_together(known: Knowledge, candidates: Candidates, found: Search, number: int, price: float) -> float:
    """What so many workers never tried would gain together in a round, if they are quantiles of the population.

    Each alone may gain nothing where several workers are about as busy as the busiest.
    """
    levels = (np.arange(number) + 0.5) / number
    mean = np.exp(np.interp(levels, np.cumsum(known.population.share), known.population.place))
    mean = mean[mean < found.cost][:IDLE]
    if mean.size == 0:
        return 0.0
    used, shape = found.allocation > 0, candidates.shapes_and_average[-1]
    times = np.concatenate([candidates.times[used], mean[:, None] * shape])
    spread = np.append(candidates.spread[used], BETA * mean * shape.std())
    nobody = np.zeros(len(times), np.bool_)
    start = beta_kernel(times.mean(axis=1), spread, found.allocation.sum(), nobody, np.zeros(len(times)))
    doubt = np.append(candidates.doubt[used], np.zeros(mean.size))
    together = local_search(times, start, price, doubt=doubt, moves=MOVES // 2)
    return max(found.cost - together.cost, 0.0)


def _prospects(known: Knowledge, reduced: Reduced, workers: Ints, draws: Floats) -> _Prospects:
    """Those of the workers (m,) that are likely to be fast."""
    location, spread = known.posterior.location[workers], known.posterior.spread[workers]
    near = np.lexsort((draws[workers], location - _OPTIMISM * spread))[:_CONSIDERED]
    location, spread, near = location[near], spread[near], workers[near]
    own, mean = known.seen.of(near), known.posterior.mean()[near]
    value, tasks = np.zeros(near.size), np.ones(near.size)
    worths = value_of_trying(known.population, own, np.repeat(reduced.limit[:, None], near.size, axis=1))
    for level in range(1, reduced.removed.size):
        if reduced.limit[level] > 0.0:
            gain = float(reduced.cost[0] - reduced.cost[level]) * worths[level]
            needed = _tasks_to_know(known, near, np.maximum(mean / reduced.limit[level], 1.0))
            tasks, value = np.where(gain > value * needed, (needed, gain / needed), (tasks, value))
    order = np.argsort(-value / mean, kind="stable")
    return _Prospects(near, location, spread, tasks, value, own.evidence == 0.0, order)


def _known_by_use(known: Knowledge, reduced: Reduced, used: Ints, draws: Floats) -> tuple[float, float]:
    """The share of what can be gained that knowing those in use does not gain, and rounds until one is known better."""
    own = _prospects(known, reduced, used, draws)
    rest = np.prod(1.0 - np.minimum(own.value / reduced.cost[0], 1.0))
    return float(rest), float((_tasks_to_know(known, used) / reduced.allocation[0, used]).min())


def _tasks_to_know(known: Knowledge, workers: Ints, ratio: Floats | float = 1.0) -> Floats:
    """The tasks after which workers are known twice as well, or told from those whose mean is less by a ratio r."""
    apart = np.maximum(known.posterior.spread[workers] ** 2, ratio - 1.0 - np.log(ratio))
    return np.asarray(np.maximum(1.0 / (known.shapes[workers] * np.maximum(apart, 1e-12)), 1.0))


def _gains(prospects: _Prospects, place: Ints, cost: float, together: float, number: int) -> Floats:
    """What the first 1, 2, ... of the prospects in these places gain per round; all never tried gain ``together``."""
    gains = cost * (1.0 - np.cumprod(1.0 - np.minimum(prospects.value[place] / cost, 1.0)))
    if number > 1:
        new = np.cumsum(prospects.untried[place])
        gains = np.where(2.0 * new >= number, np.maximum(gains, together * new / number), gains)
    return np.asarray(gains, np.float64)


def _costs(reduced: Reduced, prospects: _Prospects, place: Ints, candidates: Candidates, price: float) -> Floats:
    """The expected cost of a round without k of the tasks and with a trial of the first k prospects in these places."""
    workers, shapes = prospects.workers[place], candidates.shapes_and_average
    shuffled = _shuffled(_TRIAL_TIMES, 1 << (2 * place.size).bit_length(), shapes.shape[1])
    drawn = prospects.location[place], prospects.spread[place], _normal_quantiles(shapes.shape[1]), shuffled
    own = reduced.allocation[:, workers]
    more = _more(reduced.removed, own, reduced.round_time, *drawn, shapes, candidates.places_of(workers), price)
    return np.asarray(more + reduced.cost)


@lru_cache(maxsize=8)
def _normal_quantiles(size: int) -> Floats:
    """So many equally likely quantiles of the normal distribution."""
    return np.asarray(ndtri((np.arange(size) + 0.5) / size))


@helper("reassoc", "nsz")
def _wait(round_time: Floats, slowest: Floats) -> float:
    """How much later than the round time the slowest is done, on average over all pairs."""
    total = 0.0
    for q in range(len(round_time)):
        for s in range(len(slowest)):
            total += max(slowest[s] - round_time[q], 0.0)
    return total / (len(round_time) * len(slowest))


@gufunc(
    "void(int64[:], int64[:,:], float64[:,:], float64[:], float64[:], float64[:], int64[:,:], float64[:,:], int64[:],"
    " float64[:], float64[:])",
    "(l),(l,j),(l,q),(j),(j),(s),(k,s),(m,s),(j),()->(l)",
)
def _more(
    removed: Ints, own: Ints, round_time: Floats, location: Floats, spread: Floats, quantiles: Floats, shuffled: Ints,
    shapes: Floats, place: Ints, price: Floats, out: Floats,
) -> None:  # fmt: skip
    """What the workers of a trial add to the cost; infinite where there are not so many.

    Their means are drawn by their location and spread, and their times by their shape.
    """
    number, size = len(location), len(quantiles)
    slowest, means, times, work = np.empty(size), np.empty((number, size)), np.empty((number, size)), np.empty(number)
    for j in range(number):
        for s in range(size):
            means[j, s] = math.exp(min(location[j] + spread[j] * quantiles[shuffled[2 * j, s]], _LARGEST))
            times[j, s] = means[j, s] * shapes[place[j], shuffled[2 * j + 1, s]]
        work[j] = price[0] * times[j].mean()
    for level in range(len(removed)):
        out[level], slowest[:] = math.inf, 0.0
        if removed[level] <= number:
            for j in range(removed[level]):
                for s in range(size):
                    slowest[s] = max(slowest[s], times[j, s] + own[level, j] * means[j, s])
            out[level] = _wait(round_time[level], slowest) + work[: removed[level]].sum()
