"""Rules that say at a completion which idle workers start one more task: pure functions of arrays.

Both consider the workers from the fastest to the slowest, and count each one that they start as running when they
consider the next.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import numpy as np

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import gufunc, inlined
from ata_gym.utils.ranges import Order, Unending, Within
from ata_policies.dispatch.margin import by_margin_kernel, paces, useful_workers
from ata_policies.observations import Observation

LEFT = 0.3  # of a task whose distribution is not known, at least this share of the mean time is left, whatever its age


def at_work(seen: Observation) -> tuple[Ints, Bits, Floats]:
    """How many results are missing (E,), and which workers are running a task, and for how long, (E, n)."""
    return seen["missing"][:, 0], seen["running"], seen["age"]


def by_remaining_time(mean: Floats, order: Ints, kappa: float, missing: Ints, running: Bits, age: Floats) -> Bits:
    """Start idle worker i if the expected rest of the round is at least ``kappa`` of its mean time, shape (E, n).

    The rest is predicted by a schedule: every running worker finishes its task after what is expected to be left of it,
    and then one task after the other, each taking its mean time; the round ends when as many results as are missing are
    in.

    A task of age a is expected to go on for max(mean - a, 0.3 mean). ``mean`` (E, n) are mean task times; ``order``
    (E, m) the workers that may be started, fastest first; ``missing`` (E,) results that the round needs; ``running``
    and ``age`` (E, n) say who is running a task, and for how long.
    """
    action: Bits = _by_remaining_time(mean, order, kappa, missing, running, age)
    return action


class Workers(NamedTuple):
    """What the rule knows of n workers, in E rows."""

    times: Unending
    """(E, n, S) equally likely task times of each worker, increasing along a worker; infinite for one never tried"""
    sums: Unending
    """(E, n, S) the times of each worker added up from the shortest on"""
    mean: Annotated[Floats, Within(1e-300, math.inf)]
    """(E, n) time per result; infinite for a worker never tried"""
    order: Order
    """(E, n) the workers, fastest first"""
    useful: Annotated[Ints, Within(0, lambda size: size.n)]
    """(E,) how many of those, from the fastest on, can give results in a round in which everybody works"""

    @classmethod
    def of(cls, times: Floats, budget: int) -> Workers:
        """The workers with these times, in rounds of ``budget`` results."""
        sums, mean = paces(times, budget)
        order = np.argsort(mean, axis=-1, kind="stable")
        return cls(times, sums, mean, order, useful_workers(times, sums, mean, order, budget))


def by_margin(
    workers: Workers, shadow: Floats, missing: Ints, running: Bits, age: Floats,
    factor: Floats | None = None, absent: Bits | None = None,
) -> Bits:  # fmt: skip
    """Start idle worker i if that is worth its worker time at a ``shadow`` price, shape (E, n).

    With r workers running, and rate the sum of 1 / mean over them and i, a result of i within the rest R of the round
    makes the round shorter by about 1 / rate, and saves that time of the others, too. So i starts if

        P(X_i <= R) (1 + shadow r) / rate >= shadow E[min(X_i, R)],

    the expected gain, at the price, against the expected cost. R is when the missing results are expected to be in: a
    task of age a ends as X given X > a, and then its worker gives results at the rate 1 / mean; a task that outlasted
    all times goes on for as long again. R is uncertain: it is as often shorter or longer by the share
    1.2 / sqrt(missing), as for exponential results. Times t below the shortest, x, have the chance (t / x)^3 / S. If no
    worker is running, the fastest starts. Workers never tried always start. Ours.

    Parameters
    ----------
    shadow
        (E,) the price, at least 0; at 0 every worker starts.
    missing, running, age
        (E,) results that the round needs; (E, n) who is running a task, and for how long.
    factor
        (E, n) multiplies an idle worker's times where its start is considered, but not in R: with draws as in Thompson
        sampling, workers are tried without being relied on. By default 1.
    absent
        (E, n) 1 for workers that may be away: they start as the others, but nothing is expected of them. By default 0.

    Examples
    --------
    Two results are missing, and worker 0 gives both within 2; worker 1 gives one of them with probability 1/2.

    >>> workers = Workers.of(np.array([[[1.0, 1.0], [1.5, 6.5]]]), budget=2)
    >>> at = np.array([2]), np.zeros((1, 2), np.int8), np.zeros((1, 2))
    >>> by_margin(workers, np.array([0.1]), *at)
    array([[1, 1]], dtype=int8)
    >>> by_margin(workers, np.array([1.0]), *at)
    array([[1, 0]], dtype=int8)
    """
    n = workers.mean.shape[-1]
    factors = np.ones(n) if factor is None else factor
    away = np.zeros(n, np.int8) if absent is None else absent
    action: Bits = by_margin_kernel(*workers[:4], factors, shadow, missing, running, age, away)
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
