"""Distributions of sums of independent times that have a density: piecewise polynomials, convolved exactly."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev, legendre

from ata_gym.pools.families import FAMILIES
from ata_gym.typing import Floats
from ata_gym.utils.compiled import helper, kernel

_TERMS = 12
_NODES, _WEIGHTS = legendre.leggauss(_TERMS)
_POINTS = np.cos(np.pi * np.arange(_TERMS) / (_TERMS - 1))  # with both ends: a narrow step may be there
_TO_SERIES = np.linalg.inv(chebyshev.chebvander(_POINTS, _TERMS - 1)).T
_FAR = 1e9  # curves end here, in units of the mean task time, unless the survival probability vanishes before
_VANISHED = 1e-16
_PIECES = 1000  # far more than any distribution here needs


class Curve(NamedTuple):
    """P(S > least + x) for a sum S, as Chebyshev series between edges; what lies beyond the last edge is left out."""

    edges: Floats  # (m + 1,) increasing, the first is 0
    series: Floats
    slopes: Floats  # (m, 12) coefficients of the survival probability and of its derivative
    area: Floats  # (m, 13) coefficients of its integral from the first edge to x

    def survival(self, x: Floats) -> Floats:
        """P(S > least + x) within the edges, same shape as ``x``."""
        return np.asarray(_evaluate(self.edges, self.series, x))

    def before(self, x: Floats) -> Floats:
        """The integral of P(S > least + t) over t from 0 to x within the edges, same shape as ``x``."""
        return np.asarray(_evaluate(self.edges, self.area, x))


class Standard(NamedTuple):
    """A standard distribution ``lowest + Y`` that has a density."""

    lowest: float
    mean: float  # E[Y]
    far: float  # P(Y > far) has vanished, or far is 1e9 means of Y
    heavy: bool  # whether P(Y > far) has not vanished
    sd: float
    rounding: float
    """Error of a probability within the spread that rounding of a time makes: large for narrow distributions."""
    survival: Callable[[Floats], Floats]  # P(Y > y), elementwise
    excess: Callable[[Floats], Floats]  # E[(Y - y)+], elementwise, for y of at least 0


@lru_cache(maxsize=1024)
def standard(family: int, shape: float) -> Standard:
    """Standard distribution of a family with a density."""
    row = FAMILIES[family]
    distribution, sd = row.distribution(shape), float(row.sd(np.array([shape]))[0])
    with np.errstate(over="ignore"):  # higher moments
        whole, last = float(distribution.mean()), float(distribution.isf(_VANISHED)) - row.lowest
    mean = whole - row.lowest
    far, rounding = _FAR * mean, 1e-15 * whole / sd

    def survival(y: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(distribution.sf(row.lowest + y))

    def excess(y: Floats) -> Floats:
        return row.excess(row.lowest + y, shape)

    return Standard(row.lowest, mean, min(last, far), last > far, sd, rounding, survival, excess)


@lru_cache(maxsize=1024)
def sum_curve(family: int, shape: float, terms: int, tolerance: float) -> Curve:
    """Return the distribution of a sum of ``terms`` standard times of a family, counted from the least possible sum.

    The sum is split in halves, and the curves of all sizes are kept: one convolution for each new number of terms. The
    convolution of two curves is exact; the result is cut into new pieces, until the last Chebyshev coefficients are
    below ``tolerance``, or ``tolerance * mean / x`` at large x, so that integrals over the tail are right as well. For
    very narrow distributions rounding sets a limit.
    """
    distribution = standard(family, shape)
    limits = tolerance, distribution.rounding * terms**0.5, 8 * distribution.sd * terms**0.5
    if terms == 1:
        return adaptive_curve(distribution.survival, np.array([0.0, distribution.far]), distribution.mean, *limits)
    first, second = (sum_curve(family, shape, part, tolerance) for part in (terms // 2, terms - terms // 2))
    end = float(second.edges[-1])
    # between the pieces of a narrow distribution are jumps as large as the rounding, which its density lacks
    mass = -2.0 * float(second.series[:, 1::2].sum()) if limits[1] > tolerance else 1.0

    def survival(x: Floats) -> Floats:
        early = _convolve(first.edges, first.series, second.edges, second.slopes, x)
        return np.asarray(early / mass + np.where(x < end, second.survival(np.minimum(x, end)), 0.0))

    far = end if distribution.heavy else float(first.edges[-1]) + end
    return adaptive_curve(survival, np.array([0.0, far]), terms * distribution.mean, *limits)


def adaptive_curve(
    survival: Callable[[Floats], Floats],
    edges: Floats,
    mean: float,
    tolerance: float,
    rounding: float = 0.0,
    spread: float = 0.0,
    most: int = _PIECES,
) -> Curve:
    """Halve the parts between ``edges`` until every part is a short Chebyshev series, or shorter than the spread.

    The last coefficients are below ``tolerance``, or ``tolerance * mean / x`` at large x, unless that would make more
    than ``most`` pieces. Within parts shorter than the spread, an error of a probability as large as ``rounding`` is
    accepted too.
    """
    left, right, far = edges[:-1], edges[1:], edges[-1]
    done: list[tuple[Floats, Floats]] = []
    count = 0
    while left.size:  # it ends, since about ``most`` pieces are made at most
        x = (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * _POINTS
        series = survival(x) @ _TO_SERIES
        aim = np.where(right - left <= np.maximum(spread, 1e-15 * right), max(tolerance, rounding), tolerance)
        good = np.abs(series[:, -3:]).max(axis=1) * np.maximum(1.0, right / mean) <= aim
        good |= count + 2 * left.size > most
        done.append((left[good], series[good]))
        count += int(good.sum())
        middle = (left + right)[~good] / 2
        left, right = np.concatenate([left[~good], middle]), np.concatenate([middle, right[~good]])
    lefts, pieces = (np.concatenate(part) for part in zip(*done, strict=True))
    order = np.argsort(lefts)
    edges, series = np.append(lefts[order], far), pieces[order]
    widths = np.diff(edges)[:, None]
    slopes = np.zeros_like(series)
    slopes[:, :-1] = chebyshev.chebder(series, axis=1) * (2 / widths)
    area = chebyshev.chebint(series, lbnd=-1, axis=1) * (widths / 2)
    whole = area.sum(axis=1)
    area[:, 0] += np.cumsum(whole) - whole
    return Curve(edges, series, slopes, area)


@helper()
def _series(coefficients: Floats, row: int, x: float) -> float:
    later, latest = 0.0, 0.0
    for k in range(coefficients.shape[1] - 1, 0, -1):
        later, latest = coefficients[row, k] + 2.0 * x * later - latest, later
    return float(coefficients[row, 0] + x * later - latest)


@helper()
def _piece(edges: Floats, x: float) -> int:
    return min(max(int(np.searchsorted(edges, x, side="right")) - 1, 0), edges.size - 2)


@kernel("(e),(m,c),()->()")
def _evaluate(edges: Floats, series: Floats, x: Floats, out: Floats) -> None:
    row = _piece(edges, x[0])
    out[0] = _series(series, row, 2.0 * (x[0] - edges[row]) / (edges[row + 1] - edges[row]) - 1.0)


@kernel("(e),(m,c),(f),(k,d),()->()")
def _convolve(edges_a: Floats, series_a: Floats, edges_b: Floats, slopes_b: Floats, x: Floats, out: Floats) -> None:
    """P(A + B > x, B <= x): the integral of P(A > x - z) over the distribution of B, piece by piece."""
    t = x[0]
    z, top = max(0.0, t - edges_a[-1]), min(t, edges_b[-1])
    b, a = _piece(edges_b, z), _piece(edges_a, t - z)
    total = 0.0
    while (
        z < top and a >= 0
    ):  # each pass ends at the edge of a piece of B or of A, and goes on with the next, or at top
        end = min(edges_b[b + 1], t - edges_a[a], top)
        half = (end - z) / 2
        if half > 0.0:
            width_a, width_b = edges_a[a + 1] - edges_a[a], edges_b[b + 1] - edges_b[b]
            for g in range(_TERMS):
                s = z + half * (1.0 + _NODES[g])
                density = -_series(slopes_b, b, 2.0 * (s - edges_b[b]) / width_b - 1.0)
                later = _series(series_a, a, 2.0 * (t - s - edges_a[a]) / width_a - 1.0)
                total += half * _WEIGHTS[g] * density * later
        if edges_b[b + 1] <= end:
            b += 1
        if t - edges_a[a] <= end:
            a -= 1
        z = max(z, end)
    out[0] = total
