"""ATA and ATA-Empirical, with the constants of the preprint or of ICML.

Every published figure was made with the constants of the preprint.

Maranjyan, Saad, Richtárik and Orabona, "ATA: Adaptive Task Allocation for Efficient Resource
Management in Distributed Machine Learning", ICML 2025 (arXiv 2502.00775), Algorithms 1 and 2.
"""

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from ata_gym.theory.guarantees import (
    VERSIONS,
    Guarantee,
    UniformPhase,
    checked_version,
    guarantee,
    uniform_phase,
)
from ata_gym.typing import Floats, Ints, Keys
from ata_gym.utils.compiled import kernel
from ata_gym.utils.validation import non_negative, real
from ata_policies.allocation.estimates.estimate import Estimate
from ata_policies.allocation.rules import Scores
from ata_policies.beliefs.moments import Totals
from ata_policies.setting import Setting


@kernel("(n),(n),(),(),()->(n)")
def score(
    count: Floats,
    total: Floats,
    level: Floats,
    absolute: Floats,
    relative: Floats,
    out: Floats,
) -> None:
    """Compute lower confidence bounds of the mean task times.

    With K_i tasks seen of mean m_i and f_i = sqrt(level / K_i) + level / K_i, the bound is

        s_i = max(m_i (1 - relative f_i) - absolute f_i, 0),

    and 0 where K_i = 0.

    Args:
        count: (n,) tasks K_i seen of each worker.
        total: (n,) their times added up, K_i m_i.
        level: The level of the bounds, ln(2 k^2) in round k.
        absolute: The factor of f_i in units of time, at least 0.
        relative: The factor of f_i in units of the mean m_i, at least 0.
        out: (n,) the bounds.
    """
    for i in range(len(count)):
        # a worker never tried has a total of 0: any divisor above 0 gives it a bound of 0
        share = 1.0 / (count[i] + (0.0 if count[i] > 0.0 else 1.0))
        ratio = level[0] * share
        f = math.sqrt(ratio) + ratio
        bound = total[i] * share * (1.0 - relative[0] * f) - absolute[0] * f
        if bound > 0.0:
            out[i] = bound
        else:
            out[i] = 0.0


@dataclass(frozen=True)
class ConfidenceBound(Estimate[Totals]):
    """Lower confidence bounds of ATA, with the constants of the preprint or of ICML."""

    version: str = "preprint"
    norms: str = "published"
    width: float = 1.0

    bound: ClassVar[str]
    """The hyperparameter that bounds the norms."""
    source = "Maranjyan et al., ATA, ICML 2025"
    assumes = "sub-exponential times"
    # A worker that starts anew alone would have a bound of 0, and get all tasks. Few tasks that
    # count would leave wide bounds.
    _RESTARTS = MappingProxyType({"restart": "all", "effective_tasks": None})
    memory_defaults = MappingProxyType({"restarting": _RESTARTS})

    def __post_init__(self) -> None:
        checked_version(self.version)
        real("width", self.width)
        if self.norms not in ("published", "pool"):
            raise ValueError(f'norms must be "published" or "pool", not {self.norms!r}')

    def fit(self, setting: Setting) -> Self:
        bound = getattr(self, self.bound)
        if bound is None:
            value, origin = self._default_bound(setting)
        else:
            value = bound
            origin = ""
        # a bound of 0 may follow from the pool; one that a user gives must be above 0
        if bound is None:
            check = non_negative
        else:
            check = real
        try:
            fitted: Any = {self.bound: check(self.bound, value)}
        except ValueError:
            if value is None:
                reason = origin
            else:
                reason = f"here it is {value!r}"
            message = (
                f"give {self.bound}=..., a positive bound on every worker's {self._norm_text()}:"
                f" {reason}"
            )
            raise ValueError(message) from None
        return replace(self, **fitted)

    def describe_fit(self, setting: Setting) -> str:
        value = getattr(self, self.bound)
        derived, origin = self._default_bound(setting)
        if value != derived:
            origin = "as given"
        return f"{self.bound} = {value:.6g}, {origin}"

    def _default_bound(self, setting: Setting) -> tuple[float | None, str]:
        """Return the bound that follows from a setting and its origin, or None and the reason."""
        published: float | None = getattr(getattr(setting.published, self.version), self.bound)
        if published is not None and self.norms == "published":
            return self.width * published, "as published" + self._width_note()
        if setting.norms is None:
            return None, "no pool or scenario is known"
        centred = VERSIONS[self.version].centred
        relative = self.bound == "eta"
        largest, origin = setting.norms.largest(centred=centred, relative=relative)
        return self.width * largest, f"the largest {self._norm_text()}{origin}{self._width_note()}"

    def _width_note(self) -> str:
        if self.width == 1.0:
            return ""
        return f", times {self.width:g}"

    def guarantee(self, setting: Setting) -> Guarantee:
        """Return what is promised with the bound of this estimate in a setting.

        Raises:
            ValueError: If nothing is promised.
        """
        constant = getattr(self.fit(setting), self.bound)
        return guarantee(
            setting.known_pool("a guarantee"),
            setting.budget,
            self.version,
            self.bound == "eta",
            constant,
        )

    def uniform_phase(self, setting: Setting) -> UniformPhase:
        """Return the rounds in which scores are 0, also where no guarantee holds."""
        means = setting.known_pool("a uniform phase").mean()
        width = VERSIONS[self.version].factor * getattr(self.fit(setting), self.bound)
        if self.bound == "eta":
            width = width * means
        return uniform_phase(means, setting.budget, width)

    def _norm_text(self) -> str:
        if VERSIONS[self.version].centred:
            x = "X - mean"
        else:
            x = "X"
        if self.bound == "alpha":
            return f"psi1 norm of {x}"
        return f"psi1 norm of ({x}) / mean"

    def scores(self, belief: Totals, rounds: Ints | Floats, keys: Keys) -> Scores:
        """Return the lower bounds, at level ln(2 k^2) in round k."""
        level = np.log(2.0 * np.square(rounds, dtype=np.float64))
        factor = VERSIONS[self.version].factor * float(getattr(self, self.bound))
        if self.bound == "alpha":
            absolute = factor
            relative = 0.0
        else:
            absolute = 0.0
            relative = factor
        return Scores(score(belief.counts, belief.totals, level, absolute, relative))


