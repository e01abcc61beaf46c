"""The rule that starts a worker if that is worth its worker time at a shadow price."""

import math
from typing import Annotated, NamedTuple, Self

import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate_scores, proxy_loss
from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import helper, inlined, kernel, phase
from ata_gym.utils.ranges import NonNegative, Order, Within
from ata_policies.planning.races.search import time_with_latency

# with b results missing, the rest of a round is taken to be R, and R times 1 -+ 1.2 / sqrt b
_SPREAD = 1.2
_REST_TOLERANCE = 0.01  # the share by which the rest of a round may be wrong
_MOST_STEPS = 40  # steps of the search for it, at most
# while no upper bound is known, a step is 1.1 times as long as the missing results take, or 5 % of
# the time so far if that is more
_BEYOND = 1.1
_WIDER = 0.05
_INSIDE = 0.1  # between two bounds, a step ends at least this share of their distance from both
_RARE = 3  # power of t / x in the chance of a time t below the shortest one, x
# a worker gives no results if its shortest time is longer than so many rounds of all workers
_USEFUL = 2.0


class DispatchWorkers(NamedTuple):
    """What the rule knows of n workers, in E rows; in kernels, without the row axis."""

    times: NonNegative
    """(E, n, S) equally likely task times of each worker, increasing.

    Infinite for a worker never tried.
    """
    sums: NonNegative
    """(E, n, S) the times of each worker added up from the shortest on."""
    mean: Annotated[Floats, Within(1e-300, math.inf)]
    """(E, n) time per result; infinite for a worker never tried."""
    order: Order
    """(E, n) the workers, fastest first."""
    useful: Annotated[Ints, Within(0, lambda size: size.n)]
    """(E,) how many workers, from the fastest on, can give results when all work."""

    @classmethod
    def from_times(cls, times: Floats, budget: int) -> Self:
        """Make the workers with these times, (E, n, S), in rounds of ``budget`` results."""
        sums, mean = _paces(times, budget)
        order = np.argsort(mean, axis=-1, kind="stable")
        return cls(times, sums, mean, order, _useful_workers(times, sums, mean, order, budget))

    def delayed(self, latency: Floats, budget: int) -> tuple[Self, Self]:
        """The workers where each pays a latency before its first task of a round.

        They are ordered by their time per result in a round of the least proxy loss, latency
        included.

        Args:
            latency: (E, n, L) equally likely latencies of each worker.
            budget: Results that end a round.

        Returns:
            The workers, and the same workers with the times of the first task of a round and the
            latency before it.
        """
        late = latency.mean(axis=-1)
        until = proxy_loss(allocate_scores(self.mean, budget, latency=late), self.mean, late)
        ranking = time_with_latency(self.mean, late, until[..., None])
        order = np.argsort(ranking, axis=-1, kind="stable")
        # each time with each latency, in as many equally likely groups as there are times
        size = self.times.shape[-1]
        both = self.times[..., None] + latency[..., None, :]
        both = np.sort(both.reshape(*late.shape, -1))
        first = both.reshape(*late.shape, size, -1).mean(axis=-1)
        sums = np.cumsum(first, axis=-1)
        useful = _useful_workers(first, sums, self.mean, order, budget)
        workers = self._replace(order=order, useful=useful)
        return workers, workers._replace(times=first, sums=sums)


class Running(NamedTuple):
    """Workers that run a task, in the order in which they are considered.

    The arrays have n places, of which the caller knows how many are in use.
    """

    worker: Ints
    """(n,) which worker."""
    age: Floats
    """(n,) how long its task has run."""
    passed: Ints
    """(n,) how many of its possible times are at most the age."""


@inlined
def _until(times: Floats, low: int, end: float) -> int:
    """Return how many of the sorted times are at most ``end``, at least ``low``."""
    high = len(times)
    while low < high:
        middle = (low + high) // 2
        if times[middle] <= end:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _results(
    times: Floats,
    sums: Floats,
    mean: float,
    age: float,
    passed: int,
    time: float,
) -> float:
    """Return the results that a running worker is expected to give within ``time``.

    Its task has run for ``age``, at least as long as ``passed`` of its possible times. A task that
    outlasted all times goes on as long again.
    """
    alive = len(times) - passed
    if alive == 0:
        if time >= age:
            return 1.0 + (time - age) / mean
        return 0.0
    reached = _until(times, passed, age + time)
    if reached == passed:
        return 0.0
    # of the possible times that are left, ``completions`` end in time; after each, the worker gives
    # more results at the rate 1 / mean for the time that remains
    completions = reached - passed
    total = sums[reached - 1] - (sums[passed - 1] if passed > 0 else 0.0)
    result: float = (completions + (completions * (age + time) - total) / mean) / alive
    return result


