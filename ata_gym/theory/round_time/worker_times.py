"""The distributions of sums of task times: the chance that a worker is still busy at time t."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammaincc

from ata_gym.pools.families import (
    DETERMINISTIC,
    EXPONENTIAL,
    FAMILIES,
    GAMMA,
    RECORDED,
    TRACE_BY_ROUND,
    TRACE_BY_TASK,
    UNIFORM,
)
from ata_gym.pools.pool import Pool, from_distributions
from ata_gym.theory.round_time.convolution import Curve, Standard, standard, sum_curve
from ata_gym.typing import Floats, Ints

Function = Callable[[Floats], Floats]

_CONSTANT_CV = 1e-9  # distributions with a smaller coefficient of variation count as constants
_TOLERANCE = {False: 1e-8, True: 1e-11}
"""The error of the probabilities of a convolved sum, by whether it is fine."""
GROUPS = 2048
"""The number of values that a record is reduced to where sums need not be fine."""
_USUAL_EXPONENT = 100  # times between 2**-100 and 2**100 stay as they are
_LONGEST_TIME = 2.0**600  # shifts, mean times and recorded times end here, in the new unit
_LARGEST_SCALE = 2.0**1000  # and scales here


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


class Sums(NamedTuple):
    """Sums of task times of m workers that share a distribution up to shift and scale.

    A sum is ``S = shift + scale * T``.
    """

    column: Ints
    """The places of the sums in the order of the caller, shape (m,)."""
    shift: Floats
    """The shifts, shape (m,), in units of time."""
    scale: Floats
    """The scales, shape (m,), in units of time."""
    standard: Distribution
    """The distribution of T."""

    @classmethod
    def from_values(cls, values: Floats, column: int) -> Self:
        """A sum that takes each of ``values`` (any,) with equal probability, as a column."""
        return cls(np.array([column]), np.zeros(1), np.ones(1), _empirical(values))

    def grouped(self, max_values: int) -> Self:
        """The same sums, with at most ``max_values`` recorded values.

        Of more values, neighbours are replaced by their mean. The larger values are, the fewer form
        a group, since a round time follows from the largest ones.
        """
        standard = self.standard
        size = standard.knots.size
        if not standard.constant or size <= max_values:
            return self
        # ``first`` holds the first place of each group: sizes grow from the largest value on.
        from_largest = np.unique(np.geomspace(1, size + 1, max_values).astype(np.int64)) - 1
        first = (size - from_largest[1:])[::-1]
        chance = -np.diff(standard.survival(standard.knots), prepend=1.0)
        together = np.add.reduceat(chance, first)
        means = np.add.reduceat(chance * standard.knots, first) / together
        return self._replace(standard=_steps(means, together))


def sums(pool: Pool, workers: Ints, tasks: Ints, fine: bool = True) -> list[Sums]:
    """Distributions of the sums of ``tasks[c]`` task times of worker ``workers[c]``.

    Deterministic, exponential and gamma times, and any single task, have closed forms. Sums of the
    other families with a density are convolved numerically. Traces are as in
    ``expected_round_time``.

    Args:
        pool: The workers.
        workers: The worker of each column c = 0, ..., m - 1, shape (m,).
        tasks: The number of task times in each column, shape (m,).
        fine: Whether convolutions are right to about 1e-10, and not 1e-7. Unless fine, neighbours
            in a record of more than 2,048 values are replaced by their mean.
    """
    distributions = pool.distributions
    shared: dict[tuple[float, ...], list[int]] = {}
    for c, (i, a) in enumerate(zip(workers.tolist(), tasks.tolist(), strict=True)):
        family = int(distributions.family[i])
        if FAMILIES[family].trace:
            kind = float(i)
        else:
            kind = float(distributions.shape[i])
        shared.setdefault((family, a, kind), []).append(c)
    # One distribution for all columns of the same family, shape (or record) and number of tasks.
    result = []
    for column in map(np.array, shared.values()):
        i = workers[column]
        terms = int(tasks[column[0]])
        distribution = _distribution(pool, int(i[0]), terms, fine)
        column_sums = Sums(
            column, terms * distributions.shift[i], distributions.scale[i], distribution
        )
        if not fine:
            column_sums = column_sums.grouped(GROUPS)
        result.append(column_sums)
    return result


def survival(distributions: list[Sums], t: Floats) -> Floats:
    """P(S > t), shape (m, k), for m columns in their order and times t of shape (k,)."""
    result = np.empty((_columns(distributions), t.size))
    for s in distributions:
        with np.errstate(over="ignore"):
            x = (t - s.shift[:, None]) / s.scale[:, None]
        result[s.column] = s.standard.survival(x)
    return result


def excess(distributions: list[Sums], t: float) -> Floats:
    """E[(S - t)+], shape (m,), of m columns in their order, for t of at least the least value."""
    result = np.empty(_columns(distributions))
    for s in distributions:
        with np.errstate(over="ignore"):
            # Rounding may bring x below the least value.
            x = np.maximum((t - s.shift) / s.scale, s.standard.lowest)
            result[s.column] = s.scale * np.maximum(s.standard.excess(x), 0.0)
    return result


def starts(distributions: list[Sums]) -> Floats:
    """The least value of each sum, shape (m,)."""
    result = np.empty(_columns(distributions))
    for s in distributions:
        result[s.column] = s.shift + s.scale * s.standard.lowest
    return result


def knots(distributions: list[Sums]) -> Floats:
    """All times at which a survival probability jumps or has a kink, shape (any,)."""
    return np.concatenate(
        [(s.shift[:, None] + s.scale[:, None] * s.standard.knots).ravel() for s in distributions],
    )


def renumbered(distributions: Iterable[Sums]) -> list[Sums]:
    """The same sums, in columns from 0 on."""
    result = []
    first = 0
    for s in distributions:
        result.append(s._replace(column=np.arange(first, first + s.column.size)))
        first += s.column.size
    return result


def _columns(distributions: list[Sums]) -> int:
    """The number of columns."""
    return sum(s.column.size for s in distributions)


def coarse_edges(
    distributions: list[Sums],
    starts: Floats,
    mean: Floats,
    sd: Floats,
    end: float,
    max_edges: int,
) -> Floats:
    """About ``max_edges`` edges, or fewer, of panels from 0 to ``end``.

    They are starts and knots, and steps within narrow sums.

    Args:
        distributions: The sums.
        starts: The least value of each sum, shape (m,).
        mean: The mean of each sum, shape (m,).
        sd: The standard deviation of each sum, shape (m,).
        end: The last edge, in units of time.
        max_edges: The number of edges, about, where there are more starts, knots and steps.
    """
    narrow = sd < 0.02 * mean
    steps = mean[narrow] + np.array([-6, -3, 0, 3, 6])[:, None] * sd[narrow]
    inner_edges = np.unique(np.concatenate([starts, steps.ravel(), knots(distributions)]))
    inner_edges = inner_edges[(inner_edges > 0) & (inner_edges < end)]
    return np.concatenate([[0.0], inner_edges[:: inner_edges.size // max_edges + 1], [end]])


def rescaled(pool: Pool, time: float) -> tuple[Pool, float]:
    """The pool in a unit of time in which ``time`` is between 2**-100 and 2**100.

    The unit is a power of two, and 1 unless ``time`` is extreme (or infinite), so that the results
    for usual times keep their bits. Workers that are slower than ``time`` by a factor of 2**500 and
    more count as slower by this factor.

    Args:
        pool: The workers.
        time: A time of the size that matters, such as the largest mean task time.

    Returns:
        The pool in the new unit, and the unit, in the pool's old unit.
    """
    exponent = math.frexp(time)[1]
    exponent -= max(-_USUAL_EXPONENT, min(exponent, _USUAL_EXPONENT))
    distributions = pool.distributions
    mean = pool.mean()
    slowest = max(
        distributions.shift.max(),
        distributions.scale.max(),
        mean.max(where=mean < np.inf, initial=0.0),
    )
    if exponent == 0 and slowest <= _LONGEST_TIME:
        return pool, 1.0
    traces = np.isin(distributions.family, RECORDED)
    with np.errstate(over="ignore", under="ignore"):
        # Of gamma times of a tiny shape the mean is far below the scale: the scale may be larger.
        share = np.clip(
            (mean - distributions.shift) / distributions.scale,
            _LONGEST_TIME / _LARGEST_SCALE,
            1.0,
        )
        shift = np.ldexp(distributions.shift, -exponent)
        scale = np.ldexp(distributions.scale, -exponent)
        table = distributions.table
        # The times of traces are in the table, and their scale is a factor of it: the table takes
        # the new unit, and the scale becomes 1.
        if traces.any():
            table = np.minimum(
                table * np.repeat(scale[traces], distributions.length[traces]),
                _LONGEST_TIME,
            )
    scale = np.where(traces, 1.0, np.clip(scale, np.nextafter(0.0, 1.0), _LONGEST_TIME / share))
    changed = distributions._replace(
        shift=np.minimum(shift, _LONGEST_TIME), scale=scale, table=table
    )
    return from_distributions(changed), 2.0**exponent


def _distribution(pool: Pool, i: int, terms: int, fine: bool) -> Distribution:
    """The distribution of a sum of ``terms`` standard times of worker i."""
    family = int(pool.distributions.family[i])
    shape = float(pool.distributions.shape[i])
    if family == DETERMINISTIC:
        return _empirical(np.array([float(terms)]))
    if family == TRACE_BY_ROUND:
        return _empirical(terms * pool.record(i))
    if family == TRACE_BY_TASK:
        return _empirical(_consecutive(pool.record(i), terms))
    if family in (EXPONENTIAL, GAMMA):
        return _gamma(terms * shape)
    standard_time = standard(family, shape)
    mean = standard_time.lowest + standard_time.mean
    if standard_time.sd < _CONSTANT_CV * mean:
        return _empirical(np.array([terms * mean]))
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


def _empirical(values: Floats) -> Distribution:
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
