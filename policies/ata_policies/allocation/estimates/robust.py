"""Robust means for heavy tails: lower bounds around a median of means, Catoni's estimator or a truncated mean.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory 59(11), 2013
(formulas recalled), for finite variances: their epsilon is 1. A plain mean may be spoilt by one unlucky task among a
worker's first; these are not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.validation import non_negative, real, whole_number
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.robust import BlockMeans, Blocks, Truncated, catoni, median_of_means


@dataclass(frozen=True)
class RobustBound(Estimate):
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

    @abstractmethod
    def mean(self, belief: Any, kept: Any) -> Floats:
        """The robust means, shape (E, n)."""

    def scores(self, belief: Any, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """The lower bounds."""
        level, width = 2.0 * np.log(rounds) + self.offset, float(self.radius) * math.sqrt(self.width * self.moment)
        return Scores(_bound(self.mean(belief, kept), belief.counts, level, width))


@dataclass(frozen=True)
class _BlockEstimate(RobustBound):
    """A worker's mean is computed again only where it has new results."""

    blocks: int = 4

    own_statistics = "sums in blocks"

    def __post_init__(self) -> None:
        super().__post_init__()
        number = whole_number("blocks", self.blocks, least=2)
        if number & (number - 1) or number > 64:
            raise ValueError(f"blocks must be a power of two from 2 to 64, so that blocks can be joined, not {number}")

    def start(self, rows: int, n: int) -> Blocks:
        """Empty blocks."""
        return Blocks.empty(rows, n, self.blocks)

    def keep(self, rows: int, n: int, seed: int) -> BlockMeans:
        """No means yet."""
        return BlockMeans(*np.zeros((2, rows, n)))

    def mean(self, belief: Blocks, kept: BlockMeans) -> Floats:
        """The means that are kept."""
        return kept.means


@dataclass(frozen=True)
class MedianOfMeans(_BlockEstimate):
    """Median of means: a lower bound around the median of a few blocks' means.

    Published: the tasks of a worker in order in floor(min(8 ln(e^(1/8) / delta), K / 2)) blocks, delta = t^-2; radius
    sqrt(12 v) sqrt(16 ln(e^(1/8) / delta) / K), v a bound on the variance. Here the blocks are at most ``blocks``, a
    power of two, filled in turn: at half the number the sums of two blocks are joined, so nothing else is kept. Few
    blocks are robust against few outliers only, but biased less where times are skewed. v is ``moment`` m^2. The
    published radius leaves no bound above 0 before about 10^4 tasks of a worker; a small part of it explores enough.

    - ``blocks``: blocks k for each worker, a power of two from 2 to 64.
    - ``moment``: a bound on variance / mean^2; it only scales the radius.
    - ``radius``: factor of the published radius; 0 for no exploration. The default is the best of a few on log-normal
      and Pareto times and on traces with rare outliers.
    """

    radius: float = 0.004

    constants = "4 blocks; 0.004 of the published radius"
    offset, width = 0.125, 192.0

    def update(self, kept: BlockMeans, belief: Blocks) -> BlockMeans:
        """The medians of the means."""
        return BlockMeans(belief.counts, median_of_means(belief, kept))


@dataclass(frozen=True)
class Catoni(_BlockEstimate):
    """Catoni's estimator: a lower bound around an M-estimator whose influence grows like a logarithm.

    Published: the root m of sum psi(A (X_j - m)) = 0 over all K >= 4 L tasks, A from L = 2 ln t and the variance v (see
    ``catoni``), radius 2 sqrt(v L / K). Here up to ``blocks`` tasks are taken each for itself, and from then on the
    means of ``blocks`` blocks, filled in turn: their spread, and so A, shrinks like 1 / sqrt(K) as it should. L in A is
    the highest level that the blocks carry, a quarter of their number, where the published formula ends; v is
    ``moment`` m^2, with the median of the blocks for m inside A. Newton's method for each worker with new results makes
    a round cost about 6 times ATA's in batches of hundreds of rows.

    - ``blocks``: blocks k for each worker, a power of two from 2 to 64.
    - ``moment``: a bound on variance / mean^2: the lower it is, the less a long task counts.
    - ``radius``: factor of the published radius; 0 for no exploration. The default was found as for ``MedianOfMeans``.
    """

    radius: float = 0.025
    blocks: int = 8

    constants = "8 blocks; variance 4 mean^2; 0.025 of the published radius"
    width = 4.0

    def update(self, kept: BlockMeans, belief: Blocks) -> BlockMeans:
        """The roots of Catoni's equation."""
        return BlockMeans(belief.counts, catoni(belief, float(self.moment), kept))


@dataclass(frozen=True)
class TruncatedMean(RobustBound):
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
        """Nothing seen yet."""
        counts, totals = np.zeros((2, rows, n))
        return Truncated(counts, totals, np.full(rows, float(self.moment)))

    def mean(self, belief: Truncated, kept: Any) -> Floats:
        """The truncated means."""
        return belief.mean()


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(),()->(n)")
def _bound(mean: Floats, count: Floats, level: Floats, width: Floats, out: Floats) -> None:
    for i in range(len(mean)):
        seen = count[i] + (0.0 if count[i] > 0.0 else 1.0)  # never tried: a mean of 0, so a bound of 0
        out[i] = mean[i] * max(1.0 - width[0] * math.sqrt(level[0] / seen), 0.0)