@helper()
def _rest(
    workers: DispatchWorkers,
    running: Running,
    count: int,
    missing: int,
    rate: float,
    guess: float,
) -> float:
    """Return the time in which the running workers are expected to give the missing results.

    The ``count`` workers give ``rate`` results per unit of time in the long run; the search begins
    at the ``guess``.
    """
    low = 0.0
    high = math.inf
    shortfall = float(missing)
    surplus = 0.0
    time = guess
    for step in range(_MOST_STEPS):
        results = 0.0
        for a in range(count):
            i = running.worker[a]
            results += _results(
                workers.times[i],
                workers.sums[i],
                workers.mean[i],
                running.age[a],
                running.passed[a],
                time,
            )
        if results < missing:
            low = time
            shortfall = missing - results
        else:
            high = time
            surplus = results - missing
        if high < math.inf:
            if high - low <= _REST_TOLERANCE * high:
                break
            # linear interpolation, and at each third step the middle, so that both bounds move
            share = shortfall / (shortfall + surplus)
            if step % 3 == 2:
                share = 0.5
            time = low + (high - low) * min(max(share, _INSIDE), 1.0 - _INSIDE)
        else:
            time = low + max(_BEYOND * shortfall / rate, _WIDER * low)
    if not high < math.inf:
        return low
    result: float = low + (high - low) * shortfall / (shortfall + surplus)
    return result


@phase
def _worth_starting(
    times: Floats,
    sums: Floats,
    mean: float,
    factor: float,
    shadow: float,
    rest: float,
    spread: float,
    count: int,
    rate: float,
) -> bool:
    """Return whether the start of an idle worker is worth its worker time; see ``by_margin``.

    The rest of the round ends at three times, equally likely: both sides of the inequality are
    sums over these, and over the ``size`` times of the worker.
    """
    size = len(times)
    in_time = 0.0
    busy = 0.0
    if rest < math.inf:
        soonest = rest * max(1.0 - spread, 0.0)
    else:
        soonest = math.inf
    for end in (soonest, rest, rest * (1.0 + spread)):
        reached = _until(times, 0, end / factor)
        if reached > 0:
            in_time += reached
        else:
            in_time += (end / factor / times[0]) ** _RARE
        if reached > 0:
            busy += sums[reached - 1] * factor
        else:
            busy += 0.0
        if reached < size:
            busy += (size - reached) * end
        else:
            busy += 0.0
    return not in_time * (1.0 + shadow * count) < shadow * busy * (rate + 1.0 / (mean * factor))


@helper()
def start_workers(
    workers: DispatchWorkers,
    factor: Floats,
    absent: Bits,
    shadow: float,
    missing: int,
    running: Running,
    count: int,
    out: Bits,
) -> int:
    """Start idle workers, and return how many workers run then.

    Args:
        workers: What is known of the workers.
        factor: (n,) multiplies their times.
        absent: (n,) 1 for workers of whom nothing is expected.
        shadow: The shadow price.
        missing: Results that the round needs.
        running: Workers that run a task; workers that start are appended.
        count: How many workers run a task.
        out: (n,) 1 for workers that run a task; set to 1 for workers that start.
    """
    rate = 0.0
    drawn_rate = 0.0
    for a in range(count):
        i = running.worker[a]
        running.passed[a] = _until(workers.times[i], 0, running.age[a])
        rate += 1.0 / workers.mean[i]
        drawn_rate += 1.0 / (workers.mean[i] * factor[i])
    rest = math.inf
    spread = _SPREAD / math.sqrt(missing)
    if rate > 0.0 and shadow > 0.0:
        rest = _rest(workers, running, count, missing, rate, missing / rate)
    for i in workers.order:
        if out[i] != 0:
            continue
        times = workers.times[i]
        sums = workers.sums[i]
        mean = workers.mean[i]
        if not mean < math.inf:
            out[i] = 1  # never tried
            continue
        considered = count > 0 and shadow > 0.0
        if considered and not _worth_starting(
            times,
            sums,
            mean,
            factor[i],
            shadow,
            rest,
            spread,
            count,
            drawn_rate,
        ):
            continue
        out[i] = 1
        if absent[i] != 0:
            continue
        running.worker[count] = i
        running.age[count] = 0.0
        running.passed[count] = 0
        count += 1
        if shadow > 0.0:
            rate += 1.0 / mean
            drawn_rate += 1.0 / (mean * factor[i])
            if not rest < math.inf:
                rest = _rest(workers, running, count, missing, rate, missing / rate)
            else:
                # a first-order update in place of a new search: the results that the worker gives
                # within the rest shorten it by the time that all take for them
                rest -= min(_results(times, sums, mean, 0.0, 0, rest) / rate, 0.5 * rest)
    return count


