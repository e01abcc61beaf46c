"""A search for the allocation of least expected cost on sampled task times, and how it steers the beta rule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.optimal.candidates import beta_candidates
from ata_gym.theory.simulated.costs import simulate
from ata_gym.typing import Floats, Ints

ROUGH = 64
"""Slices of a distribution and rounds played with a candidate, to screen candidates."""
_GAIN = 0.08
"""A candidate must gain this part of the cost / sqrt(rounds played): less may be luck."""
_STEPS = 8
_BUSIEST, _SLOWEST, _SOONEST, _IDLE, _KEPT = 5, 3, 6, 4, 12
_MARGIN = 0.02
_LEAST, _MOST = 1e-2, 1e2


class Solution(NamedTuple):
    """What a search found, for n workers."""

    allocation: Ints
    """(n,)"""
    useful: Floats
    """(n,) the share of its task times at which an idle worker would be worth a task; 1 where it has one."""


def search(times: Floats, spread: Floats, budget: int, price: float) -> Solution:
    """Search for the allocation of least round time + price * worker time, by simulation on sampled task times.

    First the beta rule on the m fastest workers, for several m and beta; then single tasks move, while that gains: away
    from the workers that a round is likely to wait for, or the slowest, and to those that are done soonest, or idle.

    When would an idle worker be useful? The cost is taken as linear between its task times and times of 0; it is
    convex, so the share is rather too small. Workers too slow to be tried would be useful where they are as fast as
    those that were.

    ``times`` (n, S) are equally likely task times of each worker. The search begins with, and orders the workers by,
    ``spread`` (n,), which is beta standard deviations of a task time.

    Two tasks of the first worker take 20, one of each takes 24, and 10 if the other took no time: 10 = (24 - 10) 0.71.

    >>> times = np.array([[9.0, 10.0, 11.0], [22.0, 24.0, 26.0]])
    >>> found = search(times, times.std(axis=1), budget=2, price=0.0)
    >>> found.allocation, found.useful.round(2)
    (array([2, 0]), array([1.  , 0.71]))
    """
    n, size = times.shape
    mean, enough = times.mean(axis=1), 1.0 - _GAIN / size**0.5
    order = np.argsort(mean, kind="stable")
    with_free = np.concatenate([times, np.zeros((1, size))])  # and a worker that needs no time
    best = allocate_by_cost(mean, spread, budget)
    value = simulate(times, best[None], budget, size).total(price).min()
    candidates = beta_candidates(mean, times.std(axis=1), budget)
    for step in range(_STEPS):
        values = simulate(times, candidates, budget, size).total(price)
        if values.min() < value * enough:
            best, value = candidates[values.argmin()], values.min()
        elif step > 0:
            break
        own, more = (tasks * mean + spread * np.sqrt(tasks) for tasks in (best, best + 1))
        used, idle = np.flatnonzero(best), order[best[order] == 0][:_IDLE]
        late = [used[np.argsort(-by[used], kind="stable")[:most]] for by, most in ((own, _BUSIEST), (mean, _SLOWEST))]
        soon = used[np.argsort(more[used], kind="stable")[:_SOONEST]]
        moves = _moves(np.append(best, 0), np.unique(np.concatenate(late)), np.concatenate([soon, idle, [n]]))
        rough = simulate(with_free, moves.reshape(-1, n + 1), budget, ROUGH).total(price).reshape(moves.shape[:2])
        order_of_moves = np.argsort(rough[:, :-1], axis=None, kind="stable")[:_KEPT]
        candidates = moves[:, :-1, :n].reshape(-1, n)[order_of_moves]
    useful = np.ones(n)
    if idle.size:
        now = simulate(times, best[None], budget, ROUGH).total(price)
        free = rough[:, -1:]
        gained, cost = np.maximum(now - free, 0.0), np.maximum(rough[:, soon.size : -1] - free, 1e-300)
        useful[idle] = np.minimum(gained / cost, 1.0).max(axis=0)
        others = order[best[order] == 0][_IDLE:]
        useful[others] = (useful[idle] * mean[idle]).max() / np.maximum(mean[others], 1e-300)
    return Solution(best, useful)


def _moves(allocation: Ints, givers: Ints, takers: Ints) -> Ints:
    """One task moved from each giver to each taker, shape (givers, takers, n)."""
    moves = np.tile(allocation, (givers.size, takers.size, 1))
    moves[np.arange(givers.size), :, givers] -= 1
    moves[:, np.arange(takers.size), takers] += 1
    return moves


def correct(solution: Solution, mean: Floats, spread: Floats, budget: int) -> Floats:
    """Factors on the workers' costs with which the beta rule gives the allocation found, shape (n,).

    Worker i's j-th task costs f_i (j mean_i + spread_i sqrt(j)). There is a level that all tasks handed out stay below
    and all others exceed, by 2 % at least; f_i is the nearest to 1 that does it. An idle worker's first task reaches
    the level where the worker is fast enough to be useful.

    >>> mean, spread = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 2.0])
    >>> solution = Solution(np.array([5, 1, 0]), np.array([1.0, 1.0, 0.5]))
    >>> factor = correct(solution, mean, spread, 6)
    >>> allocate_by_cost(mean, spread, 6), allocate_by_cost(factor * mean, factor * spread, 6)
    (array([4, 2, 0]), array([5, 1, 0]))
    """
    tasks, tiny = solution.allocation, 1e-300
    used = tasks > 0
    own, more = (a * mean + spread * np.sqrt(a) for a in (tasks, tasks + 1))
    level = 0.5 * (own[used].max() + more[used].min())
    factor = np.ones(len(mean))
    if (tasks != allocate_by_cost(mean, spread, budget)).any():
        below, above = level * (1.0 - _MARGIN) / np.maximum(own, tiny), level * (1.0 + _MARGIN) / np.maximum(more, tiny)
        factor = np.maximum(np.minimum(factor, below), above)
    at_use = level / np.maximum(more * np.maximum(solution.useful, _LEAST), tiny)
    corrected = np.where(used, factor, at_use)
    corrected[np.isnan(corrected)] = 1.0  # where products of extreme times have overflowed
    return np.clip(corrected, _LEAST, _MOST)
