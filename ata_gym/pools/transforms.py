"""``log E exp(u Z)`` and ``log E exp(u |Z - E Z|)`` of the standard laws: what psi1 norms are solved from.

All functions take a shape parameter and ``u >= 0``, arrays of shape ``(m,)``, and give ``(m,)``; laws without
a shape ignore it (the exponential law is the gamma law of shape 1). They stay in logarithms where a factor
could overflow, and give inf from the pole on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import exprel, gammainc, gammaincc, gammaln, log_ndtr, ndtr

if TYPE_CHECKING:
    from ata_gym.pools.families import FloatArray

_HALF_NORMAL_MEAN = (2 / np.pi) ** 0.5


def gamma(shape: FloatArray, u: FloatArray) -> FloatArray:
    """Gamma(shape, 1): ``-shape log(1 - u)``."""
    return -shape * np.log1p(-u)


def gamma_centred(shape: FloatArray, u: FloatArray) -> FloatArray:
    """Gamma(shape, 1): both sides of the mean are incomplete gamma functions of the tilted law."""
    # Beyond 1e15 the law is normal in floating point: a smaller shape at the same u * sd gives the same.
    u, shape = u * np.sqrt(np.maximum(shape / 1e15, 1)), np.minimum(shape, 1e15)
    above = -shape * (np.log1p(-u) + u) + np.log(gammaincc(shape, shape * (1 - u)))
    below = -shape * (np.log1p(u) - u) + np.log(gammainc(shape, shape * (1 + u)))
    return np.asarray(np.logaddexp(above, below))


def uniform(_: FloatArray, u: FloatArray) -> FloatArray:
    """U[0, 1]: ``log((e^u - 1) / u)``."""
    return np.asarray(np.log(exprel(u)))


def uniform_centred(_: FloatArray, u: FloatArray) -> FloatArray:
    """U[0, 1]: the distance from the mean is U[0, 1/2]."""
    return np.asarray(np.log(exprel(u / 2)))


def half_normal(_: FloatArray, u: FloatArray) -> FloatArray:
    """|N(0, 1)|: ``u^2 / 2 + log(2 Phi(u))``."""
    return np.asarray(u**2 / 2 + np.log(2) + log_ndtr(u))


def half_normal_centred(_: FloatArray, u: FloatArray) -> FloatArray:
    """|N(0, 1)|: completing the square on both sides of the mean m = sqrt(2 / pi)."""
    m = _HALF_NORMAL_MEAN
    sides = np.exp(-u * m) * ndtr(u - m) + np.exp(u * m) * (ndtr(u + m) - ndtr(u))
    return np.asarray(u**2 / 2 + np.log(2 * sides))


def weibull(shape: FloatArray, u: FloatArray) -> FloatArray:
    """E^(1 / shape), E ~ Exp(1), shape >= 1: by quadrature over log E."""
    w, weight = _log_exponential_rule(np.zeros_like(shape))
    return _log_integral(u[:, None] * np.exp(w / shape[:, None]), w, weight)


def weibull_centred(shape: FloatArray, u: FloatArray) -> FloatArray:
    """E^(1 / shape), E ~ Exp(1), shape >= 1: by quadrature, split where Z crosses its mean."""
    log_mean = gammaln(1 + 1 / shape)
    split = shape * log_mean
    w, weight = _log_exponential_rule(split)
    # |Z - m| = m |exp((w - split) / shape) - 1|: exact for shapes so large that Z is next to 1
    distance = np.exp(log_mean)[:, None] * np.abs(np.expm1((w - split[:, None]) / shape[:, None]))
    return _log_integral(u[:, None] * distance, w, weight)


# Panels of a Gauss-Legendre rule over w = log E, with density exp(w - e^w). On the left it falls like e^w, so
# panels may widen; on the right E < 700 is enough, as u stays well below the pole of shape 1.
_LEFT = -np.array([96.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0])
_RIGHT = np.linspace(0.0, 7.1, 9)
_EDGES = np.concatenate([_LEFT, _RIGHT])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_W = (_EDGES[1:, None] + _EDGES[:-1, None] + np.diff(_EDGES)[:, None] * _NODES).ravel() / 2
_WEIGHT = (np.diff(_EDGES)[:, None] * _WEIGHTS).ravel() / 2


def _log_exponential_rule(split: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes (m, q) of w = log E with a panel edge at ``split``, and their weights (q,)."""
    return split[:, None] + _W, _WEIGHT


def _log_integral(exponent: FloatArray, w: FloatArray, weight: FloatArray) -> FloatArray:
    """``log E exp(exponent)`` over E ~ Exp(1), from its values (m, q) at w = log E."""
    inside = exponent + w - np.exp(w)
    top = inside.max(axis=1)
    return np.asarray(top + np.log(np.exp(inside - top[:, None]) @ weight))
