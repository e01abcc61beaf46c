"""Distributions of sums of independent times with a density, as piecewise polynomials."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev, legendre

from ata_gym.pools.families import FAMILIES
from ata_gym.typing import Floats
from ata_gym.utils.compiled import helper, kernel

_TERMS = 12  # coefficients of a series
_NODES, _WEIGHTS = legendre.leggauss(_TERMS)
# Chebyshev points with both ends, since a narrow step may be there.
_POINTS = np.cos(np.pi * np.arange(_TERMS) / (_TERMS - 1))
_TO_SERIES = np.linalg.inv(chebyshev.chebvander(_POINTS, _TERMS - 1)).T
_CURVE_END = 1e9
"""Curves end here, in mean task times, unless the survival probability vanishes before."""
_VANISHED_PROBABILITY = 1e-16  # a probability that counts as 0
_MOST_PIECES = 1000  # far more than any distribution here needs


class Curve(NamedTuple):
    """P(S > least + x) for a sum S, as Chebyshev series between edges.

    The distribution beyond the last edge is left out.
    """

    edges: Floats
    """The edges of the m pieces, shape (m + 1,), increasing; the first is 0."""
    series: Floats
    """The coefficients of the survival probability, shape (m, 12)."""
    slopes: Floats
    """The coefficients of its derivative, shape (m, 12)."""
    area: Floats
    """The coefficients of its integral from the first edge to x, shape (m, 13)."""

    def survival(self, x: Floats) -> Floats:
        """P(S > least + x) within the edges, in the shape of ``x``."""
        return np.asarray(_evaluate(self.edges, self.series, x))

    def integral(self, x: Floats) -> Floats:
        """The integral of P(S > least + t) over t from 0 to x, in the shape of ``x``."""
        return np.asarray(_evaluate(self.edges, self.area, x))


class Standard(NamedTuple):
    """A standard distribution ``lowest + Y`` that has a density."""

    lowest: float
    """The least value."""
    mean: float
    """The mean E[Y]."""
    end: float
    """The end of the curve: P(Y > end) has vanished, or the end is 1e9 means of Y."""
    heavy: bool
    """Whether P(Y > end) has not vanished."""
    sd: float
    """The standard deviation of Y."""
    rounding: float
    """The error of a probability within the spread that rounding of a time makes.

    It is large for narrow distributions.
    """
    survival: Callable[[Floats], Floats]
    """The function P(Y > y), elementwise."""
    excess: Callable[[Floats], Floats]
    """The function E[(Y - y)+], elementwise, for y of at least 0."""


@lru_cache(maxsize=1024)
def standard(family: int, shape: float) -> Standard:
    """The standard distribution of a family with a density, by its code and shape."""
    row = FAMILIES[family]
    distribution = row.distribution(shape)
    sd = float(row.sd(np.array([shape]))[0])
    # SciPy computes higher moments, too, which may overflow.
    with np.errstate(over="ignore"):
        full_mean = float(distribution.mean())
        last_time = float(distribution.isf(_VANISHED_PROBABILITY)) - row.lowest
    mean = full_mean - row.lowest
    curve_end = _CURVE_END * mean
    rounding = 1e-15 * full_mean / sd

    def survival(y: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(distribution.sf(row.lowest + y))

    def excess(y: Floats) -> Floats:
        return row.excess(row.lowest + y, shape)

    return Standard(
        row.lowest,
        mean,
        min(last_time, curve_end),
        last_time > curve_end,
        sd,
        rounding,
        survival,
        excess,
    )


@lru_cache(maxsize=1024)
def sum_curve(family: int, shape: float, terms: int, tolerance: float) -> Curve:
    """The distribution of a sum of standard times of a family, from the least possible sum on.

    The sum is split in halves, and the curves of all sizes are kept: one convolution for each new
    number of terms. The convolution of two curves is exact. The result is cut into new pieces,
    until the last Chebyshev coefficients are below ``tolerance``, or ``tolerance * mean / x`` at
    large x, so that integrals over the tail are right as well. For very narrow distributions
    rounding sets a limit.

    Args:
        family: The code of the family.
        shape: The shape of the distribution.
        terms: The number of times in the sum.
        tolerance: The error of the probabilities.
    """
    distribution = standard(family, shape)
    rounding = distribution.rounding * terms**0.5
    limits = tolerance, rounding, 8 * distribution.sd * terms**0.5
    if terms == 1:
        edges = np.array([0.0, distribution.end])
        return adaptive_curve(distribution.survival, edges, distribution.mean, *limits)
    first_half = sum_curve(family, shape, terms // 2, tolerance)
    second_half = sum_curve(family, shape, terms - terms // 2, tolerance)
    # Between the pieces of a narrow distribution are jumps as large as the rounding, which are
    # missing in the density: ``mass`` is the integral of the density, -2 times the sum of the odd
    # coefficients of all pieces.
    if rounding > tolerance:
        mass = -2.0 * float(second_half.series[:, 1::2].sum())
    else:
        mass = 1.0

    survival = convolved(first_half, second_half, mass)
    end = float(second_half.edges[-1])
    if distribution.heavy:
        curve_end = end
    else:
        curve_end = float(first_half.edges[-1]) + end
    return adaptive_curve(survival, np.array([0.0, curve_end]), terms * distribution.mean, *limits)


def convolved(first: Curve, second: Curve, mass: float = 1.0) -> Callable[[Floats], Floats]:
    """The function P(A + B > x), elementwise, where two curves are of P(A > x) and P(B > x).

    Args:
        first: The curve of A.
        second: The curve of B.
        mass: The integral of the density of B.
    """
    end = float(second.edges[-1])

    def survival(x: Floats) -> Floats:
        """P(A + B > x) = P(A + B > x, B <= x) + P(B > x)."""
        early = _convolve(first.edges, first.series, second.edges, second.slopes, x)
        late = np.where(x < end, second.survival(np.minimum(x, end)), 0.0)
        return np.asarray(early / mass + late)

    return survival


def adaptive_curve(
    survival: Callable[[Floats], Floats],
    edges: Floats,
    mean: float,
    tolerance: float,
    rounding: float = 0.0,
    spread: float = 0.0,
    max_pieces: int = _MOST_PIECES,
) -> Curve:
    """Halve the parts between ``edges`` until every part is a short Chebyshev series.

    The last coefficients are below ``tolerance``, or ``tolerance * mean / x`` at large x, unless
    the curve would have more than ``max_pieces`` pieces.

    Args:
        survival: The function to approximate, elementwise.
        edges: Edges of the first parts, increasing.
        mean: The mean of the distribution.
        tolerance: The error of a probability.
        rounding: An error that is accepted, too, in parts shorter than the spread.
        spread: The spread of the distribution.
        max_pieces: The largest number of pieces, about.
    """
    left = edges[:-1]
    right = edges[1:]
    last_edge = edges[-1]
    finished: list[tuple[Floats, Floats]] = []
    count = 0
    # The loop ends, since about ``max_pieces`` pieces are made at most.
    while left.size:
        centre = (left + right)[:, None] / 2
        half_width = (right - left)[:, None] / 2
        x = centre + half_width * _POINTS
        series = survival(x) @ _TO_SERIES
        aim = np.where(
            right - left <= np.maximum(spread, 1e-15 * right),
            max(tolerance, rounding),
            tolerance,
        )
        # Where the last coefficients are small, so are those that are left out.
        last = np.abs(series[:, -3:]).max(axis=1)
        accurate = last * np.maximum(1.0, right / mean) <= aim
        accurate |= count + 2 * left.size > max_pieces
        finished.append((left[accurate], series[accurate]))
        count += int(accurate.sum())
        middle = (left + right)[~accurate] / 2
        left = np.concatenate([left[~accurate], middle])
        right = np.concatenate([middle, right[~accurate]])
    lefts, pieces = (np.concatenate(part) for part in zip(*finished, strict=True))
    # Pieces were finished level by level; here they are put in their order.
    order = np.argsort(lefts)
    edges = np.append(lefts[order], last_edge)
    series = pieces[order]
    widths = np.diff(edges)[:, None]
    slopes = np.zeros_like(series)
    slopes[:, :-1] = chebyshev.chebder(series, axis=1) * (2 / widths)
    area = chebyshev.chebint(series, lbnd=-1, axis=1) * (widths / 2)
    # The integral of each piece (every Chebyshev polynomial is 1 at the right end) is added to all
    # later pieces.
    integrals = area.sum(axis=1)
    area[:, 0] += np.cumsum(integrals) - integrals
    return Curve(edges, series, slopes, area)


@helper()
def _series(coefficients: Floats, row: int, x: float) -> float:
    """The Chebyshev series of a row at x in [-1, 1], by Clenshaw's recurrence."""
    later = 0.0
    latest = 0.0
    for k in range(coefficients.shape[1] - 1, 0, -1):
        later, latest = coefficients[row, k] + 2.0 * x * later - latest, later
    return float(coefficients[row, 0] + x * later - latest)


