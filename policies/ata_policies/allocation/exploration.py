"""Which workers are worth a try: those that could gain more in the rounds that are left than their try costs."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from ata_gym.simulation.keys import permutations
from ata_gym.theory.optimal.newcomers import Thinned
from ata_gym.typing import Floats, Ints
from ata_policies.allocation.search import Candidates, Knowledge
from ata_policies.beliefs.distributions.population import value_of_trying

_SHUFFLE = 4
"""A stream of keys of its own."""
_shuffled = lru_cache(maxsize=16)(permutations)
_CONSIDERED = 256
"""Workers that are looked at closely: those of the least quantile of what their mean may be."""
_LARGEST = 600.0
"""Logarithm of a mean."""
_OPTIMISM = 2.0
"""Standard deviations of that quantile below what is expected."""


class Tries(NamedTuple):
    """Workers to try together, each with one task, and the allocation of the other tasks."""

    workers: Ints
    """(J,) none or more"""
    allocation: Ints
    """(n,) of B - J tasks"""
    tasks: float
    """How many tasks it takes at least, 1 or more, to learn what they are worth."""


class _Trial(NamedTuple):
    """J workers in the order in which they are tried."""

    place: Ints
    means: Floats
    """(J, S) possible means"""
    times: Floats
    """(J, S) possible task times"""


def choose_tries(
    plan: Thinned,
    known: Knowledge,
    workers: Ints,
    limit: Floats,
    among: Candidates,
    price: float,
    rounds_left: float,
    gain_of_strangers: float,
    luck: Floats,
) -> Tries:
    """Choose which of the ``workers`` get a task in the coming round for the sake of what is learned.

    A worker of mean M gains G_k (1 - M / u_k)+ per round if it takes k of the B tasks of the plan (``Thinned``: G_k is
    gained if it needs no time, and u_k is the limit); of the numbers k the best one counts. Its value v_i is how much
    more that is expected to be once it has been tried for as many tasks again as its estimate rests on, l_i. Several
    workers can gain no more than the whole cost V of a round: V (1 - prod_i (1 - v_i / (l_i V))), or, where nearly all
    have never been tried, what such workers would gain together (``gain_of_strangers``). They are tried together, the
    best prefix of them, since a round waits only once for the slowest: with N rounds left the one of greatest

        N * what they gain - E[cost of a round with them] + E[cost without].

    Workers are ordered by their value over what their task is expected to take; or strangers come first, if that is
    better. Equal ones come in the order of ``luck`` (n,).

    Ours, after the knowledge gradient (Frazier, Powell and Dayanik, 2008). How many workers are tried at all follows
    from it: the better those in use are, the less a stranger is worth. As in many-armed bandits (Wang, Audibert and
    Munos, 2008), of very many workers most are never tried.

    ``workers`` (m,) may be tried; ``limit`` (n,) is u_1 of each worker, in proportion to which its other limits are;
    ``among`` has their distributions. ``gain_of_strangers`` is that of as many as there are, or B.
    """
    nobody = Tries(workers[:0], plan.allocation[0], 1.0)
    location, spread = known.posterior.location[workers], known.posterior.spread[workers]
    near = np.lexsort((luck[workers], location - _OPTIMISM * spread))[:_CONSIDERED]
    location, spread, near = location[near], spread[near], workers[near]
    own, worth, cost = known.seen.of(near), np.zeros(near.size), float(plan.cost[0])
    for level in range(1, plan.taken.size):
        useful = limit[near] / plan.limit[1] * plan.limit[level]
        worth = np.maximum(worth, (cost - plan.cost[level]) * value_of_trying(known.population, own, useful))
    tasks = np.maximum(1.0 / (known.shapes[near] * np.maximum(spread**2, 1e-12)), 1.0)
    value, stranger = worth / tasks, own.evidence == 0.0
    by_value = np.argsort(-value / known.posterior.mean()[near], kind="stable")
    strangers = min(int(plan.taken[-1]), int((known.seen.evidence[workers] == 0.0).sum()))
    orders = [by_value, by_value[np.argsort(~stranger[by_value], kind="stable")]][: 2 if strangers > 1 else 1]
    best, chosen = 0.0, nobody
    for order in orders:
        first = order[: int(plan.taken[-1])]
        trial = _trial(first, location[first], spread[first], among.shapes_of(near[first]))
        missed = np.cumprod(1.0 - np.minimum(value[trial.place] / cost, 1.0))
        new = np.cumsum(stranger[trial.place] / tasks[trial.place])
        for level in range(1, plan.taken.size):
            k = int(plan.taken[level])
            if k > trial.place.size:
                break
            gain = cost * (1.0 - missed[k - 1])
            if 2.0 * new[k - 1] >= strangers > 1:
                gain = max(gain, gain_of_strangers * new[k - 1] / strangers)
            net = rounds_left * gain - _cost(plan, level, trial, near, price) + cost
            if net > best:
                best = net
                chosen = Tries(near[first[:k]], plan.allocation[level], float(tasks[first[:k]].min()))
    return chosen


def _trial(order: Ints, location: Floats, spread: Floats, shapes: Floats) -> _Trial:
    size, number = shapes.shape[1], 2 * order.size
    shuffled = _shuffled(_SHUFFLE, 1 << number.bit_length(), size)
    quantiles = ndtri((np.arange(size) + 0.5) / size)[shuffled[:number:2]]
    means = np.exp(np.minimum(location[:, None] + spread[:, None] * quantiles, _LARGEST))
    return _Trial(order, means, means * np.take_along_axis(shapes, shuffled[1:number:2], axis=1))


def _cost(plan: Thinned, level: int, trial: _Trial, near: Ints, price: float) -> float:
    """Expected cost of a round with the first workers of the trial, which have their other tasks besides."""
    k = int(plan.taken[level])
    others = plan.allocation[level][near[trial.place[:k]], None] * trial.means[:k]
    slowest, round_time = (trial.times[:k] + others).max(axis=0), plan.round_time[level]
    waiting = np.maximum(round_time[:, None], slowest).mean() - round_time.mean()
    return float(plan.cost[level] + waiting + price * trial.times[:k].mean(axis=1).sum())
