"""psi1 norms: ``||Y|| = inf{c > 0 : E exp(|Y| / c) <= 2}``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools.families import FAMILIES

if TYPE_CHECKING:
    from ata_gym.pools.families import FloatArray, LogMgf
    from ata_gym.pools.laws import Laws
    from ata_gym.pools.moments import Moments

_LOG_2 = float(np.log(2.0))
_CONSTANT = 1e-17
"""A time with a smaller coefficient of variation is a constant in floating point."""


def psi1_norms(laws: Laws, moments: Moments, *, centred: bool) -> FloatArray:
    """Psi1 norm of every worker's task time, or of its distance from its mean.

    Parameters
    ----------
    laws
        The laws of n workers.
    moments
        Their moments.
    centred
        Whether to subtract the mean first.

    Returns
    -------
    ndarray
        (n,), in units of time; inf where no exponential moment is finite, 0 for a constant less its mean.
    """
    mean, sd, _ = moments
    constant = sd == 0 if centred else (sd == 0) | (sd < _CONSTANT * mean)
    norms = np.where(constant, 0.0 if centred else mean / _LOG_2, np.inf)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # log E exp(u |Y|) is at least u E|Y|, and E exp(u |Y|) at least 1 + u^2 E Y^2 / 2.
        top = np.sqrt(2) / sd if centred else _LOG_2 / mean
        for code, family in enumerate(FAMILIES):
            light = np.flatnonzero((laws.family == code) & (laws.shape >= family.light_from) & ~constant)
            log_mgf = family.log_mgf_centred if centred else family.log_mgf
            if family.trace:
                for i in light:
                    norms[i] = _record_norm(laws, int(i), mean[i] if centred else 0.0, top[i])
            elif log_mgf is not None and light.size:
                norms[light] = _family_norms(laws, light, log_mgf, top, family.pole, centred)
    return norms


def _family_norms(
    laws: Laws, workers: NDArray[np.int64], log_mgf: LogMgf, top: FloatArray, pole: float, centred: bool
) -> FloatArray:
    """Norms of workers of one family: up to scale, one for each pair of shape and shift / scale."""
    scale = laws.scale[workers]
    ratio = np.zeros_like(scale) if centred else laws.shift[workers] / scale
    (shape, shift), first, where = np.unique(
        np.stack([laws.shape[workers], ratio]), axis=1, return_index=True, return_inverse=True
    )
    # a hair above the bound, for its own rounding
    top = np.minimum((top[workers] * scale)[first] * (1 + 1e-9), pole)
    return scale / _root(lambda u: shift * u + log_mgf(shape, u), top)[where.ravel()]


def _record_norm(laws: Laws, i: int, mean: float, top: float) -> float:
    """Norm of ``X - mean`` under the empirical law of a record."""
    first, length = laws.first[i], laws.length[i]
    distance = np.abs(laws.shift[i] + laws.scale[i] * laws.table[first : first + length] - mean)
    most = distance.max()

    def log_mgf(u: FloatArray) -> FloatArray:
        return np.asarray(u * most + np.log(np.mean(np.exp(u * (distance - most)), keepdims=True)))

    return float(1 / _root(log_mgf, np.array([top * (1 + 1e-9)]))[0])


def _root(log_mgf: Callable[[FloatArray], FloatArray], top: FloatArray) -> FloatArray:
    """Where convex functions with ``log_mgf(0) = 0`` reach log 2 in ``(0, top]``, all at once, shape (m,).

    Each step cuts the bracket twice: by the chord, which on a convex function is a lower bound and converges
    superlinearly, and by halving, which converges whatever the values are, inf included.
    """
    low, high = np.zeros_like(top), top.copy()
    at_low, at_high = np.full_like(top, -_LOG_2), log_mgf(top) - _LOG_2
    for _ in range(80):
        before, near = low, at_high < 1
        for chord in (True, False):
            step = (high - low) * (-at_low / (at_high - at_low) if chord else 0.5)
            middle = low + step
            value = log_mgf(middle) - _LOG_2
            below = value <= 0
            low, at_low = np.where(below, middle, low), np.where(below, value, at_low)
            high, at_high = np.where(below, high, middle), np.where(below, at_high, value)
        done = (near & (low - before <= 1e-15 * low)) | (high - low <= 1e-15 * high)
        if done.all():
            break
    return low
