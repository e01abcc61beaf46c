"""Pools from the usual parameters of each family.

Arrays broadcast: one entry per worker, or one for all. Times, scales, shifts and means are in units
of time.

Raises:
    ValueError: From each function, for parameters out of range or of unequal lengths, as from
        `Pool`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ata_gym.pools import validation as checks
from ata_gym.pools.pool import LatencyData, Pool


def exponential(mean: ArrayLike, shift: ArrayLike = 0.0) -> Pool:
    """Task times ``shift + Exp``.

    Args:
        mean: The mean of the exponential part.
        shift: The shift.

    Example:
        >>> exponential([1, 2]).mean()
        array([1., 2.])
    """
    return Pool("exponential", shift=shift, scale=checks.numbers("mean", mean, positive=True))


def shifted_exponential(shift: ArrayLike, mean: ArrayLike) -> Pool:
    """Task times ``shift + Exp``, the c + Exp(c) of the papers where both are c.

    Args:
        shift: The shift.
        mean: The mean of the exponential part.

    Example:
        >>> shifted_exponential([29, 58], [29, 58]).mean()
        array([ 58., 116.])
    """
    return exponential(mean, shift)


def gamma(shape: ArrayLike, scale: ArrayLike, shift: ArrayLike = 0.0) -> Pool:
    """Task times ``shift + Gamma(shape, scale)``, of mean ``shift + shape * scale``.

    Example:
        >>> gamma(4.0, 0.5).sd()
        array([1.])
    """
    return Pool("gamma", shift=shift, scale=scale, shape=shape)


def uniform(low: ArrayLike, high: ArrayLike) -> Pool:
    """Task times uniform between ``low`` and ``high``, which is larger for every worker.

    Example:
        >>> uniform(1, [3, 5]).mean()
        array([2., 3.])
    """
    low = checks.numbers("low", low)
    high = checks.numbers("high", high)
    checks.common_length({"low": low, "high": high})
    if np.any(low >= high):
        raise ValueError(
            "uniform times need low < high for every worker; for low = high use deterministic",
        )
    return Pool("uniform", shift=low, scale=high - low)


def half_normal(mean: ArrayLike, shift: ArrayLike = 0.0) -> Pool:
    """Task times ``shift + |N|``, where N is normal with mean 0.

    Args:
        mean: The mean of ``|N|``.
        shift: The shift.

    Example:
        >>> half_normal(2.0, shift=1.0).mean()
        array([3.])
    """
    part = checks.numbers("mean", mean, positive=True)
    return Pool("half-normal", shift=shift, scale=part * (np.pi / 2) ** 0.5)


def log_normal(mu: ArrayLike, sigma: ArrayLike, shift: ArrayLike = 0.0) -> Pool:
    """Task times ``shift + exp(N(mu, sigma^2))``.

    Example:
        >>> c = 29.0
        >>> log_normal(np.log(c) / 2, np.sqrt(np.log(c))).mean().round(9)
        array([29.])
    """
    with np.errstate(over="ignore", under="ignore"):
        scale = np.exp(checks.numbers("mu", mu))
    checks.numbers("exp(mu)", scale, positive=True)
    return Pool(
        "log-normal",
        shift=shift,
        scale=scale,
        shape=checks.numbers("sigma", sigma, positive=True),
    )


def weibull(shape: ArrayLike, scale: ArrayLike, shift: ArrayLike = 0.0) -> Pool:
    """Task times ``shift + scale * E^(1 / shape)``, where E ~ Exp(1).

    Their tail is heavier than exponential for shapes below 1.

    Example:
        >>> weibull(1.0, 3.0).mean()
        array([3.])
    """
    return Pool("weibull", shift=shift, scale=scale, shape=shape)


def pareto(shape: ArrayLike, scale: ArrayLike, shift: ArrayLike = 0.0) -> Pool:
    """Task times ``shift + scale * U^(-1 / shape)``, where U is uniform between 0 and 1.

    It is Lomax's distribution where ``shift = -scale``.

    Example:
        >>> pareto([3.0, 2.0, 1.0], 2.0).mean(), pareto([3.0, 2.0], 2.0).sd()
        (array([ 3.,  4., inf]), array([1.73205081,        inf]))
    """
    return Pool("pareto", shift=shift, scale=scale, shape=shape)


def deterministic(time: ArrayLike) -> Pool:
    """Every task of a worker takes the same time.

    Example:
        >>> deterministic([1, 2]).sd()
        array([0., 0.])
    """
    return Pool("deterministic", scale=checks.numbers("time", time, positive=True))


def trace(
    times: Sequence[ArrayLike],
    replay: str = "task",
    end: str = "wrap",
    latency: LatencyData | None = None,
) -> Pool:
    """Replay recorded times.

    Args:
        times: One sequence per worker, of finite numbers, not negative and not all zero.
        replay: With "task", each task of a worker takes the worker's next recorded time. With
            "round", all tasks of a worker in round k take its k-th recorded time.
        end: What happens at the end of a record. "wrap" starts over. "truncate" ends the episode
            before a round that the record cannot fill.
        latency: As for `Pool`, where the recorded times do not hold it.

    Example:
        >>> trace([[1.0, 2.0, 3.0], [5.0]]).mean()
        array([2., 5.])
    """
    if replay not in ("task", "round"):
        raise ValueError(f"replay must be task or round, got {replay!r}")
    return Pool(f"trace-by-{replay}", times=times, end=end, latency=latency)