@helper()
def _piece(edges: Floats, x: float) -> int:
    """The piece that holds x; the first or the last one for x outside."""
    return min(max(int(np.searchsorted(edges, x, side="right")) - 1, 0), edges.size - 2)


@kernel("(e),(m,c),()->()")
def _evaluate(edges: Floats, series: Floats, x: Floats, out: Floats) -> None:
    """The value of a piecewise series at x."""
    row = _piece(edges, x[0])
    out[0] = _series(series, row, 2.0 * (x[0] - edges[row]) / (edges[row + 1] - edges[row]) - 1.0)


@kernel("(e),(m,c),(f),(k,d),()->()")
def _convolve(
    edges_a: Floats,
    series_a: Floats,
    edges_b: Floats,
    slopes_b: Floats,
    x: Floats,
    out: Floats,
) -> None:
    """P(A + B > x, B <= x): the integral of P(A > x - z) over the distribution of B."""
    t = x[0]
    z = max(0.0, t - edges_a[-1])
    top = min(t, edges_b[-1])
    b = _piece(edges_b, z)
    a = _piece(edges_a, t - z)
    total = 0.0
    # Each pass integrates to the next edge of a piece of B or of A, or to ``top``. Between edges
    # both series are polynomials, so that the quadrature is exact.
    while z < top and a >= 0:
        end = min(edges_b[b + 1], t - edges_a[a], top)
        half = (end - z) / 2
        if half > 0.0:
            width_a = edges_a[a + 1] - edges_a[a]
            width_b = edges_b[b + 1] - edges_b[b]
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
