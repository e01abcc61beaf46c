"""Rules that say at a completion which idle workers start one more task: pure functions of arrays.

Both consider the workers from the fastest to the slowest, and count each one that they start as running when they
consider the next. The rest of the round is predicted by a schedule: every running worker finishes its task after what
is expected to be left of it, and then one task after the other, each taking its mean time; the round ends when as many
results as are missing are in.
"""

from __future__ import annotations

import math

import numpy as np

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import gufunc, inlined
from ata_policies.observations import Observation

PARTS = 4  # number of equally likely parts of its distribution in which a task may end
SPREAD = 1.2  # with b results missing, the rest of a round is taken to be R, and R times 1 -+ 1.2 / sqrt b
LEFT = 0.3  # of a task whose distribution is not known, at least this share of the mean time is left, whatever its age


def at_work(seen: Observation) -> tuple[Ints, Bits, Floats]:
    """How many results are missing (E,), and which workers are running a task, and for how long, (E, n)."""
    return seen["missing"][:, 0], seen["running"], seen["age"]


def by_remaining_time(mean: Floats, order: Ints, kappa: float, missing: Ints, running: Bits, age: Floats) -> Bits:
    """Start idle worker i if the expected rest of the round is at least ``kappa`` of its mean time, shape (E, n).

    A task of age a is expected to go on for max(mean - a, 0.3 mean). ``mean`` (E, n) are mean task times; ``order``
    (E, m) the workers that may be started, fastest first; ``missing`` (E,) results that the round needs; ``running``
    and ``age`` (E, n) say who is running a task, and for how long.
    """
    action: Bits = _by_remaining_time(mean, order, kappa, missing, running, age)
    return action


def by_margin(
    times: Floats, mean: Floats, order: Ints, factor: Floats, shadow: Floats, missing: Ints, running: Bits, age: Floats
) -> Bits:
    """Start idle worker i if that is worth its worker time at a ``shadow`` price, shape (E, n).

    With r workers running, and rate the sum of 1 / mean over them and i, a result of i within the rest R of the round
    makes the round shorter by about 1 / rate, and saves that time of the others, too. So i starts if

        P(X_i <= R) (1 + shadow r) / rate >= shadow E[min(X_i, R)],

    the expected gain, at the price, against the expected cost. The distribution of X given X > a, for a task of age a,
    is cut into four equally likely parts, and the task ends after the mean of X - a in one of them. The scheduled rest
    is uncertain: R is as often shorter or longer by the share 1.2 / sqrt(missing), as for exponential results. If no
    worker is running, the fastest starts. Ours.

    Parameters
    ----------
    times, mean
        (E, n, S) equally likely task times of each worker, increasing along a worker, or infinite: never started; and
        (E, n) their means, or times per result.
    factor
        (E, n) multiplies an idle worker's times where its start is considered, but not in the schedule: with draws as
        in Thompson sampling, workers are tried without being relied on. Or 1.
    shadow
        (E,) the price, at least 0; at 0 every worker that may be in time starts.
    order, missing, running, age
        As for ``by_remaining_time``, but all workers are in ``order``.

    Examples
    --------
    Two results are missing, and worker 0 gives both within 2; worker 1 gives one of them with probability 1/2.

    >>> times, order, none = np.array([[[1.0, 1.0], [1.5, 6.5]]]), np.array([[0, 1]]), np.zeros((1, 2))
    >>> at = times, times.mean(axis=2), order, np.ones(2)
    >>> by_margin(*at, np.array([0.1]), np.array([2]), none.astype(np.int8), none)
    array([[1, 1]], dtype=int8)
    >>> by_margin(*at, np.array([1.0]), np.array([2]), none.astype(np.int8), none)
    array([[1, 0]], dtype=int8)
    """
    action: Bits = _by_margin(times, mean, order, factor, shadow, missing, running, age)
    return action


@inlined
def _schedule(due: Floats, first: float, every: float) -> None:
    """Insert a worker's results, the first and then one after each ``every``, into the sorted earliest in ``due``."""
    last = len(due) - 1
    result = first
    for _ in range(len(due)):
        if not result < due[last]:
            break
        at = last
        while at > 0 and due[at - 1] > result:
            due[at] = due[at - 1]
            at -= 1
        due[at] = result
        result += every


@inlined
def _in_parts(due: Floats, times: Floats, mean: float, age: float) -> None:
    """Insert a worker's results into ``due``, once for each of the four parts of what may be left of its task."""
    size = len(times)
    shorter = 0
    while shorter < size and times[shorter] <= age:
        shorter += 1
    longer = size - shorter
    for part in range(PARTS):
        first = shorter + part * longer // PARTS
        last = max(shorter + (part + 1) * longer // PARTS, first + 1)
        left = mean
        if longer > 0:
            left = -age
            for s in range(first, last):
                left += times[s] / (last - first)
        _schedule(due, left, mean)


@gufunc("void(float64[:], int64[:], float64[:], int64[:], int8[:], float64[:], int8[:])", "(n),(m),(),(),(n),(n)->(n)")
def _by_remaining_time(
    mean: Floats, order: Ints, kappa: Floats, missing: Ints, running: Bits, age: Floats, out: Bits
) -> None:
    due = np.full(missing[0], math.inf)
    for i in range(len(mean)):
        out[i] = running[i]
        if running[i] != 0:
            _schedule(due, max(mean[i] - age[i], LEFT * mean[i]), mean[i])
    for i in order:
        if running[i] == 0 and due[-1] >= kappa[0] * mean[i]:
            out[i] = 1
            _schedule(due, mean[i], mean[i])


@gufunc(
    "void(float64[:,:], float64[:], int64[:], float64[:], float64[:], int64[:], int8[:], float64[:], int8[:])",
    "(n,s),(n),(n),(n),(),(),(n),(n)->(n)",
)
def _by_margin(
    times: Floats, mean: Floats, order: Ints, factor: Floats, shadow: Floats, missing: Ints, running: Bits, age: Floats,
    out: Bits,
) -> None:  # fmt: skip
    n, size = times.shape
    due = np.full(PARTS * missing[0], math.inf)
    rate, others, spread = 0.0, 0, SPREAD / math.sqrt(missing[0])
    for i in range(n):
        out[i] = running[i]
        if running[i] != 0:
            _in_parts(due, times[i], mean[i], age[i])
            rate += 1.0 / mean[i]
            others += 1
    for i in order:
        if running[i] != 0 or times[i, 0] == math.inf:
            continue
        if others > 0:
            rest = due[-1]
            if times[i, 0] * factor[i] > rest * (1.0 + spread):
                continue
            in_time, busy = 0, 0.0
            soonest = rest * max(1.0 - spread, 0.0) if rest < math.inf else math.inf
            for end in (soonest, rest, rest * (1.0 + spread)):
                for s in range(size):
                    in_time += times[i, s] * factor[i] <= end
                    busy += min(times[i, s] * factor[i], end)
            gain = in_time * (1.0 + shadow[0] * others) / (rate + 1.0 / mean[i])
            if gain < shadow[0] * busy:
                continue
        out[i] = 1
        _in_parts(due, times[i], mean[i], 0.0)
        rate += 1.0 / mean[i]
        others += 1
