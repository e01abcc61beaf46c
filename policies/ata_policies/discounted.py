"""Learners that forget little by little: discounted sums in the place of all that was ever seen.

Garivier and Moulines, "On upper-confidence bound policies for switching bandit problems", ALT 2011 (discounted
UCB; formulas recalled). What is forgotten altogether counts as never tried, so it is explored again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.ata import AtaEmpiricalIcml, AtaIcml
from ata_policies.forgetting import RecentBound
from ata_policies.hyperparameters import real
from ata_policies.policy import AllocationPolicy, Setting
from ata_policies.thompson import Thompson, ThompsonGamma


class Discounted(NamedTuple):
    """Moments in which a task counts ``discount`` times as much with each round that passes."""

    counts: Floats
    """(E, n) tasks seen, discounted."""
    totals: Floats
    """(E, n) their times added up, discounted."""
    squares: Floats
    """(E, n) the squares of their times added up, discounted."""
    discount: Floats
    """(E,) the discount per round."""

    @classmethod
    def empty(cls, rows: int, n: int, discount: float) -> Discounted:
        """Nothing seen yet."""
        counts, totals, squares = np.zeros((3, rows, n))
        return cls(counts, totals, squares, np.full(rows, discount))

    def observe(self, worker: Ints, time: Floats, elapsed: Floats | None = None) -> Discounted:
        """Return the belief after a round; the arguments are those of ``Belief.observe``.

        What is worth less than half a task is forgotten: such a worker has never been tried.

        >>> Discounted.empty(1, 1, 0.5).observe(np.array([[0, 0]]), np.ones((1, 2))).observe(
        ...     np.array([[0]]), np.array([[4.0]])).totals
        array([[5.]])
        """
        del elapsed
        counts, totals, squares = _discount(self.counts, self.totals, self.squares, self.discount, worker, time)
        return Discounted(counts, totals, squares, self.discount)

    def untried(self) -> NDArray[np.bool_]:
        """Which workers have never finished a task, or long ago, shape (E, n)."""
        never: NDArray[np.bool_] = self.counts == 0
        return never

    def recent(self, round: Ints) -> Floats:
        """Rounds that are remembered in round k, (1 - discount^k) / (1 - discount), shape (E,)."""
        rounds: Floats = (1.0 - self.discount**round) / (1.0 - self.discount)
        return rounds


@gufunc(
    "void(float64[:], float64[:], float64[:], float64[:], int64[:], float64[:], float64[:], float64[:], float64[:])",
    "(n),(n),(n),(),(b),(b)->(n),(n),(n)",
)
def _discount(
    count: Floats,
    total: Floats,
    square: Floats,
    discount: Floats,
    worker: Ints,
    time: Floats,
    new_count: Floats,
    new_total: Floats,
    new_square: Floats,
) -> None:
    for i in range(len(count)):
        kept = discount[0] if discount[0] * count[i] >= 0.5 else 0.0
        new_count[i], new_total[i], new_square[i] = kept * count[i], kept * total[i], kept * square[i]
    for b in range(len(worker)):
        i = worker[b]
        if i >= 0:
            new_count[i] += 1.0
            new_total[i] += time[b]
            new_square[i] += time[b] * time[b]


class _Discounting(AllocationPolicy):
    """What a discounted learner needs beside its rule."""

    follows = True

    def __init__(self, setting: Setting, *, discount: float = 0.999, seed: int = 0, **others: Any) -> None:
        super().__init__(setting, seed=seed, **others)
        self.discount = real("discount", discount)
        if self.discount >= 1.0:
            raise ValueError(f"discount must be below 1, what a task counts after a round, not {discount!r}")

    def first_belief(self, rows: int) -> Any:
        """Nothing seen yet."""
        return Discounted.empty(rows, self.setting.n, self.discount)


class DiscountedAta(RecentBound, _Discounting, AtaIcml):
    """ATA (ICML) on discounted sums: (m - 2 alpha f)+, where a task counts ``discount`` times as much each round.

    m and K of f = sqrt(L / K) + L / K are discounted, and L = ln(2 k^2) takes for k the rounds remembered,
    (1 - discount^k) / (1 - discount). A worker whose tasks are worth less than half a task has never been tried. Ours,
    after discounted UCB.

    Parameters
    ----------
    discount
        What a task counts after a round, above 0 and below 1.
    alpha
        As for ATA.
    """

    source = "ours, after Garivier and Moulines, ALT 2011, and Maranjyan et al., ICML 2025"
    constants = "discount 0.999; 2 alpha, alpha >= psi1 norm of X - mean"


class DiscountedAtaEmpirical(RecentBound, _Discounting, AtaEmpiricalIcml):
    """ATA-Empirical (ICML) on discounted sums: m (1 - 2 eta f)+, a task counting ``discount`` times as much each round.

    As DiscountedAta, with eta for alpha. Ours, after discounted UCB.
    """

    source = "ours, after Garivier and Moulines, ALT 2011, and Maranjyan et al., ICML 2025"
    constants = "discount 0.999; 2 eta, eta >= psi1 norm of (X - mean) / mean"


class DiscountedThompson(_Discounting, Thompson):
    """Thompson sampling on discounted sums: lambda ~ Gamma(c K, rate c S), K and S discounted each round.

    A worker whose tasks are worth less than half a task has never been tried: else its draws would run off, and nobody
    would try it again. Recalled.

    Parameters
    ----------
    discount
        What a task counts after a round, above 0 and below 1.
    shape
        As for Thompson.
    """

    source = "Qi, Wang and Zhu, Discounted Thompson Sampling for Non-Stationary Bandits, 2023; Thompson, 1933"
    constants = "discount 0.999; shape 1"


class DiscountedThompsonGamma(_Discounting, ThompsonGamma):
    """Thompson sampling on discounted sums, with shapes learned from discounted second moments.

    As DiscountedThompson and ThompsonGamma. Ours.
    """

    constants = "discount 0.999; weight 5"
