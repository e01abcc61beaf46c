"""Robust means for heavy tails: lower bounds around a median of means, Catoni's estimator or a truncated mean.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory 59(11), 2013, for
finite variances (their epsilon is 1); Catoni, "Challenging the empirical mean and empirical variance", 2012 (formulas
recalled). A plain mean may be spoilt by one unlucky task among a worker's first; these are not.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import inlined, kernel
from ata_gym.utils.ranges import FINITE, Counts, Times, Within
from ata_gym.utils.validation import non_negative, real, whole_number
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores

_MOST_BLOCKS = 64
_MOST_OF_BLOCK = FINITE / (2 * _MOST_BLOCKS)
"""The largest sum of a block: those of all blocks can be added up."""


class Blocks(NamedTuple):
    """Times in k blocks, the j-th time of a worker in block j modulo k, and the robust means that follow from them."""

    counts: Counts  # (E, n) tasks seen
    sums: Annotated[Floats, Within(0.0, _MOST_OF_BLOCK)]  # (E, n, k) their times, added up in blocks
    known: Counts  # (E, n) tasks seen when the mean was worked out
    means: Times  # (E, n) the robust means, kept until a worker has more results; 0 for a worker never tried

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Blocks":
        counts, sums = _observe(self.counts, self.sums, worker, duration)
        return self._replace(counts=counts, sums=sums)


class Truncated(NamedTuple):
    """Counts and totals of the task times seen, long ones clipped when they came in."""

    counts: Counts  # (E, n) tasks seen
    totals: Times  # (E, n) their clipped times added up
    moment: Times  # (E,) the bound on E X^2 / mean^2 that clips them

    def observe(self, worker: Ints, duration: Floats, elapsed: Floats | None = None) -> "Truncated":
        """See ``Belief.observe``; cancelled tasks do not count.

        The j-th task of a worker, j > 1, is clipped at m sqrt(moment j / (2 ln t)), m the mean of those before it, but
        never below m; t counts rounds from 1 on, and nothing is clipped in the first.

        >>> first = Truncated(np.ones((1, 1)), np.ones((1, 1)), np.full(1, 8.0))
        >>> first.observe(np.array([[0]]), np.array([[1000.0]])).totals.round(4)
        array([[4.3973]])
        """
        counts, totals = _observe_clipped(self.counts, self.totals, worker, duration, self.moment)
        return self._replace(counts=counts, totals=totals)


@dataclass(frozen=True)
class _RobustBound(Estimate):
    """A robust mean m minus ``radius`` times its published width, m width sqrt(L / K), clipped at 0.

    L = 2 ln t + ``offset`` in round t, K tasks seen.
    """

    moment: float = 4.0
    radius: float = 0.0

    source = "Bubeck, Cesa-Bianchi, Lugosi, IEEE Trans. Inf. Theory 2013"
    assumes = "variance at most `moment` mean^2"
    offset: ClassVar[float] = 0.0
    width: ClassVar[float]  # the published width is sqrt(width moment)

    def __post_init__(self) -> None:
        non_negative("radius", self.radius)
        real("moment", self.moment)

    def scores(self, belief: Any, rounds: Ints | Floats, keys: Keys) -> Scores:
        level, width = 2.0 * np.log(rounds) + self.offset, float(self.radius) * math.sqrt(self.width * self.moment)
        return Scores(_bound(self.mean(belief), belief.counts, level, width))


@dataclass(frozen=True)
class _OfBlocks(_RobustBound):
    """A worker's mean is computed again only where it has new results."""

    blocks: int = 4

    own_statistics = "sums in blocks"

    def __post_init__(self) -> None:
        super().__post_init__()
        number = whole_number("blocks", self.blocks, least=2)
        if number & (number - 1) or number > _MOST_BLOCKS:
            raise ValueError(
                f"blocks must be a power of two from 2 to {_MOST_BLOCKS}, so that blocks can be joined, not {number}"
            )

    def start(self, rows: int, n: int) -> Blocks:
        counts, known, means = np.zeros((3, rows, n))
        return Blocks(counts, np.zeros((rows, n, self.blocks)), known, means)

    def mean(self, belief: Blocks) -> Floats:
        return belief.means


@dataclass(frozen=True)
class MedianOfMeans(_OfBlocks):
    """Median of means: a lower bound around the median of a few blocks' means.

    Published: the tasks of a worker in order in floor(min(8 ln(e^(1/8) / delta), K / 2)) blocks, delta = t^-2; radius
    sqrt(12 v) sqrt(16 ln(e^(1/8) / delta) / K), v a bound on the variance. Here the number of blocks is the largest
    power of two that is at most ``blocks`` and leaves two tasks in each; they are filled in turn, and at half the
    number the sums of two are joined. Few blocks are biased less where times are skewed. v is ``moment`` m^2. The
    published radius leaves no bound above 0 before about 10^4 tasks of a worker; a small part of it explores enough.

    - ``blocks``: blocks k for each worker, a power of two from 2 to 64.
    - ``moment``: a bound on variance / mean^2; it only scales the radius.
    - ``radius``: factor of the published radius; 0 for no exploration. The default is the best of a few on log-normal
      and Pareto times and on traces with rare outliers.

    One task of 8 takes 1,000 times as long as the others, so that the plain mean is 125.9:

    >>> estimate, times = MedianOfMeans(blocks=8), np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    >>> estimate.updated(estimate.start(1, 1).observe(np.zeros((1, 8), int), times)).means
    array([[1.]])
    """

    radius: float = 0.004

    constants = "4 blocks; 0.004 of the published radius"
    offset, width = 0.125, 192.0

    def updated(self, belief: Blocks) -> Blocks:
        return belief._replace(known=belief.counts, means=_median_of_means(*belief))


