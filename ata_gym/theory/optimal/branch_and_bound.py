"""Branch and bound over allocations, on a table of every worker's numbers of tasks."""

import heapq
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from ata_gym.theory.optimal.table import SLACK, RoundTimeTable
from ata_gym.typing import Floats, Ints

NODES = 50_000  # nodes of the search tree that are opened at most
_LARGEST_TABLE = 2**25  # numbers in the table of bounds: 256 MiB
_MOST_WORK = 5 * 10**9  # numbers that are computed for the bounds; with more, nothing is searched
_DONORS = 10  # workers that give a task in a local search: those that delay most
_TRIALS = 3  # workers to which the first of two tasks is given: those where it costs least


class Proof(NamedTuple):
    """The result of a search.

    No allocation is better than ``lower_bound`` by more than ``SLACK`` times ``value``.
    """

    allocation: Ints
    """The best allocation, shape (m,)."""
    value: float
    """Its round time."""
    lower_bound: float
    """A lower bound of all round times."""


class _Node(NamedTuple):
    """A node of the search tree, in which the first workers are decided.

    Nodes are ordered by bound, then the deepest first.
    """

    bound: float
    """A lower bound of the round times of all allocations below the node."""
    depth: int
    """The negative number of workers decided."""
    serial: int
    """The number of the node, so that no comparison goes beyond it."""
    earlier_tasks: tuple[int, ...]
    """Tasks of the workers decided before the last; siblings share the tuple."""
    tasks: int
    """Tasks of the worker decided last."""
    remaining: int
    """Tasks for the workers that are not decided."""


def improve(table: RoundTimeTable, allocation: Ints) -> Ints:
    """Local search: move one task, or two where one does not help, while the round time falls."""
    best = allocation
    value = table.value(allocation)
    size = 1
    while size <= 2:
        move = _best_move(table, best, size)
        if move is not None and move[0] < value * (1 - SLACK):
            value, best = move
            size = 1
        else:
            size += 1
    return best


