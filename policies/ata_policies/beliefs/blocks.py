"""Sums of task times in a few blocks, and two robust means of them: the median of means and Catoni's estimator.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory, 2013; Catoni,
"Challenging the empirical mean and empirical variance", 2012 (formulas recalled).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import gufunc, inlined
from ata_policies.beliefs.moments import never_finished


class Blocks(NamedTuple):
    """Counts of the task times seen, and their sums in k blocks; the j-th time of a worker goes to block j modulo k."""

    counts: Floats
    """(E, n) tasks seen."""
    sums: Floats
    """(E, n, k) their times, added up in blocks."""

    @classmethod
    def empty(cls, rows: int, n: int, blocks: int) -> Blocks:
        """Nothing seen yet."""
        return cls(np.zeros((rows, n)), np.zeros((rows, n, blocks)))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> Blocks:
        """Return the belief after some results; the arguments are those of ``Belief.observe``.

        >>> Blocks.empty(1, 1, 2).observe(np.array([[0, 0, 0]]), np.array([[2.0, 4.0, 5.0]])).sums
        array([[[7., 4.]]])
        """
        del elapsed
        return Blocks(*_observe(self.counts, self.sums, worker, duration))

    def untried(self) -> Mask:
        """Which workers have never finished a task, shape (E, n)."""
        return never_finished(self)

    def rounds(self, round: Ints) -> Ints:
        """All rounds count, shape (E,)."""
        return round


class BlockMeans(NamedTuple):
    """Robust means, kept until a worker has more results; each of shape (E, n)."""

    counts: Floats
    """Tasks seen when the mean was worked out."""
    means: Floats
    """The means; 0 for a worker never tried."""


def median_of_means(belief: Blocks, known: BlockMeans | None = None) -> Floats:
    """Median over blocks of their mean times, shape (E, n); 0 for a worker never tried.

    The number of blocks is the largest power of two that is at most k and leaves two tasks in each.

    Parameters
    ----------
    belief
        What was seen.
    known
        Means worked out before, taken over where nothing was seen since.

    Examples
    --------
    One task of 8 takes 1,000 times as long: the plain mean is 125.9.

    >>> times = np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    >>> median_of_means(Blocks.empty(1, 1, 8).observe(np.zeros((1, 8), int), times))
    array([[1.]])
    """
    known = known or _nothing(belief)
    means: Floats = _median_of_means(belief.counts, belief.sums, *known)
    return means


def catoni(belief: Blocks, moment: float, known: BlockMeans | None = None) -> Floats:
    """Catoni's M-estimator over the blocks' mean times, shape (E, n); 0 for a worker never tried.

    With K tasks in b = min(K, k) blocks of means y, variance ``moment`` mean^2 and p the median of the y, the root m of

        sum over blocks of psi(A (y - m)) = 0,    psi(x) = sign(x) ln(1 + |x| + x^2 / 2),
        A = sqrt(K / b) / (2 p sqrt(moment)),

    the published A for b values of variance ``moment`` p^2 b / K at the highest level they carry, L = b / 4. If half of
    the blocks have a mean of 0, so has the worker. The parameters are those of :func:`median_of_means`.

    >>> times = np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    >>> catoni(Blocks.empty(1, 1, 8).observe(np.zeros((1, 8), int), times), moment=1.0).round(2)
    array([[5.22]])
    """
    known = known or _nothing(belief)
    means: Floats = _catoni(belief.counts, belief.sums, *known, moment)
    return means


def _nothing(belief: Blocks) -> BlockMeans:
    return BlockMeans(*np.zeros((2, *belief.counts.shape)))


@gufunc(
    "void(float64[:], float64[:,:], int64[:], float64[:], float64[:], float64[:,:])", "(n),(n,k),(b),(b)->(n),(n,k)"
)
def _observe(count: Floats, sums: Floats, worker: Ints, duration: Floats, new_count: Floats, new_sums: Floats) -> None:
    n, k = sums.shape
    for i in range(n):
        new_count[i] = count[i]
        for j in range(k):
            new_sums[i, j] = sums[i, j]
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_sums[i, np.int64(new_count[i]) % k] += duration[b]
            new_count[i] += 1.0


@inlined
def _sort(x: Floats, size: int) -> None:
    """Insertion sort: there are few."""
    for j in range(1, size):
        moved = x[j]
        at = j
        while at > 0 and x[at - 1] > moved:
            x[at] = x[at - 1]
            at -= 1
        x[at] = moved


@inlined
def _block_means(count: int, sums: Floats, i: int, blocks: int, means: Floats) -> float:
    """Fill in the means of worker i's tasks in ``blocks`` blocks, in ascending order; return their median."""
    for b in range(blocks):
        means[b] = 0.0
    b = 0
    for j in range(sums.shape[1]):
        means[b] += sums[i, j]
        b = b + 1 if b + 1 < blocks else 0
    each, more = count // blocks, count % blocks
    for b in range(blocks):
        means[b] /= each + (b < more)
    _sort(means, blocks)
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
