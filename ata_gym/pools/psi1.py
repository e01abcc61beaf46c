"""psi1 norms ``||Y|| = inf{c > 0 : E exp(|Y| / c) <= 2}``: where ``log E exp(u |Y|)`` reaches log 2, at u = 1 / c.

The logarithms are closed forms where there are any, since no quadrature sees a gamma distribution of shape 0.001, which
has mass at 1e300, or of shape 1e40. They are solved for all workers at once: one by one, 100,000 workers take a minute.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import exprel, gammainc, gammaincc, gammaln, log_ndtr, ndtr

from ata_gym.pools.distributions import Distributions, Moments
from ata_gym.pools.families import CODES, RECORDED
from ata_gym.typing import Floats, Ints

_LOG_2 = float(np.log(2.0))
_FAR = 1e300  # stands for infinity while a root is sought
_CONSTANT = 1e-17  # a time with a smaller coefficient of variation is a constant in floating point

LogMgf = Callable[[Floats, Floats], Floats]


def _gamma_centred(shape: Floats, u: Floats) -> Floats:
    """Gamma(shape, 1): both sides of the mean are incomplete gamma functions of the tilted distribution."""
    # Beyond 1e15 the distribution is normal in floating point: a smaller shape at the same u * sd gives the same.
    u, shape = u * np.sqrt(np.maximum(shape / 1e15, 1)), np.minimum(shape, 1e15)
    above = -shape * (np.log1p(-u) + u) + np.log(gammaincc(shape, shape * (1 - u)))
    below = -shape * (np.log1p(u) - u) + np.log(gammainc(shape, shape * (1 + u)))
    return np.asarray(np.logaddexp(above, below))


def _half_normal_centred(_: Floats, u: Floats) -> Floats:
    """|N(0, 1)|: completing the square on both sides of the mean m = sqrt(2 / pi)."""
    m = (2 / np.pi) ** 0.5
    sides = np.exp(-u * m) * ndtr(u - m) + np.exp(u * m) * (ndtr(u + m) - ndtr(u))
    return np.asarray(u**2 / 2 + np.log(2 * sides))


def _weibull(shape: Floats, u: Floats) -> Floats:  # E^(1 / shape), E ~ Exp(1), shape >= 1: by quadrature over log E
    return _log_integral(u[:, None] * np.exp(_W / shape[:, None]), _W)


def _weibull_centred(shape: Floats, u: Floats) -> Floats:
    """E^(1 / shape), E ~ Exp(1), shape >= 1: by quadrature, split where Z crosses its mean."""
    log_mean = gammaln(1 + 1 / shape)
    split = shape * log_mean
    w = split[:, None] + _W
    # |Z - m| = m |exp((w - split) / shape) - 1|: exact for shapes so large that Z is next to 1
    distance = np.exp(log_mean)[:, None] * np.abs(np.expm1((w - split[:, None]) / shape[:, None]))
    return _log_integral(u[:, None] * distance, w)


# Panels of a Gauss-Legendre rule over w = log E, with density exp(w - e^w). On the left it falls like e^w, so
# panels may widen; on the right E < 700 is enough, as u stays well below the pole of shape 1.
_EDGES = np.concatenate([-np.array([96.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0]), np.linspace(0.0, 7.1, 9)])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_W = (_EDGES[1:, None] + _EDGES[:-1, None] + np.diff(_EDGES)[:, None] * _NODES).ravel() / 2
_WEIGHT = (np.diff(_EDGES)[:, None] * _WEIGHTS).ravel() / 2


def _log_integral(exponent: Floats, w: Floats) -> Floats:
    inside = exponent + w - np.exp(w)
    top = inside.max(axis=1)
    return np.asarray(top + np.log(np.exp(inside - top[:, None]) @ _WEIGHT))


class _Transforms(NamedTuple):
    """Of a family: functions of arrays of shapes and of u >= 0, both (m,), that return (m,)."""

    raw: LogMgf  # ``log E exp(u Z)``
    centred: LogMgf  # ``log E exp(u |Z - E Z|)``
    pole: float = np.inf  # they are infinite from this u on
    lightest: float = 0.0  # they are infinite for all u > 0 if the shape is less


_GAMMA = _Transforms(lambda shape, u: -shape * np.log1p(-u), _gamma_centred, pole=1.0)
_TRANSFORMS = {
    "exponential": _GAMMA,
    "gamma": _GAMMA,
    # log((e^u - 1) / u); the distance from the mean is U[0, 1/2]
    "uniform": _Transforms(lambda _, u: np.log(exprel(u)), lambda _, u: np.log(exprel(u / 2))),
    "half-normal": _Transforms(lambda _, u: u**2 / 2 + np.log(2) + log_ndtr(u), _half_normal_centred),
    "weibull": _Transforms(_weibull, _weibull_centred, lightest=1.0),
}
"""Families that are not here have infinite norms."""


def psi1_norms(distributions: Distributions, moments: Moments, *, centred: bool) -> Floats:
    """psi1 norm of each worker's task time, less its mean if ``centred``, shape (n,), in units of time.

    It is inf where no exponential moment is finite, and 0 for a constant less its mean.
    """
    mean, sd, _ = moments
    constant = sd == 0 if centred else (sd == 0) | (sd < _CONSTANT * mean)
    norms = np.where(constant, 0.0 if centred else mean / _LOG_2, np.inf)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # log E exp(u |Y|) is at least u E|Y|, and E exp(u |Y|) at least 1 + u^2 E Y^2 / 2.
        top = np.sqrt(2) / sd if centred else _LOG_2 / mean
        for name, transforms in _TRANSFORMS.items():
            mine = (distributions.family == CODES[name]) & (distributions.shape >= transforms.lightest)
            workers = np.flatnonzero(mine & ~constant)
            norms[workers] = _family_norms(distributions, workers, transforms, top, centred)
        recorded = np.flatnonzero(np.isin(distributions.family, RECORDED) & ~constant)
        norms[recorded] = _record_norms(distributions, recorded, mean * centred, top[recorded])
    return norms


def _family_norms(
    distributions: Distributions, workers: Ints, transforms: _Transforms, top: Floats, centred: bool
) -> Floats:  # norms of workers of one family: up to scale, one for each pair of shape and shift / scale
    scale = distributions.scale[workers]
    ratio = np.zeros_like(scale) if centred else distributions.shift[workers] / scale
    (shape, shift), first, where = np.unique(
        np.stack([distributions.shape[workers], ratio]), axis=1, return_index=True, return_inverse=True
    )
    log_mgf = transforms.centred if centred else transforms.raw
    # a hair above the bound, for its own rounding
    top = np.minimum((top[workers] * scale)[first] * (1 + 1e-9), transforms.pole)
    return scale / _root(lambda u, shift, shape: shift * u + log_mgf(shape, u), top, shift, shape)[where.ravel()]


def _record_norms(distributions: Distributions, workers: Ints, mean: Floats, top: Floats) -> Floats:
    length = distributions.length[workers]
    start = np.cumsum(length) - length
    i = np.repeat(workers, length)
    times = distributions.table[distributions.first[i] + np.arange(i.size) - np.repeat(start, length)]
    distance = np.abs(distributions.shift[i] + distributions.scale[i] * times - mean[i])
    most = np.maximum.reduceat(distance, start) if workers.size else distance
    below = distance - np.repeat(most, length)

    def log_mgf(u: Floats, place: Ints) -> Floats:
        """Of the records at some places; all are computed."""
        every = np.zeros(workers.size)
        every[place] = u
        return (every * most + np.log(np.add.reduceat(np.exp(np.repeat(every, length) * below), start) / length))[place]

    return 1 / _root(log_mgf, top * (1 + 1e-9), np.arange(workers.size))


def _root(log_mgf: Callable[..., Floats], top: Floats, *arguments: Floats | Ints) -> Floats:
    """Where ``log_mgf(u, *arguments)`` reaches log 2 for u in ``(0, top]``, elementwise, shape (m,)."""
    if not top.size:
        return top
    from scipy.optimize.elementwise import find_root  # noqa: PLC0415 - it is slow to import

    def excess(u: Floats, *arguments: Floats | Ints) -> Floats:
        return np.nan_to_num(log_mgf(u, *arguments) - _LOG_2, nan=_FAR, posinf=_FAR)

    return np.asarray(find_root(excess, (np.zeros_like(top), top), args=arguments).x)
