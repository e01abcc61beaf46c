"""How long a round takes without some of its tasks, and who could do these in time to be of use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ata_gym.theory.optimal.local_search import tabulate
from ata_gym.typing import Floats, Ints

_HALVINGS = 12
_QUANTILES = 32


class Thinned(NamedTuple):
    """An allocation without k of its tasks, for each of L numbers k: 0, 1, 2, 4, ..., and all."""

    taken: Ints
    """(L,) k"""
    allocation: Ints
    """(L, n)"""
    round_time: Floats
    """(L, 32) equally likely round times"""
    cost: Floats
    """(L,) expected round time + price * worker time"""
    limit: Floats
    """(L,) the mean below which one worker that did the k tasks would make it cheaper than with all tasks"""


def thin(times: Floats, allocation: Ints, price: float, shape: Floats, doubt: Floats) -> Thinned:
    """Take tasks away, those first without which the rest costs least, and see what a newcomer could gain by them.

    Parameters
    ----------
    times, allocation, price, doubt
        As for ``local_search``.
    shape
        (S,) equally likely task times of the newcomer, of mean 1.

    Examples
    --------
    Two tasks of 1 each, and one of 2. Who does the latter in less than 2 is of use, or all three in 2:

    >>> found = thin(np.array([[1.0, 1.0], [2.0, 2.0]]), np.array([2, 1]), 0.0, np.ones(2), np.zeros(2))
    >>> found.taken, found.limit.round(1)
    (array([0, 1, 2, 3]), array([inf, 2. , 1. , 0.7]))
    """
    used = np.flatnonzero(allocation)
    times, doubt, tasks = times[used], doubt[used], allocation[used].copy()
    mean, total = times.mean(axis=1), int(tasks.sum())
    taken = np.unique(np.append(np.minimum(1 << np.arange(total.bit_length()), total), [0, total]))
    low, step = 0.0, _reach(times, tasks, mean) / 126.0
    high = low + 128.0 * step
    now, tail = tabulate(times, doubt, tasks, low, step)
    fewer, later = tabulate(times, doubt, tasks - 1, low, step)
    levels, round_time, cost = [], np.empty((taken.size, _QUANTILES)), np.empty(taken.size)
    products, linear = np.empty((taken.size, now.shape[1])), np.empty(taken.size)
    for level, k in enumerate(taken.tolist()):
        while total - int(tasks.sum()) < k:
            product = now.prod(axis=0)
            less = later - tail - price * mean - step * (fewer / now) @ product
            order = np.argsort(np.where(tasks > 0, less, np.inf), kind="stable")
            gone = order[: min(k - total + int(tasks.sum()), int((tasks > 0).sum()))]
            tasks[gone] -= 1
            now[gone], tail[gone] = fewer[gone], later[gone]
            fewer[gone], later[gone] = tabulate(times[gone], doubt[gone], np.maximum(tasks[gone] - 1, 0), low, step)
        products[level] = now.prod(axis=0)
        worker_time = float(tasks @ mean)
        linear[level] = high + tail.sum() + price * worker_time
        cost[level] = linear[level] - step * products[level].sum()
        round_time[level] = _quantiles(products[level], low, step, cost[level] - price * worker_time)
        levels.append(np.zeros_like(allocation))
        levels[-1][used] = tasks
    under, over = np.zeros(taken.size), cost[0] / np.maximum(taken, 1)
    for _ in range(_HALVINGS):
        middle = 0.5 * (under + over)
        newcomer, beyond = tabulate(middle[:, None] * shape, np.zeros(taken.size), taken, low, step)
        value = linear + beyond + price * taken * middle - step * (products * newcomer).sum(axis=1)
        under, over = np.where(value < cost[0], middle, under), np.where(value < cost[0], over, middle)
    return Thinned(taken, np.array(levels), round_time, cost, np.where(taken > 0, under, np.inf))


def _reach(times: Floats, tasks: Ints, mean: Floats) -> float:
    """A time that few rounds exceed."""
    spread = np.sqrt(tasks) * times.std(axis=1)
    reach = float((tasks * mean + 4.0 * spread).max())
    return reach if reach > 0.0 else 1.0


def _quantiles(product: Floats, low: float, step: float, mean: float) -> Floats:
    """Equally likely round times from their distribution on the grid; the largest makes up for the mean."""
    levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    times = low + step * np.searchsorted(product, levels)
    rest = _QUANTILES * mean - times[:-1].sum()
    times[-1] = max(rest, times[-2])
    return np.asarray(times)
