"""The beta rule: an exact, compiled allocation by costs that grow with the number of tasks."""

import math

import numpy as np

from ata_gym.simulation.heap import Heap, build_heap, sift_down
from ata_gym.simulation.keys import uniforms
from ata_gym.typing import Floats, Ints, Keys, Mask
from ata_gym.utils.compiled import helper, inlined, kernel

_SECOND_TASK_COST = 1e100
"""The cost of a second task of a worker never tried, in units of the least cost."""
_UNREACHED_COST = 2.0**200
"""A cost, in units of the least, that no task which is handed out reaches."""
_LEAST_LEVEL = 1e-100  # and a level of cost, in these units, that pays for no task
_LEAST_SLOPE = 1e-90
_MANY_TASKS = 64  # tasks per worker from which most are handed out at once


def allocate_by_cost(
    mean: Floats,
    spread: Floats,
    budget: int,
    keys: Keys | None = None,
    untried: Mask | None = None,
    available: Mask | None = None,
    latency: Floats | None = None,
) -> Ints:
    """Hand out ``budget`` tasks by least cost, the beta rule.

    The j-th task of worker i costs j mean_i + spread_i sqrt(j). With ``spread`` = beta sd it is the
    beta rule: the time that j tasks take on average, and beta standard deviations more. The result
    minimises the largest cost of a task handed out, as ``ata_gym.allocate`` does for spreads of 0.
    Of equal costs the lowest index comes first. Workers never tried come before all others, in
    random order, one task each. They get a second task only where no worker was ever tried, and
    then evenly. With latencies c the j-th task costs c_i more, as the share of j tasks takes longer
    by that. The call takes O(n log n) time for any budget. Nothing is checked here. Ours.

    Args:
        mean: Mean task times, shape (..., n), finite and at least 0; not read for workers that
            were never tried or are not available.
        spread: Spreads of the task times, shape (..., n), with the same range as ``mean``.
        budget: Tasks B to hand out, as for ``ata_gym.allocate``.
        keys: Keys of the random order, as for ``ata_gym.allocate``.
        untried: Workers that were never tried, as for ``ata_gym.allocate``.
        available: Workers that may get tasks, as for ``ata_gym.allocate``.
        latency: What each worker pays before its first task, shape (..., n), finite and at least 0.

    Returns:
        The tasks of each worker, shape (..., n); each row sums to ``budget``.

    Example:
        The allocation of least expected round time of a published setting, where the proxy loss
        gives (9, 4, 3, 2, ...):

        >>> from ata_gym import scenario
        >>> pool = scenario("icml2025-cifar100").pool
        >>> allocate_by_cost(pool.mean(), 1.5 * pool.sd(), 23)[:9]
        array([10,  5,  3,  2,  1,  1,  1,  0,  0])
    """
    if untried is None:
        is_untried = np.zeros(mean.shape[-1], np.bool_)
    else:
        is_untried = untried
    if available is not None:
        mean = np.where(available, mean, math.inf)
        spread = np.where(available, spread, 0.0)
        is_untried = is_untried & available
    order = np.zeros(mean.shape[-1])
    # Workers never tried have no costs, so that they come first, in this order.
    if is_untried.any():
        mean = np.where(is_untried, 0.0, mean)
        spread = np.where(is_untried, 0.0, spread)
        if keys is not None:
            order = uniforms(keys, mean.shape[-1])
    if latency is None:
        late = np.zeros(mean.shape[-1])
    else:
        late = np.where(is_untried, 0.0, latency)
    return np.asarray(beta_kernel(mean, spread, late, np.int64(budget), is_untried, order))


@inlined
def _cost(
    mean: float, spread: float, latency: float, untried: bool, place: float, tasks: int
) -> float:
    """The cost of task number ``tasks`` of a worker; ``place`` in [0, 1) orders the untried."""
    if untried:
        # A first task has a negative cost, so it comes before every task of a tried worker.
        if tasks == 1:
            return place - 2.0
        return 0.5 * _SECOND_TASK_COST * tasks
    return latency + (mean * tasks + spread * math.sqrt(tasks))


@inlined
def _tasks(mean: float, spread: float, latency: float, level: float) -> float:
    """The real number x of tasks that costs ``level``: latency + mean x + spread sqrt(x) = level.

    It is 0 where the latency alone costs as much.
    """
    # Neither bound changes a number of tasks; without them, a level of at most the latency, and a
    # worker whose tasks take no time, would divide by 0.
    rest = max(level - latency, _LEAST_LEVEL)
    # The root of the quadratic equation in sqrt(x), written without a difference of close numbers.
    slope = max(spread + math.sqrt(spread * spread + 4.0 * mean * rest), _LEAST_SLOPE)
    root = 2.0 * rest / slope
    return root * root


