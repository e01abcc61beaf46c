"""The psi1 norms ``||Y|| = inf{c > 0 : E exp(|Y| / c) <= 2}`` of task times.

The norm is c = 1 / u for the u where ``log E exp(u |Y|)`` reaches log 2. The logarithms are closed
forms where there are any. No quadrature works for a gamma distribution of shape 0.001, which has
mass at 1e-300, or of shape 1e40. The equations are solved for all workers at once: one by one,
100,000 workers take a minute.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import exprel, gammainc, gammaincc, gammaln, log_ndtr, ndtr

from ata_gym.pools.distributions import Distributions, Moments
from ata_gym.pools.families import (
    EXPONENTIAL,
    GAMMA,
    HALF_NORMAL,
    RECORDED,
    UNIFORM,
    WEIBULL,
)
from ata_gym.typing import Floats, Ints

_LOG_2 = float(np.log(2.0))
_ALMOST_INFINITE = 1e300
"""The finite number that replaces infinity in the search for a root."""
_CONSTANT = 1e-17
"""A time with a smaller coefficient of variation is a constant in floating point."""

LogMgf = Callable[[Floats, Floats], Floats]


def _gamma_centred(shape: Floats, u: Floats) -> Floats:
    """Gamma(shape, 1): each side of the mean is an incomplete gamma function, after tilting."""
    # Beyond 1e15 the distribution is normal in floating point: a smaller shape at the same u * sd
    # gives the same.
    u = u * np.sqrt(np.maximum(shape / 1e15, 1))
    shape = np.minimum(shape, 1e15)
    tilt_above = -shape * (np.log1p(-u) + u)
    tilt_below = -shape * (np.log1p(u) - u)
    above = tilt_above + np.log(gammaincc(shape, shape * (1 - u)))
    below = tilt_below + np.log(gammainc(shape, shape * (1 + u)))
    return np.asarray(np.logaddexp(above, below))


def _half_normal_centred(_: Floats, u: Floats) -> Floats:
    """|N(0, 1)|: the square is completed on both sides of the mean m = sqrt(2 / pi)."""
    m = (2 / np.pi) ** 0.5
    above = np.exp(-u * m) * ndtr(u - m)
    below = np.exp(u * m) * (ndtr(u + m) - ndtr(u))
    sides = above + below
    return np.asarray(u**2 / 2 + np.log(2 * sides))


def _weibull(shape: Floats, u: Floats) -> Floats:
    """E^(1 / shape), E ~ Exp(1), shape >= 1: by quadrature over log E."""
    return _log_integral(u[:, None] * np.exp(_W / shape[:, None]), _W)


def _weibull_centred(shape: Floats, u: Floats) -> Floats:
    """E^(1 / shape), E ~ Exp(1), shape >= 1: by quadrature, split where Z crosses its mean."""
    log_mean = gammaln(1 + 1 / shape)
    split = shape * log_mean
    w = split[:, None] + _W
    # |Z - m| = m |exp((w - split) / shape) - 1|, exact for shapes so large that Z is next to 1.
    mean = np.exp(log_mean)[:, None]
    distance = mean * np.abs(np.expm1((w - split[:, None]) / shape[:, None]))
    return _log_integral(u[:, None] * distance, w)


# Panels of a Gauss-Legendre rule over w = log E, with density exp(w - e^w). On the left it falls
# like e^w, so panels may widen; on the right E < 700 is enough, as u stays well below the pole of
# shape 1.
_EDGES = np.concatenate(
    [-np.array([96.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0]), np.linspace(0.0, 7.1, 9)],
)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_W = (_EDGES[1:, None] + _EDGES[:-1, None] + np.diff(_EDGES)[:, None] * _NODES).ravel() / 2
_WEIGHT = (np.diff(_EDGES)[:, None] * _WEIGHTS).ravel() / 2


def _log_integral(exponent: Floats, w: Floats) -> Floats:
    """The logarithm of the integral of exp(exponent) over the density of w, by rows."""
    integrand = exponent + w - np.exp(w)
    top = integrand.max(axis=1)
    return np.asarray(top + np.log(np.exp(integrand - top[:, None]) @ _WEIGHT))


class _Transforms(NamedTuple):
    """The transforms of a family: functions of shape parameters and of u >= 0.

    Both arguments and the result have shape (m,).
    """

    raw: LogMgf
    """``log E exp(u Z)``."""
    centred: LogMgf
    """``log E exp(u |Z - E Z|)``."""
    pole: float = np.inf
    """The u from which on they are infinite."""
    lightest: float = 0.0
    """The shape parameter below which they are infinite for all u > 0."""


_GAMMA_TRANSFORMS = _Transforms(lambda shape, u: -shape * np.log1p(-u), _gamma_centred, pole=1.0)
_TRANSFORMS = {
    EXPONENTIAL: _GAMMA_TRANSFORMS,
    GAMMA: _GAMMA_TRANSFORMS,
    # The raw one is log((e^u - 1) / u); the distance from the mean is U[0, 1/2].
    UNIFORM: _Transforms(lambda _, u: np.log(exprel(u)), lambda _, u: np.log(exprel(u / 2))),
    HALF_NORMAL: _Transforms(
        lambda _, u: u**2 / 2 + np.log(2) + log_ndtr(u),
        _half_normal_centred,
    ),
    WEIBULL: _Transforms(_weibull, _weibull_centred, lightest=1.0),
}
"""The transforms of the families with finite norms, by the codes of these families."""


def psi1_norms(distributions: Distributions, moments: Moments, *, centred: bool) -> Floats:
    """The psi1 norm of each worker's task time, shape (n,), in units of time.

    If ``centred``, it is the norm of the time less its mean. It is inf where no exponential moment
    is finite, and 0 for a constant less its mean.
    """
    mean, sd, _ = moments
    if centred:
        constant = sd == 0
    else:
        constant = (sd == 0) | (sd < _CONSTANT * mean)
    if centred:
        norm_of_constant = np.zeros_like(mean)
    else:
        norm_of_constant = mean / _LOG_2
    norms = np.where(constant, norm_of_constant, np.inf)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # log E exp(u |Y|) is at least u E|Y|, and E exp(u |Y|) at least 1 + u^2 E Y^2 / 2.
        if centred:
            top = np.sqrt(2) / sd
        else:
            top = _LOG_2 / mean
        for code, transforms in _TRANSFORMS.items():
            members = (distributions.family == code) & (distributions.shape >= transforms.lightest)
            workers = np.flatnonzero(members & ~constant)
            norms[workers] = _family_norms(distributions, workers, transforms, top, centred)
        recorded = np.flatnonzero(np.isin(distributions.family, RECORDED) & ~constant)
        norms[recorded] = _record_norms(distributions, recorded, mean * centred, top[recorded])
    return norms


def _family_norms(
    distributions: Distributions,
    workers: Ints,
    transforms: _Transforms,
    top: Floats,
    centred: bool,
) -> Floats:
    """The norms of some workers of one family."""
    # Up to scale, there is one norm for each pair of shape and shift / scale.
    scale = distributions.scale[workers]
    if centred:
        ratio = np.zeros_like(scale)
    else:
        ratio = distributions.shift[workers] / scale
    (shape, shift), first, inverse = np.unique(
        np.stack([distributions.shape[workers], ratio]),
        axis=1,
        return_index=True,
        return_inverse=True,
    )
    if centred:
        log_mgf = transforms.centred
    else:
        log_mgf = transforms.raw
    # The bound is raised by more than its rounding error.
    top = np.minimum((top[workers] * scale)[first] * (1 + 1e-9), transforms.pole)
    roots = _root(lambda u, shift, shape: shift * u + log_mgf(shape, u), top, shift, shape)
    return scale / roots[inverse.ravel()]


def _record_norms(distributions: Distributions, workers: Ints, mean: Floats, top: Floats) -> Floats:
    """The norms of workers that replay a record, from their empirical distributions."""
    length = distributions.length[workers]
    start = np.cumsum(length) - length
    i = np.repeat(workers, length)
    place_in_record = np.arange(i.size) - np.repeat(start, length)
    recorded = distributions.table[distributions.record_start[i] + place_in_record]
    times = distributions.shift[i] + distributions.scale[i] * recorded
    distance = np.abs(times - mean[i])
    if workers.size:
        largest = np.maximum.reduceat(distance, start)
    else:
        largest = distance
    below = distance - np.repeat(largest, length)

    def log_mgf(u: Floats, place: Ints) -> Floats:
        """The logarithm for the records at some places; all are computed."""
        all_u = np.zeros(workers.size)
        all_u[place] = u
        # The largest distance is taken out of the sum, so that no term overflows.
        sums = np.add.reduceat(np.exp(np.repeat(all_u, length) * below), start)
        return (all_u * largest + np.log(sums / length))[place]

    return 1 / _root(log_mgf, top * (1 + 1e-9), np.arange(workers.size))


def _root(log_mgf: Callable[..., Floats], top: Floats, *arguments: Floats | Ints) -> Floats:
    """The u in ``(0, top]`` where ``log_mgf(u, *arguments)`` reaches log 2, shape (m,)."""
    if not top.size:
        return top
    from scipy.optimize.elementwise import find_root  # noqa: PLC0415 - it is slow to import

    def excess(u: Floats, *arguments: Floats | Ints) -> Floats:
        return np.nan_to_num(
            log_mgf(u, *arguments) - _LOG_2, nan=_ALMOST_INFINITE, posinf=_ALMOST_INFINITE
        )

    return np.asarray(find_root(excess, (np.zeros_like(top), top), args=arguments).x)