@kernel("(n,s),()->(n,s),(n)")
def _paces(times: Floats, budget: Ints, sums: Floats, mean: Floats) -> None:
    """Fill in each worker's times added up, and its time per result.

    It is E[min(X, t)] / P(X <= t), where t is B times the least median: close to the mean, except
    where rare times are longer than any round.
    """
    n, size = times.shape
    least_median = math.inf
    for i in range(n):
        least_median = min(least_median, times[i, (size - 1) // 2])
    until = budget[0] * least_median
    for i in range(n):
        total = 0.0
        time_spent = 0.0
        completions = 0
        for s in range(size):
            total += times[i, s]
            sums[i, s] = total
            if times[i, s] <= until:
                completions += 1
                time_spent = total
        if completions > 0 and until < math.inf:
            time_per_result = (time_spent + (size - completions) * until) / completions
        else:
            time_per_result = total / size
        if time_per_result < math.inf:
            mean[i] = max(time_per_result, 1e-300)
        else:
            mean[i] = math.inf


@kernel("(n,s),(n,s),(n),(n),()->()")
def _useful_workers(
    times: Floats,
    sums: Floats,
    mean: Floats,
    order: Ints,
    budget: Ints,
    out: Ints,
) -> None:
    """Compute how many workers of ``order`` can give results in a round.

    All workers work in it, and it may be twice as long as expected.
    """
    n = len(mean)
    rate = 0.0
    count = 0
    while count < n and mean[order[count]] < math.inf:
        rate += 1.0 / mean[order[count]]
        count += 1
    out[0] = 0
    if count > 0:
        workers = DispatchWorkers(times, sums, mean, order, out)
        running = Running(order, np.zeros(n), np.zeros(n, np.int64))
        rest = _rest(workers, running, count, budget[0], rate, budget[0] / rate)
        for p in range(count):
            if times[order[p], 0] <= _USEFUL * rest:
                out[0] = p + 1


@kernel("(n,s),(n,s),(n),(n),(n),(),(),(n),(n),(n)->(n)")
def _by_margin(
    times: Floats,
    sums: Floats,
    mean: Floats,
    order: Ints,
    factor: Floats,
    shadow: Floats,
    missing: Ints,
    running: Bits,
    age: Floats,
    absent: Bits,
    out: Bits,
) -> None:
    """Start workers in a row; see ``by_margin``."""
    n = len(mean)
    busy = Running(np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64))
    count = 0
    for i in range(n):
        out[i] = running[i]
        if running[i] != 0:
            busy.worker[count] = i
            busy.age[count] = age[i]
            count += 1
    # how many are useful is not needed here
    workers = DispatchWorkers(times, sums, mean, order, missing)
    start_workers(workers, factor, absent, shadow[0], missing[0], busy, count, out)


def by_margin(
    workers: DispatchWorkers,
    shadow: Floats,
    missing: Ints,
    running: Bits,
    age: Floats,
    factor: Floats | None = None,
    absent: Bits | None = None,
) -> Bits:
    """Start idle worker i if that is worth its worker time at a shadow price, (E, n).

    With r workers running, and rate the sum of 1 / (factor mean) over them and i, a result of i
    within the rest R of the round makes the round shorter by about 1 / rate, and saves that time of
    the others, too. So i starts if

        P(X_i <= R) (1 + shadow r) / rate >= shadow E[min(X_i, R)],

    the expected gain, at the price, against the expected cost. R is the time until the missing
    results are expected to be in: a task of age a ends as X given X > a, and then its worker gives
    results at the rate 1 / mean. R is uncertain: it is as often shorter or longer by the share 1.2
    / sqrt(missing), as for exponential results. Times t below the shortest, x, have the chance (t /
    x)^3 / S. If no worker is running, the fastest starts. Workers never tried always start. Ours.

    In the example two results are missing, and worker 0 gives both within 2; worker 1 gives one of
    them with probability 1/2.

    Args:
        workers: What is known of the workers.
        shadow: (E,) the shadow price, at least 0; at 0 every worker starts.
        missing: (E,) results that the round needs.
        running: (E, n) 1 for workers that run a task.
        age: (E, n) how long their task has run.
        factor: (E, n) multiplies the times of i, and the times in rate, but not the times in R:
            with draws as in Thompson sampling, workers are tried without being relied on. It is in
            rate, since workers that are tried make r larger, and each would make it worth more to
            try another. By default 1.
        absent: (E, n) 1 for workers of whom nothing is expected, though they start as the others.
            By default 0.

    Example:
        >>> workers = DispatchWorkers.from_times(np.array([[[1.0, 1.0], [1.5, 6.5]]]), budget=2)
        >>> situation = np.array([2]), np.zeros((1, 2), np.int8), np.zeros((1, 2))
        >>> by_margin(workers, np.array([0.1]), *situation)
        array([[1, 1]], dtype=int8)
        >>> by_margin(workers, np.array([1.0]), *situation)
        array([[1, 0]], dtype=int8)
    """
    n = workers.mean.shape[-1]
    if factor is None:
        factor = np.ones(n)
    if absent is None:
        absent = np.zeros(n, np.int8)
    arrays = workers.times, workers.sums, workers.mean, workers.order
    return np.asarray(_by_margin(*arrays, factor, shadow, missing, running, age, absent))
