"""The table that the search for an optimal allocation reads: a row per worker and tasks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools import Pool
from ata_gym.theory.round_time.expected import cycle_length, replayed_shares, replays_rounds
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.worker_times import (
    coarse_edges,
    excess,
    share_moments,
    starts,
    sums,
    survival,
)
from ata_gym.typing import Floats, Ints

SLACK = 1e-7  # an allocation counts as better only if it is so by more than this part of the cost
_GRID_TOLERANCE = 1e-8  # aim of a panel of the grid, in units of the round time
_TAIL_TOLERANCE = 1e-9
_MOST_NODES = 4096
_MOST_EDGES = 128
_LARGEST_TABLE = 2**25  # numbers in a table of sums: 256 MiB


@dataclass(frozen=True)
class RoundTimeTable:
    """Expected round times of all allocations in reach, as sums over q nodes.

    The round time of an allocation is ``weights @ (unit - v) + sum of tails``, v the combined rows
    of its workers:

    * nodes are times t, rows are P(S_i(a) <= t), combined by product, unit 1;
    * or nodes are rounds of a trace, rows are -S_i(a), combined by minimum, unit 0.
    """

    workers: Ints
    """The places of the workers in the pool, shape (m,)."""
    rows: Floats
    """A row of ``unit`` for no task, then a row per worker and number of tasks.

    The shape is (columns + 1, q).
    """
    tails: Floats
    """The time that each row adds to the round time beyond the nodes, shape (columns + 1,)."""
    weights: Floats
    """The weights of the nodes, shape (q,)."""
    first_row: Ints
    """The place before the row of one task of each worker, shape (m,)."""
    max_tasks: Ints
    """The tasks that each worker may get, shape (m,)."""
    equals_previous: NDArray[np.bool_]
    """Whether a worker has the distribution and the cost of the one before it, shape (m,)."""
    combine: np.ufunc
    """The function that combines two rows: ``np.multiply`` or ``np.minimum``."""
    unit: float
    """The number that changes no row by ``combine``, 1 or 0."""

    def row(self, worker: int, tasks: int) -> int:
        """The place of the row of a worker and a number of tasks."""
        if tasks:
            return int(self.first_row[worker]) + tasks
        return 0

    def places(self, allocation: Ints) -> Ints:
        """The places of the rows of an allocation, shape (m,)."""
        return np.where(allocation > 0, self.first_row + allocation, 0)

    def values(self, combined: Floats, tails: Floats | float) -> Floats:
        """Round times, shape (...,), from combined rows (..., q) and sums of tails (...,)."""
        return np.asarray((self.unit - combined) @ self.weights + tails)

    def value(self, allocation: Ints) -> float:
        """Expected round time of an allocation (m,)."""
        rows = self.places(allocation)
        return float(self.values(self.combine.reduce(self.rows[rows]), self.tails[rows].sum()))


def round_table(
    pool: Pool,
    budget: int,
    value: float,
    start: Ints,
    workers: Ints,
    mean: Floats,
    costs: Floats,
) -> tuple[RoundTimeTable | None, float]:
    """The table of some workers for any number of tasks, and its error.

    Tasks that alone would take a worker longer than ``value`` need not be considered.

    Args:
        pool: The workers of the pool.
        budget: The most tasks of a worker.
        value: The round time of ``start``, in units of time.
        start: An allocation to the whole pool, shape (n,).
        workers: The places of the workers of the table; the least spread comes first in it.
        mean: Mean task times of the pool, shape (n,).
        costs: Costs of a unit of each worker's time, shape (n,).

    Returns:
        The table, or None if it would be too large; and its error, in units of time.
    """
    distributions = pool.distributions
    kinds: tuple[NDArray[Any], ...] = (
        costs,
        distributions.record_start,
        distributions.scale,
        distributions.shift,
        distributions.shape,
        distributions.family,
        mean,
        pool.sd(),
    )
    if pool.latency is not None:
        delays = pool.latency.distributions
        kinds = (
            delays.record_start,
            delays.scale,
            delays.shift,
            delays.shape,
            delays.family,
            *kinds,
        )
    # Equal workers come next to each other; the last key, the spread, is the first of the order.
    workers = workers[np.lexsort([kind[workers] for kind in kinds])]
    limit: Floats | float = value * (1 + SLACK)
    if pool.latency is not None:
        limit = limit - pool.latency.mean()[workers]
    max_tasks = np.minimum(np.floor(limit / mean[workers]), budget).astype(np.int64)
    if max_tasks.sum() > _LARGEST_TABLE // _MOST_NODES:
        return None, np.inf
    first_row = np.cumsum(max_tasks) - max_tasks
    columns = np.repeat(workers, max_tasks)
    tasks = np.arange(columns.size) - np.repeat(first_row, max_tasks) + 1
    equals_previous = np.append(
        False,
        np.all([kind[workers[1:]] == kind[workers[:-1]] for kind in kinds], axis=0),
    )
    together = bool(replays_rounds(pool)[workers].all())
    combine: np.ufunc
    if together:
        combine = np.minimum
        unit = 0.0
    else:
        combine = np.multiply
        unit = 1.0
    if together:
        rounds = cycle_length(pool)
        if columns.size * rounds > _LARGEST_TABLE:
            return None, np.inf
        weights = np.full(rounds, 1 / rounds)
        tails = np.zeros(columns.size)
        error = 0.0
        shares = zip(columns.tolist(), tasks.tolist(), strict=True)
        rows = -np.stack([replayed_shares(pool, i, a) for i, a in shares])
    else:
        rows, weights, tails, error = _on_grid(pool, columns, tasks, value, start[columns] == tasks)
    rows = np.concatenate([np.full((1, weights.size), unit), rows])
    tails = np.append(0.0, tails)
    return RoundTimeTable(
        workers, rows, tails, weights, first_row, max_tasks, equals_previous, combine, unit
    ), error


def _on_grid(
    pool: Pool,
    columns: Ints,
    tasks: Ints,
    value: float,
    start: NDArray[np.bool_],
) -> tuple[Floats, Floats, Floats, float]:
    """P(S <= t) on a grid of times t for all columns, weights, tails, and the error.

    The weights are of the grid, the tails are beyond it. The grid fits all columns and the round
    time of the columns of ``start``: a product is steeper than its factors.
    """
    distributions = sums(pool, columns, tasks, fine=False)
    mean, sd = share_moments(pool, columns, tasks)
    slowest = np.append(np.diff(columns) != 0, True)
    end = 2 * value
    # The loop ends, as P(S > t) vanishes and no tail is more than a mean.
    while True:
        late = survival(distributions, np.array([end]))[:, 0]
        tails = excess(distributions, end)
        if not late[slowest].sum() * tails[slowest].sum() > _TAIL_TOLERANCE * value:
            break
        end *= 2
    edges = coarse_edges(
        distributions, starts(distributions)[tasks <= 2], mean, sd, end, _MOST_EDGES
    )

    def functions(t: Floats) -> Floats:
        """P(S > t) of each column, and P(round time > t) of ``start`` as the last row."""
        busy = survival(distributions, t)
        return np.concatenate([busy, [1.0 - np.prod(1.0 - busy[start], axis=0)]])

    rule = adaptive_rule(functions, edges, _GRID_TOLERANCE * value, _MOST_NODES)
    return 1.0 - rule.values[:-1], rule.weights, tails, rule.error
