"""The one table of families: every task time is ``shift + scale * Z``, and a row says what ``Z`` is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import gamma as gamma_function
from scipy.special import gammaincinv, gammaln, ndtri

from ata_gym.pools import transforms

if TYPE_CHECKING:
    from scipy.stats.distributions import rv_frozen

FloatArray = NDArray[np.float64]
OfShape = Callable[[FloatArray], FloatArray]
LogMgf = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Family:
    """A family of laws of task times, given by its standard law ``Z`` with at most one shape parameter.

    All callables take and give arrays of shape ``(m,)``, one entry per shape parameter.
    """

    name: str
    standard: str
    """``Z`` in words."""
    shaped: bool = False
    """Whether ``Z`` has a shape parameter, a positive number."""
    trace: bool = False
    """Whether ``Z`` is read from recorded times; its moments come from the record, not from here."""
    lowest: float = 0.0
    """The infimum of ``Z``."""
    mean: OfShape | None = None
    sd: OfShape | None = None
    median: OfShape | None = None
    infinite_mean: float = 0.0
    """The mean is infinite for shapes up to this one."""
    infinite_sd: float = 0.0
    """The standard deviation is infinite for shapes up to this one."""
    light_from: float = 0.0
    """``E exp(u Z)`` is finite for some u > 0 exactly for shapes from this one on."""
    pole: float = np.inf
    """``E exp(u Z)`` is infinite from this u on."""
    log_mgf: LogMgf | None = None
    """``(shape, u) -> log E exp(u Z)``"""
    log_mgf_centred: LogMgf | None = None
    """``(shape, u) -> log E exp(u |Z - E Z|)``"""
    in_scipy: str | None = None
    """Name of the law in scipy.stats, where it has a density."""

    def distribution(self, shape: float) -> rv_frozen:
        """``Z`` as a scipy distribution, where it has a density."""
        if self.in_scipy is None:
            raise ValueError(f"{self.name} times have no density")
        law: rv_frozen = getattr(scipy.stats, self.in_scipy)(*([shape] if self.shaped else []))
        return law


def _constant(value: float) -> OfShape:
    return lambda shape: np.full_like(shape, value)


def _log_normal_sd(shape: FloatArray) -> FloatArray:
    return np.exp(shape**2 / 2) * np.sqrt(np.expm1(shape**2))


def _weibull_mean(shape: FloatArray) -> FloatArray:
    return np.asarray(gamma_function(1 + 1 / shape))


def _weibull_sd(shape: FloatArray) -> FloatArray:
    log_ratio = gammaln(1 + 2 / shape) - 2 * gammaln(1 + 1 / shape)
    return np.asarray(_weibull_mean(shape) * np.sqrt(np.expm1(log_ratio)))


def _pareto_mean(shape: FloatArray) -> FloatArray:
    finite = np.where(shape > 1, shape, np.inf)
    return np.where(shape > 1, 1 + 1 / (finite - 1), np.inf)


def _pareto_sd(shape: FloatArray) -> FloatArray:
    finite = np.where(shape > 2, shape, 3.0)
    return np.where(shape > 2, np.sqrt(finite / (finite - 2)) / (finite - 1), np.inf)


FAMILIES: tuple[Family, ...] = (
    Family("deterministic", "1", lowest=1.0, mean=_constant(1.0), sd=_constant(0.0), median=_constant(1.0)),
    Family(
        "exponential",
        "Exp(1)",
        mean=_constant(1.0),
        sd=_constant(1.0),
        median=_constant(float(np.log(2))),
        pole=1.0,
        log_mgf=transforms.gamma,
        log_mgf_centred=transforms.gamma_centred,
        in_scipy="expon",
    ),
    Family(
        "uniform",
        "U[0, 1]",
        mean=_constant(0.5),
        sd=_constant(12**-0.5),
        median=_constant(0.5),
        log_mgf=transforms.uniform,
        log_mgf_centred=transforms.uniform_centred,
        in_scipy="uniform",
    ),
    Family(
        "half-normal",
        "|N(0, 1)|",
        mean=_constant((2 / np.pi) ** 0.5),
        sd=_constant((1 - 2 / np.pi) ** 0.5),
        median=_constant(float(ndtri(0.75))),
        log_mgf=transforms.half_normal,
        log_mgf_centred=transforms.half_normal_centred,
        in_scipy="halfnorm",
    ),
    Family(
        "gamma",
        "Gamma(shape, 1)",
        shaped=True,
        mean=lambda shape: shape,
        sd=np.sqrt,
        median=lambda shape: np.asarray(gammaincinv(shape, 0.5)),
        pole=1.0,
        log_mgf=transforms.gamma,
        log_mgf_centred=transforms.gamma_centred,
        in_scipy="gamma",
    ),
    Family(
        "log-normal",
        "exp(shape N(0, 1))",
        shaped=True,
        mean=lambda shape: np.exp(shape**2 / 2),
        sd=_log_normal_sd,
        median=_constant(1.0),
        light_from=np.inf,
        in_scipy="lognorm",
    ),
    Family(
        "weibull",
        "Exp(1)^(1 / shape)",
        shaped=True,
        mean=_weibull_mean,
        sd=_weibull_sd,
        median=lambda shape: np.log(2) ** (1 / shape),
        light_from=1.0,
        log_mgf=transforms.weibull,
        log_mgf_centred=transforms.weibull_centred,
        in_scipy="weibull_min",
    ),
    Family(
        "pareto",
        "U[0, 1]^(-1 / shape)",
        shaped=True,
        lowest=1.0,
        mean=_pareto_mean,
        sd=_pareto_sd,
        median=lambda shape: 2 ** (1 / shape),
        infinite_mean=1.0,
        infinite_sd=2.0,
        light_from=np.inf,
        in_scipy="pareto",
    ),
    Family("trace-by-task", "the recorded time of the worker's next task", trace=True),
    Family("trace-by-round", "the recorded time of the round", trace=True),
)
"""The families; a family's place is its code in ``Laws.family``."""

RECORDED: tuple[int, ...] = tuple(code for code, family in enumerate(FAMILIES) if family.trace)
"""The codes of families that replay recorded times."""

CODES: dict[str, int] = {family.name: code for code, family in enumerate(FAMILIES)}