@dataclass(frozen=True)
class Catoni(_OfBlocks):
    """Catoni's estimator: a lower bound around an M-estimator whose influence grows like a logarithm.

    Published: the root m of sum psi(A (X_j - m)) = 0 over all K >= 4 L tasks, psi(x) = sign(x) ln(1 + |x| + x^2 / 2),
    A from L = 2 ln t and the variance v, radius 2 sqrt(v L / K). Here the root is over the means y of
    b = min(K, ``blocks``) blocks, filled in turn: their spread, and so A, shrinks like 1 / sqrt(K) as it should. With p
    the median of the y, of variance ``moment`` p^2 b / K, and L = b / 4, the highest level that they carry,

        A = sqrt(K / b) / (2 p sqrt(moment)).

    If half of the blocks have a mean of 0, the worker has one, too. Newton's method for each worker with new results
    makes a round cost about 6 times ATA's in batches of hundreds of rows.

    - ``blocks``: blocks k for each worker, a power of two from 2 to 64.
    - ``moment``: a bound on variance / mean^2: the lower it is, the less a long task counts.
    - ``radius``: factor of the published radius; 0 for no exploration. The default was found as for ``MedianOfMeans``.

    >>> estimate, times = Catoni(moment=1.0), np.array([[1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0, 1.0]])
    >>> estimate.updated(estimate.start(1, 1).observe(np.zeros((1, 8), int), times)).means.round(2)
    array([[5.22]])
    """

    radius: float = 0.025
    blocks: int = 8

    constants = "8 blocks; variance 4 mean^2; 0.025 of the published radius"
    width = 4.0

    def updated(self, belief: Blocks) -> Blocks:
        return belief._replace(known=belief.counts, means=_catoni(*belief, float(self.moment)))


@dataclass(frozen=True)
class TruncatedMean(_RobustBound):
    """Truncated mean: a lower bound around a mean whose long tasks are clipped, ever less so with more tasks.

    Published: the mean of X_j 1{X_j <= sqrt(u j / L)}, u a bound on E X^2, L = 2 ln t; radius 4 sqrt(u L / K). Here
    u is ``moment`` m^2 with the worker's truncated mean m so far. A time is judged once, when it comes in, at the t of
    then. A long one is clipped at the limit, where the published rule counts it as 0: with a u that is learned, that
    would draw the mean, and with it the limit, to 0.

    - ``moment``: a bound on E X^2 / mean^2: the lower it is, the sooner a time is clipped.
    - ``radius``: factor of the published radius; 0 for no exploration. The default was found as for ``MedianOfMeans``.
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
        """The truncated means; 0 for a worker never tried."""
        return belief.totals / np.maximum(belief.counts, 1.0)


@kernel("(n),(n),(),()->(n)")
def _bound(mean: Floats, count: Floats, level: Floats, width: Floats, out: Floats) -> None:
    for i in range(len(mean)):
        seen = count[i] + (0.0 if count[i] > 0.0 else 1.0)  # never tried: a mean of 0, so a bound of 0
        out[i] = mean[i] * max(1.0 - width[0] * math.sqrt(level[0] / seen), 0.0)


@kernel("(n),(n,k),(b),(b)->(n),(n,k)")
def _observe(count: Floats, sums: Floats, worker: Ints, duration: Floats, new_count: Floats, new_sums: Floats) -> None:
    new_count[:], new_sums[:] = count, sums
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_sums[i, np.int64(new_count[i]) % sums.shape[1]] += duration[b]
            new_count[i] += 1.0


@inlined
def _block_means(count: int, sums: Floats, i: int, blocks: int, means: Floats) -> float:
    means[:blocks] = 0.0
    for j in range(sums.shape[1]):
        means[j % blocks] += sums[i, j]
    each, more = count // blocks, count % blocks
    for b in range(blocks):
        means[b] /= each + (b < more)
    means[:blocks].sort()
    median: float = 0.5 * (means[(blocks - 1) // 2] + means[blocks // 2])
    return median


@kernel("(n),(n,k),(n),(n)->(n)")
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


@kernel("(n),(n,k),(n),(n),()->(n)")
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


@kernel("(n),(n),(b),(b),()->(n),(n)")
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