@dataclass(frozen=True)
class Ata(ConfidenceBound):
    """ATA lowers each mean task time by a multiple of alpha, a bound on the psi1 norms.

    The score is (m - 4 e alpha f)+ in the preprint, where alpha bounds the psi1 norms of X, and
    (m - 2 alpha f)+ at ICML, where alpha bounds the psi1 norms of X - mean. Here f = sqrt(L / K) +
    L / K with L = ln(2 k^2) in round k, and K tasks seen of mean m.

    Args:
        version: "preprint" or "icml".
        alpha: The bound, in units of time; by default as published for the scenario with this
            version, else the largest norm that a worker has, or can have where workers are drawn
            anew. An infinite norm is replaced by the norm of exponential times of the same mean:
            twice the mean in the preprint, 1.53 times the mean at ICML.
        norms: "published", or "pool" for the largest norm also where another alpha was published.
        width: What this default is multiplied with, above 0; the guarantee holds from 1 on.
    """

    alpha: float | None = None

    bound = "alpha"
    time_unit = "the unit of alpha, by default the pool's"
    constants = (
        "4 e alpha, alpha >= psi1 norm of X, twice the mean where it is infinite; "
        "at ICML 2 alpha, alpha >= psi1 norm of X - mean, 1.53 times the mean"
    )
    knows = "a bound on the psi1 norms"


@dataclass(frozen=True)
class AtaEmpirical(ConfidenceBound):
    """ATA-Empirical lowers each mean task time by a multiple of eta, which bounds norm / mean.

    The score is m (1 - 4 e eta f)+ in the preprint, where eta bounds the psi1 norm of X / mean, and
    m (1 - 2 eta f)+ at ICML, where eta bounds the psi1 norm of (X - mean) / mean. Here f is the
    same as in ``Ata``.

    Args:
        version: "preprint" or "icml".
        eta: The bound; by default as published for the scenario with this version, else the largest
            ratio of a worker. A ratio that is infinite counts as 2 in the preprint, and as 1.53 at
            ICML.
        norms: "published", or "pool" for the largest ratio also where another eta was published.
        width: What this default is multiplied with, above 0; the guarantee holds from 1 on.
    """

    eta: float | None = None

    bound = "eta"
    constants = (
        "4 e eta, eta >= psi1 norm of X / mean, 2 where it is infinite; "
        "at ICML 2 eta, eta >= psi1 norm of (X - mean) / mean, 1.53"
    )
    knows = "a bound on psi1 norm / mean"
