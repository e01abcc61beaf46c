"""The distributions of the times of shares: the chance that a worker is busy at time t."""

import math
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np

from ata_gym.pools.distributions import Distributions
from ata_gym.pools.families import FAMILIES, RECORDED
from ata_gym.pools.pool import Pool, from_distributions
from ata_gym.theory.round_time.distribution import (
    Distribution,
    delayed_sum,
    empirical,
    grouped,
    random_latency,
    sum_of_tasks,
)
from ata_gym.typing import Floats, Ints

GROUPS = 2048
"""The number of values that a record is reduced to where sums need not be fine."""
_USUAL_EXPONENT = 100  # times between 2**-100 and 2**100 stay as they are
_LONGEST_TIME = 2.0**600  # shifts, mean times and recorded times end here, in the new unit
_LARGEST_SCALE = 2.0**1000  # and scales here


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
        return cls(np.array([column]), np.zeros(1), np.ones(1), empirical(values))

    def grouped(self, max_values: int) -> Self:
        """The same sums, with at most ``max_values`` recorded values.

        Other sums stay as they are; see ``grouped`` in the module ``distribution``.
        """
        if not self.standard.constant:
            return self
        return self._replace(standard=grouped(self.standard, max_values))


def sums(pool: Pool, workers: Ints, tasks: Ints, fine: bool = True) -> list[Sums]:
    """Distributions of the sums of ``tasks[c]`` task times of worker ``workers[c]``.

    Where the pool has a latency, each sum holds one: it is the time of a share. A latency that is
    constant is a shift; a random one is convolved, see ``delayed_sum``.

    Deterministic, exponential and gamma times, and any single task, have closed forms. Sums of the
    other families with a density are convolved numerically. Traces are as in
    ``expected_round_time``.

    Args:
        pool: The workers.
        workers: The worker of each column c = 0, ..., m - 1, shape (m,).
        tasks: The number of task times in each column, shape (m,), at least 1.
        fine: Whether convolutions are right to about 1e-10, and not 1e-7. Unless fine, neighbours
            in a record of more than 2,048 values are replaced by their mean.
    """
    if pool.latency is not None:
        return _delayed_sums(pool, workers, tasks, fine)
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
        distribution = sum_of_tasks(pool, int(i[0]), terms, fine)
        column_sums = Sums(
            column, terms * distributions.shift[i], distributions.scale[i], distribution
        )
        if not fine:
            column_sums = column_sums.grouped(GROUPS)
        result.append(column_sums)
    return result


def _delayed_sums(pool: Pool, workers: Ints, tasks: Ints, fine: bool) -> list[Sums]:
    """As ``sums``, for a pool with a latency."""
    latency = pool.latency
    assert latency is not None
    random = random_latency(pool)[workers]
    constant_columns = np.flatnonzero(~random)
    shifted = sums(pool.with_latency(None), workers[~random], tasks[~random], fine)
    mean = latency.mean()[workers]
    result = [
        part._replace(
            column=constant_columns[part.column],
            shift=part.shift + mean[constant_columns[part.column]],
        )
        for part in shifted
    ]
    shift = tasks * pool.distributions.shift[workers] + latency.distributions.shift[workers]
    for c in np.flatnonzero(random).tolist():
        distribution, unit = delayed_sum(pool, int(workers[c]), int(tasks[c]), fine)
        part = Sums(np.array([c]), shift[c : c + 1], np.array([unit]), distribution)
        if not fine:
            part = part.grouped(GROUPS)
        result.append(part)
    return result


def share_moments(pool: Pool, workers: Ints, tasks: Ints) -> tuple[Floats, Floats]:
    """The means and standard deviations of the sums of ``sums``, shape (m,) each."""
    mean = tasks * pool.mean()[workers]
    sd = np.sqrt(tasks) * pool.sd()[workers]
    if pool.latency is not None:
        mean = mean + pool.latency.mean()[workers]
        sd = np.hypot(sd, pool.latency.sd()[workers])
    return mean, sd


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
    slowest = _slowest(pool)
    if pool.latency is not None:
        slowest = max(slowest, _slowest(pool.latency))
    if exponent == 0 and slowest <= _LONGEST_TIME:
        return pool, 1.0
    latency = pool.latency
    if latency is not None:
        latency = from_distributions(_in_unit(latency, exponent))
    return from_distributions(_in_unit(pool, exponent), latency), 2.0**exponent


def _slowest(pool: Pool) -> float:
    """The largest shift, scale or finite mean of a pool."""
    distributions = pool.distributions
    mean = pool.mean()
    return float(
        max(
            distributions.shift.max(),
            distributions.scale.max(),
            mean.max(where=mean < np.inf, initial=0.0),
        )
    )


def _in_unit(pool: Pool, exponent: int) -> Distributions:
    """The distributions of a pool in the unit 2**exponent; see ``rescaled``."""
    distributions = pool.distributions
    mean = pool.mean()
    traces = np.isin(distributions.family, RECORDED)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
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
        scale = np.clip(scale, np.nextafter(0.0, 1.0), _LONGEST_TIME / share)
    # A latency may be 0: its scale is 0 then, and stays so.
    scale = np.where(distributions.scale == 0.0, 0.0, np.where(traces, 1.0, scale))
    return distributions._replace(shift=np.minimum(shift, _LONGEST_TIME), scale=scale, table=table)
