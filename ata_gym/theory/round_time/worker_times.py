"""The distributions of sums of task times: how likely a worker is still busy with its tasks at time t."""

import math
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from scipy.special import gammaincc

from ata_gym.pools.families import CODES, FAMILIES, RECORDED
from ata_gym.pools.pool import Pool, from_distributions
from ata_gym.theory.round_time.convolution import standard, sum_curve
from ata_gym.typing import Floats, Ints

Survival = Callable[[Floats], Floats]

BY_ROUND = CODES["trace-by-round"]
_CONSTANT = 1e-9  # distributions with a smaller coefficient of variation count as constants
_TOLERANCE = {False: 1e-8, True: 1e-11}
_GROUPS = {False: 2048, True: 4096}
_USUAL = 100  # times between 2**-100 and 2**100 stay as they are
_SLOWEST = 2.0**600  # shifts, scales and recorded times end here, in the new unit


class Sums(NamedTuple):
    """Sums of task times of m workers that share a distribution up to shift and scale: ``S = shift + scale * T``."""

    column: Ints  # (m,) their places in the order of the caller
    shift: Floats
    scale: Floats  # (m,) in units of time
    survival: Survival  # P(T > x), elementwise
    lowest: float  # the least value of T
    jumps: Floats  # where P(T > x) jumps, shape (any,): edges for a quadrature

    @classmethod
    def recorded(cls, values: Floats, column: int) -> Self:
        """A sum that takes each of ``values`` (any,) with equal probability, as a column."""
        return cls(np.array([column]), np.zeros(1), np.ones(1), *_empirical(values, fine=True))


def sums(pool: Pool, workers: Ints, tasks: Ints, fine: bool = True) -> list[Sums]:
    """Distributions of the sums of ``tasks[c]`` task times of worker ``workers[c]``, for columns c = 0, ..., m - 1.

    Closed forms: deterministic, exponential and gamma times, and any single task. Sums of the other families with a
    density are convolved numerically, to about 1e-10 (fine) or 1e-7. Traces are as in ``expected_round_time``; of a
    record of more than 4,096 rows (fine) or 2,048, neighbours in size are replaced by their mean.
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
        result.append(Sums(column, terms * distributions.shift[i], distributions.scale[i], *distribution))
    return result


def survival(distributions: list[Sums], t: Floats) -> Floats:
    """P(S > t) for m columns in their order and times of shape (k,); returns (m, k)."""
    result = np.empty((sum(s.column.size for s in distributions), t.size))
    for s in distributions:
        with np.errstate(over="ignore"):
            x = (t - s.shift[:, None]) / s.scale[:, None]
        result[s.column] = s.survival(x)
    return result


def starts(distributions: list[Sums]) -> Floats:
    """The least value of each sum, shape (m,)."""
    lowest = np.concatenate([s.shift + s.scale * s.lowest for s in distributions])
    return lowest[np.argsort(np.concatenate([s.column for s in distributions]))]


def jumps(distributions: list[Sums]) -> Floats:
    """All times at which a survival probability jumps, shape (any,)."""
    return np.concatenate([(s.shift[:, None] + s.scale[:, None] * s.jumps).ravel() for s in distributions])


def coarse_edges(distributions: list[Sums], starts: Floats, mean: Floats, sd: Floats, end: float, most: int) -> Floats:
    """At most some ``most`` edges of panels from 0 to ``end``: starts and jumps, and steps within narrow sums.

    ``mean`` and ``sd`` are those of the sums, (m,).
    """
    narrow = sd < 0.02 * mean
    steps = mean[narrow] + np.array([-6, -3, 0, 3, 6])[:, None] * sd[narrow]
    inside = np.unique(np.concatenate([starts, steps.ravel(), jumps(distributions)]))
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
        shift, scale = np.ldexp(distributions.shift, -exponent), np.ldexp(distributions.scale, -exponent)
        table = distributions.table
        if traces.any():  # their scale is a factor: the times are in the table
            table = np.minimum(table * np.repeat(scale[traces], distributions.length[traces]), _SLOWEST)
    scale = np.where(traces, 1.0, np.clip(scale, np.nextafter(0.0, 1.0), _SLOWEST))
    changed = distributions._replace(shift=np.minimum(shift, _SLOWEST), scale=scale, table=table)
    return from_distributions(changed), 2.0**exponent


Distribution = tuple[Survival, float, Floats]


def _distribution(pool: Pool, i: int, terms: int, fine: bool) -> Distribution:
    family, shape = int(pool.distributions.family[i]), float(pool.distributions.shape[i])
    name = FAMILIES[family].name
    if name == "deterministic":
        return _empirical(np.array([float(terms)]), fine)
    if name == "trace-by-round":
        return _empirical(terms * pool.record(i), fine)
    if name == "trace-by-task":
        return _empirical(_consecutive(pool.record(i), terms), fine)
    if name in ("exponential", "gamma"):
        return lambda x: np.asarray(gammaincc(terms * shape, np.maximum(x, 0.0))), 0.0, np.empty(0)
    distribution = standard(family, shape)
    mean = distribution.lowest + distribution.mean
    if distribution.sd < _CONSTANT * mean:
        return _empirical(np.array([terms * mean]), fine)
    lowest = terms * distribution.lowest
    if terms == 1:
        return lambda x: distribution.survival(x - lowest), lowest, np.empty(0)
    curve = sum_curve(family, shape, terms, _TOLERANCE[fine])
    far = float(curve.edges[-1])

    def later(x: Floats) -> Floats:
        y = np.maximum(x - lowest, 0.0)
        within = np.clip(curve.survival(np.minimum(y, far)), 0.0, 1.0)
        return np.where(y < far, within, terms * distribution.survival(y))  # beyond, only one very long task can lead

    return later, lowest, np.empty(0)


def _empirical(values: Floats, fine: bool) -> Distribution:
    """The distribution of equally likely values; of very many, groups of neighbours are replaced by their mean."""
    ordered = np.sort(values)
    groups = min(_GROUPS[fine], ordered.size)
    first = np.arange(groups) * ordered.size // groups
    atoms = np.add.reduceat(ordered, first) / np.diff(first, append=ordered.size)
    later = np.append(ordered.size - first, 0) / ordered.size
    return lambda x: later[np.searchsorted(atoms, x, side="right")], float(atoms[0]), np.unique(atoms)


def _consecutive(record: Floats, rows: int) -> Floats:
    cycles, rest = divmod(rows, record.size)
    total = np.cumsum(np.concatenate([[0.0], record, record]))
    return np.asarray(cycles * record.sum() + total[rest : rest + record.size] - total[: record.size])
