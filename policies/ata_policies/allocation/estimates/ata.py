"""ATA and ATA-Empirical, with the constants of the preprint, with which every published figure was made, and of ICML.

Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient Resource Management in Distributed
Machine Learning", ICML 2025 (arXiv 2502.00775), Algorithms 1 and 2.
"""

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from ata_gym.theory.guarantees import VERSIONS, Guarantee, UniformPhase, checked_version, guarantee, uniform_phase
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import kernel
from ata_gym.utils.validation import non_negative, real
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Totals
from ata_policies.setting import Setting


@kernel("(n),(n),(),(),()->(n)")
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


@dataclass(frozen=True)
class ConfidenceBound(Estimate):
    """Lower confidence bounds of ATA, in the version of the preprint or of ICML."""

    version: str = "preprint"
    norms: str = "published"
    width: float = 1.0

    bound: ClassVar[str]  # the hyperparameter that bounds the norms
    source = "Maranjyan et al., ATA, ICML 2025"
    assumes = "sub-exponential times"
    # bounds of 0, which a worker that starts anew alone would have, would give it all tasks; few tasks, wide bounds
    _RESTARTS = MappingProxyType({"restart": "everybody", "effective_tasks": None})
    memory_defaults = MappingProxyType({"restarting": _RESTARTS})

    def __post_init__(self) -> None:
        checked_version(self.version)
        real("width", self.width)
        if self.norms not in ("published", "pool"):
            raise ValueError(f'norms must be "published" or "pool", not {self.norms!r}')

    def fit(self, setting: Setting) -> Self:
        given = getattr(self, self.bound)
        value, origin = self._found(setting) if given is None else (given, "")
        try:
            fitted: Any = {self.bound: (non_negative if given is None else real)(self.bound, value)}
        except ValueError:
            found = origin if value is None else f"here it is {value!r}"
            said = f"give {self.bound}=..., a positive bound on every worker's {self._norm()}: {found}"
            raise ValueError(said) from None
        return replace(self, **fitted)

    def in_words(self, setting: Setting) -> str:
        value, (found, origin) = getattr(self, self.bound), self._found(setting)
        return f"{self.bound} = {value:.6g}, {origin if value == found else 'as given'}"

    def _found(self, setting: Setting) -> tuple[float | None, str]:
        """The bound that follows from a setting, and where it comes from; None, and why, where none does."""
        published: float | None = getattr(getattr(setting.published, self.version), self.bound)
        if published is not None and self.norms == "published":
            return self.width * published, "as published" + self._narrower()
        if setting.norms is None:
            return None, "no pool or scenario is known"
        centred, relative = VERSIONS[self.version].centred, self.bound == "eta"
        largest, words = setting.norms.largest(centred=centred, relative=relative)
        return self.width * largest, f"the largest {self._norm()}{words}{self._narrower()}"

    def _narrower(self) -> str:
        return "" if self.width == 1.0 else f", times {self.width:g}"

    def guarantee(self, setting: Setting) -> Guarantee:
        """What is promised with the bound of this estimate in a setting; ValueError where nothing is."""
        constant = getattr(self.fit(setting), self.bound)
        return guarantee(setting.known_pool("a guarantee"), setting.budget, self.version, self.bound == "eta", constant)

    def uniform_phase(self, setting: Setting) -> UniformPhase:
        """The rounds in which scores are 0, also where no guarantee holds."""
        means = setting.known_pool("a uniform phase").mean()
        width = VERSIONS[self.version].factor * getattr(self.fit(setting), self.bound)
        return uniform_phase(means, setting.budget, width * means if self.bound == "eta" else width)

    def _norm(self) -> str:
        x = "X - mean" if VERSIONS[self.version].centred else "X"
        return f"psi1 norm of {x}" if self.bound == "alpha" else f"psi1 norm of ({x}) / mean"

    def scores(self, belief: Totals, rounds: Ints | Floats, keys: Keys) -> Scores:
        """The lower bounds, at level ln(2 k^2) in round k."""
        level = np.log(2.0 * np.square(rounds, dtype=np.float64))
        factor = VERSIONS[self.version].factor * float(getattr(self, self.bound))
        absolute, relative = (factor, 0.0) if self.bound == "alpha" else (0.0, factor)
        return Scores(score(belief.counts, belief.totals, level, absolute, relative))


@dataclass(frozen=True)
class Ata(ConfidenceBound):
    """ATA: (m - 4 e alpha f)+ in the preprint, (m - 2 alpha f)+ at ICML, alpha a bound on the psi1 norms.

    The norms are those of X in the preprint, and those of X - mean at ICML; f = sqrt(L / K) + L / K with L = ln(2 k^2)
    in round k, and K tasks seen of mean m.

    - ``version``: "preprint" or "icml".
    - ``alpha``: the bound, in units of time; by default as published for the scenario with this version, else the
      largest norm that a worker has, or can have where workers are drawn anew. A norm that is infinite counts as that
      of exponential times of the same mean: twice the mean in the preprint, 1.53 times the mean at ICML.
    - ``norms``: "published", or "pool" for the largest norm also where another alpha was published.
    - ``width``: what this default is multiplied with, above 0; the guarantee holds from 1 on.
    """

    alpha: float | None = None

    bound = "alpha"
    time_unit = "that of alpha, by default the pool's"
    constants = (
        "4 e alpha, alpha >= psi1 norm of X, twice the mean where it is infinite; "
        "at ICML 2 alpha, alpha >= psi1 norm of X - mean, 1.53 times the mean"
    )
    knows = "a bound on the psi1 norms"


@dataclass(frozen=True)
class AtaEmpirical(ConfidenceBound):
    """ATA-Empirical: m (1 - 4 e eta f)+ in the preprint, m (1 - 2 eta f)+ at ICML, eta a bound on psi1 norm / mean.

    - ``version``, ``eta``, ``norms``, ``width``: as of ``Ata``; a ratio that is infinite counts as 2 in the
      preprint, and 1.53 at ICML.
    """

    eta: float | None = None

    bound = "eta"
    constants = (
        "4 e eta, eta >= psi1 norm of X / mean, 2 where it is infinite; "
        "at ICML 2 eta, eta >= psi1 norm of (X - mean) / mean, 1.53"
    )
    knows = "a bound on psi1 norm / mean"
