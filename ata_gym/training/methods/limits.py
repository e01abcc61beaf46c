"""When MindFlayer SGD should give a task up, from the laws of the task times."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.pools import Pool
from ata_gym.pools.families import FAMILIES
from ata_gym.simulation import Floats
from ata_gym.training.methods.theory import best_group

_QUANTILES = 512  # even, so that the median is one of them


class Limits(NamedTuple):
    """A time limit for each worker."""

    times: Floats
    """(n,) limits c_i."""
    chances: Floats
    """(n,) the chance p_i that a task takes at most c_i."""


def median_limits(pool: Pool, budget: int) -> Limits:
    """Each worker's median task time, the default of MindFlayer SGD (UAI 2025); the budget does not matter.

    >>> from ata_gym.pools import uniform
    >>> median_limits(uniform([0.0, 2.0], [2.0, 6.0]), budget=1)
    Limits(times=array([1., 4.]), chances=array([0.5, 0.5]))
    """
    del budget
    every = _candidates(pool)
    return _pick(every, [int(np.searchsorted(candidates.chances, 0.5)) for candidates in every])


def best_limits(pool: Pool, budget: int) -> Limits:
    """The limits that minimise t = (B + sum_j p_j) / sum_j p_j / c_j, over the best workers and their quantiles.

    The ratio is minimised as Dinkelbach does, in our design: for a guess of t each worker by itself maximises
    p (t / c - 1) and takes part where that is positive; t of this choice is a better guess, and the last is exact.

    >>> from ata_gym.pools import deterministic, log_normal
    >>> pool = log_normal(0.0, 2.0, shift=1.0) + deterministic([5.0])
    >>> median_limits(pool, budget=10).times, best_limits(pool, budget=10).times.round(2)
    (array([2., 5.]), array([1.72, 5.  ]))
    """
    every = _candidates(pool)
    limits = median_limits(pool, budget)
    time, better = np.inf, best_group(*limits, budget).time
    while better < time:
        time = better
        limits = _pick(every, [int(np.argmax(one.chances * (time / one.times - 1))) for one in every])
        better = best_group(*limits, budget).time
    return limits


def _candidates(pool: Pool) -> list[Limits]:
    """For each worker the limits among which it may choose, in rising order."""
    return [_of_worker(pool, i) for i in range(pool.n)]


def _of_worker(pool: Pool, i: int) -> Limits:
    family = FAMILIES[pool.laws.family[i]]
    if family.trace:
        standard, counts = np.unique(pool.record(i), return_counts=True)
        chances = np.cumsum(counts) / counts.sum()
    elif family.in_scipy is None:
        standard = chances = np.ones(1)
    else:
        chances = np.arange(1, _QUANTILES + 1) / _QUANTILES
        standard = pool.standard(i).ppf(chances)
    times = pool.laws.shift[i] + pool.laws.scale[i] * standard
    usable = times > 0  # a trial must take time
    return Limits(times[usable], chances[usable])


def _pick(every: list[Limits], chosen: list[int]) -> Limits:
    pairs = [(one.times[at], one.chances[at]) for one, at in zip(every, chosen, strict=True)]
    times, chances = np.array(pairs).T
    return Limits(times, chances)
