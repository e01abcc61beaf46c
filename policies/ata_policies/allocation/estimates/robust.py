"""Robust means for heavy tails: lower bounds around the means of three robust estimators.

The estimators are the median of means, Catoni's estimator and the truncated mean. One unusually
long task among a worker's first ones may make a plain mean far too large; it hardly changes these.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory
59(11), 2013, for finite variances (their epsilon is 1); Catoni, "Challenging the empirical mean and
empirical variance", 2012 (formulas recalled).
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import copy, copy_rows, inlined, kernel
from ata_gym.utils.ranges import FINITE, Counts, Times, Within
from ata_gym.utils.validation import non_negative, real, whole_number
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.belief import CountedT

_MOST_BLOCKS = 64
_LARGEST_BLOCK_SUM = FINITE / (2 * _MOST_BLOCKS)
"""The largest sum of a block: the sums of all blocks can be added up."""


class Blocks(NamedTuple):
    """Times in k blocks, and the robust means that follow from them.

    The j-th time of a worker, counted from 0 on, is in block j modulo k.
    """

    counts: Counts
    """(E, n) tasks seen."""
    sums: Annotated[Floats, Within(0.0, _LARGEST_BLOCK_SUM)]
    """(E, n, k) their times, added up in blocks."""
    mean_counts: Counts
    """(E, n) tasks seen when the mean was worked out."""
    means: Times
    """(E, n) the robust means, kept until a worker has more results; 0 for a worker never tried."""

    @property
    def totals(self) -> Floats:
        """(E, n) the times of all blocks added up."""
        return np.asarray(self.sums.sum(axis=2))

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Blocks":
        counts, sums = _observe(self.counts, self.sums, worker, duration)
        return self._replace(counts=counts, sums=sums)


class Truncated(NamedTuple):
    """Counts and totals of the task times seen; long times were clipped when they came in."""

    counts: Counts
    """(E, n) tasks seen."""
    totals: Times
    """(E, n) their clipped times added up."""
    moment: Times
    """(E,) the bound on E X^2 / mean^2 that clips them."""

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Truncated":
        """Return the belief after a round, see ``Belief.observe``; cancelled tasks do not count.

        The j-th task of a worker, j > 1, is clipped at m sqrt(moment j / (2 ln t)), but never below
        m, the mean of the tasks before it. Rounds t count from 1 on, and nothing is clipped in the
        first round.

        Example:
            >>> belief = Truncated(np.ones((1, 1)), np.ones((1, 1)), np.full(1, 8.0))
            >>> belief.observe(np.array([[0]]), np.array([[1000.0]])).totals.round(4)
            array([[4.3973]])
        """
        counts, totals = _observe_clipped(self.counts, self.totals, worker, duration, self.moment)
        return self._replace(counts=counts, totals=totals)


@dataclass(frozen=True)
class _RobustBound(Estimate[CountedT]):
    """A robust mean m minus ``radius`` times its published width, clipped at 0.

    The published width is m sqrt(width moment L / K) with L = 2 ln t + ``offset`` in round t, and K
    tasks seen.
    """

    moment: float = 4.0
    radius: float = 0.0

    source = "Bubeck, Cesa-Bianchi, Lugosi, IEEE Trans. Inf. Theory 2013"
    assumes = "variance at most `moment` mean^2"
    offset: ClassVar[float] = 0.0
    width: ClassVar[float]
    """The published width is sqrt(width moment)."""

    def __post_init__(self) -> None:
        non_negative("radius", self.radius)
        real("moment", self.moment)

    def scores(self, belief: CountedT, rounds: Ints | Floats, keys: Keys) -> Scores:
        level = 2.0 * np.log(rounds) + self.offset
        width = float(self.radius) * math.sqrt(self.width * self.moment)
        return Scores(_bound(self.mean(belief), belief.counts, level, width))


@dataclass(frozen=True)
class _BlockEstimate(_RobustBound[Blocks]):
    """A robust mean of blocks, computed again only for workers with new results."""

    blocks: int = 4

    own_statistics = "sums in blocks"

    def __post_init__(self) -> None:
        super().__post_init__()
        number = whole_number("blocks", self.blocks, least=2)
        if number & (number - 1) or number > _MOST_BLOCKS:
            raise ValueError(
                f"blocks must be a power of two from 2 to {_MOST_BLOCKS}, so that blocks can be"
                f" joined, not {number}",
            )

    def start(self, rows: int, n: int) -> Blocks:
        counts, mean_counts, means = np.zeros((3, rows, n))
        return Blocks(counts, np.zeros((rows, n, self.blocks)), mean_counts, means)

    def mean(self, belief: Blocks) -> Floats:
        return belief.means


@dataclass(frozen=True)
class MedianOfMeans(_BlockEstimate):
    """Median of means: a lower bound around the median of a few blocks' means.

    Published: the tasks of a worker in order in floor(min(8 ln(e^(1/8) / delta), K / 2)) blocks,
    delta = t^-2; radius sqrt(12 v) sqrt(16 ln(e^(1/8) / delta) / K), v a bound on the variance.
    Here the number of blocks is the largest power of two that is at most ``blocks`` and leaves two
    tasks in each. Blocks are filled in turn, and at half the number the sums of two are joined. Few
    blocks are biased less where times are skewed. v is ``moment`` m^2. The published radius leaves
    no bound above 0 before about 10^4 tasks of a worker; a small part of it explores enough.

    In the example one task of 8 takes 1,000 times as long as the others: the plain mean is 125.9.

    Args:
        blocks: Blocks k for each worker, a power of two from 2 to 64.
        moment: A bound on variance / mean^2; it only scales the radius.
        radius: Factor of the published radius; 0 for no exploration. The default is the best of a
            few on log-normal and Pareto times and on traces with rare outliers.

    Example:
        >>> estimate = MedianOfMeans(blocks=8)
        >>> times = np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
        >>> belief = estimate.start(1, 1).observe(np.zeros((1, 8), int), times)
        >>> estimate.updated(belief).means
        array([[1.]])
    """

    radius: float = 0.004

    constants = "4 blocks; 0.004 of the published radius"
    offset = 0.125
    width = 192.0

    def updated(self, belief: Blocks) -> Blocks:
        return belief._replace(mean_counts=belief.counts, means=_median_of_means(*belief))


@dataclass(frozen=True)
class Catoni(_BlockEstimate):
    """Catoni's estimator: a lower bound around an M-estimator of logarithmic influence.

    Published: the root m of sum psi(A (X_j - m)) = 0 over all K >= 4 L tasks, with

        psi(x) = sign(x) ln(1 + abs(x) + x^2 / 2),

    A from L = 2 ln t and the variance v, and radius 2 sqrt(v L / K). Here the sum is over the means
    y of b = min(K, ``blocks``) blocks, filled in turn: their spread, and so A, shrinks like
    1 / sqrt(K) as it should. With p the median of the y, of variance ``moment`` p^2 b / K, and
    L = b / 4, the highest level that they carry,

        A = sqrt(K / b) / (2 p sqrt(moment)).

    If half of the blocks have a mean of 0, the worker has a mean of 0, too. Newton's method for
    each worker with new results makes a round cost about 6 times an ATA round in batches of
    hundreds of rows.

    Args:
        blocks: Blocks k for each worker, a power of two from 2 to 64.
        moment: A bound on variance / mean^2: the lower it is, the less a long task counts.
        radius: Factor of the published radius; 0 for no exploration. The default was found as for
            ``MedianOfMeans``.

    Example:
        >>> estimate = Catoni(moment=1.0)
        >>> times = np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
        >>> belief = estimate.start(1, 1).observe(np.zeros((1, 8), int), times)
        >>> estimate.updated(belief).means.round(2)
        array([[5.22]])
    """

    radius: float = 0.025
    blocks: int = 8

    constants = "8 blocks; variance 4 mean^2; 0.025 of the published radius"
    width = 4.0

    def updated(self, belief: Blocks) -> Blocks:
        return belief._replace(
            mean_counts=belief.counts, means=_catoni(*belief, float(self.moment))
        )


@dataclass(frozen=True)
class TruncatedMean(_RobustBound[Truncated]):
    """Truncated mean: a lower bound around a mean whose long tasks are clipped.

    Published: the mean of X_j 1{X_j <= sqrt(u j / L)}, u a bound on E X^2, L = 2 ln t; radius 4
    sqrt(u L / K). The limit grows with the number j of tasks, so that fewer are clipped. Here u is
    ``moment`` m^2 with the worker's truncated mean m so far. A time is compared with the limit
    once, when it comes in, with the t of its round. A long time is clipped at the limit, where the
    published rule counts it as 0: with a u that is learned, zeros would draw the mean, and with it
    the limit, to 0.

    Args:
        moment: A bound on E X^2 / mean^2: the lower it is, the sooner a time is clipped.
        radius: Factor of the published radius; 0 for no exploration. The default was found as for
            ``MedianOfMeans``.
    """

    moment: float = 30.0
    radius: float = 0.005

    own_statistics = "clipped totals"
    constants = "E X^2 = 30 mean^2; 0.005 of the published radius"
    assumes = "E X^2 at most `moment` mean^2"
    width = 16.0

    def start(self, rows: int, n: int) -> Truncated:
        counts, totals = np.zeros((2, rows, n))
        return Truncated(counts, totals, np.full(rows, float(self.moment)))

    def mean(self, belief: Truncated) -> Floats:
        """Return the truncated means, (E, n); 0 for a worker never tried."""
        return belief.totals / np.maximum(belief.counts, 1.0)


@kernel("(n),(n),(),()->(n)")
def _bound(mean: Floats, count: Floats, level: Floats, width: Floats, out: Floats) -> None:
    """Compute the bounds max(m (1 - width sqrt(level / K)), 0)."""
    for i in range(len(mean)):
        # a worker never tried has a mean of 0: any divisor above 0 gives it a bound of 0
        tasks = count[i] + (0.0 if count[i] > 0.0 else 1.0)
        out[i] = mean[i] * max(1.0 - width[0] * math.sqrt(level[0] / tasks), 0.0)


@kernel("(n),(n,k),(b),(b)->(n),(n,k)")
def _observe(
    count: Floats,
    sums: Floats,
    worker: Ints,
    duration: Floats,
    new_count: Floats,
    new_sums: Floats,
) -> None:
    """Add each result of a round to the next block of its worker."""
    copy(count, new_count)
    copy_rows(sums, new_sums)
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_sums[i, np.int64(new_count[i]) % sums.shape[1]] += duration[b]
            new_count[i] += 1.0


@inlined
def _block_means(count: int, sums: Floats, i: int, blocks: int, means: Floats) -> float:
    """Write worker i's block means to ``means`` in ascending order, and return their median.

    ``blocks`` divides the number k of sums, or is the count where the worker has fewer tasks.
    """
    # blocks whose numbers are equal modulo ``blocks`` are joined
    means[:blocks] = 0.0
    for j in range(sums.shape[1]):
        means[j % blocks] += sums[i, j]
    # tasks were dealt in turn, so that the first ``larger`` blocks have one task more
    tasks = count // blocks
    larger = count % blocks
    for b in range(blocks):
        means[b] /= tasks + (b < larger)
    means[:blocks].sort()
    median: float = 0.5 * (means[(blocks - 1) // 2] + means[blocks // 2])
    return median


@kernel("(n),(n,k),(n),(n)->(n)")
def _median_of_means(
    count: Floats,
    sums: Floats,
    mean_count: Floats,
    last_mean: Floats,
    out: Floats,
) -> None:
    """Compute the median of means of each worker with new results; others keep what is known."""
    n, k = sums.shape
    means = np.empty(k)
    for i in range(n):
        out[i] = last_mean[i]
        if count[i] != mean_count[i]:
            tasks = np.int64(count[i])
            # the largest power of two that leaves two tasks in each block
            blocks = k
            while blocks > 1 and 2 * blocks > tasks:
                blocks //= 2
            out[i] = _block_means(tasks, sums, i, blocks, means)


@kernel("(n),(n,k),(n),(n),()->(n)")
def _catoni(
    count: Floats,
    sums: Floats,
    mean_count: Floats,
    last_mean: Floats,
    moment: Floats,
    out: Floats,
) -> None:
    """Compute Catoni's estimator of each worker with new results; others keep what is known."""
    n, k = sums.shape
    means = np.empty(k)
    for i in range(n):
        out[i] = last_mean[i]
        if count[i] == mean_count[i]:
            continue
        tasks = np.int64(count[i])
        blocks = min(tasks, k)
        median = _block_means(tasks, sums, i, blocks, means)
        out[i] = median
        if median == 0.0:
            continue
        scale = 0.5 * math.sqrt(count[i] / blocks / moment[0]) / median
        # the means are in ascending order, and the root lies between the smallest and the largest
        low = means[0]
        high = means[blocks - 1]
        if low < last_mean[i] < high:
            root = last_mean[i]
        else:
            root = median
        # Newton's method, kept inside the interval [low, high] that contains the root
        for _ in range(60):
            value = slope = 0.0
            # products over blocks above and below the root, so that one logarithm does for many
            above = below = 1.0
            for b in range(blocks):
                x = scale * (means[b] - root)
                size = 1.0 + abs(x) + 0.5 * x * x
                slope += (1.0 + abs(x)) / size
                if x > 0.0:
                    above *= size
                else:
                    below *= size
                # take the logarithm before a product could overflow
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
            # Newton's method converges quadratically: the error left is of the step's square
            if abs(scale * step) <= 1e-5 or high - low <= 1e-15 * high:
                break
        out[i] = root


@kernel("(n),(n),(b),(b),()->(n),(n)")
def _observe_clipped(
    count: Floats,
    total: Floats,
    worker: Ints,
    duration: Floats,
    moment: Floats,
    new_count: Floats,
    new_total: Floats,
) -> None:
    """Add the results of a round, each clipped at the limit of ``Truncated.observe``."""
    copy(count, new_count)
    copy(total, new_total)
    tasks_before = 0.0
    for i in range(len(count)):
        tasks_before += count[i]
    # every round has as many results, so that their number tells the round
    level = 2.0 * math.log(1.0 + tasks_before / len(worker))
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            x = duration[b]
            j = new_count[i] + 1.0
            if j > 1.0 and level > 0.0:
                m = new_total[i] / new_count[i]
                x = min(x, m * max(math.sqrt(moment[0] * j / level), 1.0))
            new_count[i] = j
            new_total[i] += x