def _best_move(table: RoundTimeTable, allocation: Ints, size: int) -> tuple[float, Ints] | None:
    """The best move of ``size`` tasks, as its round time and allocation, or None."""
    removed = _changed_values(table, allocation, -1)
    number = min(_DONORS // size, int(np.isfinite(removed).sum()))
    donors = np.argsort(removed, kind="stable")[:number]
    groups = combinations_with_replacement(donors.tolist(), size)
    reduced = (allocation - np.bincount(group, minlength=allocation.size) for group in groups)
    legal = (remainder for remainder in reduced if remainder.min() >= 0)
    moves = (move for remainder in legal for move in _additions(table, remainder, size))
    return min(moves, key=lambda move: move[0], default=None)


def _additions(table: RoundTimeTable, allocation: Ints, size: int) -> Iterator[tuple[float, Ints]]:
    """The allocations with ``size`` tasks more, and their round times."""
    added = _changed_values(table, allocation, 1)
    if size > 1:
        trials = _TRIALS
    else:
        trials = 1
    for j in np.argsort(added, kind="stable")[:trials]:
        if np.isfinite(added[j]):
            enlarged = allocation + np.bincount([j], minlength=allocation.size)
            if size == 1:
                yield float(added[j]), enlarged
            else:
                yield from _additions(table, enlarged, size - 1)


def _changed_values(table: RoundTimeTable, allocation: Ints, change: int) -> Floats:
    """Round times when one worker's tasks change, shape (m,); inf where they cannot."""
    rows = table.places(allocation)
    busy = np.flatnonzero(allocation)
    busy_rows = table.rows[rows[busy]]
    # ``earlier[k]`` combines the rows of the first k busy workers, and ``later[k]`` the rows behind
    # worker k: together, all workers but k.
    blank = np.full((1, table.weights.size), table.unit)
    earlier = table.combine.accumulate(np.concatenate([blank, busy_rows]))
    later = table.combine.accumulate(np.concatenate([blank, busy_rows[:0:-1]]))[::-1]
    apart = np.tile(earlier[-1], (allocation.size, 1))
    apart[busy] = table.combine(earlier[:-1], later)
    changed = allocation + change
    possible = (changed >= 0) & (changed <= table.max_tasks)
    new = table.places(np.where(possible, changed, allocation))
    other_tails = table.tails[rows].sum() - table.tails[rows]
    combined = table.combine(apart, table.rows[new])
    values = table.values(combined, other_tails + table.tails[new])
    return np.where(possible, values, np.inf)


def branch_and_bound(table: RoundTimeTable, budget: int, start: Ints) -> Proof:
    """Find the allocation of ``budget`` tasks with the least round time, or a bound on it.

    Workers are decided one after the other, the node of the least bound first. The bound of a node
    comes from dynamic programming: at every time (or in every round) of the table, the tasks that
    remain have the allocation that is best there. Where the table of bounds would be too large,
    only the bound of the root is computed, or none.

    Args:
        table: The round times of all allocations in reach.
        budget: Tasks to hand out.
        start: A good allocation to start with, shape (m,).
    """
    best = start
    value = table.value(start)
    work = int(table.max_tasks.sum()) * budget * table.weights.size
    if work > _MOST_WORK:
        return Proof(best, value, 0.0)
    keep = (table.max_tasks.size + 1) * (budget + 1) * table.weights.size <= _LARGEST_TABLE
    bounds = _bounds(table, budget, keep)
    root = float(table.values(bounds[0][0][-1], bounds[0][1][-1]))
    heap = [_Node(root, 0, 0, (), 0, budget)]
    nodes = 0
    pushed = 0
    while heap and heap[0].bound < value * (1 - SLACK) and nodes < NODES and keep:
        node = heapq.heappop(heap)
        nodes += 1
        remaining = node.remaining
        k = -node.depth
        # No worker is decided in the root, whose ``tasks`` mean nothing.
        decided = (*node.earlier_tasks, node.tasks)[:k]
        max_tasks = int(min(remaining, table.max_tasks[k]))
        # Equal workers may be permuted: the later one never has more tasks.
        if table.equals_previous[k]:
            max_tasks = min(max_tasks, decided[-1])
        rows = [table.row(i, a) for i, a in enumerate(decided) if a] or [0]
        choice = [table.row(k, a) for a in range(max_tasks + 1)]
        later_rows, tails = (
            part[remaining - max_tasks : remaining + 1][::-1] for part in bounds[k + 1]
        )
        combined = table.combine(table.combine.reduce(table.rows[rows]), table.rows[choice])
        children = table.values(
            table.combine(combined, later_rows),
            table.tails[rows].sum() + table.tails[choice] + tails,
        )
        for a, bound in enumerate(children.tolist()):
            if bound >= value * (1 - SLACK):
                continue
            if a == remaining:
                best = np.zeros_like(start)
                best[: k + 1] = [*decided, a]
                value = bound
            elif k + 1 < table.max_tasks.size:
                # Of equal bounds the deepest node comes first, since its depth is negative here.
                pushed += 1
                heapq.heappush(
                    heap, _Node(bound, node.depth - 1, pushed, decided, a, remaining - a)
                )
    least = value
    if heap:
        least = min(value, heap[0].bound)
    return Proof(best, value, least)


def _bounds(table: RoundTimeTable, budget: int, keep: bool) -> list[tuple[Floats, Floats]]:
    """The best combined rows, node by node, and the least sums of tails.

    Entry k, for k = 0, ..., m, is for the workers from k on and b = 0, ..., budget tasks. It has
    shapes (budget + 1, q) and (budget + 1,). Without ``keep`` only k = 0 is there.
    """
    # The worst value of a row: a probability of 0, or an infinite round.
    if table.unit:
        worst = table.unit - 1.0
    else:
        worst = -np.inf
    combined = np.full((budget + 1, table.weights.size), worst)
    tails = np.full(budget + 1, np.inf)
    combined[0] = table.unit
    tails[0] = 0.0
    result = [(combined, tails)]
    for k in range(table.max_tasks.size - 1, -1, -1):
        later, later_tails = result[0]
        combined = later.copy()
        tails = later_tails.copy()
        for a in range(1, int(min(table.max_tasks[k], budget)) + 1):
            row = table.row(k, a)
            # Worker k has a tasks, the later workers have b - a.
            joined = table.combine(table.rows[row], later[: budget + 1 - a])
            np.maximum(combined[a:], joined, out=combined[a:])
            joined_tails = table.tails[row] + later_tails[: budget + 1 - a]
            np.minimum(tails[a:], joined_tails, out=tails[a:])
        if not keep:
            result = []
        result = [(combined, tails), *result]
    return result
