"""The distributions of sums of task times: how likely a worker is still busy with its tasks at time t."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammaincc

from ata_gym.pools.families import CODES, FAMILIES, RECORDED
from ata_gym.pools.pool import Pool, from_distributions
from ata_gym.theory.round_time.convolution import Curve, Standard, standard, sum_curve
from ata_gym.typing import Floats, Ints

Function = Callable[[Floats], Floats]

BY_ROUND = CODES["trace-by-round"]
_CONSTANT = 1e-9  # distributions with a smaller coefficient of variation count as constants
_TOLERANCE = {False: 1e-8, True: 1e-11}
GROUPS = 2048
"""Values that a record is reduced to where sums need not be fine."""
_USUAL = 100  # times between 2**-100 and 2**100 stay as they are
_SLOWEST = 2.0**600  # shifts, mean times and recorded times end here, in the new unit
_LARGEST = 2.0**1000  # and scales here


class Distribution(NamedTuple):
    """A distribution of a time T."""

    survival: Function
    """P(T > x), elementwise."""
    excess: Function
    """E[(T - x)+], elementwise, for x of at least ``lowest``."""
    lowest: float
    """The least value."""
    knots: Floats
    """Where P(T > x) jumps or has a kink beyond ``lowest``, shape (any): edges for a quadrature."""
    constant: bool = False
    """Whether P(T > x) is constant between the knots, as that of recorded times is."""


class Sums(NamedTuple):
    """Sums of task times of m workers that share a distribution up to shift and scale: ``S = shift + scale * T``."""

    column: Ints  # (m,) their places in the order of the caller
    shift: Floats
    scale: Floats  # (m,) in units of time
    standard: Distribution  # of T

    @classmethod
    def recorded(cls, values: Floats, column: int) -> Self:
        """A sum that takes each of ``values`` (any,) with equal probability, as a column."""
        return cls(np.array([column]), np.zeros(1), np.ones(1), _empirical(values))

    def grouped(self, most: int) -> Self:
        """The same; of more than ``most`` recorded values, neighbours are replaced by their mean.

        The larger values are, the fewer form a group, since a round time follows from the largest ones.
        """
        standard = self.standard
        size = standard.knots.size
        if not standard.constant or size <= most:
            return self
        from_largest = np.unique(np.geomspace(1, size + 1, most).astype(np.int64)) - 1
        first = (size - from_largest[1:])[::-1]
        chance = -np.diff(standard.survival(standard.knots), prepend=1.0)
        together = np.add.reduceat(chance, first)
        return self._replace(standard=_steps(np.add.reduceat(chance * standard.knots, first) / together, together))


def sums(pool: Pool, workers: Ints, tasks: Ints, fine: bool = True) -> list[Sums]:
    """Distributions of the sums of ``tasks[c]`` task times of worker ``workers[c]``, for columns c = 0, ..., m - 1.

    Closed forms: deterministic, exponential and gamma times, and any single task. Sums of the other families with a
    density are convolved numerically, to about 1e-10 (fine) or 1e-7. Traces are as in ``expected_round_time``; unless
    fine, of a record of more than 2,048 values neighbours are replaced by their mean.
    """
    distributions = pool.distributions
    shared: dict[tuple[float, ...], list[int]] = {}
    for c, (i, a) in enumerate(zip(workers.tolist(), tasks.tolist(), strict=True)):
        family = int(distributions.family[i])
        kind = float(i) if FAMILIES[family].trace else float(distributions.shape[i])
        shared.setdefault((family, a, kind), []).append(c)
    result = []
    for column in map(np.array, shared.values()):
        i, terms = workers[column], int(tasks[column[0]])
        distribution = _distribution(pool, int(i[0]), terms, fine)
        one = Sums(column, terms * distributions.shift[i], distributions.scale[i], distribution)
        result.append(one if fine else one.grouped(GROUPS))
    return result


def survival(distributions: list[Sums], t: Floats) -> Floats:
    """P(S > t) for m columns in their order and times of shape (k,); returns (m, k)."""
    result = np.empty((_columns(distributions), t.size))
    for s in distributions:
        with np.errstate(over="ignore"):
            x = (t - s.shift[:, None]) / s.scale[:, None]
        result[s.column] = s.standard.survival(x)
    return result


def excess(distributions: list[Sums], t: float) -> Floats:
    """E[(S - t)+] of m columns in their order, (m,), for a time t that none of them can be less than."""
    result = np.empty(_columns(distributions))
    for s in distributions:
        with np.errstate(over="ignore"):
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
    return np.concatenate([(s.shift[:, None] + s.scale[:, None] * s.standard.knots).ravel() for s in distributions])


def renumbered(distributions: Iterable[Sums]) -> list[Sums]:
    """Some of the sums, in columns from 0 on."""
    result, first = [], 0
    for s in distributions:
        result.append(s._replace(column=np.arange(first, first + s.column.size)))
        first += s.column.size
    return result


def _columns(distributions: list[Sums]) -> int:
    return sum(s.column.size for s in distributions)


def coarse_edges(distributions: list[Sums], starts: Floats, mean: Floats, sd: Floats, end: float, most: int) -> Floats:
    """At most some ``most`` edges of panels from 0 to ``end``: starts and knots, and steps within narrow sums.

    ``mean`` and ``sd`` are those of the sums, (m,).
    """
    narrow = sd < 0.02 * mean
    steps = mean[narrow] + np.array([-6, -3, 0, 3, 6])[:, None] * sd[narrow]
    inside = np.unique(np.concatenate([starts, steps.ravel(), knots(distributions)]))
    inside = inside[(inside > 0) & (inside < end)]
    return np.concatenate([[0.0], inside[:: inside.size // most + 1], [end]])


def rescaled(pool: Pool, time: float) -> tuple[Pool, float]:
    """The pool in a unit of time in which ``time`` is between 2**-100 and 2**100; and that unit, a power of two.

    The unit is 1 unless ``time`` is extreme (or infinite), so that the results for usual times keep their bits. Workers
    that are slower than ``time`` by a factor of 2**500 and more count as that slow.
    """
    exponent = math.frexp(time)[1]
    exponent -= max(-_USUAL, min(exponent, _USUAL))
    distributions, mean = pool.distributions, pool.mean()
    slowest = max(distributions.shift.max(), distributions.scale.max(), mean.max(where=mean < np.inf, initial=0.0))
    if exponent == 0 and slowest <= _SLOWEST:
        return pool, 1.0
    traces = np.isin(distributions.family, RECORDED)
    with np.errstate(over="ignore", under="ignore"):
        # of gamma times of a tiny shape the mean is far below the scale
        share = np.clip((mean - distributions.shift) / distributions.scale, _SLOWEST / _LARGEST, 1.0)
        shift, scale = np.ldexp(distributions.shift, -exponent), np.ldexp(distributions.scale, -exponent)
        table = distributions.table
        if traces.any():  # their scale is a factor: the times are in the table
            table = np.minimum(table * np.repeat(scale[traces], distributions.length[traces]), _SLOWEST)
    scale = np.where(traces, 1.0, np.clip(scale, np.nextafter(0.0, 1.0), _SLOWEST / share))
    changed = distributions._replace(shift=np.minimum(shift, _SLOWEST), scale=scale, table=table)
    return from_distributions(changed), 2.0**exponent


def _distribution(pool: Pool, i: int, terms: int, fine: bool) -> Distribution:
    family, shape = int(pool.distributions.family[i]), float(pool.distributions.shape[i])
    name = FAMILIES[family].name
    if name == "deterministic":
        return _empirical(np.array([float(terms)]))
    if name == "trace-by-round":
        return _empirical(terms * pool.record(i))
    if name == "trace-by-task":
        return _empirical(_consecutive(pool.record(i), terms))
    if name in ("exponential", "gamma"):
        return _gamma(terms * shape)
    standard_time = standard(family, shape)
    mean = standard_time.lowest + standard_time.mean
    if standard_time.sd < _CONSTANT * mean:
        return _empirical(np.array([terms * mean]))
    lowest = terms * standard_time.lowest
    knots = np.array([float(terms)]) if name == "uniform" else np.empty(0)
    if terms == 1:
        survival, excess = standard_time.survival, standard_time.excess
        return Distribution(lambda x: survival(x - lowest), lambda x: excess(x - lowest), lowest, knots)
    curve = sum_curve(family, shape, terms, _TOLERANCE[fine])
    return Distribution(*_of_curve(curve, standard_time, lowest, terms), lowest, knots)


def _gamma(shape: float) -> Distribution:
    gamma = FAMILIES[CODES["gamma"]]
    return Distribution(
        lambda x: np.asarray(gammaincc(shape, np.maximum(x, 0.0))), lambda x: gamma.excess(x, shape), 0.0, np.empty(0)
    )


def _of_curve(curve: Curve, one: Standard, lowest: float, terms: int) -> tuple[Function, Function]:
    """The survival probability and the excess of a sum; beyond its curve, only one very long task can lead there."""
    far = float(curve.edges[-1])

    def survival(x: Floats) -> Floats:
        y = np.maximum(x - lowest, 0.0)
        within = np.clip(curve.survival(np.minimum(y, far)), 0.0, 1.0)
        return np.where(y < far, within, terms * one.survival(y))

    def excess(x: Floats) -> Floats:
        y = x - lowest
        return np.where(y < far, terms * one.mean - curve.before(np.minimum(y, far)), terms * one.excess(y))

    return survival, excess


def _empirical(values: Floats) -> Distribution:
    """The distribution of equally likely values."""
    atoms, number = np.unique(values, return_counts=True)
    return _steps(atoms, number / values.size)


def _steps(atoms: Floats, chance: Floats) -> Distribution:
    """The distribution of some values, increasing, with these chances."""
    later = np.append(np.cumsum(chance[::-1])[::-1], 0.0)
    later[0] = 1.0
    total = np.append(np.cumsum((chance * atoms)[::-1])[::-1], 0.0)  # E[T; T >= atom]

    def survival(x: Floats) -> Floats:
        return later[np.searchsorted(atoms, x, side="right")]

    def excess(x: Floats) -> Floats:
        place = np.searchsorted(atoms, x, side="right")
        return np.asarray(total[place] - x * later[place])

    return Distribution(survival, excess, float(atoms[0]), atoms, constant=True)


def _consecutive(record: Floats, rows: int) -> Floats:
    cycles, rest = divmod(rows, record.size)
    total = np.cumsum(np.concatenate([[0.0], record, record]))
    return np.asarray(cycles * record.sum() + total[rest : rest + record.size] - total[: record.size])
