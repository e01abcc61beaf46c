"""The rule that starts a worker if that is worth its worker time at a shadow price."""

import math
from typing import Annotated, NamedTuple, Self

import numpy as np

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import helper, inlined, kernel, phase
from ata_gym.utils.ranges import Order, Unending, Within

_SPREAD = 1.2  # with b results missing, the rest of a round is taken to be R, and R times 1 -+ 1.2 / sqrt b
_PRECISE = 0.01  # the share by which the rest of a round may be wrong
_STEPS = 40  # steps of the search for it, at most
_BEYOND, _WIDER = 1.1, 0.05
"""While no upper bound is known, a step is 1.1 times as long as the missing results take, or 5 % if that is more."""
_INSIDE = 0.1  # between two bounds, a step ends at least this share of their distance from both
_RARE = 3  # power of t / x in the chance of a time t below the shortest one, x
_USEFUL = 2.0  # workers whose shortest time is longer than this many rounds of everybody give no results


class Workers(NamedTuple):
    """What the rule knows of n workers, in E rows; inside kernels, in one row, without the row axis."""

    times: Unending  # (E, n, S) equally likely task times of each worker, increasing; infinite for one never tried
    sums: Unending  # (E, n, S) the times of each worker added up from the shortest on
    mean: Annotated[Floats, Within(1e-300, math.inf)]  # (E, n) time per result; infinite for a worker never tried
    order: Order  # (E, n) the workers, fastest first
    useful: Annotated[Ints, Within(0, lambda size: size.n)]
    """(E,) how many of those, from the fastest on, can give results in a round in which everybody works"""

    @classmethod
    def of(cls, times: Floats, budget: int) -> Self:
        """The workers with these times, in rounds of ``budget`` results."""
        sums, mean = _paces(times, budget)
        order = np.argsort(mean, axis=-1, kind="stable")
        return cls(times, sums, mean, order, _useful_workers(times, sums, mean, order, budget))


class Running(NamedTuple):
    """Workers that run a task, in the order in which they are considered; how many there are is known to the caller."""

    worker: Ints
    age: Floats  # how long its task has run
    passed: Ints  # how many of its possible times are shorter than that


@inlined
def _until(times: Floats, low: int, end: float) -> int:
    high = len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= end:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _results(times: Floats, sums: Floats, mean: float, age: float, passed: int, time: float) -> float:
    """Expected results within ``time`` of a worker whose task has run for ``age``, longer than ``passed`` of its times.

    A task that outlasted all times goes on as long again.
    """
    alive = len(times) - passed
    if alive == 0:
        return 1.0 + (time - age) / mean if time >= age else 0.0
    by = _until(times, passed, age + time)
    if by == passed:
        return 0.0
    done = by - passed
    total = sums[by - 1] - (sums[passed - 1] if passed > 0 else 0.0)
    result: float = (done + (done * (age + time) - total) / mean) / alive
    return result


@helper()
def _rest(workers: Workers, running: Running, count: int, missing: int, rate: float, guess: float) -> float:
    low, high, short, over = 0.0, math.inf, float(missing), 0.0
    time = guess
    for step in range(_STEPS):
        found = 0.0
        for a in range(count):
            i = running.worker[a]
            found += _results(
                workers.times[i], workers.sums[i], workers.mean[i], running.age[a], running.passed[a], time
            )
        if found < missing:
            low, short = time, missing - found
        else:
            high, over = time, found - missing
        if high < math.inf:
            if high - low <= _PRECISE * high:
                break
            share = short / (short + over)
            if step % 3 == 2:
                share = 0.5
            time = low + (high - low) * min(max(share, _INSIDE), 1.0 - _INSIDE)
        else:
            time = low + max(_BEYOND * short / rate, _WIDER * low)
    if not high < math.inf:
        return low
    result: float = low + (high - low) * short / (short + over)
    return result


@phase
def _worth_starting(
    times: Floats, sums: Floats, mean: float, factor: float, shadow: float, rest: float, spread: float, count: int,
    rate: float,
) -> bool:  # fmt: skip
    size = len(times)
    in_time, busy = 0.0, 0.0
    soonest = rest * max(1.0 - spread, 0.0) if rest < math.inf else math.inf
    for end in (soonest, rest, rest * (1.0 + spread)):
        by = _until(times, 0, end / factor)
        in_time += by if by > 0 else (end / factor / times[0]) ** _RARE
        busy += sums[by - 1] * factor if by > 0 else 0.0
        busy += (size - by) * end if by < size else 0.0
    return not in_time * (1.0 + shadow * count) < shadow * busy * (rate + 1.0 / (mean * factor))


@helper()
def start_workers(
    workers: Workers, factor: Floats, absent: Bits, shadow: float, missing: int, running: Running, count: int, out: Bits
) -> int:
    """Start idle workers: set them in ``out``, append them to the ``count`` running ones, and return how many run."""
    rate, drawn = 0.0, 0.0
    for a in range(count):
        i = running.worker[a]
        running.passed[a] = _until(workers.times[i], 0, running.age[a])
        rate += 1.0 / workers.mean[i]
        drawn += 1.0 / (workers.mean[i] * factor[i])
    rest = math.inf
    spread = _SPREAD / math.sqrt(missing)
    if rate > 0.0 and shadow > 0.0:
        rest = _rest(workers, running, count, missing, rate, missing / rate)
    for i in workers.order:
        if out[i] != 0:
            continue
        times, sums, mean = workers.times[i], workers.sums[i], workers.mean[i]
        if not mean < math.inf:
            out[i] = 1  # never tried
            continue
        considered = count > 0 and shadow > 0.0
        if considered and not _worth_starting(times, sums, mean, factor[i], shadow, rest, spread, count, drawn):
            continue
        out[i] = 1
        if absent[i] != 0:
            continue
        running.worker[count], running.age[count], running.passed[count] = i, 0.0, 0
        count += 1
        if shadow > 0.0:
            rate += 1.0 / mean
            drawn += 1.0 / (mean * factor[i])
            if not rest < math.inf:
                rest = _rest(workers, running, count, missing, rate, missing / rate)
            else:
                rest -= min(_results(times, sums, mean, 0.0, 0, rest) / rate, 0.5 * rest)
    return count


