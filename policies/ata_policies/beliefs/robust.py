"""Beliefs for heavy tails: sums in blocks, with the median of means and Catoni's estimator; and the truncated mean.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory 59(11), 2013;
Catoni, "Challenging the empirical mean and empirical variance", 2012 (formulas recalled).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc, inlined
from ata_gym.utils.ranges import Counts, Times
from ata_policies.beliefs.moments import never_finished


class Blocks(NamedTuple):
    """Counts of the task times seen, and their sums in k blocks; the j-th time of a worker goes to block j modulo k."""

    counts: Counts  # (E, n) tasks seen
    sums: Times  # (E, n, k) their times, added up in blocks

    @classmethod
    def empty(cls, rows: int, n: int, blocks: int) -> Blocks:
        """Nothing is known."""
        return cls(np.zeros((rows, n)), np.zeros((rows, n, blocks)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Blocks:
        """See ``Belief.observe``; cancelled tasks do not count."""
        return Blocks(*_observe(self.counts, self.sums, worker, duration))

    def untried(self) -> Mask:
        """Which workers have never finished a task, shape (E, n)."""
        return never_finished(self)


class BlockMeans(NamedTuple):
    """Robust means, kept until a worker has more results; each of shape (E, n)."""

    counts: Counts  # tasks seen when the mean was worked out
    means: Times  # the means; 0 for a worker never tried


def median_of_means(belief: Blocks, known: BlockMeans | None = None) -> Floats:
    """Median over blocks of their mean times, shape (E, n); 0 for a worker never tried.

    The number of blocks is the largest power of two that is at most k and leaves two tasks in each. Means in ``known``
    are kept where no task was seen since. In the example one task of 8 takes 1,000 times as long as the others, so that
    the plain mean is 125.9.

    >>> times = np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    >>> median_of_means(Blocks.empty(1, 1, 8).observe(np.zeros((1, 8), int), times))
    array([[1.]])
    """
    means: Floats = _median_of_means(belief.counts, belief.sums, *(known or np.zeros((2, *belief.counts.shape))))
    return means


def catoni(belief: Blocks, moment: float, known: BlockMeans | None = None) -> Floats:
    """Catoni's M-estimator over the blocks' mean times, shape (E, n); 0 for a worker never tried.

    With K tasks in b = min(K, k) blocks of means y, variance ``moment`` mean^2 and p the median of the y, the root m of

        sum over blocks of psi(A (y - m)) = 0,    psi(x) = sign(x) ln(1 + |x| + x^2 / 2),
        A = sqrt(K / b) / (2 p sqrt(moment)),

    the published A for b values of variance ``moment`` p^2 b / K at the highest level that they carry, L = b / 4. If
    half of the blocks have a mean of 0, the worker has one, too. ``known`` is as for :func:`median_of_means`.

    >>> times = np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    >>> catoni(Blocks.empty(1, 1, 8).observe(np.zeros((1, 8), int), times), moment=1.0).round(2)
    array([[5.22]])
    """
    means: Floats = _catoni(belief.counts, belief.sums, *(known or np.zeros((2, *belief.counts.shape))), moment)
    return means


@gufunc(
    "void(float64[:], float64[:,:], int64[:], float64[:], float64[:], float64[:,:])", "(n),(n,k),(b),(b)->(n),(n,k)"
)
def _observe(count: Floats, sums: Floats, worker: Ints, duration: Floats, new_count: Floats, new_sums: Floats) -> None:
    new_count[:], new_sums[:] = count, sums
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_sums[i, np.int64(new_count[i]) % sums.shape[1]] += duration[b]
            new_count[i] += 1.0


@inlined
def _block_means(count: int, sums: Floats, i: int, blocks: int, means: Floats) -> float:
    """Fill in the means of worker i's tasks in ``blocks`` blocks, in ascending order; return their median."""
    means[:blocks] = 0.0
    for j in range(sums.shape[1]):
        means[j % blocks] += sums[i, j]
    each, more = count // blocks, count % blocks
    for b in range(blocks):
        means[b] /= each + (b < more)
    means[:blocks].sort()
    median: float = 0.5 * (means[(blocks - 1) // 2] + means[blocks // 2])
    return median


@gufunc("void(float64[:], float64[:,:], float64[:], float64[:], float64[:])", "(n),(n,k),(n),(n)->(n)")
def _median_of_means(count: Floats, sums: Floats, known_count: Floats, known: Floats, out: Floats) -> None:
    n, k = sums.shape
    means = np.empty(k)
    for i in range(n):
        out[i] = known[i]
        if count[i] != known_count[i]:
            seen = np.int64(count[i])
            blocks = k
            while blocks > 1 and 2 * blocks > seen:
                blocks //= 2
            out[i] = _block_means(seen, sums, i, blocks, means)


@gufunc("void(float64[:], float64[:,:], float64[:], float64[:], float64[:], float64[:])", "(n),(n,k),(n),(n),()->(n)")
def _catoni(count: Floats, sums: Floats, known_count: Floats, known: Floats, moment: Floats, out: Floats) -> None:
    n, k = sums.shape
    means = np.empty(k)
    for i in range(n):
        out[i] = known[i]
        if count[i] == known_count[i]:
            continue
        seen = np.int64(count[i])
        blocks = min(seen, k)
        median = _block_means(seen, sums, i, blocks, means)
        out[i] = median
        if median == 0.0:
            continue
        scale = 0.5 * math.sqrt(count[i] / blocks / moment[0]) / median
        low, high = means[0], means[blocks - 1]
        root = known[i] if low < known[i] < high else median
        for _ in range(60):  # Newton's method, kept inside what is known to hold the root
            value = slope = 0.0
            above = below = 1.0  # products, so that one logarithm does for many blocks
            for b in range(blocks):
                x = scale * (means[b] - root)
                size = 1.0 + abs(x) + 0.5 * x * x
                slope += (1.0 + abs(x)) / size
                if x > 0.0:
                    above *= size
                else:
                    below *= size
                if max(above, below) > 1e150:
                    value += math.log(above) - math.log(below)
                    above = below = 1.0
            value += math.log(above / below)
            if value > 0.0:
                low = root
            else:
                high = root
            step = value / (scale * slope)
            root += step
            if not low <= root <= high:
                root = 0.5 * (low + high)
            if abs(scale * step) <= 1e-5 or high - low <= 1e-15 * high:  # the error left is of the step's square
                break
        out[i] = root


class Truncated(NamedTuple):
    """Counts and totals of the task times seen, long ones clipped when they came in."""

    counts: Counts  # (E, n) tasks seen
    totals: Times  # (E, n) their clipped times added up
    moment: Times  # (E,) the bound on E X^2 / mean^2 that clips them

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Truncated:
        """See ``Belief.observe``; cancelled tasks do not count.

        The j-th task of a worker, j > 1, is clipped at m sqrt(moment j / (2 ln t)), m the mean of those before it, but
        never below m; t counts rounds from 1 on, and nothing is clipped in the first.

        >>> first = Truncated(np.ones((1, 1)), np.ones((1, 1)), np.full(1, 8.0))
        >>> first.observe(np.array([[0]]), np.array([[1000.0]])).totals.round(4)
        array([[4.3973]])
        """
        counts, totals = _observe_clipped(self.counts, self.totals, worker, duration, self.moment)
        return Truncated(counts, totals, self.moment)

    def mean(self) -> Floats:
        """Truncated mean of each worker's task times, shape (E, n); 0 for a worker never tried."""
        return self.totals / np.maximum(self.counts, 1.0)

    def untried(self) -> Mask:
        """Which workers have never finished a task, shape (E, n)."""
        return never_finished(self)


@gufunc(
    "void(float64[:], float64[:], int64[:], float64[:], float64[:], float64[:], float64[:])",
    "(n),(n),(b),(b),()->(n),(n)",
)
def _observe_clipped(
    count: Floats, total: Floats, worker: Ints, duration: Floats, moment: Floats, new_count: Floats, new_total: Floats
) -> None:
    new_count[:], new_total[:] = count, total
    before = 0.0
    for i in range(len(count)):
        before += count[i]
    level = 2.0 * math.log(1.0 + before / len(worker))  # every round has as many results
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            x, j = duration[b], new_count[i] + 1.0
            if j > 1.0 and level > 0.0:
                m = new_total[i] / new_count[i]
                x = min(x, m * max(math.sqrt(moment[0] * j / level), 1.0))
            new_count[i] = j
            new_total[i] += x
