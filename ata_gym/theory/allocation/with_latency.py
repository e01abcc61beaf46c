"""The compiled allocation by scores where workers pay a latency before their first task.

The tasks of worker i cost c_i + s_i, c_i + 2 s_i, ... for its latency c_i and score s_i, and the B
of least cost are handed out. As in ``smallest_multiples`` they are found by a search for a level of
cost with almost B tasks below it; the last few follow in order.
"""

import math

import numpy as np

from ata_gym.theory.allocation.smallest_multiples import choose
from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper, kernel

_UNREACHED_COST = 2.0**200  # a cost, in units of the least, that no task which is handed out has
_LARGEST_MISS = 3  # the search stops at so many tasks too few; the rest is handed out in order


@helper()
def _tasks(score: float, latency: float, level: float, most: int) -> int:
    """The number of tasks m, at most ``most``, for which latency + m score <= level."""
    if not latency <= level:
        return 0
    # The quotient only guesses m; the costs decide, so that rounding has no effect.
    low = np.int64(min(math.floor((level - latency) / score), float(most)))
    high = np.int64(most)
    if latency + low * score > level:
        high = low - 1
        low = np.int64(0)
    elif latency + (low + 1) * score > level:
        high = low
    # Bisection, where the guess is wrong.
    while low < high:
        middle = low + (high - low + 1) // 2
        if latency + middle * score <= level:
            low = middle
        else:
            high = middle - 1
    return int(low)


@helper()
def _total(scores: Floats, latency: Floats, level: float, budget: int) -> float:
    """The number of tasks of all workers that cost at most ``level``."""
    total = 0.0
    for i in range(len(scores)):
        total += _tasks(scores[i], latency[i], level, budget)
    return total


@helper()
def _level(scores: Floats, latency: Floats, budget: int) -> float:
    """A level that at most B tasks cost, by bisection and interpolation.

    Few are missing to B, or the tasks that follow have equal costs.
    """
    low = math.inf
    high = math.inf
    for i in range(len(scores)):
        low = min(low, latency[i] + scores[i])
        high = min(high, latency[i] + budget * scores[i])
    # Nothing costs less than the cheapest first task, and one worker could do all tasks until
    # ``high``: at least B cost so much.
    low = np.nextafter(low, 0.0)
    low_total = 0.0
    high_total = _total(scores, latency, high, budget)
    if high_total <= budget:
        return high
    halve = False
    # Every second pass at least halves the interval.
    while budget - low_total > _LARGEST_MISS and np.nextafter(low, math.inf) < high:
        share = (budget - low_total - 0.5) / (high_total - low_total)
        if halve:
            share = 0.5
        halve = not halve
        level = low + (high - low) * share
        level = min(max(level, np.nextafter(low, math.inf)), np.nextafter(high, 0.0))
        total = _total(scores, latency, level, budget)
        if total <= budget:
            low = level
            low_total = total
        else:
            high = level
            high_total = total
    return float(low)


@helper()
def _share_out(scores: Floats, latency: Floats, budget: int, out: Ints) -> None:
    """Fill in the B tasks of least cost; of equal costs the lowest index comes first.

    Workers whose score is 0 or infinite get nothing. At least one score is neither.
    """
    n = len(scores)
    least = math.inf
    for i in range(n):
        if 0.0 < scores[i] < math.inf:
            least = min(least, max(scores[i], latency[i]))
    # Costs are in units of about the least one, a power of two in two factors, so that no cost that
    # matters overflows. A score that is lost in its latency changes no cost, however small it is.
    _, exponent = math.frexp(least)
    first_factor = math.ldexp(1.0, -(exponent // 2))
    second_factor = math.ldexp(1.0, -(exponent - exponent // 2))
    # Scaling up must not overflow.
    if exponent < 0:
        cap = math.ldexp(_UNREACHED_COST, exponent)
    else:
        cap = math.inf
    s = np.empty(n)
    c = np.empty(n)
    for i in range(n):
        if 0.0 < scores[i] < math.inf:
            scaled = min(scores[i], cap) * first_factor * second_factor
            s[i] = min(max(scaled, 1.0 / _UNREACHED_COST), _UNREACHED_COST)
            c[i] = min(min(latency[i], cap) * first_factor * second_factor, _UNREACHED_COST)
        else:
            s[i] = _UNREACHED_COST
            c[i] = math.inf
    level = _level(s, c, budget)
    missing = budget
    for i in range(n):
        out[i] = _tasks(s[i], c[i], level, budget)
        missing -= out[i]
    # Each pass goes to the next cost, and hands out all tasks of that cost.
    while missing > 0:
        level = math.inf
        for i in range(n):
            level = min(level, c[i] + (out[i] + 1.0) * s[i])
        for i in range(n):
            more = min(_tasks(s[i], c[i], level, budget) - out[i], missing)
            out[i] += more
            missing -= more


@helper()
def _gather(scores: Floats, latency: Floats, untried: Mask, level: float, members: Ints) -> int:
    """List the workers of score 0 that were tried and have the latency ``level``."""
    size = 0
    for i in range(len(scores)):
        if scores[i] == 0.0 and not untried[i] and latency[i] == level:
            members[size] = i
            size += 1
    return size


@kernel("(n),(n),(),(n),(k)->(n)")
def latency_kernel(
    scores: Floats, latency: Floats, budget: Ints, untried: Mask, draws: Floats, out: Ints
) -> None:
    """Allocate as ``ata_gym.allocate`` does with latencies, without checks.

    Workers with a score of infinity get nothing.

    Args:
        scores: Estimated task times, shape (n,).
        latency: What each worker pays before its first task, shape (n,), in the same unit.
        budget: Tasks B to hand out.
        untried: Workers that were never tried, shape (n,).
        draws: Uniform numbers for random choices, at least min(n, B), or none.
        out: The tasks of each worker, shape (n,).
    """
    n = len(scores)
    members = np.empty(n, np.int64)
    size = 0
    # The least cost of any number of tasks of a tried worker of score 0.
    flat = math.inf
    positive = False
    for i in range(n):
        out[i] = 0
        positive |= 0.0 < scores[i] < math.inf
        if scores[i] == 0.0:
            if untried[i]:
                members[size] = i
                size += 1
            else:
                flat = min(flat, latency[i])
    remaining = budget[0]
    # Workers never tried come first, one task each.
    chosen = min(remaining, size)
    if chosen < size:
        choose(members, size, chosen, draws)
    for k in range(chosen):
        out[members[k]] = 1
    remaining -= chosen
    if remaining > 0 and positive:
        tasks = np.zeros(n, np.int64)
        _share_out(scores, latency, remaining, tasks)
        for i in range(n):
            # Tasks that cost as much as the workers of score 0, or more, are theirs.
            if flat < math.inf and tasks[i] > 0 and latency[i] + tasks[i] * scores[i] >= flat:
                below = np.nextafter(flat, -math.inf)
                tasks[i] = _tasks(scores[i], latency[i], below, tasks[i])
            out[i] += tasks[i]
            remaining -= tasks[i]
    if remaining > 0:
        # Evenly over the workers of that cost, or, if only such are there, those never tried.
        if flat < math.inf:
            size = _gather(scores, latency, untried, flat, members)
        if size > 0:
            choose(members, size, remaining % size, draws)
            for k in range(size):
                out[members[k]] += remaining // size + (k < remaining % size)