@kernel("(n,s),()->(n,s),(n)")
def _paces(times: Floats, budget: Ints, sums: Floats, mean: Floats) -> None:
    """Each worker's times added up, and its time per result: E[min(X, t)] / P(X <= t), t = B times the least median.

    That is close to the mean, except where rare times are longer than any round.
    """
    n, size = times.shape
    least = math.inf
    for i in range(n):
        least = min(least, times[i, (size - 1) // 2])
    until = budget[0] * least
    for i in range(n):
        total, spent, done = 0.0, 0.0, 0
        for s in range(size):
            total += times[i, s]
            sums[i, s] = total
            if times[i, s] <= until:
                done += 1
                spent = total
        each = (spent + (size - done) * until) / done if done > 0 and until < math.inf else total / size
        mean[i] = max(each, 1e-300) if each < math.inf else math.inf


@kernel("(n,s),(n,s),(n),(n),()->()")
def _useful_workers(times: Floats, sums: Floats, mean: Floats, order: Ints, budget: Ints, out: Ints) -> None:
    """How many workers of ``order`` can give results in a round in which everybody works, or in one twice as long."""
    n = len(mean)
    rate, count = 0.0, 0
    while count < n and mean[order[count]] < math.inf:
        rate += 1.0 / mean[order[count]]
        count += 1
    out[0] = 0
    if count > 0:
        workers, running = Workers(times, sums, mean, order, out), Running(order, np.zeros(n), np.zeros(n, np.int64))
        rest = _rest(workers, running, count, budget[0], rate, budget[0] / rate)
        for p in range(count):
            if times[order[p], 0] <= _USEFUL * rest:
                out[0] = p + 1


@kernel("(n,s),(n,s),(n),(n),(n),(),(),(n),(n),(n)->(n)")
def _by_margin(
    times: Floats, sums: Floats, mean: Floats, order: Ints, factor: Floats, shadow: Floats, missing: Ints,
    running: Bits, age: Floats, absent: Bits, out: Bits,
) -> None:  # fmt: skip
    n = len(mean)
    busy, count = Running(np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)), 0
    for i in range(n):
        out[i] = running[i]
        if running[i] != 0:
            busy.worker[count], busy.age[count] = i, age[i]
            count += 1
    workers = Workers(times, sums, mean, order, missing)  # nobody asks here how many are useful
    start_workers(workers, factor, absent, shadow[0], missing[0], busy, count, out)


def by_margin(
    workers: Workers, shadow: Floats, missing: Ints, running: Bits, age: Floats,
    factor: Floats | None = None, absent: Bits | None = None,
) -> Bits:  # fmt: skip
    """Start idle worker i if that is worth its worker time at a ``shadow`` price, shape (E, n).

    With r workers running, and rate the sum of 1 / (factor mean) over them and i, a result of i within the rest R of
    the round makes the round shorter by about 1 / rate, and saves that time of the others, too. So i starts if

        P(X_i <= R) (1 + shadow r) / rate >= shadow E[min(X_i, R)],

    the expected gain, at the price, against the expected cost. R is when the missing results are expected to be in: a
    task of age a ends as X given X > a, and then its worker gives results at the rate 1 / mean. R is uncertain: it is
    as often shorter or longer by the share 1.2 / sqrt(missing), as for exponential results. Times t below the shortest,
    x, have the chance (t / x)^3 / S. If no worker is running, the fastest starts. Workers never tried always start.
    Ours.

    - ``shadow``, ``missing``: (E,) the price, at least 0; at 0 every worker starts. Results that the round needs.
    - ``running``, ``age``: (E, n) who is running a task, and for how long.
    - ``factor``: (E, n) multiplies the times of i, and those in rate, but not those in R: with draws as in Thompson
      sampling, workers are tried without being relied on. In rate, since those tried make r larger: each would make it
      worth more to try another. By default 1.
    - ``absent``: (E, n) 1 for workers of whom nothing is expected, though they start as the others. By default 0.

    Two results are missing, and worker 0 gives both within 2; worker 1 gives one of them with probability 1/2.

    >>> workers = Workers.of(np.array([[[1.0, 1.0], [1.5, 6.5]]]), budget=2)
    >>> at = np.array([2]), np.zeros((1, 2), np.int8), np.zeros((1, 2))
    >>> by_margin(workers, np.array([0.1]), *at)
    array([[1, 1]], dtype=int8)
    >>> by_margin(workers, np.array([1.0]), *at)
    array([[1, 0]], dtype=int8)
    """
    n = workers.mean.shape[-1]
    factor = np.ones(n) if factor is None else factor
    absent = np.zeros(n, np.int8) if absent is None else absent
    return np.asarray(_by_margin(*workers[:4], factor, shadow, missing, running, age, absent))
