"""From costs that grow with the number of tasks to an allocation: the beta rule, exactly and compiled."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.checks import whole_number
from ata_gym.compiled import gufunc, inlined
from ata_gym.simulation import Floats, Ints, Keys, uniforms

_LAST = 1e300  # the cost of a second task of a worker never tried


def allocate_by_cost(
    mean: ArrayLike, spread: ArrayLike, budget: int, keys: Keys | None = None, untried: ArrayLike | None = None
) -> Ints:
    """Hand out ``budget`` tasks by least cost, worker i's j-th task at j mean_i + spread_i sqrt(j).

    With ``spread`` = beta sd it is the beta rule: the time that j tasks take on average, and beta standard deviations
    more. The result minimises the largest cost of a task handed out, as ``ata_gym.allocate`` does for spreads of 0. Of
    equal costs the lowest index comes first. Workers never tried come before all others, in random order, one task
    each; they get a second one only where everybody was never tried, and then evenly. Costs O(n + B log n). Ours.

    Parameters
    ----------
    mean, spread
        (..., n) finite, at least 0; of no matter for workers never tried.
    budget
        Tasks B to hand out, at least 1.
    keys
        (...,) a key per row for the random order. By default lowest indices come first.
    untried
        (..., n) which workers were never tried; by default none.

    Returns
    -------
    (..., n) integers, each row summing to ``budget``.

    Raises
    ------
    ValueError
        If a mean or a spread is NaN, infinite or negative, or the budget is not a whole number in its range.

    Examples
    --------
    The allocation of least expected round time of a published setting, where the proxy loss gives (9, 4, 3, 2, ...):

    >>> from ata_gym import scenario
    >>> pool = scenario("icml2025-cifar100").pool
    >>> allocate_by_cost(pool.mean(), 1.5 * pool.sd(), 23)[:9]
    array([10,  5,  3,  2,  1,  1,  1,  0,  0])
    """
    budget = whole_number("budget", budget)
    first, second = np.broadcast_arrays(np.asarray(mean, np.float64), np.asarray(spread, np.float64))
    if first.ndim == 0 or first.shape[-1] == 0:
        raise ValueError(f"mean must have shape (..., n) with n of at least 1, not {first.shape}")
    never: NDArray[np.bool_] = np.broadcast_to(False if untried is None else np.asarray(untried, np.bool_), first.shape)
    luck = np.zeros(first.shape[-1])
    if never.any():
        first, second = np.where(never, 0.0, first), np.where(never, 0.0, second)
        if keys is not None:
            luck = uniforms(keys, first.shape[-1])
    for name, values in (("mean", first), ("spread", second)):
        if values.size and not (values.min() >= 0.0 and values.max() < math.inf):
            raise ValueError(f"each {name} must be finite and at least 0; one is NaN, infinite or negative")
    allocation: Ints = _by_cost(first, second, np.int64(budget), never, luck)
    return allocation


@inlined
def _cost(mean: float, spread: float, never: bool, luck: float, tasks: int) -> float:
    """The cost of a worker's task, counted from 1."""
    if never:
        return luck - 2.0 if tasks == 1 else _LAST * (1.0 - 1.0 / tasks)
    return mean * tasks + spread * math.sqrt(tasks)


@inlined
def _sift_down(heap: Ints, at: int, cost: Floats) -> None:
    """Restore the heap of workers below position ``at``: least cost first, then lowest worker."""
    moved = heap[at]
    size = len(heap)
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size:
            left, right = heap[child], heap[child + 1]
            if cost[right] < cost[left] or (cost[right] == cost[left] and right < left):
                child += 1
        other = heap[child]
        if cost[moved] < cost[other] or (cost[moved] == cost[other] and moved < other):
            break
        heap[at] = other
        at = child
    heap[at] = moved


@gufunc("void(float64[:], float64[:], int64[:], boolean[:], float64[:], int64[:])", "(n),(n),(),(n),(n)->(n)")
def _by_cost(mean: Floats, spread: Floats, budget: Ints, never: NDArray[np.bool_], luck: Floats, out: Ints) -> None:
    n = len(mean)
    heap, cost = np.empty(n, np.int64), np.empty(n)
    for i in range(n):
        out[i], heap[i] = 0, i
        cost[i] = _cost(mean[i], spread[i], never[i], luck[i], 1)
    for at in range(n // 2 - 1, -1, -1):
        _sift_down(heap, at, cost)
    for _ in range(budget[0]):
        i = heap[0]
        out[i] += 1
        cost[i] = _cost(mean[i], spread[i], never[i], luck[i], out[i] + 1)
        _sift_down(heap, 0, cost)
