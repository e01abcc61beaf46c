"""The table of families: every task time is ``shift + scale * Z``.

The docstring of ``Pool`` says what ``Z`` is in each family. A new family needs a row here
and the name of its code below the table, its quantile in ``_standard_time`` of
``ata_gym/simulation/task_times.py``, and a function in ``constructors.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.polynomial.polynomial import polyval
from numpy.typing import ArrayLike
from scipy.special import gamma as gamma_function, gammaincc, gammaln, ndtr, zeta

from ata_gym.typing import Floats

# Importing scipy.stats takes half a second.
if TYPE_CHECKING:
    from scipy.stats.distributions import rv_frozen

ShapeFunction = Callable[[Floats], Floats]
Excess = Callable[[Floats, float], Floats]
_NARROW_SHAPE = 100.0
"""The Weibull shape above which the variance comes from a series."""
_VARIANCE_SERIES = np.array([0.0, 0.0, *(zeta(n) * (2.0**n - 2.0) / n for n in range(2, 12))])
"""Coefficients of log Gamma(1 + 2 x) - 2 log Gamma(1 + x) in powers of -x."""


def _constant(value: float) -> ShapeFunction:
    return lambda shape: np.full_like(shape, value)


_UNKNOWN_MOMENT = _constant(math.nan)


def _no_excess(x: Floats, _shape: float) -> Floats:
    return np.full_like(x, math.nan)


@dataclass(frozen=True)
class Family:
    """A family of distributions of task times, given by its standard distribution ``Z``.

    ``Z`` has at most one shape parameter. Mean and standard deviation are closed forms, from arrays
    of shape (m,) to arrays of shape (m,). Scipy's standard deviations lose all digits of narrow
    log-normal and Weibull distributions, and take 10 to 100 times as long.
    """

    name: str
    """The name of the family."""
    shaped: bool = False
    """Whether ``Z`` has a shape parameter, a positive number."""
    trace: bool = False
    """Whether ``Z`` is read from recorded times; its moments then come from the record."""
    lowest: float = 0.0
    """The infimum of ``Z``."""
    mean: ShapeFunction = _UNKNOWN_MOMENT
    """The mean of ``Z`` from its shape parameter."""
    sd: ShapeFunction = _UNKNOWN_MOMENT
    """The standard deviation of ``Z`` from its shape parameter."""
    infinite_mean: float = 0.0
    """The shape parameter up to which the mean is infinite."""
    infinite_sd: float = 0.0
    """The shape parameter up to which the standard deviation is infinite."""
    in_scipy: str | None = None
    """The name of the distribution of ``Z`` in scipy.stats, where it has a density."""
    excess: Excess = _no_excess
    """The expected excess over x, E[(Z - x)+], where the mean is finite.

    It takes x of any shape, from ``lowest`` on, and one shape parameter.
    """

    def distribution(self, shape: ArrayLike) -> rv_frozen:
        """Return ``Z`` as a frozen scipy distribution.

        Args:
            shape: One shape parameter, or an array of them, shape (m,).

        Raises:
            ValueError: If ``Z`` has no density.
        """
        if self.in_scipy is None:
            raise ValueError(f"{self.name} times have no density")
        make: Callable[..., rv_frozen] = getattr(scipy.stats, self.in_scipy)
        if self.shaped:
            return make(shape)
        return make()


def _weibull_mean(shape: Floats) -> Floats:
    return np.asarray(gamma_function(1 + 1 / shape))


def _weibull_sd(shape: Floats) -> Floats:
    # log(E Z^2 / (E Z)^2), whose closed form loses all digits where it is next to 0.
    narrow = polyval(-1 / np.maximum(shape, _NARROW_SHAPE), _VARIANCE_SERIES)
    log_ratio = np.where(
        shape > _NARROW_SHAPE,
        narrow,
        gammaln(1 + 2 / shape) - 2 * gammaln(1 + 1 / shape),
    )
    return np.asarray(_weibull_mean(shape) * np.sqrt(np.expm1(log_ratio)))


def _pareto_mean(shape: Floats) -> Floats:
    finite = np.where(shape > 1, shape, np.inf)
    return np.where(shape > 1, 1 + 1 / (finite - 1), np.inf)


def _pareto_sd(shape: Floats) -> Floats:
    finite = np.where(shape > 2, shape, 3.0)
    return np.where(shape > 2, np.sqrt(finite / (finite - 2)) / (finite - 1), np.inf)


def _half_normal_excess(x: Floats, _shape: float) -> Floats:
    density = np.exp(-x * x / 2) * (2 / np.pi) ** 0.5
    return np.asarray(density - 2 * x * ndtr(-x))


def _gamma_excess(x: Floats, shape: float) -> Floats:
    return np.asarray(shape * gammaincc(shape + 1, x) - x * gammaincc(shape, x))


def _log_normal_excess(x: Floats, shape: float) -> Floats:
    with np.errstate(divide="ignore"):
        z = np.log(x) / shape
    return np.asarray(np.exp(shape**2 / 2) * ndtr(shape - z) - x * ndtr(-z))


def _weibull_excess(x: Floats, shape: float) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(gamma_function(1 + 1 / shape) * gammaincc(1 / shape, x**shape))


FAMILIES: tuple[Family, ...] = (
    Family("deterministic", lowest=1.0, mean=_constant(1.0), sd=_constant(0.0)),
    Family(
        "exponential",
        mean=_constant(1.0),
        sd=_constant(1.0),
        in_scipy="expon",
        excess=lambda x, _shape: np.exp(-x),
    ),
    Family(
        "uniform",
        mean=_constant(0.5),
        sd=_constant(12**-0.5),
        in_scipy="uniform",
        excess=lambda x, _shape: (1 - np.minimum(x, 1.0)) ** 2 / 2,
    ),
    Family(
        "half-normal",
        mean=_constant((2 / np.pi) ** 0.5),
        sd=_constant((1 - 2 / np.pi) ** 0.5),
        in_scipy="halfnorm",
        excess=_half_normal_excess,
    ),
    Family(
        "gamma",
        shaped=True,
        mean=lambda shape: shape,
        sd=np.sqrt,
        in_scipy="gamma",
        excess=_gamma_excess,
    ),
    Family(
        "log-normal",
        shaped=True,
        in_scipy="lognorm",
        mean=lambda shape: np.exp(shape**2 / 2),
        sd=lambda shape: np.exp(shape**2 / 2) * np.sqrt(np.expm1(shape**2)),
        excess=_log_normal_excess,
    ),
    Family(
        "weibull",
        shaped=True,
        mean=_weibull_mean,
        sd=_weibull_sd,
        in_scipy="weibull_min",
        excess=_weibull_excess,
    ),
    Family(
        "pareto",
        shaped=True,
        lowest=1.0,
        mean=_pareto_mean,
        sd=_pareto_sd,
        infinite_mean=1.0,
        infinite_sd=2.0,
        in_scipy="pareto",
        excess=lambda x, shape: x ** (1 - shape) / (shape - 1),
    ),
    Family("trace-by-task", trace=True),
    Family("trace-by-round", trace=True),
)
"""The families; a family's place is its code in ``Distributions.family``."""

CODES: dict[str, int] = {family.name: code for code, family in enumerate(FAMILIES)}
"""The code of each family, by its name."""

# The codes by themselves, as kernels can read them.
DETERMINISTIC = CODES["deterministic"]
EXPONENTIAL = CODES["exponential"]
UNIFORM = CODES["uniform"]
HALF_NORMAL = CODES["half-normal"]
GAMMA = CODES["gamma"]
LOG_NORMAL = CODES["log-normal"]
WEIBULL = CODES["weibull"]
PARETO = CODES["pareto"]
TRACE_BY_TASK = CODES["trace-by-task"]
TRACE_BY_ROUND = CODES["trace-by-round"]

RECORDED: tuple[int, ...] = tuple(code for code, family in enumerate(FAMILIES) if family.trace)
"""The codes of families that replay recorded times."""
