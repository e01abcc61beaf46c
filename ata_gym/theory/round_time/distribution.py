"""The distributions of sums of standard times, and of shares that begin with a latency."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincc

from ata_gym.pools.families import (
    DETERMINISTIC,
    EXPONENTIAL,
    FAMILIES,
    GAMMA,
    TRACE_BY_ROUND,
    TRACE_BY_TASK,
    UNIFORM,
)
from ata_gym.pools.pool import Pool
from ata_gym.theory.round_time.convolution import (
    Curve,
    Standard,
    adaptive_curve,
    convolved,
    standard,
    sum_curve,
)
from ata_gym.typing import Floats, Mask

Function = Callable[[Floats], Floats]

_CONSTANT_CV = 1e-9  # distributions with a smaller coefficient of variation count as constants
_TOLERANCE = {False: 1e-8, True: 1e-11}
"""The error of the probabilities of a convolved sum, by whether it is fine."""
_VANISHED_PROBABILITY = 1e-16  # a probability that counts as 0
_CURVE_END = 1e9  # curves end here, in means, unless the probability vanishes before
_MOST_ATOMS = 512  # values of a record that are added to a density; more are grouped
_MOST_SUMS = 2**18  # sums of two records; of more, both are grouped
_MOST_PIECES = 1000  # pieces of a curve, beside those that begin at an atom


class Distribution(NamedTuple):
    """A distribution of a time T."""

    survival: Function
    """The function P(T > x), elementwise."""
    excess: Function
    """The function E[(T - x)+], elementwise, for x of at least ``lowest``."""
    lowest: float
    """The least value."""
    knots: Floats
    """The jumps and kinks of P(T > x) beyond ``lowest``, shape (any,): edges for a quadrature."""
    constant: bool = False
    """Whether P(T > x) is constant between the knots, as for recorded times."""


def random_latency(pool: Pool) -> Mask:
    """Which workers have a latency that is random, shape (n,); other latencies are constants."""
    if pool.latency is None:
        return np.zeros(pool.n, np.bool_)
    return np.asarray(pool.latency.sd() > _CONSTANT_CV * pool.latency.mean())


def delayed_sum(pool: Pool, i: int, terms: int, fine: bool) -> tuple[Distribution, float]:
    """The distribution of a random latency and ``terms`` task times of worker i, without shifts.

    Two densities are convolved numerically, as in ``sum_curve``. A record counts in full up to 512
    values beside a density, and up to 2**18 sums beside another record; of longer ones neighbours
    are replaced by their mean.

    Returns:
        The distribution of (scale T + latency's scale L) / unit, for the standard times T and L,
        and the unit.
    """
    latency = pool.latency
    assert latency is not None
    tasks = pool.distributions
    delays = latency.distributions
    # In this unit neither scale is above 1, so that no sum overflows.
    unit = float(max(tasks.scale[i], delays.scale[i]))
    task_factor = float(tasks.scale[i]) / unit
    factor = float(delays.scale[i]) / unit
    kinds = int(tasks.family[i]), int(delays.family[i])
    if FAMILIES[kinds[0]].trace or FAMILIES[kinds[1]].trace:
        task_sum = _scaled(sum_of_tasks(pool, i, terms, fine), task_factor)
        delay = _scaled(sum_of_tasks(latency, i, 1, fine), factor)
        return _sum_of_two(task_sum, delay, _TOLERANCE[fine]), unit
    shapes = float(tasks.shape[i]), float(delays.shape[i])
    return _delayed_family(kinds, shapes, (task_factor, factor), terms, fine), unit


@lru_cache(maxsize=1024)
def _delayed_family(
    kinds: tuple[int, int],
    shapes: tuple[float, float],
    factors: tuple[float, float],
    terms: int,
    fine: bool,
) -> Distribution:
    """As ``delayed_sum``, for the families of the tasks and of the latency."""
    task_sum = _scaled(_sum_of_family(kinds[0], shapes[0], terms, fine), factors[0])
    delay = _scaled(_sum_of_family(kinds[1], shapes[1], 1, fine), factors[1])
    return _sum_of_two(task_sum, delay, _TOLERANCE[fine])


def _scaled(distribution: Distribution, factor: float) -> Distribution:
    """The distribution of ``factor`` times T, for a factor from 0 to 1."""
    survival, excess, lowest, knots, constant = distribution
    if factor == 1.0:
        return distribution
    if factor == 0.0:
        return empirical(np.zeros(1))

    def scaled_survival(x: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return survival(x / factor)

    def scaled_excess(x: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return factor * excess(np.maximum(x / factor, lowest))

    return Distribution(
        scaled_survival, scaled_excess, factor * lowest, factor * knots, constant=constant
    )


def _sum_of_two(first: Distribution, second: Distribution, tolerance: float) -> Distribution:
    """The distribution of the sum of two independent times."""
    if second.constant:
        first, second = second, first
    if second.constant:
        return _sum_of_steps(first, second)
    if first.constant:
        return _mixture(grouped(first, _MOST_ATOMS), second, tolerance)
    curves = [_curve(first, tolerance), _curve(second, tolerance)]
    ends = [float(curve.edges[-1]) for curve in curves]
    # Where the tail of one is heavy, the curve of the sum ends where the longer curve does.
    tails = _tail(first, ends[0]), _tail(second, ends[1])
    if max(tails) > _VANISHED_PROBABILITY:
        end = max(ends)
    else:
        end = sum(ends)
    knots = [np.append(0.0, part.knots - part.lowest) for part in (first, second)]
    edges = np.unique(np.append(np.add.outer(*knots), end))
    mean = _mean_above(first) + _mean_above(second)
    curve = adaptive_curve(convolved(curves[0], curves[1]), edges[edges <= end], mean, tolerance)

    def beyond(y: Floats) -> Floats:
        # Only one very long time can make the sum so large.
        late = first.survival(first.lowest + y) + second.survival(second.lowest + y)
        return np.minimum(late, 1.0)

    def excess_beyond(y: Floats) -> Floats:
        return first.excess(first.lowest + y) + second.excess(second.lowest + y)

    lowest = first.lowest + second.lowest
    return _by_curve(curve, mean, lowest, lowest + edges[1:-1], beyond, excess_beyond)


def _sum_of_steps(first: Distribution, second: Distribution) -> Distribution:
    """The distribution of the sum of two times that take recorded values."""
    if first.knots.size * second.knots.size > _MOST_SUMS:
        first = grouped(first, _MOST_ATOMS)
        second = grouped(second, _MOST_ATOMS)
    values = np.add.outer(first.knots, second.knots).ravel()
    chances = np.multiply.outer(_chances(first), _chances(second)).ravel()
    atoms, place = np.unique(values, return_inverse=True)
    return _steps(atoms, np.bincount(place.ravel(), weights=chances).astype(np.float64))


def _mixture(steps: Distribution, density: Distribution, tolerance: float) -> Distribution:
    """The distribution of the sum of a time of recorded values and one with a density."""
    atoms = steps.knots
    chances = _chances(steps)
    lowest = steps.lowest + density.lowest
    density_mean = _mean_above(density)
    mean = density_mean + float(chances @ atoms) - steps.lowest

    def survival(y: Floats) -> Floats:
        total = np.zeros(np.shape(y))
        for atom, chance in zip((atoms - atoms[0]).tolist(), chances.tolist(), strict=True):
            total += chance * density.survival(density.lowest + np.maximum(y - atom, 0.0))
        return total

    def excess(y: Floats) -> Floats:
        total = np.zeros(np.shape(y))
        for atom, chance in zip((atoms - atoms[0]).tolist(), chances.tolist(), strict=True):
            early = np.maximum(atom - y, 0.0)
            total += chance * (early + density.excess(density.lowest + np.maximum(y - atom, 0.0)))
        return total

    kinks = np.add.outer(atoms - atoms[0], np.append(0.0, density.knots - density.lowest))
    end = float(atoms[-1] - atoms[0]) + _end(density)
    edges = np.unique(np.append(kinks, end))
    edges = edges[edges <= end]
    # Each part between two edges has pieces of its own, so that many edges need more.
    pieces = _MOST_PIECES + 4 * edges.size
    curve = adaptive_curve(survival, edges, mean, tolerance, max_pieces=pieces)
    return _by_curve(curve, mean, lowest, lowest + edges[1:-1], survival, excess)


def _by_curve(
    curve: Curve,
    mean: float,
    lowest: float,
    knots: Floats,
    beyond: Function,
    excess_beyond: Function,
) -> Distribution:
    """The distribution of ``lowest + Y`` by the curve of Y, and two functions beyond its end.

    Args:
        curve: P(Y > y).
        mean: The mean of Y.
        lowest: The least value.
        knots: The knots of the distribution.
        beyond: P(Y > y) beyond the curve.
        excess_beyond: E[(Y - y)+] beyond the curve.
    """
    end = float(curve.edges[-1])

    def survival(x: Floats) -> Floats:
        y = np.maximum(x - lowest, 0.0)
        # By its error a series may be a little below 0 or above 1.
        probability = np.clip(curve.survival(np.minimum(y, end)), 0.0, 1.0)
        late = y >= end
        if np.any(late):
            probability[late] = beyond(y[late])
        return probability

    def excess(x: Floats) -> Floats:
        y = np.asarray(x - lowest)
        # E[(Y - y)+] is E[Y] without the integral of P(Y > x) from 0 to y.
        result = mean - curve.integral(np.clip(y, 0.0, end)) + np.maximum(-y, 0.0)
        late = y >= end
        if np.any(late):
            result = np.where(late, excess_beyond(np.maximum(y, end)), result)
        return result

    return Distribution(survival, excess, lowest, knots)


def _curve(distribution: Distribution, tolerance: float) -> Curve:
    """The curve of P(T > lowest + y) of a distribution with a density."""
    end = _end(distribution)
    inner_edges = distribution.knots - distribution.lowest
    edges = np.concatenate([[0.0], inner_edges[(inner_edges > 0.0) & (inner_edges < end)], [end]])

    def survival(y: Floats) -> Floats:
        return distribution.survival(distribution.lowest + y)

    return adaptive_curve(survival, edges, _mean_above(distribution), tolerance)


def _end(distribution: Distribution) -> float:
    """Where P(T > lowest + y) has vanished, or 1e9 means or more."""
    mean = _mean_above(distribution)
    end = mean
    while _tail(distribution, end) > _VANISHED_PROBABILITY and end < _CURVE_END * mean:
        end *= 2.0
    return end


def _tail(distribution: Distribution, y: float) -> float:
    """P(T > lowest + y)."""
    return float(distribution.survival(np.array([distribution.lowest + y]))[0])


def _mean_above(distribution: Distribution) -> float:
    """The mean of T - lowest."""
    return float(distribution.excess(np.array([distribution.lowest]))[0])


def grouped(distribution: Distribution, max_values: int) -> Distribution:
    """The same distribution of recorded values, with at most ``max_values`` of them.

    Of more values, neighbours are replaced by their mean. The larger values are, the fewer form a
    group, since a round time follows from the largest ones.
    """
    size = distribution.knots.size
    if size <= max_values:
        return distribution
    # ``first`` holds the first place of each group: sizes grow from the largest value on.
    from_largest = np.unique(np.geomspace(1, size + 1, max_values).astype(np.int64)) - 1
    first = (size - from_largest[1:])[::-1]
    chance = _chances(distribution)
    together = np.add.reduceat(chance, first)
    means = np.add.reduceat(chance * distribution.knots, first) / together
    return _steps(means, together)


def _chances(distribution: Distribution) -> Floats:
    """The probabilities of the values of a recorded distribution, in their order."""
    return np.asarray(-np.diff(distribution.survival(distribution.knots), prepend=1.0))


def sum_of_tasks(pool: Pool, i: int, terms: int, fine: bool) -> Distribution:
    """The distribution of a sum of ``terms`` standard times of worker i."""
    family = int(pool.distributions.family[i])
    if family == TRACE_BY_ROUND:
        return empirical(terms * pool.record(i))
    if family == TRACE_BY_TASK:
        return empirical(_consecutive(pool.record(i), terms))
    return _sum_of_family(family, float(pool.distributions.shape[i]), terms, fine)


def _sum_of_family(family: int, shape: float, terms: int, fine: bool) -> Distribution:
    """The distribution of a sum of ``terms`` standard times of a family without a record."""
    if family == DETERMINISTIC:
        return empirical(np.array([float(terms)]))
    if family in (EXPONENTIAL, GAMMA):
        return _gamma(terms * shape)
    standard_time = standard(family, shape)
    mean = standard_time.lowest + standard_time.mean
    if standard_time.sd < _CONSTANT_CV * mean:
        return empirical(np.array([terms * mean]))
    lowest = terms * standard_time.lowest
    if family == UNIFORM:
        knots = np.array([float(terms)])
    else:
        knots = np.empty(0)
    if terms == 1:
        survival = standard_time.survival
        excess = standard_time.excess
        return Distribution(
            lambda x: survival(x - lowest),
            lambda x: excess(x - lowest),
            lowest,
            knots,
        )
    curve = sum_curve(family, shape, terms, _TOLERANCE[fine])
    return Distribution(*_curve_functions(curve, standard_time, lowest, terms), lowest, knots)


def _gamma(shape: float) -> Distribution:
    """The gamma distribution of scale 1."""
    gamma = FAMILIES[GAMMA]
    return Distribution(
        lambda x: np.asarray(gammaincc(shape, np.maximum(x, 0.0))),
        lambda x: gamma.excess(x, shape),
        0.0,
        np.empty(0),
    )


def _curve_functions(
    curve: Curve, standard_time: Standard, lowest: float, terms: int
) -> tuple[Function, Function]:
    """The survival probability and the excess of a sum.

    Beyond the curve, they are ``terms`` times the values of one task: only one very long task can
    make the sum so large.
    """
    curve_end = float(curve.edges[-1])

    def survival(x: Floats) -> Floats:
        y = np.maximum(x - lowest, 0.0)
        probability = np.clip(curve.survival(np.minimum(y, curve_end)), 0.0, 1.0)
        return np.where(y < curve_end, probability, terms * standard_time.survival(y))

    def excess(x: Floats) -> Floats:
        y = x - lowest
        return np.where(
            y < curve_end,
            terms * standard_time.mean - curve.integral(np.minimum(y, curve_end)),
            terms * standard_time.excess(y),
        )

    return survival, excess


def empirical(values: Floats) -> Distribution:
    """The distribution of equally likely values."""
    atoms, number = np.unique(values, return_counts=True)
    return _steps(atoms, number / values.size)


def _steps(atoms: Floats, chance: Floats) -> Distribution:
    """The distribution of increasing values with the probabilities ``chance``."""
    # P(T >= atom) of each atom, and 0 beyond the last; the first is 1 without rounding errors.
    later = np.append(np.cumsum(chance[::-1])[::-1], 0.0)
    later[0] = 1.0
    # E[T; T >= atom] of each atom, and 0 beyond the last.
    total = np.append(np.cumsum((chance * atoms)[::-1])[::-1], 0.0)

    def survival(x: Floats) -> Floats:
        return later[np.searchsorted(atoms, x, side="right")]

    def excess(x: Floats) -> Floats:
        place = np.searchsorted(atoms, x, side="right")
        return np.asarray(total[place] - x * later[place])

    return Distribution(survival, excess, float(atoms[0]), atoms, constant=True)


def _consecutive(record: Floats, rows: int) -> Floats:
    """Sums of consecutive rows of a record that starts over at its end, one for each start."""
    cycles, extra_rows = divmod(rows, record.size)
    total = np.cumsum(np.concatenate([[0.0], record, record]))
    return np.asarray(
        cycles * record.sum() + total[extra_rows : extra_rows + record.size] - total[: record.size],
    )
