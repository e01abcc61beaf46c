"""What every number of tasks does to every worker, as a table: the search for an optimal allocation reads it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ata_gym.pools import Pool
from ata_gym.theory.round_time.expected import cycle, replayed
from ata_gym.theory.round_time.quadrature import adaptive_rule
from ata_gym.theory.round_time.worker_times import BY_ROUND, coarse_edges, excess, starts, sums, survival
from ata_gym.typing import Floats, Ints

SLACK = 1e-7  # an allocation counts as better only if it is so by more than this part of the cost
_GRID = 1e-8  # aim of a panel of the grid, in units of the round time
_TAIL = 1e-9
_NODES = 4096
_EDGES = 128
_LARGEST = 2**25  # numbers in a table of sums: 256 MiB


@dataclass(frozen=True)
class Table:
    """Expected round times of all allocations in reach, as sums over q nodes.

    The round time of an allocation is ``weights @ (unit - v) + sum of tails``, v the rows of its workers, combined:

    * nodes are times t, rows are P(S_i(a) <= t), combined by product, unit 1;
    * or nodes are rounds of a trace, rows are -S_i(a), combined by minimum, unit 0.
    """

    workers: Ints  # (m,) their places in the pool
    rows: Floats  # (columns + 1, q) after a row of ``unit`` for no task, a row per worker and number of tasks
    tails: Floats  # (columns + 1,) what each row adds to the round time beyond the nodes
    weights: Floats  # (q,)
    first: Ints  # (m,) the row before that of one task of each worker
    most: Ints  # (m,) tasks that it may get
    same: NDArray[np.bool_]  # (m,) whether a worker has the distribution, and the cost, of the one before it
    combine: np.ufunc
    unit: float

    def row(self, worker: int, tasks: int) -> int:
        """Place of a row."""
        return int(self.first[worker]) + tasks if tasks else 0

    def places(self, allocation: Ints) -> Ints:
        """Places of the rows of an allocation, shape (m,)."""
        return np.where(allocation > 0, self.first + allocation, 0)

    def values(self, combined: Floats, tails: Floats | float) -> Floats:
        """Round times from combined rows (..., q)."""
        return np.asarray((self.unit - combined) @ self.weights + tails)

    def value(self, allocation: Ints) -> float:
        """Expected round time of an allocation (m,)."""
        rows = self.places(allocation)
        return float(self.values(self.combine.reduce(self.rows[rows]), self.tails[rows].sum()))


def round_table(
    pool: Pool, budget: int, value: float, start: Ints, workers: Ints, mean: Floats, costs: Floats
) -> tuple[Table | None, float]:
    """The table of what ``workers`` need for any number of tasks, least spread first, and its error; None if too large.

    Tasks that alone would take a worker longer than ``value``, the round time of ``start``, need not be considered.
    """
    family, shift, scale, shape, _, start_of_record, *_ = pool.distributions
    kinds = (costs, start_of_record, scale, shift, shape, family, mean, pool.sd())
    workers = workers[np.lexsort([kind[workers] for kind in kinds])]
    most = np.minimum(np.floor(value * (1 + SLACK) / mean[workers]), budget).astype(np.int64)
    if most.sum() > _LARGEST // _NODES:
        return None, np.inf
    first = np.cumsum(most) - most
    columns = np.repeat(workers, most)
    tasks = np.arange(columns.size) - np.repeat(first, most) + 1
    same = np.append(False, np.all([kind[workers[1:]] == kind[workers[:-1]] for kind in kinds], axis=0))
    together = bool((family[workers] == BY_ROUND).all())
    combine: np.ufunc = np.minimum if together else np.multiply
    unit = 0.0 if together else 1.0
    if together:
        rounds = cycle(pool)
        if columns.size * rounds > _LARGEST:
            return None, np.inf
        weights, tails, error = np.full(rounds, 1 / rounds), np.zeros(columns.size), 0.0
        rows = -np.stack([replayed(pool, i) for i in columns.tolist()]) * tasks[:, None]
    else:
        rows, weights, tails, error = _on_grid(pool, columns, tasks, value, start[columns] == tasks)
    rows = np.concatenate([np.full((1, weights.size), unit), rows])
    return Table(workers, rows, np.append(0.0, tails), weights, first, most, same, combine, unit), error


def _on_grid(
    pool: Pool, columns: Ints, tasks: Ints, value: float, start: NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats, float]:
    """P(S <= t) on a grid of times t for all columns, the grid's weights, the tails beyond it, and its error.

    The grid fits all columns and the round time of those of ``start``: a product is steeper than its factors.
    """
    distributions = sums(pool, columns, tasks, fine=False)
    mean, sd = tasks * pool.mean()[columns], np.sqrt(tasks) * pool.sd()[columns]
    slowest = np.append(np.diff(columns) != 0, True)
    end = 2 * value
    while True:  # it ends, as P(S > t) vanishes and no tail is more than a mean
        late, tails = survival(distributions, np.array([end]))[:, 0], excess(distributions, end)
        if not late[slowest].sum() * tails[slowest].sum() > _TAIL * value:
            break
        end *= 2
    edges = coarse_edges(distributions, starts(distributions)[tasks <= 2], mean, sd, end, _EDGES)

    def functions(t: Floats) -> Floats:
        busy = survival(distributions, t)
        return np.concatenate([busy, [1.0 - np.prod(1.0 - busy[start], axis=0)]])

    rule = adaptive_rule(functions, edges, _GRID * value, _NODES)
    return 1.0 - rule.values[:-1], rule.weights, tails, rule.error
