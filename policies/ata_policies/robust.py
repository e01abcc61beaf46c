"""Robust means for heavy tails: lower bounds around a median of means or Catoni's estimator.

Bubeck, Cesa-Bianchi and Lugosi, "Bandits with heavy tail", IEEE Transactions on Information Theory, 2013 (formulas
recalled), for finite variances: their epsilon is 1. A plain mean is at the mercy of one unlucky task among a worker's
first; these are not.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.checks import whole_number
from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.blocks import Blocks, Estimates, catoni, median_of_means
from ata_policies.hyperparameters import real
from ata_policies.policy import AllocationPolicy, Observation, Setting, State

SOURCE = "Bubeck, Cesa-Bianchi, Lugosi, IEEE Trans. Inf. Theory 2013"


class RobustBound(AllocationPolicy):
    """Allocates by a robust mean m less ``radius`` times its published width, m width sqrt(L / K), clipped at 0.

    L = 2 ln t + ``offset`` in round t, K tasks seen. A worker never tried comes first.
    """

    source = SOURCE
    assumes = "variance at most `moment` mean^2"
    offset: ClassVar[float] = 0.0

    def __init__(self, setting: Setting, *, moment: float, radius: float, seed: int) -> None:
        super().__init__(setting, seed=seed)
        if not 0 <= radius < math.inf:
            raise ValueError(
                f"radius must be a number of at least 0, the factor of the published radius, not {radius!r}"
            )
        self.moment, self.radius = real("moment", moment), float(radius)

    @abstractmethod
    def width(self) -> float:
        """What multiplies m sqrt(L / K) in the published radius."""

    def bounded(self, means: Floats, state: State) -> Ints:
        """Minimise the proxy loss under the lower bounds of these means."""
        level = 2.0 * np.log(state.round) + self.offset
        scores = _bound(means, state.belief.counts, level, self.radius * self.width())
        return allocate(scores, self.setting.budget, state.round_keys(), state.belief.untried())


class _BlockPolicy(RobustBound):
    """Works out a worker's mean anew only where it has new results."""

    blocks: int

    def first_belief(self, rows: int) -> Blocks:
        """Empty blocks."""
        return Blocks.empty(rows, self.setting.n, self.blocks)

    def first_plan(self, rows: int) -> Estimates:
        """No means yet."""
        return Estimates(*np.zeros((2, rows, self.setting.n)))

    @abstractmethod
    def estimate(self, belief: Blocks, known: Estimates) -> Floats:
        """The robust means, shape (E, n)."""

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Bring the means up to date and allocate by them."""
        del seen
        means = self.estimate(state.belief, state.plan)
        state = state._replace(plan=Estimates(state.belief.counts, means))
        return self.allocate(state), state

    def allocate(self, state: State) -> Ints:
        """Allocate by the kept means."""
        return self.bounded(state.plan.means, state)


def _block_count(blocks: object) -> int:
    number = whole_number("blocks", blocks, least=2)
    if number & (number - 1) or number > 64:
        raise ValueError(f"blocks must be a power of two from 2 to 64, so that blocks can be joined, not {number}")
    return number


class MedianOfMeans(_BlockPolicy):
    """Median of means: a lower bound around the median of a few blocks' means.

    Published: the tasks of a worker in order in floor(min(8 ln(e^(1/8) / delta), K / 2)) blocks, delta = t^-2; radius
    sqrt(12 v) sqrt(16 ln(e^(1/8) / delta) / K), v a bound on the variance. Here the blocks are at most ``blocks``, a
    power of two, filled in turn: at half the number the sums of two blocks are joined, so nothing else is kept. Few
    blocks are robust against few outliers only, but biased less where times are skewed. v is ``moment`` m^2. The
    published radius leaves no bound above 0 before about 10^4 tasks of a worker; a small part of it explores enough.

    Parameters
    ----------
    setting
        What the policy may know.
    blocks
        Blocks k for each worker, a power of two from 2 to 64.
    moment
        A bound on variance / mean^2; it only scales the radius.
    radius
        Factor of the published radius; 0 for the median of means alone, without exploration. The default is the best of
        a few on log-normal and Pareto times and on traces with rare outliers.
    seed
        Seeds the choices among workers with score 0.
    """

    constants = "4 blocks; 0.004 of the published radius"
    offset = 0.125

    def __init__(
        self, setting: Setting, *, blocks: int = 4, moment: float = 4.0, radius: float = 0.004, seed: int = 0
    ) -> None:
        super().__init__(setting, moment=moment, radius=radius, seed=seed)
        self.blocks = _block_count(blocks)

    def width(self) -> float:
        """sqrt(12 moment) sqrt(16)."""
        return math.sqrt(192.0 * self.moment)

    def estimate(self, belief: Blocks, known: Estimates) -> Floats:
        """The medians."""
        return median_of_means(belief, known)


class Catoni(_BlockPolicy):
    """Catoni's estimator: a lower bound around an M-estimator whose influence grows like a logarithm.

    Published: the root m of sum psi(A (X_j - m)) = 0 over all K >= 4 L tasks, A from L = 2 ln t and the variance v (see
    ``catoni``), radius 2 sqrt(v L / K). Here up to ``blocks`` tasks are taken each for itself, and from then on the
    means of ``blocks`` blocks, filled in turn: their spread, and so A, shrinks like 1 / sqrt(K) as it should. L in A is
    the highest level that the blocks carry, a quarter of their number, where the published formula ends; v is
    ``moment`` m^2, with the median of the blocks for m inside A. Newton's method for each worker with new results makes
    a round cost about 6 times ATA's in batches of hundreds of rows.

    Parameters
    ----------
    setting
        What the policy may know.
    blocks
        Blocks k for each worker, a power of two from 2 to 64.
    moment
        A bound on variance / mean^2: the lower it is, the less a long task counts.
    radius
        Factor of the published radius; 0 for the estimator alone, without exploration. The default is the best of a few
        on log-normal and Pareto times and on traces with rare outliers.
    seed
        Seeds the choices among workers with score 0.
    """

    constants = "8 blocks; variance 4 mean^2; 0.025 of the published radius"

    def __init__(
        self, setting: Setting, *, blocks: int = 8, moment: float = 4.0, radius: float = 0.025, seed: int = 0
    ) -> None:
        super().__init__(setting, moment=moment, radius=radius, seed=seed)
        self.blocks = _block_count(blocks)

    def width(self) -> float:
        """2 sqrt(moment)."""
        return 2.0 * math.sqrt(self.moment)

    def estimate(self, belief: Blocks, known: Estimates) -> Floats:
        """The roots."""
        return catoni(belief, self.moment, known)


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(),()->(n)")
def _bound(mean: Floats, count: Floats, level: Floats, width: Floats, out: Floats) -> None:
    for i in range(len(mean)):
        seen = count[i] + (0.0 if count[i] > 0.0 else 1.0)  # never tried: a mean of 0, so a bound of 0
        out[i] = mean[i] * max(1.0 - width[0] * math.sqrt(level[0] / seen), 0.0)
