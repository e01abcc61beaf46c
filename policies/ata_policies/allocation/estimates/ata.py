"""ATA and ATA-Empirical, with the constants of the preprint and of the ICML version.

Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient Resource Management in Distributed
Machine Learning", ICML 2025 (arXiv 2502.00775), Algorithms 1 and 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import gufunc
from ata_gym.utils.validation import real
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Belief
from ata_policies.policy import Setting


@gufunc("void(float64[:], float64[:], float64[:], float64[:], float64[:], float64[:])", "(n),(n),(),(),()->(n)")
def score(count: Floats, total: Floats, level: Floats, absolute: Floats, relative: Floats, out: Floats) -> None:
    """Lower confidence bounds of the mean task times, with K_i tasks seen of mean m_i.

    s_i = max(m_i (1 - relative f_i) - absolute f_i, 0) with f_i = sqrt(level / K_i) + level / K_i, and 0 where K_i = 0.
    """
    for i in range(len(count)):
        share = 1.0 / (count[i] + (0.0 if count[i] > 0.0 else 1.0))  # never tried: a total of 0, so a bound of 0
        ratio = level[0] * share
        f = math.sqrt(ratio) + ratio
        bound = total[i] * share * (1.0 - relative[0] * f) - absolute[0] * f
        out[i] = bound if bound > 0.0 else 0.0


_FACTORS = {"preprint": 4 * math.e, "icml": 2.0}
"""What multiplies alpha or eta, by the version of the paper."""


@dataclass(frozen=True)
class _ConfidenceBound(Estimate):
    """Lower confidence bounds of ATA, in the version of the preprint or of ICML.

    The preprint's guarantee assumes a bound on the psi1 norm of X, that of ICML a bound on the psi1 norm of X - mean.
    """

    version: str = "preprint"

    bound: ClassVar[str]
    """The hyperparameter that bounds the norms."""
    source = "Maranjyan et al., ATA, ICML 2025"
    assumes = "sub-exponential times"
    # bounds of 0, which a worker that starts anew alone would have, would give it all tasks; few tasks, wide bounds
    memory_defaults = MappingProxyType(
        {"restarting": MappingProxyType({"restart": "everybody", "effective_tasks": None})}
    )

    def __post_init__(self) -> None:
        if self.version not in _FACTORS:
            raise ValueError(f"version must be {' or '.join(map(repr, _FACTORS))}, not {self.version!r}")

    def fit(self, setting: Setting) -> Self:
        """Find the bound: as given, or as published, or from the psi1 norms."""
        name, value = self.bound, getattr(self, self.bound)
        if value is None:
            value = getattr(setting, name)
        unbounded = setting.drawn and name == "alpha"  # the pool tells how workers vary, not how slow they are
        if value is None and setting.pool is not None and not unbounded:
            norms = setting.pool.psi1_norm(centred=self.version == "icml")
            value = float(np.max(norms if name == "alpha" else norms / setting.pool.mean()))
        try:
            fitted: dict[str, Any] = {name: real(name, value)}
        except ValueError:
            what = "psi1 norm" if name == "alpha" else "psi1 norm divided by the mean"
            unknown = "the workers are drawn anew" if unbounded else "no pool or scenario is known"
            found = unknown if value is None else f"here it is {value!r}"
            raise ValueError(f"give {name}=..., a positive bound on every worker's {what}: {found}") from None
        return replace(self, **fitted)

    def scores(self, belief: Belief, rounds: Ints | Floats, keys: Keys, kept: Any) -> Scores:
        """The lower bounds, at level ln(2 k^2) in round k."""
        level = np.log(2.0 * np.square(rounds, dtype=np.float64))
        factor = _FACTORS[self.version] * float(getattr(self, self.bound))
        absolute, relative = (factor, 0.0) if self.bound == "alpha" else (0.0, factor)
        return Scores(score(belief.counts, belief.totals, level, absolute, relative))


@dataclass(frozen=True)
class Ata(_ConfidenceBound):
    """ATA: (m - 4 e alpha f)+ in the preprint, (m - 2 alpha f)+ at ICML, alpha a bound on the psi1 norms.

    The norms are those of X in the preprint, and those of X - mean at ICML.

    Parameters
    ----------
    version
        "preprint", with which every published figure was made, or "icml".
    alpha
        The bound, in units of time; by default as published for the scenario, or the largest norm of the pool.
    """

    alpha: float | None = None

    bound = "alpha"
    knows = "a bound on the psi1 norms"


@dataclass(frozen=True)
class AtaEmpirical(_ConfidenceBound):
    """ATA-Empirical: m (1 - 4 e eta f)+ in the preprint, m (1 - 2 eta f)+ at ICML, eta a bound on psi1 norm / mean.

    The norms are those of X in the preprint, and those of X - mean at ICML.

    Parameters
    ----------
    version
        "preprint", with which every published figure was made, or "icml".
    eta
        The bound; by default as published for the scenario, or the largest ratio of the pool.
    """

    eta: float | None = None

    bound = "eta"
    knows = "a bound on psi1 norm / mean"