@helper()
def _first_tasks(
    mean: Floats, spread: Floats, latency: Floats, untried: Mask, budget: int, out: Ints
) -> int:
    """Fill in nearly all of ``budget`` tasks, up to a level of cost, and return how many.

    The level is found by bisection. Each worker gets a little less than its number of tasks at
    that level, so that no rounding error hands out too many. Going on by least cost then gives
    the same allocation. Workers never tried get one task each. Their mean here is infinite, since
    a branch around a division may be compiled to a division by 0.
    """
    low = 0.0
    high = math.inf
    untried_count = 0
    for i in range(len(out)):
        high = min(high, latency[i] + (mean[i] * budget + spread[i] * math.sqrt(budget)))
        untried_count += untried[i]
    # Bisection: each pass halves the interval of levels.
    for _ in range(64):
        level = 0.5 * (low + high)
        total = float(untried_count)
        for i in range(len(out)):
            total += _tasks(mean[i], spread[i], latency[i], level)
        if total <= budget:
            low = level
        else:
            high = level
    allocated = 0
    for i in range(len(out)):
        tasks = np.int64(_tasks(mean[i], spread[i], latency[i], low) * (1.0 - 1e-12)) - 1
        out[i] = max(tasks, np.int64(untried[i]))
        allocated += out[i]
    return allocated


@helper()
def _hand_out(
    mean: Floats,
    spread: Floats,
    latency: Floats,
    budget: int,
    untried: Mask,
    order: Floats,
    out: Ints,
) -> None:
    """Allocate as :func:`allocate_by_cost` does."""
    n = len(mean)
    remaining = budget
    least = math.inf
    untried_count = 0
    for i in range(n):
        out[i] = 0
        untried_count += untried[i]
        larger = max(mean[i], spread[i], latency[i])
        if larger < least and not untried[i]:
            least = larger
    # Costs are in units of about the least one, so that no cost that matters overflows or is
    # subnormal. The unit is a power of two, which changes no bits. It is applied as two factors,
    # since one alone could overflow.
    _, exponent = math.frexp(min(least, 1e308))
    first_factor = math.ldexp(1.0, -(exponent // 2))
    second_factor = math.ldexp(1.0, -(exponent - exponent // 2))
    # A cost above the cap is never handed out; the cap itself must not overflow.
    if exponent < 800:
        cap = math.ldexp(_UNREACHED_COST, exponent)
    else:
        cap = math.inf
    scaled_mean = np.empty(n)
    scaled_spread = np.empty(n)
    scaled_latency = np.empty(n)
    for i in range(n):
        measured = mean[i] < math.inf and not untried[i]
        if measured:
            scaled_mean[i] = (mean[i] if mean[i] < cap else cap) * first_factor * second_factor
        else:
            scaled_mean[i] = math.inf
        scaled_spread[i] = (spread[i] if spread[i] < cap else cap) * first_factor * second_factor
        scaled_latency[i] = (latency[i] if latency[i] < cap else cap) * first_factor * second_factor
    # No worker can get a task.
    if least == math.inf and untried_count == 0:
        remaining = 0
    # Of very many tasks, most are handed out at once, before the heap.
    if remaining > _MANY_TASKS * n:
        # All available workers were never tried: equal shares.
        if least == math.inf:
            for i in range(n):
                if untried[i]:
                    out[i] = remaining // untried_count
                else:
                    out[i] = 0
            remaining %= untried_count
        elif least > 0.0:
            remaining -= _first_tasks(
                scaled_mean, scaled_spread, scaled_latency, untried, remaining, out
            )
    heap = Heap(np.empty(n), np.empty(n, np.int64))
    for i in range(n):
        heap.key[i] = _cost(
            scaled_mean[i], scaled_spread[i], scaled_latency[i], untried[i], order[i], out[i] + 1
        )
        heap.worker[i] = i
    build_heap(heap, n)
    # Each pass hands out at least one task.
    while remaining > 0:
        i = heap.worker[0]
        # All further tasks of this worker cost as much.
        if scaled_mean[i] == 0.0 and scaled_spread[i] == 0.0:
            tasks = remaining
        else:
            tasks = 1
        out[i] += tasks
        remaining -= tasks
        heap.key[0] = _cost(
            scaled_mean[i], scaled_spread[i], scaled_latency[i], untried[i], order[i], out[i] + 1
        )
        sift_down(heap, n, 0)


@kernel("(n),(n),(n),(),(n),(n)->(n)")
def beta_kernel(
    mean: Floats,
    spread: Floats,
    latency: Floats,
    budget: Ints,
    untried: Mask,
    order: Floats,
    out: Ints,
) -> None:
    """Allocate as :func:`allocate_by_cost` does; workers with a mean of infinity get nothing.

    So nothing is handed out where every mean is infinite and every worker was tried.

    Args:
        mean: Mean task times, shape (n,).
        spread: Spreads, shape (n,).
        latency: What each worker pays before its first task, shape (n,).
        budget: Tasks B to hand out.
        untried: Workers that were never tried, shape (n,).
        order: A number in [0, 1) for each worker, shape (n,); the untried come in this order.
        out: The tasks of each worker, shape (n,).
    """
    _hand_out(mean, spread, latency, budget[0], untried, order, out)
