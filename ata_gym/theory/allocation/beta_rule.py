"""From costs that grow with the number of tasks to an allocation: the beta rule, exactly and compiled."""

import math

import numpy as np

from ata_gym.simulation.heap import Heap, build_heap, sift_down
from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import helper, inlined, kernel

_LAST = 1e100  # the cost of a second task of a worker never tried, in units of the least cost
_FAR = 2.0**200  # a cost, in units of the least, that no task which is handed out reaches
_MANY = 64  # tasks per worker from which most are handed out at once


def allocate_by_cost(
    mean: Floats, spread: Floats, budget: int, keys: Keys | None = None, untried: Mask | None = None,
    available: Mask | None = None,
) -> Ints:  # fmt: skip
    """Hand out ``budget`` tasks by least cost, worker i's j-th task at j mean_i + spread_i sqrt(j).

    With ``spread`` = beta sd it is the beta rule: the time that j tasks take on average, and beta standard deviations
    more. The result minimises the largest cost of a task handed out, as ``ata_gym.allocate`` does for spreads of 0. Of
    equal costs the lowest index comes first. Workers never tried come before all others, in random order, one task
    each; they get a second one only where everybody was never tried, and then evenly. Costs O(n log n) for any budget.
    Nothing is checked here. Ours.

    - ``mean``, ``spread``: (..., n) finite, at least 0; not looked at for workers that were never tried or are not
      available.
    - ``budget``, ``keys``, ``untried``, ``available``: as for ``ata_gym.allocate``, and so is what is returned.

    The allocation of least expected round time of a published setting, where the proxy loss gives (9, 4, 3, 2, ...):

    >>> from ata_gym import scenario
    >>> pool = scenario("icml2025-cifar100").pool
    >>> allocate_by_cost(pool.mean(), 1.5 * pool.sd(), 23)[:9]
    array([10,  5,  3,  2,  1,  1,  1,  0,  0])
    """
    never = np.zeros(mean.shape[-1], np.bool_) if untried is None else untried
    if available is not None:
        mean, spread = np.where(available, mean, math.inf), np.where(available, spread, 0.0)
        never = never & available
    order = np.zeros(mean.shape[-1])
    if never.any():
        mean, spread = np.where(never, 0.0, mean), np.where(never, 0.0, spread)
        order = order if keys is None else uniforms(keys, mean.shape[-1])
    return np.asarray(beta_kernel(mean, spread, np.int64(budget), never, order))


@inlined
def _cost(mean: float, spread: float, never: bool, place: float, tasks: int) -> float:
    if never:
        return place - 2.0 if tasks == 1 else 0.5 * _LAST * tasks
    return mean * tasks + spread * math.sqrt(tasks)


@inlined
def _tasks(mean: float, spread: float, level: float) -> float:
    root = 2.0 * level / (spread + math.sqrt(spread * spread + 4.0 * mean * level))
    return root * root


@helper()
def _first_tasks(mean: Floats, spread: Floats, never: Mask, budget: int, out: Ints) -> int:
    """Fill in nearly all of ``budget`` tasks and return how many: those of cost at most a level, found by bisection.

    Fewer than there are at that level, for the sake of rounding: going on by least cost gives the same allocation.
    Workers never tried have one, and a mean of infinity: a branch around a division may be compiled to one by 0.
    """
    low, high, new = 0.0, math.inf, 0
    for i in range(len(out)):
        high = min(high, mean[i] * budget + spread[i] * math.sqrt(budget))
        new += never[i]
    for _ in range(64):
        level, total = 0.5 * (low + high), float(new)
        for i in range(len(out)):
            total += _tasks(mean[i], spread[i], level)
        if total <= budget:
            low = level
        else:
            high = level
    given = 0
    for i in range(len(out)):
        tasks = np.int64(_tasks(mean[i], spread[i], low) * (1.0 - 1e-12)) - 1
        out[i] = max(tasks, np.int64(never[i]))
        given += out[i]
    return given


@kernel("(n),(n),(),(n),(n)->(n)")
def beta_kernel(mean: Floats, spread: Floats, budget: Ints, never: Mask, order: Floats, out: Ints) -> None:
    """Allocate as :func:`allocate_by_cost` does; workers with a mean of infinity get nothing.

    So nothing is handed out where every mean is infinite, and nobody was never tried.
    """
    n, left = len(mean), budget[0]
    least, new = math.inf, 0
    for i in range(n):
        out[i] = 0
        new += never[i]
        more = max(mean[i], spread[i])
        least = more if more < least and not never[i] else least
    # In units of about the least, so that no cost that matters overflows or is subnormal: powers of two change no bits.
    _, exponent = math.frexp(min(least, 1e308))
    half, rest = math.ldexp(1.0, -(exponent // 2)), math.ldexp(1.0, -(exponent - exponent // 2))
    cap = math.ldexp(_FAR, exponent) if exponent < 800 else math.inf  # no cost may overflow
    first, second = np.empty(n), np.empty(n)
    for i in range(n):
        known = mean[i] < math.inf and not never[i]
        first[i] = (mean[i] if mean[i] < cap else cap) * half * rest if known else math.inf
        second[i] = (spread[i] if spread[i] < cap else cap) * half * rest
    if least == math.inf and new == 0:
        left = 0
    if left > _MANY * n:
        if least == math.inf:  # all who are available were never tried
            for i in range(n):
                out[i] = left // new if never[i] else 0
            left %= new
        elif least > 0.0:
            left -= _first_tasks(first, second, never, left, out)
    heap = Heap(np.empty(n), np.empty(n, np.int64))
    for i in range(n):
        heap.key[i], heap.worker[i] = _cost(first[i], second[i], never[i], order[i], out[i] + 1), i
    build_heap(heap, n)
    while left > 0:  # one task or more in each pass; of very many tasks, most were handed out above
        i = heap.worker[0]
        tasks = left if heap.key[0] == 0.0 else 1  # the next one costs nothing either
        out[i] += tasks
        left -= tasks
        heap.key[0] = _cost(first[i], second[i], never[i], order[i], out[i] + 1)
        sift_down(heap, n, 0)
