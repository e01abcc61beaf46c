"""ATA and ATA-Empirical, with the constants of the preprint and of the ICML version.

Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient Resource Management in Distributed
Machine Learning", ICML 2025 (arXiv 2502.00775), Algorithms 1 and 2.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from ata_gym.allocation import allocate
from ata_gym.compiled import gufunc
from ata_gym.simulation import Floats, Ints
from ata_policies.beliefs import Belief
from ata_policies.policy import AllocationPolicy, Setting, State


def score(belief: Belief, round: Ints | Floats, absolute: float, relative: float) -> Floats:
    """Lower confidence bounds of the mean task times, shape (E, n).

    With k the round (from 1), K_i tasks seen of mean m_i, L = ln(2 k^2) and f_i = sqrt(L / K_i) + L / K_i:

        s_i = max(m_i (1 - relative f_i) - absolute f_i, 0),  and 0 where K_i = 0.

    >>> seen = Belief(np.array([[4.0, 0.0]]), np.array([[40.0, 0.0]]))
    >>> score(seen, np.array([1]), absolute=1.0, relative=0.0).round(4)
    array([[9.4104, 0.    ]])
    """
    bounds: Floats = _score(
        belief.counts, belief.totals, np.log(2.0 * np.square(round, dtype=np.float64)), absolute, relative
    )
    return bounds


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(),(),()->(n)")
def _score(count: Floats, total: Floats, level: Floats, absolute: Floats, relative: Floats, out: Floats) -> None:
    for i in range(len(count)):
        share = 1.0 / (count[i] + (0.0 if count[i] > 0.0 else 1.0))  # never tried: a total of 0, so a bound of 0
        ratio = level[0] * share
        f = math.sqrt(ratio) + ratio
        bound = total[i] * share * (1.0 - relative[0] * f) - absolute[0] * f
        out[i] = bound if bound > 0.0 else 0.0


class _ConfidenceBound(AllocationPolicy):
    """Allocates by lower confidence bounds."""

    source = "Maranjyan et al., ATA, ICML 2025"
    assumes = "sub-exponential times"
    factor: ClassVar[float]
    """What multiplies alpha or eta."""
    centred: ClassVar[bool]
    """Whether the assumption is on the psi1 norm of X - mean, or of X."""
    absolute = relative = 0.0

    def allocate(self, state: State) -> Ints:
        """Minimise the proxy loss under the bounds."""
        scores = score(state.belief, state.round, self.absolute, self.relative)
        return allocate(scores, self.setting.budget, state.round_keys(), state.belief.untried())


def _bound(name: str, given: float | None, setting: Setting, centred: bool) -> float:
    """The hyperparameter ``name``: as given, or as published, or from the psi1 norms."""
    value = given
    if value is None and setting.scenario is not None:
        value = getattr(setting.scenario, name)
    if value is None and setting.pool is not None:
        norms = setting.pool.psi1_norm(centred=centred)
        value = float(np.max(norms if name == "alpha" else norms / setting.pool.mean()))
    what = "psi1 norm" if name == "alpha" else "psi1 norm divided by the mean"
    if value is None or not 0 < value < math.inf:
        why = "no pool or scenario is known" if value is None else f"here it is {value}"
        raise ValueError(f"give {name}=..., a positive bound on every worker's {what}: {why}")
    return float(value)


class Ata(_ConfidenceBound):
    """ATA as in the preprint and every published figure: (m - 4 e alpha f)+, where alpha bounds the psi1 norms of X."""

    knows = "a bound on the psi1 norms"
    constants = "4 e alpha, alpha >= psi1 norm of X"
    factor, centred = 4 * math.e, False

    def __init__(self, setting: Setting, *, alpha: float | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.alpha = _bound("alpha", alpha, setting, self.centred)
        self.absolute = self.factor * self.alpha


class AtaIcml(Ata):
    """ATA as on the ICML poster: (m - 2 alpha f)+, where alpha bounds the psi1 norms of X - mean."""

    constants = "2 alpha, alpha >= psi1 norm of X - mean"
    factor, centred = 2.0, True


class AtaEmpirical(_ConfidenceBound):
    """ATA-Empirical as in the preprint: m (1 - 4 e eta f)+, where eta bounds psi1 norm of X / mean."""

    knows = "a bound on psi1 norm / mean"
    constants = "4 e eta, eta >= psi1 norm of X / mean"
    factor, centred = 4 * math.e, False

    def __init__(self, setting: Setting, *, eta: float | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.eta = _bound("eta", eta, setting, self.centred)
        self.relative = self.factor * self.eta


class AtaEmpiricalIcml(AtaEmpirical):
    """ATA-Empirical as on the ICML poster: m (1 - 2 eta f)+, where eta bounds psi1 norm of (X - mean) / mean."""

    constants = "2 eta, eta >= psi1 norm of (X - mean) / mean"
    factor, centred = 2.0, True
